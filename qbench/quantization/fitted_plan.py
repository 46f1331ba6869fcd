"""A plan as a task for a fitter, and what was fitted as a file of ranges and a float model."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.calibration import Profile, Unit, calibrate
from qbench.errors import UnsupportedError
from qbench.graph import (
    AnyModel,
    FitJob,
    FitSettings,
    FitTask,
    Fitted,
    Fitter,
    Moving,
    Place,
    as_model,
    forget_lineage,
    op_spec,
    own_copy,
)
from qbench.numerics import QParams
from qbench.passes import equalized_by_peaks, plannable
from qbench.quantization.by_hand import HandRange, HandRanges, Number, place_of
from qbench.quantization.candidates import requested_units
from qbench.quantization.decision import (
    Decision,
    Derived,
    Dynamic,
    Shared,
    Static,
    qparams_of,
)
from qbench.quantization.plan import Plan
from qbench.quantization.planning import as_schema, make_plan
from qbench.quantization.schema import Schema, SlotOptions
from qbench.quantization.spec import Role, Slot, Spec

Array = npt.NDArray[Any]
FITTED = "fitted ranges"
"""The name of the ranges that were fitted, where they are in no file yet."""


def fit_task(model: ir.Model, plan: Plan, schema: Schema) -> FitTask:
    """What ``plan`` quantizes in ``model`` with what, and what of it may change.

    Args:
        model: what ``plannable`` gave, which the plan is of.
        plan: no slot of it is computed at run time.
        schema: that the plan was made under.

    Raises:
        UnsupportedError: parameters of every batch, per block, or of products and sums inside a
            unit.
    """
    for slot, decision in plan.decisions.items():
        _refuse_unfit(plan, slot, decision)
    groups = _groups(plan.decisions)
    names = {value: groups.get(value, value) for value in plan.values}
    constants = {
        (slot.node, slot.index): slot.value
        for slot, one in plan.decisions.items()
        if slot.role is Role.WEIGHT and qparams_of(one) is not None
    }
    specs = _specs(model, plan, schema)
    moving: dict[str, Moving] = {}
    fixed: dict[str, QParams] = {}
    for name, qparams in _parameters(plan, names).items():
        spec = specs.get(name)
        if spec is None:
            fixed[name] = qparams
            continue
        moving[name] = Moving(
            name=name,
            qparams=qparams,
            pow2=spec.scale_kind != "real",
            zero_point=spec.symmetry == "asymmetric" and qparams.axis is None,
        )
    return FitTask(
        model=model,
        values=names,
        constants=constants,
        biases=_biases(plan, names, constants),
        outputs=plan.quantized_outputs,
        moving=moving,
        fixed=fixed,
    )


def _refuse_unfit(plan: Plan, slot: Slot, decision: Decision) -> None:
    qparams = qparams_of(decision)
    found = ""
    if isinstance(decision, Dynamic):
        found = f"parameters of '{slot.value}' that every batch computes"
    elif qparams is not None and qparams.block_size is not None:
        found = f"a scale for each block of '{slot.value}'"
    elif qparams is not None and qparams.qtype.is_float:
        found = f"'{slot.value}' in {qparams.qtype.name}, whose codes are no integers"
    elif slot.role in (Role.CORRELATION, Role.SUM) and qparams is not None:
        found = f"parameters of the {slot.role.value} of '{slot.node}'"
    elif isinstance(decision, Static) and slot.role is Role.BIAS:
        found = f"a bias of '{slot.node}' at a scale of its own"
    if found:
        raise UnsupportedError(
            f"Fitting under '{plan.schema}'",
            found=found,
            expected="integers, parameters per tensor or channel, biases at the product's scale",
            remedy="Choose another schema, such as w8a8_asym_pc or w8a8_sym_pt_pow2.",
        )


def _groups(decisions: Mapping[Slot, Decision]) -> dict[str, str]:
    """Value → the value whose parameters it has, at the end of the chain."""
    links = {
        slot.value: one.source
        for slot, one in decisions.items()
        if isinstance(one, Shared) and one.source != slot.value
    }
    found = {}
    for name in links:
        root, seen = name, set[str]()
        while root in links and root not in seen:
            seen.add(root)
            root = links[root]
        found[name] = root
    return found


def _parameters(plan: Plan, names: Mapping[str, str]) -> dict[str, QParams]:
    """Name → parameters, of values and of constants that are no biases."""
    found: dict[str, QParams] = {}
    for value, qparams in plan.values.items():
        found.setdefault(names[value], qparams)
    for slot, qparams in plan.constants.items():
        if slot.role is Role.WEIGHT:
            found[slot.value] = qparams
    return found


def _specs(model: ir.Model, plan: Plan, schema: Schema) -> dict[str, Spec]:
    """Name → what the schema asks for, of parameters that were chosen for a range."""
    requested = {unit.name: (unit, one) for unit, one in requested_units(model, schema)}
    found: dict[str, Spec] = {}
    for slot, decision in plan.decisions.items():
        if isinstance(decision, Static) and slot.node in requested:
            spec = _spec(*requested[slot.node], slot)
            if spec is not None and spec.fixed is None:
                found.setdefault(slot.value, spec)
    return found


def _spec(unit: Unit, options: SlotOptions, slot: Slot) -> Spec | None:
    """What the schema asks for in ``slot``; a constant operand that is no weight is data."""
    if slot.role is Role.OUTPUT:
        return options.output
    is_weight = slot.role is Role.WEIGHT and slot.index == op_spec(unit.head).weight
    return options.weight if is_weight else options.input


def _biases(
    plan: Plan, names: Mapping[str, str], constants: Mapping[Place, str]
) -> dict[Place, tuple[str, str]]:
    """Place of a bias → the names of the parameters of data and weight."""
    data, weights = dict[str, str](), dict[str, str]()
    for slot, one in plan.decisions.items():
        if slot.role is Role.INPUT and qparams_of(one) is not None:
            data[f"{slot.node}.input[{slot.index}]"] = names[slot.value]
        elif slot.role is Role.WEIGHT and (slot.node, slot.index) in constants:
            weights[f"{slot.node}.weight[{slot.index}]"] = slot.value
    found = {}
    for slot, one in plan.decisions.items():
        if slot.role is Role.BIAS and isinstance(one, Derived):
            first, second = one.sources
            found[slot.node, slot.index] = (data[first], weights[second])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedModel:
    """What fitting gave.

    Args:
        model: canonical, float; with other weights where weights or roundings were fitted.
        plan: of it, with the fitted parameters.
        ranges: all of them, as a file of ranges gives them.
        loss: of the samples before and after, as the method counts it.
    """

    model: ir.Model
    plan: Plan
    ranges: HandRanges
    loss: tuple[float, float]


def fit_model(
    model: AnyModel,
    feeds: Mapping[str, Array],
    schema: Schema | str,
    fitter: Fitter,
    settings: FitSettings,
    *,
    profile: Profile | None = None,
    labels: Array | None = None,
    equalize: bool = False,
) -> FittedModel:
    """``model`` under ``schema``, its parameters and, where the method does so, its weights fitted.

    Args:
        model: float, or the path of a file.
        feeds: graph input → calibration samples along the first axis.
        schema: or its name; where fitting begins.
        fitter: the method.
        settings: of it.
        profile: of the canonical model on the samples; None: made here.
        labels: the class of every sample; None: the float results are the aim.
        equalize: first move factors between operators, through Clips whose upper end stays unused
            on the samples (``passes.equalized_by_peaks``).

    Raises:
        InputError, UnsupportedError: what equalizing, planning, ``fit_task`` or the method refuses.
    """
    chosen = as_schema(schema)
    canonical = plannable(as_model(model), chosen.canonical)
    if equalize:
        canonical, profile = _equalized(canonical, feeds, chosen.canonical), None
    known = profile or _profile(canonical, feeds, chosen)
    plan = make_plan(canonical, known, chosen)
    task = fit_task(canonical, plan, chosen)
    job = FitJob(task=task, feeds=feeds, settings=settings, labels=labels)
    fitted = fitter.fit(job)
    changed = _with_constants(canonical, fitted, chosen.canonical)
    if changed is not canonical:
        known = _profile(changed, feeds, chosen)
    hand = _with_ranges(chosen.by_hand, fitted.qparams)
    after = make_plan(changed, known, chosen.with_ranges(hand))
    before, last = fitted.losses[0], fitted.losses[-1]
    return FittedModel(model=changed, plan=after, ranges=hand, loss=(before, last))


def _profile(model: ir.Model, feeds: Mapping[str, Array], schema: Schema) -> Profile:
    return calibrate(model, [feeds], pipeline=schema.canonical, channels=schema.wants_channels)


def _equalized(model: ir.Model, feeds: Mapping[str, Array], pipeline: str) -> ir.Model:
    """``model`` equalized by what its channels reach on ``feeds``; itself where nothing changed."""
    seen = calibrate(model, [feeds], pipeline=pipeline, channels=True).values
    peaks = {name: one.channel_highs for name, one in seen.items()}
    known = {name: one for name, one in peaks.items() if one is not None}
    copy, has_changed = equalized_by_peaks(model, known)
    return plannable(copy, pipeline, is_canonical=True) if has_changed else model


def _with_constants(model: ir.Model, fitted: Fitted, pipeline: str) -> ir.Model:
    """A copy of ``model`` with the constants of ``fitted``; itself where none changed.

    Other weights begin another lineage: the profile of the float model is not theirs.
    """
    if not fitted.constants:
        return model
    copy = own_copy(model)
    for name, array in fitted.constants.items():
        copy.graph.initializers[name].const_value = ir.tensor(
            np.asarray(array, np.float32), name=name
        )
    forget_lineage(copy)
    return plannable(copy, pipeline, is_canonical=True)


def _with_ranges(hand: HandRanges | None, qparams: Mapping[str, QParams]) -> HandRanges:
    """The ranges of ``hand``, which were kept, and those fitted."""
    fitted = tuple(
        (
            name,
            HandRange(
                scale=one.scale.astype(np.float64).tolist(), zero_point=one.zero_point.tolist()
            ),
        )
        for name, one in qparams.items()
    )
    kept = () if hand is None else hand.values
    return HandRanges(file=FITTED, values=(*kept, *fitted))


def ranges_text(ranges: HandRanges, notes: Iterable[str] = ()) -> str:
    """The file that ``load_ranges`` reads as ``ranges``.

    Args:
        ranges: of values and constants.
        notes: lines in front of it.
    """
    lines = [f"# {note}" for note in notes]
    for name, one in ranges.values:
        keys = ("low", "high") if one.is_range else ("scale", "zero_point")
        lines += ["", place_of(name), *(f"{key} = {_toml(getattr(one, key))}" for key in keys)]
    return "\n".join(lines).lstrip("\n") + "\n"


def _toml(number: Number) -> str:
    """Digits from which the same number is read."""
    return str(list(number)) if isinstance(number, tuple) else repr(number)
