"""Planning: a canonical graph, its profile, a schema and a backend's capabilities → a decision
for every slot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from qbench.backends import get_backend
from qbench.calibration import Profile, Unit, masked_values
from qbench.errors import InputError
from qbench.graph import (
    AnyModel,
    Capabilities,
    as_model,
    constant_value,
    is_constant,
    lineage_of,
    node_key,
    node_macs,
    op_spec,
    values_by_name,
)
from qbench.numerics import FLOAT_FORMATS, QParams
from qbench.passes import plannable, plannable_digest
from qbench.quantization.by_hand import require_used
from qbench.quantization.cache_slots import plan_cache
from qbench.quantization.candidates import (
    Candidate,
    ClipForm,
    Float,
    candidates_of,
    clip_form,
    is_recurrent,
    requested_units,
)
from qbench.quantization.constant_qparams import (
    float_types,
    given_values,
    kept_slots,
    multiplies_integers,
    multiplies_quantized,
    plan_constants,
    saturated_entries,
)
from qbench.quantization.decision import (
    Decision,
    Dynamic,
    KeptFloat,
    Static,
    qparams_of,
    quantized_weights,
    reason_for_float,
)
from qbench.quantization.grammar import get_schema
from qbench.quantization.internal_qparams import Ranges, plan_inner
from qbench.quantization.plan import Plan
from qbench.quantization.schema import Schema, SlotOptions
from qbench.quantization.spec import BiasKind, Role, Slot
from qbench.quantization.value_qparams import ValueQParams, plan_values


def as_schema(schema: object) -> Schema:
    """``schema``, or the one of that name.

    Raises:
        InputError: there is none, or it is neither.
    """
    if isinstance(schema, str):
        return get_schema(schema)
    if not isinstance(schema, Schema):
        raise InputError(
            "Making a plan",
            found=f"{schema!r} for a schema",
            expected="a Schema, or the name of one",
            remedy="Name one, as in 'w8a8_asym_pc', or read one with load_schema.",
        )
    return schema


def as_capabilities(capabilities: object) -> Capabilities | None:
    """``capabilities``, or those of the backend of that name.

    Raises:
        InputError: there is no such backend, or it is neither.
    """
    if capabilities is None or isinstance(capabilities, Capabilities):
        return capabilities
    if not isinstance(capabilities, str):
        raise InputError(
            "Making a plan",
            found=f"something of type {type(capabilities).__name__} for the limits of a backend",
            expected="Capabilities, or the name of a backend",
            remedy="Give backend.capabilities, or its name, as in 'ort-cpu'.",
        )
    return get_backend(capabilities).capabilities


def as_profile(profile: object, schema: Schema, graph: str) -> Profile:
    """``profile``, or where ``schema`` needs none, one of nothing about the graph of that digest.

    Raises:
        InputError: none is given and one is needed, or it is no profile.
    """
    if isinstance(profile, Profile):
        return profile
    found = (
        "no profile"
        if profile is None
        else f"something of type {type(profile).__name__} for a profile"
    )
    if profile is None and not schema.needs_profile:
        return Profile(graph, {}, 0, {})
    raise InputError(
        f"Making a plan under '{schema.name}'",
        found=found,
        expected="a Profile: this schema takes ranges from statistics",
        remedy="Make one with calibrate, or load one with Profile.load.",
    )


def requested_of(unit: Unit, options: SlotOptions) -> str:
    """``options`` in words, without those for slots that ``unit`` lacks; ``float`` when nothing
    is left.
    """
    multiplies = op_spec(unit.head).weight is not None
    weighs = _has_weights(unit.head)
    words = []
    if options.input is not None:
        words.append(f"input {options.input}")
    if weighs and options.weight is not None:
        words.append(f"weight {options.weight}")
    if multiplies and options.correlation is not None:
        words.append(f"correlation {options.correlation}")
    if weighs and options.weight is not None and unit.bias_operand is not None:
        words.append(f"bias {options.bias}")
    if multiplies and options.sum is not None:
        words.append(f"sum {options.sum}")
    if options.output is not None and not options.output.dynamic:
        words.append(f"output {options.output}")
    if not words:
        return "float"
    words += [
        f"one grid for its {share.value}"  # stored name
        for share in sorted(options.share, key=lambda share: share.value)
    ]
    return "; ".join(words)


def _has_weights(head: ir.Node) -> bool:
    """Whether it has a constant weight, or is a recurrence."""
    if is_recurrent(head):
        return True
    index = op_spec(head).weight
    return index is not None and index < len(head.inputs) and is_constant(head.inputs[index])


# The model is not changed. What the schema requests and cannot have is a refusal with its reason;
# nothing is replaced by something lesser.

_WIDTHS = (*range(2, 17), 32)
_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in _WIDTHS)
_FLOATS = frozenset(name for name, form in FLOAT_FORMATS.items() if form.signed)
_ANYTHING = Capabilities(
    activation_qtypes=_INTEGERS | _FLOATS,
    weight_qtypes=_INTEGERS | _FLOATS,
    scale_types=frozenset({"float8e8m0", "float8e4m3fn"}),
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
        model: float graph, or the path of one; not touched. Its own qparams (Q/DQ pairs, integer
            operators) stay.
        profile: of its canonical form; None: for schemas that take no range from statistics
            (``needs_profile``).
        schema: what to quantize and how, with ranges of single values by hand where it has some
            (``Schema.with_ranges``).
        capabilities: the backend's limits, or its name; None: whatever ONNX can write.
        ranges: of ``profile``, to share searched ranges between several plans over it.

    Raises:
        InputError: a profile of another graph, or none where one is needed, an unknown schema or
            backend, a constant that is not finite, a Q or DQ that means nothing, ranges by hand
            of a value that is not quantized or cannot have them.
    """
    chosen, limits = as_schema(schema), as_capabilities(capabilities) or _ANYTHING
    canonical = plannable(as_model(model), chosen.canonical)
    digest = plannable_digest(canonical)
    profile = as_profile(profile, chosen, digest)
    profile.require_graph(digest, canonical.graph.name or "", lineage_of(canonical))
    requests = requested_units(canonical, chosen)
    known = (ranges or Ranges(profile)).with_hand(chosen.by_hand)
    masked = masked_values(canonical.graph, profile.values)
    candidates, floats = candidates_of(requests, known, limits, masked, chosen.outputs)
    value_qparams = plan_values(candidates, known, limits, given_values(canonical))
    floats.update(
        {name: Float(reason, refused=True) for name, reason in value_qparams.left_out.items()}
    )
    decisions: dict[Slot, Decision] = {}
    clips: dict[str, ClipForm] = {}
    integer: set[str] = set()
    float8: set[str] = set()
    run_in_float: dict[str, str] = {}
    for candidate in candidates:
        if candidate.unit.name in value_qparams.left_out:
            continue
        slots = _slots(candidate, value_qparams, known, limits)
        decisions.update(slots)
        clips.update(_clip(candidate, value_qparams))
        if multiplies_integers(candidate.unit, slots):
            reason = reason_for_float(candidate.unit, slots, limits)
            if reason:
                run_in_float[candidate.unit.name] = reason
            else:
                integer.add(candidate.unit.name)
        elif multiplies_quantized(candidate.unit, slots):
            types = float_types(candidate.unit, slots)
            run_in_float[candidate.unit.name] = f"its operands are {' and '.join(types)}"
            if all(name.startswith("float8") for name in types):
                float8.add(candidate.unit.name)
    kept, came = kept_slots(canonical, decisions)
    decisions.update(kept)
    cache = plan_cache(canonical, chosen.cache, known, limits)
    decisions.update(cache.decisions)
    if chosen.by_hand is not None:
        reasons = {name: found.reason for name, found in floats.items()}
        inside = _inside([unit for unit, _ in requests])
        require_used(chosen.by_hand, decisions, reasons, _makers(canonical), inside)
    macs = node_macs(canonical)
    return Plan(
        schema=chosen.name,
        canonical=chosen.canonical,
        graph=digest,
        profile=known.profile_digest,
        decisions=decisions,
        clips=clips,
        floats=_in_graph_order(
            canonical.graph, {name: f for name, f in floats.items() if name not in came}
        ),
        macs=sum(macs.values()),
        integer_mac_count=sum(count for name, count in macs.items() if name in integer | came),
        weight_mac_count=sum(
            count for name, count in macs.items() if name in quantized_weights(decisions)
        ),
        saturated=_saturated(canonical, decisions),
        idle_rules=(*_idle_rules(chosen, requests), *cache.idle),
        requested={unit.name: requested_of(unit, options) for unit, options in requests},
        corrects_biases=chosen.bias_correction,
        fits_weights=chosen.fits_weights,
        run_in_float=run_in_float,
        quantized_outputs=(
            *_quantized_outputs(canonical, candidates, decisions),
            *cache.outputs,
        ),
        node_macs=macs,
        integer_nodes=frozenset(macs.keys() & (integer | came)),
        float8_nodes=frozenset(macs.keys() & float8),
    )


