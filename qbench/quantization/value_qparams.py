"""The quantization parameters of the values that integer units exchange."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph import Capabilities, Output
from qbench.quantization.by_hand import merged, refuse_other
from qbench.quantization.candidates import Candidate, fixed_qparams
from qbench.quantization.decision import (
    BY_SCHEMA,
    Decision,
    Dynamic,
    Fixed,
    Given,
    KeptFloat,
    Shared,
    Static,
    qparams_of,
)
from qbench.quantization.internal_qparams import Ranges
from qbench.quantization.schema import Share
from qbench.quantization.spec import Spec, beyond_zero_point

# Which values are quantized, and which units stay float.
#
# Units that multiply by weights, or two computed operands as MatMul does, are quantized. A unit
# between them is quantized when all its operands are, and its result is read by a quantized unit or
# leaves the graph. So a residual sum is computed in integers, and a normalization written as sums
# and roots stays float. Operators that only move values follow: their results share the qparams of
# the value that they move.
#
# A side of a unit that the schema keeps in float does not count: such operands need not be
# quantized, such results are quantized only if a reader requests it.


def exchanged_values(
    active: Sequence[Candidate], given: frozenset[str] = frozenset()
) -> tuple[set[ir.Value], dict[str, str]]:
    """The values to quantize, and the units that cannot use them, with the reason.

    Args:
        active: units in graph order.
        given: names of values that the model has qparams for.
    """
    movers = [c for c in active if c.moves]
    products = [c for c in active if c.weight_index is not None]
    between = [c for c in active if c.weight_index is None and not c.moves]
    idle: dict[str, str] = {}
    while True:
        integer = [*products, *between]
        made = {v for c in integer for v in results_of(c)} | {
            v for c in products for v in operands_of(c)
        }
        made = _moved_on(made, movers, given)
        read = _moved_back({v for c in integer for v in operands_of(c)}, movers)
        reasons = {
            c.unit.name: reason
            for c in between
            if (reason := _why_not_between(c, made, read, given))
        }
        if not reasons:
            break
        idle.update(reasons)
        between = [c for c in between if c.unit.name not in reasons]
    wanted = {value for c in (*products, *between) for value in values_of(c)}
    touched = _touched(movers, wanted)
    idle.update(
        {c.unit.name: "nothing around it is in integers" for c in movers if c not in touched}
    )
    return wanted.union(*(values_of(c) for c in touched)), idle


def operands_of(candidate: Candidate) -> tuple[ir.Value, ...]:
    """The computed operands for which the schema requests qparams known beforehand."""
    return () if candidate.input is None else tuple(value for _, value in candidate.data_inputs)


def results_of(candidate: Candidate) -> tuple[ir.Value, ...]:
    """The results for which the schema requests qparams known beforehand."""
    return () if candidate.output is None else candidate.outputs


def values_of(candidate: Candidate) -> Iterable[ir.Value]:
    """Operands, and those results that something in the graph reads, or that leave it quantized."""
    yield from operands_of(candidate)
    leaves = candidate.quantizes_graph_outputs
    yield from (
        value
        for value in results_of(candidate)
        if value.uses() or (leaves and value.is_graph_output())
    )


def _why_not_between(
    candidate: Candidate, made: set[ir.Value], read: set[ir.Value], given: frozenset[str]
) -> str | None:
    """Why a unit cannot compute with the quantized values ``made``, or none of ``read`` is its
    result.
    """
    for value in operands_of(candidate):
        if value not in made and not value.is_graph_input() and value.name not in given:
            return f"its operand '{value.name}' is not in integers"
    if candidate.input is None or candidate.output is None:
        return None  # one side alone counts nothing in integers: it is rounded, as asked
    if not any(value in read or value.is_graph_output() for value in candidate.outputs):
        return "nothing that counts in integers reads it"
    return None


def _moved_on(
    values: set[ir.Value], movers: Sequence[Candidate], given: frozenset[str]
) -> set[ir.Value]:
    """``values``, graph inputs, and the results of ``movers`` (in graph order) on them."""
    found = set(values)
    for mover in movers:
        if any(
            value in found or value.is_graph_input() or value.name in given
            for value in operands_of(mover)
        ):
            found.update(results_of(mover))
    return found


def _moved_back(values: set[ir.Value], movers: Sequence[Candidate]) -> set[ir.Value]:
    """``values``, graph outputs, and the operands of ``movers`` whose results are among them."""
    found = set(values)
    for mover in reversed(movers):
        if any(value in found or value.is_graph_output() for value in mover.outputs):
            found.update(operands_of(mover))
    return found


def _touched(movers: Sequence[Candidate], wanted: set[ir.Value]) -> set[Candidate]:
    """The movers with a value of ``wanted`` before or behind them, over chains of movers."""
    values, touched = set(wanted), set[Candidate]()
    growing = True
    while growing:
        growing = False
        for mover in (*movers, *reversed(movers)):
            if mover not in touched and any(value in values for value in values_of(mover)):
                values.update(values_of(mover))
                touched.add(mover)
                growing = True
    return touched


# Which values share qparams: a union-find over values; every set has a requested spec and the first
# unit that requested it.
#
#     leader(a) = leader(b)    a and b share qparams: an operator moves one into the other, or the
#                              schema says so
#
# Units are added in graph order. The first claim decides. A unit that requests other qparams, or
# would join two sets that differ, is refused as a whole: nothing of its request is kept.


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A set of values that share qparams.

    Args:
        spec: the requested qparams.
        owner: the unit that requested them first.
        own: the values whose ranges it is to cover, the first claimed first; those that only moved
            there add none.
        fixed_by: the operator that fixes its range, or nothing.
        given: its parameters, where the model came with them.
        hand: those that a ranges file gives to one of its values, whatever the ranges of the others
            are.
    """

    spec: Spec
    owner: str
    own: tuple[ir.Value, ...]
    fixed_by: str = ""
    given: Given | None = None
    hand: Given | None = None

    def __str__(self) -> str:
        if self.given is not None:
            return f"given by {self.given.source}"
        return (
            f"fixed by its {self.fixed_by}"
            if self.fixed_by and self.spec.fixed is None
            else str(self.spec)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What one unit requests.

    Args:
        unit: its name.
        specs: value → its requested qparams.
        joined: values that are to share qparams, first the one whose parameters they get; none, or
            at least two.
        moved: those among them that add no range.
        fixed: value → the operator that fixes its range.
    """

    unit: str
    specs: Mapping[ir.Value, Spec]
    joined: tuple[ir.Value, ...] = ()
    moved: frozenset[ir.Value] = frozenset()
    fixed: Mapping[ir.Value, str]


class Groups:
    """The sets so far; ``given`` are decisions that the model came with, by name of the value,
    ``ranges`` hold those by hand.
    """

    def __init__(self, given: Mapping[str, Decision], ranges: Ranges | None = None) -> None:
        self._given = given
        self._ranges = ranges
        self._parents: dict[ir.Value, ir.Value] = {}
        self._groups: dict[ir.Value, Group] = {}

    def leader(self, value: ir.Value) -> ir.Value:
        """The first value of the set of ``value``, which identifies the set."""
        while (parent := self._parents.get(value, value)) is not value:
            self._parents[value] = self._parents.get(parent, parent)
            value = parent
        return value

    @property
    def members(self) -> dict[ir.Value, Group]:
        """Every value that was claimed, in order, and its group."""
        return {value: self._groups[self.leader(value)] for value in self._parents}

    def add(self, claims: Claims) -> str | None:
        """Add what a unit requests; or, without adding anything, return the reason why that is
        impossible.

        Raises:
            InputError: values that would share parameters have different ones by hand.
        """
        wanted = {value: self._claimed(value, spec, claims) for value, spec in claims.specs.items()}
        for value, group in wanted.items():
            if isinstance(group, str):
                return group
            if (
                value in claims.joined
                or group.given is not None
                or group.spec == claims.specs[value]
            ):
                continue
            return (
                f"it wants '{value.name}' as {claims.specs[value]}, where '{group.owner}' has it "
                f"as {group}"
            )
        groups = {value: group for value, group in wanted.items() if isinstance(group, Group)}
        joined = (
            _joined({value: groups[value] for value in claims.joined}, claims)
            if claims.joined
            else None
        )
        if isinstance(joined, str):
            return joined
        for value, group in groups.items():
            leader = self.leader(value)
            self._parents.setdefault(value, value)
            self._groups.setdefault(leader, group)
        if joined is not None:
            self._join(claims.joined, joined)
        return None

    def _join(self, values: Sequence[ir.Value], group: Group) -> None:
        leaders = list(dict.fromkeys(self.leader(value) for value in values))
        for leader in leaders[1:]:
            self._parents[leader] = leaders[0]
            del self._groups[leader]
        self._groups[leaders[0]] = group

    def _claimed(self, value: ir.Value, spec: Spec, claims: Claims) -> Group | str:
        """The group of ``value``, a new one for a value without claims; or why it has none."""
        if value in self._parents:
            return self._groups[self.leader(value)]
        given = self._given.get(value.name or "")
        if isinstance(given, Given):
            if (hand := self._by_hand(value, spec)) is not None:
                refuse_other(hand, given.qparams, f"'{value.name}' came with parameters")
            return Group(spec, claims.unit, (), given=given)
        if given is not None:
            how = given.reason if isinstance(given, KeptFloat) else "computed at run time"
            return f"it wants '{value.name}' as {spec}, and in the model it is {how}"
        own = () if value in claims.moved else (value,)
        hand = self._by_hand(value, spec)
        return Group(spec, claims.unit, own, claims.fixed.get(value, ""), hand=hand)

    def _by_hand(self, value: ir.Value, spec: Spec) -> Given | None:
        return None if self._ranges is None else self._ranges.by_hand(value.name or "", spec)


def _joined(groups: Mapping[ir.Value, Group], claims: Claims) -> Group | str:
    """One group that joins all ``groups``, or the reason why they cannot be joined."""
    first, *others = groups
    found = groups[first]
    for value in others:
        other = groups[value]
        if other is found or (
            found.given is None
            and not other.own
            and other.given is None
            and other.spec == found.spec
        ):
            continue
        if not _agree(found, other):
            names = f"'{first.name}' ({found}) and '{value.name}' ({other})"
            return f"one grid for {names} is asked for, and theirs differ"  # stored name
        own = dict.fromkeys((*found.own, *other.own))
        found = replace(found, own=tuple(own))
    hands = [group.hand for group in groups.values() if group.hand is not None]
    if hands:
        found = replace(found, hand=reduce(merged, hands))
    odd = next((value for value in groups if claims.specs[value] != found.spec), None)
    if found.given is None and odd is not None:
        return (
            f"it wants '{odd.name}' as {claims.specs[odd]}, where '{found.owner}' has it as {found}"
        )
    return found


def _agree(one: Group, other: Group) -> bool:
    """Whether both can have the same qparams."""
    if one.given is not None or other.given is not None:
        if not other.own and other.given is None:
            return True
        return (
            one.given is not None
            and other.given is not None
            and _given_qparams(one) == _given_qparams(other)
        )
    if one.spec != other.spec:
        return False
    fixed = {one.fixed_by, other.fixed_by} - {""}
    return not fixed or one.spec.fixed is not None or (one.fixed_by == other.fixed_by)


def _given_qparams(group: Group) -> object:
    return None if group.given is None else qparams_of(group.given)


# Claims are added in graph order, values that share qparams are grouped, qparams are chosen for
# every group. A unit whose claim is impossible is left out with the reason, and the rest is planned
# again without it. Graph outputs stay float unless the schema says otherwise (``GraphOutputs``).

_COARSER = 2.0
"""Values share qparams where that costs none of them more than a bit."""


@dataclass(frozen=True, slots=True, eq=False)
class ValueQParams:
    """Value name → decision, the units that work on them, and those left out with the reason.

    ``dynamic`` are values whose parameters are computed at run time, for the units that ask for it
    alone; those that the model came with stay.
    """

    decisions: Mapping[str, Decision]
    dynamic: Mapping[str, Decision]
    units: tuple[Candidate, ...]
    left_out: Mapping[str, str]


def plan_values(
    candidates: Sequence[Candidate],
    ranges: Ranges,
    capabilities: Capabilities,
    given: Mapping[str, Decision] | None = None,
) -> ValueQParams:
    """Qparams for the values of ``candidates`` (those whose rule quantizes activations), in
    graph order.

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
        groups = Groups(fixed, ranges)
        decisions: dict[str, Decision] = {}
        wanted, dropped = exchanged_values(
            [c for c in active if c.input is not None or c.output is not None], pinned
        )
        if not dropped:
            apart = _apart(active, ranges, fixed)
            dropped = _refused_claims(active, wanted, groups, apart)
        if not dropped:
            dropped = _decided(active, groups, ranges, capabilities, decisions)
        if not dropped:
            dropped = _computed_too(active, decisions)
        if not dropped:
            _note(active, apart, decisions)
            break
        left_out.update(dropped)
        active = [candidate for candidate in active if candidate.unit.name not in dropped]
    dynamic = {**_dynamic(active), **{name: fixed[name] for name in pinned}}
    return ValueQParams(decisions, dynamic, tuple(active), left_out)


def _apart(
    active: Sequence[Candidate], ranges: Ranges, given: Mapping[str, Decision]
) -> dict[str, str]:
    """The units that choose between values of very different range, and how much too coarse
    shared qparams would be.
    """
    found = {}
    for candidate in active:
        spec = candidate.input
        if (
            not candidate.operator.same_qparams
            or spec is None
            or spec.fixed is not None
            or candidate.output != spec
        ):
            continue
        names = [
            value.name or ""
            for value in dict.fromkeys((*operands_of(candidate), *candidate.outputs))
        ]
        if given.keys() & set(names) or any(ranges.problem(name) for name in names):
            continue
        joint = ranges.qparams(tuple(names), spec)
        if isinstance(joint, str):
            continue
        own = {name: ranges.qparams((name,), spec) for name in names if ranges.absmax(name)}
        times = {
            n: float((joint.scale / q.scale).max())
            for n, q in own.items()
            if not isinstance(q, str)
        }
        finest = max(times, key=lambda name: times[name], default="")
        if finest and times[finest] > _COARSER:
            words = (
                f"one for all would be {times[finest]:.3g} times as coarse as that of '{finest}'"
            )
            found[candidate.unit.name] = f"operands have grids of their own: {words}"  # stored name
    return found


def _note(
    active: Sequence[Candidate], apart: Mapping[str, str], decisions: dict[str, Decision]
) -> None:
    """Add to the results of the units in ``apart`` why their operands have qparams of their own."""
    for candidate in active:
        note = apart.get(candidate.unit.name)
        for value in candidate.outputs if note else ():
            decision = decisions.get(value.name or "")
            if isinstance(decision, Static):
                decisions[value.name or ""] = replace(
                    decision, note="; ".join(filter(None, (decision.note, note)))
                )


def _refused_claims(
    active: Sequence[Candidate], wanted: set[ir.Value], groups: Groups, apart: dict[str, str]
) -> dict[str, str]:
    """Let every unit claim what it wants; the units whose claims cannot be had, with the reason.

    A unit that chooses between values which cannot share qparams, as where operators fix them, is
    added to ``apart``.
    """
    refused = {}
    for candidate in active:
        name = candidate.unit.name
        same_qparams = candidate.operator.same_qparams and name not in apart
        claims = _claims(candidate, wanted, same_qparams=same_qparams)
        try:
            reason = groups.add(claims) if claims.specs else None
        except InputError as conflict:
            if not same_qparams:
                raise
            reason = conflict.found  # it computes with parameters of their own, too
        if reason and same_qparams:
            apart[name] = f"operands have grids of their own: {reason}"  # stored name
            reason = groups.add(_claims(candidate, wanted, same_qparams=False))
        if reason:
            refused[name] = reason
    return refused


def _claims(candidate: Candidate, wanted: set[ir.Value], *, same_qparams: bool) -> Claims:
    specs = {}
    operands = [value for value in operands_of(candidate) if value in wanted]
    results = [value for value in values_of(candidate) if value in wanted and value not in operands]
    if candidate.input is not None:
        specs.update(dict.fromkeys(operands, candidate.input))
    if candidate.output is not None:
        specs.update(dict.fromkeys(results, candidate.output))
    moved = frozenset(results if candidate.moves and operands else ())
    by_operator = candidate.operator.output is Output.FIXED
    return Claims(
        unit=candidate.unit.name,
        specs=specs,
        joined=_values_joined(candidate, operands, results, same_qparams=same_qparams),
        moved=moved,
        fixed=dict.fromkeys(results, candidate.unit.head.op_type) if by_operator else {},
    )


def _values_joined(
    candidate: Candidate,
    operands: Sequence[ir.Value],
    results: Sequence[ir.Value],
    *,
    same_qparams: bool,
) -> tuple[ir.Value, ...]:
    """The values that are to share qparams: what the operator demands, and what the schema asks
    for.
    """
    shares = candidate.options.share
    joined = list(operands if same_qparams or Share.INPUTS in shares else operands[:1])
    if same_qparams or candidate.moves or Share.OUTPUT in shares:
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
    """Fill ``decisions``; the units around a value without qparams, with the reason."""
    chosen: dict[ir.Value, Decision | str] = {}
    named: dict[ir.Value, ir.Value] = {}
    """Leader → the first value of its set whose range is by hand."""
    for value in groups.members:
        if ranges.hand is not None and (value.name or "") in ranges.hand:
            named.setdefault(groups.leader(value), value)
    for value, group in groups.members.items():
        leader = groups.leader(value)
        if leader not in chosen:
            chosen[leader] = _chosen(group, ranges, capabilities)
        found = chosen[leader]
        if isinstance(found, str):
            continue
        own = ranges.by_hand(value.name or "", group.spec) if group.given is None else None
        if own is not None:
            decisions[value.name or ""] = own
        elif group.hand is not None:
            decisions[value.name or ""] = _shared(found, named[leader])
        else:
            decisions[value.name or ""] = found if value is leader else _shared(found, leader)
    impossible = {leader: reason for leader, reason in chosen.items() if isinstance(reason, str)}
    if not impossible:
        return {}
    return _around(active, lambda value: impossible.get(groups.leader(value)))


def _around(
    active: Sequence[Candidate], reason_of: Callable[[ir.Value], str | None]
) -> dict[str, str]:
    found = {}
    for candidate in active:
        reason = next(
            (reason for value in values_of(candidate) if (reason := reason_of(value))), None
        )
        if reason is not None:
            found[candidate.unit.name] = reason
    return found


def _chosen(group: Group, ranges: Ranges, capabilities: Capabilities) -> Decision | str:
    """The parameters of a group, or why there are none."""
    if group.given is not None:
        return group.given
    decision: Decision
    names = tuple(value.name or "" for value in group.own)
    if group.hand is not None:
        decision = _by_hand(group, group.hand)
    elif group.spec.fixed is not None:
        decision = Given(group.spec.fixed, BY_SCHEMA)
    elif group.fixed_by:
        decision = Fixed(fixed_qparams(group.fixed_by, group.spec.kind))
    else:
        qparams = ranges.qparams(names, group.spec)
        if isinstance(qparams, str):
            return qparams
        decision = Static(qparams, f"covers {len(names)} values" if len(names) > 1 else "")
    found = qparams_of(decision)
    problem = None if found is None else beyond_zero_point(found, capabilities)
    return decision if problem is None else f"'{names[0]}' as {group.spec}: {problem}"


def _by_hand(group: Group, hand: Given) -> Given:
    """The parameters that a ranges file gives to ``group``.

    Raises:
        InputError: an operator fixes others.
    """
    if group.fixed_by:
        fixed = fixed_qparams(group.fixed_by, group.spec.kind)
        refuse_other(hand, fixed, f"{group.fixed_by} fixes the parameters of its result")
    return hand


def _shared(decision: Decision, leader: ir.Value) -> Decision:
    qparams = qparams_of(decision)
    assert qparams is not None
    return Shared(qparams, leader.name or "")


def _computed_too(active: Sequence[Candidate], decisions: Mapping[str, Decision]) -> dict[str, str]:
    """The units that want parameters at run time for a value that has qparams known beforehand."""
    found = {}
    for candidate in active:
        if not candidate.dynamic:
            continue
        for _, value in candidate.data_inputs:
            known = decisions.get(value.name or "")
            if known is not None and not isinstance(known, Given):
                other = qparams_of(known)
                qtype = "" if other is None else f" {other.qtype}"
                found[candidate.unit.name] = (
                    f"it wants '{value.name}' as {candidate.options.input}, "
                    f"where others have it on a{qtype} grid known beforehand"  # stored name
                )
    return found


def _dynamic(active: Sequence[Candidate]) -> dict[str, Dynamic]:
    return {
        value.name or "": Dynamic(candidate.options.input.kind.qtype)
        for candidate in active
        if candidate.dynamic and candidate.options.input is not None
        for _, value in candidate.data_inputs
    }
