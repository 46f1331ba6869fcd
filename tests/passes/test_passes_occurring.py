"""A pass held to its promise on the levels that occur: where it is broken first,
and what is no break.
"""

import numpy as np
import onnx_ir as ir
import pytest
from chains import Grid, chain

from qbench.interpreter import Program
from qbench.numerics import get_arithmetic
from qbench.passes import EXACT, Effect, broken_regions, within

FEEDS = {"x": np.linspace(-2, 2, 64, dtype=np.float32).reshape(-1, 4)}
CHAIN = (Grid(0.02), Grid(0.02), Grid(0.02), Grid(0.05))


def occurring(model: ir.Model, asked: list[tuple[str, ...]] | None = None):
    """The levels of ``model`` on ``FEEDS``; what is asked is noted in ``asked``."""

    def run(names: tuple[str, ...]) -> dict[str, np.ndarray]:
        if asked is not None:
            asked.append(names)
        taps = tuple(name for name in names if name not in FEEDS)
        return {**FEEDS, **Program(model, get_arithmetic("ideal"), taps).run(FEEDS)}

    return run


def shifted(model: ir.Model, *steps: tuple[str, int]) -> ir.Model:
    """``model`` with zero points of quantizers and of their readers exchanged:
    node → steps more.
    """
    copy = model.clone()
    for name, step in steps:
        node = next(one for one in copy.graph if one.name == name)
        point = node.inputs[2].const_value.numpy()
        moved = ir.Value(
            name=f"{name}_moved", const_value=ir.tensor(point + np.array(step, point.dtype))
        )
        copy.graph.register_initializer(moved)
        node.replace_input_with(2, moved)
    return copy


def broken(before: ir.Model, after: ir.Model, effect: Effect = EXACT) -> list[str]:
    return [one.region.output for one in broken_regions(effect, before, after, occurring(before))]


def test_the_first_value_that_is_another_is_named_and_not_those_behind_it() -> None:
    model = chain(*CHAIN)
    assert broken(model, shifted(model, ("q1", 1))) == ["q1"]
    found = broken_regions(EXACT, model, shifted(model, ("q1", 1)), occurring(model))
    assert set(found[0].feeds) == set(found[0].region.inputs) == {"q0"}


def test_every_value_that_is_broken_by_itself_is_named() -> None:
    model = chain(*CHAIN)
    assert broken(model, shifted(model, ("q1", 1), ("q3", 1))) == ["q1", "q3"]


def test_what_a_later_value_makes_good_for_is_no_break() -> None:
    """Levels and those that read them move together: reals stay what they were."""
    model = chain(*CHAIN)
    reader = next(
        use.node for node in model.graph if node.name == "q1" for use in node.outputs[0].uses()
    )
    assert broken(model, shifted(model, ("q1", 1), (str(reader.name), 1))) == []


def test_what_is_made_good_for_hides_no_break_behind_it() -> None:
    model = chain(*CHAIN)
    reader = next(
        use.node for node in model.graph if node.name == "q1" for use in node.outputs[0].uses()
    )
    assert broken(model, shifted(model, ("q1", 1), (str(reader.name), 1), ("q3", 1))) == ["q3"]


@pytest.mark.parametrize(("steps", "named"), [(1, []), (2, ["q1"])])
def test_levels_may_move_as_far_as_is_promised(steps: int, named: list[str]) -> None:
    """The ends stay reached by nothing here."""
    model = chain(*CHAIN)
    assert broken(model, shifted(model, ("q1", steps)), within(1)) == named


def test_nothing_is_run_where_nothing_changed() -> None:
    asked: list[tuple[str, ...]] = []
    model = chain(*CHAIN)
    assert broken_regions(EXACT, model, model.clone(), occurring(model, asked)) == ()
    assert asked == []
