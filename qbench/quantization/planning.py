"""Planning: a canonical graph, its profile, a schema and a backend's limits in, a decision for every slot out.

Nothing is touched. What the schema asks for and is not done is a refusal with its reason; nothing is downgraded.
"""

from collections.abc import Mapping

import onnx_ir as ir

from qbench.calibration import Profile
from qbench.graph import Capabilities, graph_digest, node_key, node_macs
from qbench.passes import canonicalize
from qbench.quantization.candidates import Candidate, Float, candidates_of
from qbench.quantization.clips import ClipForm, clip_form
from qbench.quantization.constant_grids import plan_constants
from qbench.quantization.decision import Decision, qparams_of
from qbench.quantization.named import get_schema
from qbench.quantization.plan import Plan
from qbench.quantization.schema import Schema
from qbench.quantization.slot import Role, Slot
from qbench.quantization.value_grids import ValueGrids, plan_values

_ANYTHING = Capabilities(
    activation_qtypes=frozenset({"int4", "uint4", "int8", "uint8", "int16", "uint16"}),
    weight_qtypes=frozenset({"int4", "uint4", "int8", "uint8", "int16", "uint16"}),
)


def make_plan(
    model: ir.Model, profile: Profile, schema: Schema | str, *, capabilities: Capabilities | None = None
) -> Plan:
    """The plan of ``model`` (canonicalized here) under ``schema`` (or the one of that name).

    Args:
        model: float graph; not touched.
        profile: of its canonical form.
        schema: what to quantize and how.
        capabilities: the backend's limits; None: whatever ONNX can write.

    Raises:
        InputError: a profile of another graph, an unknown schema, a constant that is not finite, a graph that is
            quantized already.
    """
    chosen = get_schema(schema) if isinstance(schema, str) else schema
    canonical = canonicalize(model)
    digest = graph_digest(canonical)
    profile.require_graph(digest, model.graph.name or "")
    candidates, floats = candidates_of(canonical, profile, chosen, capabilities or _ANYTHING)
    grids = plan_values(candidates, profile)
    floats.update({name: Float(reason, refused=True) for name, reason in grids.left_out.items()})
    decisions: dict[Slot, Decision] = {}
    clips: dict[str, ClipForm] = {}
    integer: set[str] = set()
    for candidate in candidates:
        if candidate.unit.name in grids.left_out:
            continue
        slots = _slots(candidate, grids)
        decisions.update(slots)
        clips.update(_clip(candidate, grids))
        if _multiplies_integers(candidate, slots):
            integer.add(candidate.unit.name)
    macs = node_macs(canonical)
    return Plan(
        schema=chosen.name,
        graph=digest,
        profile=profile.digest,
        decisions=decisions,
        clips=clips,
        floats=_in_graph_order(canonical.graph, floats),
        macs=sum(macs.values()),
        integer_mac_count=sum(count for name, count in macs.items() if name in integer),
    )


def _slots(candidate: Candidate, grids: ValueGrids) -> dict[Slot, Decision]:
    """The slots of one unit: inputs, constants, outputs."""
    name = candidate.unit.name
    decided: dict[Slot, Decision] = {}
    input_scale: float | None = None
    if candidate.rule.activation is not None:
        for index, value in candidate.data_inputs:
            decision = grids.decisions[value.name or ""]
            decided[Slot(name, Role.INPUT, index, value.name or "")] = decision
            qparams = qparams_of(decision)
            if input_scale is None and qparams is not None:
                input_scale = float(qparams.scale)
    decided.update(plan_constants(candidate, input_scale))
    if candidate.rule.activation is not None:
        for index, value in enumerate(candidate.outputs):
            result = value.name or ""
            if result in grids.decisions:
                decided[Slot(name, Role.OUTPUT, index, result)] = grids.decisions[result]
    return decided


def _clip(candidate: Candidate, grids: ValueGrids) -> dict[str, ClipForm]:
    """The unit's clip by the name of its node, when its result goes on a grid."""
    decision, clip = grids.decisions.get(candidate.unit.output.name or ""), candidate.unit.clip
    qparams = None if decision is None else qparams_of(decision)
    return {} if clip is None or qparams is None else {node_key(clip): clip_form(clip, qparams)}


def _multiplies_integers(candidate: Candidate, slots: Mapping[Slot, Decision]) -> bool:
    """Whether both operands of a product are on a grid."""
    if candidate.weight_index is None:
        return False
    operands = [qparams_of(d) for slot, d in slots.items() if slot.role in (Role.INPUT, Role.WEIGHT)]
    return len(operands) == 2 and all(qparams is not None for qparams in operands)


def _in_graph_order(graph: ir.Graph, floats: Mapping[str, Float]) -> dict[str, Float]:
    return {name: floats[name] for name in map(node_key, graph) if name in floats}
