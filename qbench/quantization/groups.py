"""Which values have one grid: a union-find over values, with what is asked of every set of them and by whom first.

    leader(a) = leader(b)        a and b have one grid: an operator moves one into the other, or the schema says so

Units are heard in graph order. The first claim on a grid decides, and a unit that asks for another one, or would join
two grids that differ, is refused whole: nothing of what it asked is kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from qbench.quantization.decision import Decision, Given, KeptFloat, qparams_of
from qbench.quantization.spec import Spec


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A set of values with one grid.

    Args:
        spec: what is asked of it.
        owner: the unit that asked first.
        own: the values whose ranges it is to cover, the first claimed first; those that only moved there add none.
        fixed_by: the operator that fixes its range, or nothing.
        given: its parameters, where the model came with them.
    """

    spec: Spec
    owner: str
    own: tuple[ir.Value, ...]
    fixed_by: str = ""
    given: Given | None = None

    def __str__(self) -> str:
        if self.given is not None:
            return f"given by {self.given.source}"
        return f"fixed by its {self.fixed_by}" if self.fixed_by and self.spec.fixed is None else str(self.spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What one unit asks.

    Args:
        unit: its name.
        specs: value → what is asked of its grid.
        joined: values that are to have one grid, the one whose parameters they get first; none, or at least two.
        moved: those among them that add no range.
        fixed: value → the operator that fixes its range.
    """

    unit: str
    specs: Mapping[ir.Value, Spec]
    joined: tuple[ir.Value, ...] = ()
    moved: frozenset[ir.Value] = frozenset()
    fixed: Mapping[ir.Value, str]


class Groups:
    """The sets so far; ``given`` are decisions that the model came with, by name of the value."""

    def __init__(self, given: Mapping[str, Decision]) -> None:
        self._given = given
        self._parents: dict[ir.Value, ir.Value] = {}
        self._groups: dict[ir.Value, Group] = {}

    def leader(self, value: ir.Value) -> ir.Value:
        """The value that stands for the set of ``value``: the first of it."""
        while (parent := self._parents.get(value, value)) is not value:
            self._parents[value] = self._parents.get(parent, parent)
            value = parent
        return value

    @property
    def members(self) -> dict[ir.Value, Group]:
        """Every value that was claimed, in order, and its group."""
        return {value: self._groups[self.leader(value)] for value in self._parents}

    def hear(self, claims: Claims) -> str | None:
        """Take what a unit asks; or, without taking anything, the reason why it cannot have it."""
        wanted = {value: self._claimed(value, spec, claims) for value, spec in claims.specs.items()}
        for value, group in wanted.items():
            if isinstance(group, str):
                return group
            if value in claims.joined or group.given is not None or group.spec == claims.specs[value]:
                continue
            return f"it wants '{value.name}' as {claims.specs[value]}, where '{group.owner}' has it as {group}"
        groups = {value: group for value, group in wanted.items() if isinstance(group, Group)}
        joined = _joined({value: groups[value] for value in claims.joined}, claims) if claims.joined else None
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
        """The group of ``value``, a new one where nobody claimed it; or why it has none."""
        if value in self._parents:
            return self._groups[self.leader(value)]
        given = self._given.get(value.name or "")
        if isinstance(given, Given):
            return Group(spec, claims.unit, (), given=given)
        if given is not None:
            how = given.reason if isinstance(given, KeptFloat) else "computed at run time"
            return f"it wants '{value.name}' as {spec}, and in the model it is {how}"
        own = () if value in claims.moved else (value,)
        return Group(spec, claims.unit, own, claims.fixed.get(value, ""))


def _joined(groups: Mapping[ir.Value, Group], claims: Claims) -> Group | str:
    """The one group of all of ``groups``, or why there is none."""
    first, *others = groups
    found = groups[first]
    for value in others:
        other = groups[value]
        if other is found or (
            found.given is None and not other.own and other.given is None and other.spec == found.spec
        ):
            continue
        if not _agree(found, other):
            names = f"'{first.name}' ({found}) and '{value.name}' ({other})"
            return f"one grid for {names} is asked for, and theirs differ"
        own = dict.fromkeys((*found.own, *other.own))
        found = replace(found, own=tuple(own))
    odd = next((value for value in groups if claims.specs[value] != found.spec), None)
    if found.given is None and odd is not None:
        return f"it wants '{odd.name}' as {claims.specs[odd]}, where '{found.owner}' has it as {found}"
    return found


def _agree(one: Group, other: Group) -> bool:
    """Whether one grid can be that of both."""
    if one.given is not None or other.given is not None:
        if not other.own and other.given is None:
            return True
        return one.given is not None and other.given is not None and _grid(one) == _grid(other)
    if one.spec != other.spec:
        return False
    fixed = {one.fixed_by, other.fixed_by} - {""}
    return not fixed or one.spec.fixed is not None or (one.fixed_by == other.fixed_by)


def _grid(group: Group) -> object:
    return None if group.given is None else qparams_of(group.given)