def _idle_rules(schema: Schema, requests: Sequence[tuple[Unit, SlotOptions]]) -> tuple[str, ...]:
    """Those that decided nothing; a schema of a cache alone has one rule, which asks nothing."""
    if schema.cache is not None and schema.asks_nothing:
        return ()
    return schema.idle_rules([options for _, options in requests])


def _makers(model: ir.Model) -> dict[str, str]:
    """Every value and constant → the node that makes it, or nothing."""
    makers = ((name, value.producer()) for name, value in values_by_name(model).items())
    return {name: "" if maker is None else node_key(maker) for name, maker in makers}


def _inside(units: Sequence[Unit]) -> dict[str, str]:
    """Value inside of a unit → the result of that unit."""
    return {
        value.name or "": unit.output.name or ""
        for unit in units
        for value in (unit.head.outputs[0], unit.correlation, unit.sum)
        if value is not None and value is not unit.output
    }


def _slots(
    candidate: Candidate, value_qparams: ValueQParams, ranges: Ranges, capabilities: Capabilities
) -> dict[Slot, Decision]:
    """The slots of one unit: inputs, constants, inner values, outputs."""
    decided = _inputs(candidate, value_qparams)
    constants = plan_constants(candidate, _input_scale(decided), capabilities, ranges.hand)
    decided.update(_reasoned(candidate, constants, decided))
    decided.update(plan_inner(candidate.unit, candidate.options, decided, ranges))
    decided.update(_outputs(candidate, value_qparams))
    return decided


