"""One grid for every value that integer units exchange.

Claims are heard in graph order, values that share are grouped, a grid is chosen for every group. A unit whose claim
cannot be had is left out with the reason, and the rest is planned again without it. Graph outputs stay float.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from qbench.graph import Capabilities
from qbench.quantization.candidates import Candidate
from qbench.quantization.constraints import Output, fixed_interval
from qbench.quantization.decision import BY_SCHEMA, Decision, Dynamic, Fixed, Given, Shared, Static, qparams_of
from qbench.quantization.exchange import exchanged_values, operands_of, values_of
from qbench.quantization.groups import Claims, Group, Groups
from qbench.quantization.limits import beyond_zero_point
from qbench.quantization.ranges_of_values import Ranges
from qbench.quantization.rule import Share

_COARSER = 2.0
"""Values share a grid where that costs none of them more than a bit."""


@dataclass(frozen=True, slots=True, eq=False)
class ValueGrids:
    """Value name → decision, the units that work on them, and those left out with the reason.

    ``dynamic`` are values whose parameters are computed at run time, for the units that ask for it alone.
    """

    decisions: Mapping[str, Decision]
    dynamic: Mapping[str, Dynamic]
    units: tuple[Candidate, ...]
    left_out: Mapping[str, str]


def plan_values(
    candidates: Sequence[Candidate],
    ranges: Ranges,
    capabilities: Capabilities,
    given: Mapping[str, Decision] | None = None,
) -> ValueGrids:
    """Grids for the values of ``candidates`` (those whose rule quantizes activations), in graph order.

    Args:
        candidates: units that can be quantized.
        ranges: of the profile.
        capabilities: the backend's limits.
        given: decisions that the model came with, by name of the value.
    """
    fixed = dict(given or {})
    pinned = frozenset(name for name, decision in fixed.items() if isinstance(decision, Given))
    active = [c for c in candidates if c.input is not None or c.output is not None or c.dynamic]
    left_out: dict[str, str] = {}
    while True:
        groups = Groups(fixed)
        decisions: dict[str, Decision] = {}
        wanted, dropped = exchanged_values([c for c in active if c.input is not None or c.output is not None], pinned)
        if not dropped:
            apart = _apart(active, ranges, fixed)
            dropped = _heard(active, wanted, groups, apart)
        if not dropped:
            dropped = _decided(active, groups, ranges, capabilities, decisions)
        if not dropped:
            dropped = _computed_too(active, decisions)
        if not dropped:
            _note(active, apart, decisions)
            break
        left_out.update(dropped)
        active = [candidate for candidate in active if candidate.unit.name not in dropped]
    return ValueGrids(decisions, _dynamic(active), tuple(active), left_out)


def _apart(active: Sequence[Candidate], ranges: Ranges, given: Mapping[str, Decision]) -> dict[str, str]:
    """The units that choose between values of very different range, and by how much one grid would be too coarse."""
    found = {}
    for candidate in active:
        spec = candidate.input
        if not candidate.demand.one_grid or spec is None or spec.fixed is not None or candidate.output != spec:
            continue
        names = [value.name or "" for value in dict.fromkeys((*operands_of(candidate), *candidate.outputs))]
        if given.keys() & set(names) or any(ranges.problem(name) for name in names):
            continue
        joint = ranges.qparams(tuple(names), spec)
        if isinstance(joint, str):
            continue
        own = {name: ranges.qparams((name,), spec) for name in names if ranges.absmax(name)}
        times = {n: float((joint.scale / q.scale).max()) for n, q in own.items() if not isinstance(q, str)}
        finest = max(times, key=lambda name: times[name], default="")
        if finest and times[finest] > _COARSER:
            words = f"one for all would be {times[finest]:.3g} times as coarse as that of '{finest}'"
            found[candidate.unit.name] = f"operands have grids of their own: {words}"
    return found


def _note(active: Sequence[Candidate], apart: Mapping[str, str], decisions: dict[str, Decision]) -> None:
    """Add to the results of the units in ``apart`` why their operands have grids of their own."""
    for candidate in active:
        note = apart.get(candidate.unit.name)
        for value in candidate.outputs if note else ():
            decision = decisions.get(value.name or "")
            if isinstance(decision, Static):
                decisions[value.name or ""] = replace(decision, note="; ".join(filter(None, (decision.note, note))))


def _heard(
    active: Sequence[Candidate], wanted: set[ir.Value], groups: Groups, apart: Mapping[str, str]
) -> dict[str, str]:
    """Let every unit claim what it wants; the units whose claims cannot be had, with the reason."""
    refused = {}
    for candidate in active:
        claims = _claims(candidate, wanted, one_grid=candidate.demand.one_grid and candidate.unit.name not in apart)
        if claims.specs and (reason := groups.hear(claims)):
            refused[candidate.unit.name] = reason
    return refused


def _claims(candidate: Candidate, wanted: set[ir.Value], *, one_grid: bool) -> Claims:
    specs = {}
    operands = [value for value in operands_of(candidate) if value in wanted]
    results = [value for value in values_of(candidate) if value in wanted and value not in operands]
    if candidate.input is not None:
        specs.update(dict.fromkeys(operands, candidate.input))
    if candidate.output is not None:
        specs.update(dict.fromkeys(results, candidate.output))
    moved = frozenset(results if candidate.moves and operands else ())
    by_operator = candidate.demand.output is Output.FIXED
    return Claims(
        unit=candidate.unit.name,
        specs=specs,
        joined=_joined(candidate, operands, results, one_grid=one_grid),
        moved=moved,
        fixed=dict.fromkeys(results, candidate.unit.head.op_type) if by_operator else {},
    )


def _joined(
    candidate: Candidate, operands: Sequence[ir.Value], results: Sequence[ir.Value], *, one_grid: bool
) -> tuple[ir.Value, ...]:
    """The values that are to have one grid: what the operator demands, and what the schema asks for."""
    shares = candidate.wishes.share
    joined = list(operands if one_grid or Share.INPUTS in shares else operands[:1])
    if one_grid or candidate.moves or Share.OUTPUT in shares:
        joined += results
    unique = tuple(dict.fromkeys(joined))
    return unique if operands and len(unique) > 1 else ()


def _decided(
    active: Sequence[Candidate],
    groups: Groups,
    ranges: Ranges,
    capabilities: Capabilities,
    decisions: dict[str, Decision],
) -> dict[str, str]:
    """Fill ``decisions``; the units around a value for which there is no grid, with the reason."""
    chosen: dict[ir.Value, Decision | str] = {}
    for value, group in groups.members.items():
        leader = groups.leader(value)
        if leader not in chosen:
            chosen[leader] = _chosen(group, ranges, capabilities)
        found = chosen[leader]
        if not isinstance(found, str):
            decisions[value.name or ""] = found if value is leader else _shared(found, leader)
    impossible = {leader: reason for leader, reason in chosen.items() if isinstance(reason, str)}
    if not impossible:
        return {}
    return _around(active, lambda value: impossible.get(groups.leader(value)))


def _around(active: Sequence[Candidate], reason_of: Callable[[ir.Value], str | None]) -> dict[str, str]:
    found = {}
    for candidate in active:
        reason = next((reason for value in values_of(candidate) if (reason := reason_of(value))), None)
        if reason is not None:
            found[candidate.unit.name] = reason
    return found


def _chosen(group: Group, ranges: Ranges, capabilities: Capabilities) -> Decision | str:
    """The parameters of a group, or why there are none."""
    if group.given is not None:
        return group.given
    decision: Decision
    names = tuple(value.name or "" for value in group.own)
    if group.spec.fixed is not None:
        decision = Given(group.spec.fixed, BY_SCHEMA)
    elif group.fixed_by:
        interval = fixed_interval(group.fixed_by, group.spec.kind.qtype.bits)
        decision = Fixed(group.spec.kind.choose(interval.low, interval.high))
    else:
        qparams = ranges.qparams(names, group.spec)
        if isinstance(qparams, str):
            return qparams
        decision = Static(qparams, f"covers {len(names)} values" if len(names) > 1 else "")
    found = qparams_of(decision)
    problem = None if found is None else beyond_zero_point(found, capabilities)
    return decision if problem is None else f"'{names[0]}' as {group.spec}: {problem}"


def _shared(decision: Decision, leader: ir.Value) -> Decision:
    qparams = qparams_of(decision)
    assert qparams is not None
    return Shared(qparams, leader.name or "")


def _computed_too(active: Sequence[Candidate], decisions: Mapping[str, Decision]) -> dict[str, str]:
    """The units that want parameters at run time for a value that has a grid known beforehand."""
    found = {}
    for candidate in active:
        if not candidate.dynamic:
            continue
        for _, value in candidate.data_inputs:
            if (value.name or "") in decisions:
                other = qparams_of(decisions[value.name or ""])
                qtype = "" if other is None else f" {other.qtype}"
                found[candidate.unit.name] = (
                    f"it wants '{value.name}' as {candidate.wishes.input}, where others have it on a{qtype} grid known "
                    "beforehand"
                )
    return found


def _dynamic(active: Sequence[Candidate]) -> dict[str, Dynamic]:
    return {
        value.name or "": Dynamic(candidate.wishes.input.kind.qtype)
        for candidate in active
        if candidate.dynamic and candidate.wishes.input is not None
        for _, value in candidate.data_inputs
    }
