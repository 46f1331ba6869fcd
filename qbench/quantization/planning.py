"""Planning: a canonical graph, its profile, a schema and a backend's limits in, a decision for every slot out.

Nothing is touched. What the schema asks for and is not done is a refusal with its reason; nothing is downgraded.
"""

from collections.abc import Mapping

import onnx_ir as ir

from qbench.calibration import Profile, masked_values
from qbench.graph import (
    AnyModel,
    Capabilities,
    as_model,
    constant_value,
    lineage_of,
    node_key,
    node_macs,
    values_by_name,
)
from qbench.numerics import QParams
from qbench.passes import plannable, plannable_digest
from qbench.quantization.asked_for import as_capabilities, as_profile, as_schema
from qbench.quantization.bias_spec import BiasKind
from qbench.quantization.candidates import Candidate, Float, candidates_of, wished_units
from qbench.quantization.clips import ClipForm, clip_form
from qbench.quantization.constant_grids import plan_constants
from qbench.quantization.decision import Decision, Dynamic, KeptFloat, qparams_of
from qbench.quantization.inner_grids import plan_inner
from qbench.quantization.integer_products import counted_in_integers
from qbench.quantization.pinned_grids import given_values, kept_slots, multiplies_integers
from qbench.quantization.plan import Plan
from qbench.quantization.ranges_of_values import Ranges
from qbench.quantization.requests import requested_of
from qbench.quantization.saturation import saturated_entries
from qbench.quantization.schema import Schema
from qbench.quantization.slot import Role, Slot
from qbench.quantization.value_grids import ValueGrids, plan_values

_WIDTHS = (*range(2, 17), 32)
_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in _WIDTHS)
_ANYTHING = Capabilities(
    activation_qtypes=_INTEGERS,
    weight_qtypes=_INTEGERS,
    bias_qtypes=frozenset(f"int{bits}" for bits in _WIDTHS),
    weight_per_block=True,
    activation_per_channel=True,
    dynamic=True,
)


def make_plan(
    model: AnyModel,
    profile: Profile | None,
    schema: Schema | str,
    *,
    capabilities: Capabilities | str | None = None,
    ranges: Ranges | None = None,
) -> Plan:
    """The plan of ``model`` (canonicalized here) under ``schema`` (or the one of that name).

    Args:
        model: float graph, or the path of one; not touched. Grids that it came with (Q/DQ pairs, integer operators)
            stand.
        profile: of its canonical form; None: for schemas that take no range from statistics (``needs_profile``).
        schema: what to quantize and how.
        capabilities: the backend's limits, or its name; None: whatever ONNX can write.
        ranges: of ``profile``, where several plans are made over it: what one searched for, the others have.

    Raises:
        InputError: a profile of another graph, or none where one is needed, an unknown schema or backend, a constant
            that is not finite, a Q or DQ that means nothing.
    """
    chosen, limits = as_schema(schema), as_capabilities(capabilities) or _ANYTHING
    canonical = plannable(as_model(model), chosen.canonical)
    digest = plannable_digest(canonical)
    profile = as_profile(profile, chosen, digest)
    profile.require_graph(digest, canonical.graph.name or "", lineage_of(canonical))
    wished = wished_units(canonical, chosen)
    known = ranges or Ranges(profile)
    masked = masked_values(canonical.graph, profile.values)
    candidates, floats = candidates_of(wished, known, limits, masked)
    grids = plan_values(candidates, known, limits, given_values(canonical))
    floats.update({name: Float(reason, refused=True) for name, reason in grids.left_out.items()})
    decisions: dict[Slot, Decision] = {}
    clips: dict[str, ClipForm] = {}
    integer: set[str] = set()
    for candidate in candidates:
        if candidate.unit.name in grids.left_out:
            continue
        slots = _slots(candidate, grids, known, limits)
        decisions.update(slots)
        clips.update(_clip(candidate, grids))
        if multiplies_integers(candidate.unit, slots) and counted_in_integers(candidate.unit, slots, limits):
            integer.add(candidate.unit.name)
    kept, came = kept_slots(canonical, decisions)
    decisions.update(kept)
    macs = node_macs(canonical)
    return Plan(
        schema=chosen.name,
        canonical=chosen.canonical,
        graph=digest,
        profile=known.profile_digest,
        decisions=decisions,
        clips=clips,
        floats=_in_graph_order(canonical.graph, {name: f for name, f in floats.items() if name not in came}),
        macs=sum(macs.values()),
        integer_mac_count=sum(count for name, count in macs.items() if name in integer | came),
        weight_mac_count=sum(count for name, count in macs.items() if name in _with_weights(decisions)),
        saturated=_saturated(canonical, decisions),
        idle_rules=chosen.idle_rules([wishes for _, wishes in wished]),
        requested={unit.name: requested_of(unit, wishes) for unit, wishes in wished},
        corrects_biases=chosen.bias_correction,
    )