def _inputs(candidate: Candidate, value_qparams: ValueQParams) -> dict[Slot, Decision]:
    if candidate.float_input:
        return {
            Slot(candidate.unit.name, Role.INPUT, index, value.name or ""): KeptFloat(
                candidate.float_input
            )
            for index, value in candidate.data_inputs
        }
    if candidate.options.input is None:
        return {}
    found: Mapping[str, Decision] = (
        value_qparams.dynamic if candidate.dynamic else value_qparams.decisions
    )
    return {
        Slot(candidate.unit.name, Role.INPUT, index, value.name or ""): found[value.name or ""]
        for index, value in candidate.data_inputs
    }


def _outputs(candidate: Candidate, value_qparams: ValueQParams) -> dict[Slot, Decision]:
    """The qparams of results for which the schema requests them, and why others have none."""
    if candidate.output is None:
        return {}
    found: dict[Slot, Decision] = {}
    for index, value in enumerate(candidate.outputs):
        reason = "it leaves the graph" if value.is_graph_output() else "nothing reads it"
        decision = value_qparams.decisions.get(value.name or "", KeptFloat(reason))
        found[Slot(candidate.unit.name, Role.OUTPUT, index, value.name or "")] = decision
    return found


_LEAVES = "quantized where it leaves the graph"


def _quantized_outputs(
    model: ir.Model, candidates: Sequence[Candidate], decisions: dict[Slot, Decision]
) -> tuple[str, ...]:
    """The graph outputs that are quantized; the note of their decision is extended by that."""
    wanted = {
        value.name or ""
        for one in candidates
        if one.quantizes_graph_outputs
        for value in one.outputs
    } & {value.name or "" for value in model.graph.outputs}
    found = []
    for slot, decision in decisions.items():
        qparams = qparams_of(decision)
        if (
            slot.role is Role.OUTPUT
            and slot.value in wanted
            and qparams is not None
            and qparams.qtype.bits <= 16
        ):
            found.append(slot.value)
            if isinstance(decision, Static):
                decisions[slot] = replace(
                    decision, note="; ".join(filter(None, (decision.note, _LEAVES)))
                )
    return tuple(dict.fromkeys(found))


def _input_scale(inputs: Mapping[Slot, Decision]) -> float | None:
    """The scale of the first operand; None where it is float, computed at run time, or one of
    many channels.
    """
    known = (qparams_of(decision) for decision in inputs.values())
    first: QParams | None = next((qparams for qparams in known if qparams is not None), None)
    if first is None or first.axis is not None or first.qtype.is_float:
        return None
    return float(first.scale)


def _reasoned(
    candidate: Candidate, constants: Mapping[Slot, Decision], inputs: Mapping[Slot, Decision]
) -> dict[Slot, Decision]:
    """``constants``, where a derived bias that had no scale to be derived from says why."""
    if (
        candidate.options.bias.kind is not BiasKind.DERIVED
        or _input_scale(inputs) is not None
        or not inputs
    ):
        return dict(constants)
    if any(isinstance(decision, Dynamic) for decision in inputs.values()):
        reason = "the scale of its product is known at run time only"
    else:
        reason = "its products have a scale for every channel of the input"
    return {
        slot: KeptFloat(reason)
        if slot.role is Role.BIAS and isinstance(decision, KeptFloat)
        else decision
        for slot, decision in constants.items()
    }


def _saturated(model: ir.Model, decisions: Mapping[Slot, Decision]) -> dict[Slot, int]:
    """Slots of constants with entries out of the range of their codes, and how many."""
    values = values_by_name(model)
    found: dict[Slot, int] = {}
    for slot, decision in decisions.items():
        qparams = qparams_of(decision)
        array = (
            constant_value(values.get(slot.value))
            if slot.role in (Role.WEIGHT, Role.BIAS)
            else None
        )
        if (
            array is not None
            and qparams is not None
            and (count := saturated_entries(array, qparams))
        ):
            found[slot] = count
    return found


def _clip(candidate: Candidate, value_qparams: ValueQParams) -> dict[str, ClipForm]:
    """The unit's clip by the name of its node, when its result is quantized."""
    decision = value_qparams.decisions.get(candidate.unit.output.name or "")
    clip = candidate.unit.clip
    qparams = None if decision is None else qparams_of(decision)
    return {} if clip is None or qparams is None else {node_key(clip): clip_form(clip, qparams)}


def _in_graph_order(graph: ir.Graph, floats: Mapping[str, Float]) -> dict[str, Float]:
    return {name: floats[name] for name in map(node_key, graph) if name in floats}
