"""Groups of values with one grid, against an oracle
that walks all accepted claims again each time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.numerics import QParams, QType
from qbench.quantization import Dynamic, Given, KeptFloat, Spec
from qbench.quantization.value_qparams import Claims, Groups

UINT8 = Spec(qtype="uint8", symmetry="asymmetric")
INT8 = Spec(qtype="int8", symmetry="symmetric")
FIXED = Spec(qtype="int8", symmetry="symmetric", scale=0.5, zero_point=0)
NAMES = "abcdefgh"


@dataclass
class Oracle:
    """All claims that were accepted; everything else is found anew by walking over them."""

    accepted: list[Claims] = field(default_factory=list)

    def add(self, claims: Claims) -> bool:
        trial = [*self.accepted, claims]
        fits = all(self._sound(trial, part) for part in self.parts(trial))
        if fits:
            self.accepted = trial
        return fits

    def parts(self, claims: Sequence[Claims] | None = None) -> set[frozenset[ir.Value]]:
        heard = self.accepted if claims is None else claims
        values = {value for one in heard for value in one.specs}
        found = set()
        for start in values:
            part, front = {start}, [start]
            while front:
                value = front.pop()
                for one in heard:
                    for other in one.joined if value in one.joined else ():
                        if other not in part:
                            part.add(other)
                            front.append(other)
            found.add(frozenset(part))
        return found

    def own(self, heard: Sequence[Claims], part: frozenset[ir.Value]) -> dict[ir.Value, str]:
        """Values with a range of their own, and the operator that fixes it:
        as whoever claimed them first says.
        """
        first = {value: next(one for one in heard if value in one.specs) for value in part}
        return {
            value: one.fixed.get(value, "")
            for value, one in first.items()
            if value not in one.moved
        }

    def _sound(self, heard: Sequence[Claims], part: frozenset[ir.Value]) -> bool:
        specs = {one.specs[value] for one in heard for value in part if value in one.specs}
        if len(specs) != 1:
            return False
        operators = set(self.own(heard, part).values())
        return len(operators) <= 1 or specs == {FIXED}


@st.composite
def sequences(draw: st.DrawFn) -> list[Claims]:
    values = {name: ir.Value(name=name) for name in NAMES}
    found = []
    for index in range(draw(st.integers(1, 8))):
        claimed = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
        joined = claimed[: draw(st.sampled_from([0, 0, 2, 3]))]
        joined = joined if len(joined) > 1 else []
        spec = draw(st.sampled_from([UINT8, UINT8, UINT8, INT8, FIXED]))
        specs = {values[name]: spec for name in claimed}
        if draw(st.integers(0, 5)) == 0:
            specs[values[claimed[-1]]] = INT8
        moves = bool(joined) and draw(st.booleans())
        free = claimed[len(joined) :]
        fixed = (
            {values[free[0]]: draw(st.sampled_from(["Sigmoid", "Tanh"]))}
            if free and draw(st.booleans())
            else {}
        )
        moved = frozenset(values[name] for name in joined[1:]) if moves else frozenset()
        chain = tuple(values[name] for name in joined)
        found.append(
            Claims(unit=f"unit{index}", specs=specs, joined=chain, moved=moved, fixed=fixed)
        )
    return found


@pytest.mark.slow
@given(sequences())
@settings(max_examples=400)
def test_what_is_accepted_is_what_the_oracle_accepts(sequence: list[Claims]) -> None:
    groups, oracle = Groups({}), Oracle()
    for claims in sequence:
        before = dict(groups.members)
        reason = groups.add(claims)
        assert (reason is None) is oracle.add(claims), reason
        if reason is not None:
            assert groups.members == before
    members = groups.members
    parts: dict[ir.Value, set[ir.Value]] = {}
    for value in members:
        parts.setdefault(groups.leader(value), set()).add(value)
    assert {frozenset(part) for part in parts.values()} == oracle.parts()
    for leader, part in parts.items():
        assert set(members[leader].own) == set(oracle.own(oracle.accepted, frozenset(part)))
        assert len({id(members[value]) for value in part}) == 1


def claims(unit: str, specs: dict[ir.Value, Spec], *joined: ir.Value, **more: object) -> Claims:
    return Claims(
        unit=unit,
        specs=specs,
        joined=joined,
        fixed=more.get("fixed", {}),
        moved=more.get("moved", frozenset()),
    )  # type: ignore[arg-type]


def test_reasons_name_both_sides(words) -> None:
    a, b, c = (ir.Value(name=name) for name in "abc")
    groups = Groups({})
    assert groups.add(claims("first", {a: UINT8})) is None
    words(groups.add(claims("second", {a: INT8})))
    assert groups.add(claims("gate", {b: UINT8}, fixed={b: "Sigmoid"})) is None
    reason = groups.add(claims("sum", {a: UINT8, b: UINT8}, a, b))
    words(reason)
    assert groups.add(claims("other", {c: INT8})) is None
    reason = groups.add(claims("pair", {a: UINT8, c: UINT8}, a, c))
    assert reason is not None
    assert "'c' (int8 symmetric)" in reason


def test_what_the_model_came_with_stands(words) -> None:
    a, b, c, d = (ir.Value(name=name) for name in "abcd")
    grid = QParams(0.5, 3, QType.parse("uint8"))
    given_here = {
        "a": Given(grid, "the pair 'q'"),
        "c": KeptFloat("read on two grids"),
        "d": Dynamic(grid.qtype),
    }
    groups = Groups(given_here)
    assert groups.add(claims("conv", {a: INT8, b: INT8})) is None
    assert groups.members[a].given == given_here["a"]
    words(groups.add(claims("move", {a: INT8, b: INT8}, a, b)))
    fresh = ir.Value(name="fresh")
    assert (
        groups.add(claims("pool", {a: INT8, fresh: INT8}, a, fresh, moved=frozenset({fresh})))
        is None
    )
    assert groups.members[fresh].given == given_here["a"]
    words(groups.add(claims("late", {c: INT8})))
    assert "computed at run time" in str(groups.add(claims("later", {d: INT8})))


@pytest.mark.parametrize("count", [2, 50])
def test_chains_end_at_their_first_value(count: int) -> None:
    values = [ir.Value(name=f"v{index}") for index in range(count)]
    groups = Groups({})
    assert groups.add(claims("source", {values[0]: UINT8})) is None
    for index, (before, after) in enumerate(pairwise(values)):
        moved = frozenset({after})
        assert (
            groups.add(
                claims(f"move{index}", {before: UINT8, after: UINT8}, before, after, moved=moved)
            )
            is None
        )
    assert {groups.leader(value) for value in values} == {values[0]}
    assert groups.members[values[-1]].own == (values[0],)