def _with_weights(decisions: Mapping[Slot, Decision]) -> set[str]:
    """The nodes that have a weight on a grid."""
    return {slot.node for slot, d in decisions.items() if slot.role is Role.WEIGHT and qparams_of(d) is not None}


def _slots(candidate: Candidate, grids: ValueGrids, ranges: Ranges, capabilities: Capabilities) -> dict[Slot, Decision]:
    """The slots of one unit: inputs, constants, what lies inside, outputs."""
    decided = _inputs(candidate, grids)
    constants = plan_constants(candidate, _input_scale(decided), capabilities)
    decided.update(_reasoned(candidate, constants, decided))
    decided.update(plan_inner(candidate.unit, candidate.wishes, decided, ranges))
    decided.update(_outputs(candidate, grids))
    return decided


def _inputs(candidate: Candidate, grids: ValueGrids) -> dict[Slot, Decision]:
    if candidate.float_input:
        return {
            Slot(candidate.unit.name, Role.INPUT, index, value.name or ""): KeptFloat(candidate.float_input)
            for index, value in candidate.data_inputs
        }
    if candidate.wishes.input is None:
        return {}
    found: Mapping[str, Decision] = grids.dynamic if candidate.dynamic else grids.decisions
    return {
        Slot(candidate.unit.name, Role.INPUT, index, value.name or ""): found[value.name or ""]
        for index, value in candidate.data_inputs
    }


def _outputs(candidate: Candidate, grids: ValueGrids) -> dict[Slot, Decision]:
    """Results on a grid that the schema asked for, and why others are on none."""
    if candidate.output is None:
        return {}
    found: dict[Slot, Decision] = {}
    for index, value in enumerate(candidate.outputs):
        reason = "it leaves the graph" if value.is_graph_output() else "nothing reads it"
        decision = grids.decisions.get(value.name or "", KeptFloat(reason))
        found[Slot(candidate.unit.name, Role.OUTPUT, index, value.name or "")] = decision
    return found


def _input_scale(inputs: Mapping[Slot, Decision]) -> float | None:
    """The scale of the first operand; None where it is float, computed at run time, or one of many channels."""
    known = (qparams_of(decision) for decision in inputs.values())
    first: QParams | None = next((qparams for qparams in known if qparams is not None), None)
    return None if first is None or first.axis is not None else float(first.scale)


def _reasoned(
    candidate: Candidate, constants: Mapping[Slot, Decision], inputs: Mapping[Slot, Decision]
) -> dict[Slot, Decision]:
    """``constants``, where a derived bias that had no scale to be derived from says why."""
    if candidate.wishes.bias.kind is not BiasKind.DERIVED or _input_scale(inputs) is not None or not inputs:
        return dict(constants)
    if any(isinstance(decision, Dynamic) for decision in inputs.values()):
        reason = "the scale of its product is known at run time only"
    else:
        reason = "its products have a scale for every channel of the input"
    return {
        slot: KeptFloat(reason) if slot.role is Role.BIAS and isinstance(decision, KeptFloat) else decision
        for slot, decision in constants.items()
    }


def _saturated(model: ir.Model, decisions: Mapping[Slot, Decision]) -> dict[Slot, int]:
    """Slots of constants with entries beyond their grid, and how many."""
    values = values_by_name(model)
    found: dict[Slot, int] = {}
    for slot, decision in decisions.items():
        qparams = qparams_of(decision)
        array = constant_value(values.get(slot.value)) if slot.role in (Role.WEIGHT, Role.BIAS) else None
        if array is not None and qparams is not None and (count := saturated_entries(array, qparams)):
            found[slot] = count
    return found


def _clip(candidate: Candidate, grids: ValueGrids) -> dict[str, ClipForm]:
    """The unit's clip by the name of its node, when its result goes on a grid."""
    decision, clip = grids.decisions.get(candidate.unit.output.name or ""), candidate.unit.clip
    qparams = None if decision is None else qparams_of(decision)
    return {} if clip is None or qparams is None else {node_key(clip): clip_form(clip, qparams)}


def _in_graph_order(graph: ir.Graph, floats: Mapping[str, Float]) -> dict[str, Float]:
    return {name: floats[name] for name in map(node_key, graph) if name in floats}
