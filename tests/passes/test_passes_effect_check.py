"""Checking a pass: what is proven and what is tried, which inputs count, what else than numbers
gives a pass away.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import pytest
from chains import Grid, chain, text

from qbench.errors import InputError
from qbench.graph import constant_value
from qbench.passes import (
    EXACT,
    Effect,
    NameScope,
    PassVerdict,
    assert_effect,
    check_pass,
    run_pipeline,
    within,
)
from qbench.passes.editing import set_constant_operand
from qbench.passes.effect_check.regions import Side, changed_regions, step_of
from qbench.passes.effect_check.trials import shrunk
from qbench.passes.pipeline import Pipeline
from qbench.passes.requantization.reach import reach_of
from qbench.passes.rewrites.pairs import ShareQuantize
from qbench.passes.rewrites.requantize import MergeRequantize


@dataclass(frozen=True)
class Does:
    """A pass that is a function."""

    edit: Callable[[ir.Model], bool]
    effect: Effect = EXACT
    name: str = "does"

    def run(self, model: ir.Model) -> bool:
        return self.edit(model)


def respelled(model: ir.Model) -> bool:
    """Scales of quantizers as lists of one: nothing changes,
    and every region has to be looked at.
    """
    found = False
    for node in model.graph:
        scale = constant_value(node.inputs[1]) if node.op_type == "QuantizeLinear" else None
        if scale is not None and not scale.shape:
            for index in (1, 2):
                array = constant_value(node.inputs[index])
                assert array is not None
                set_constant_operand(node, index, array.reshape(1), NameScope.of_values(model))
            found = True
    return found


def moved(step: float) -> Does:
    """Adds ``step`` to the zero point of the last quantizer, once."""

    def edit(model: ir.Model) -> bool:
        node = [one for one in model.graph if one.op_type == "QuantizeLinear"][-1]
        if "moved" in node.metadata_props:
            return False
        node.metadata_props["moved"] = "yes"
        array = constant_value(node.inputs[2])
        assert array is not None
        set_constant_operand(
            node, 2, array + np.array(step, array.dtype), NameScope.of_values(model)
        )
        return True

    return Does(edit)


def pairs(kind: str = "int8", channels: int = 0) -> ir.Model:
    """Two inputs of ``kind`` added; ``channels``: with a constant a channel beside them."""
    constants = [f"{kind} z = {{0}}", "float s = {0.1}", "float t = {0.3}", "int8 n = {3}"]
    lines = ["a = DequantizeLinear(x, s, z)", "b = DequantizeLinear(v, s, z)", "c = Add(a, b)"]
    if channels:
        constants.append(
            f"float[{channels},1] k = {{{', '.join(str(0.1 * i) for i in range(channels))}}}"
        )
        lines += ["m = Mul(c, k)"]
    lines += [
        f"q = QuantizeLinear({'m' if channels else 'c'}, t, n)",
        "y = DequantizeLinear(q, t, n)",
    ]
    return text(f"{kind}[2,3,4] x, {kind}[2,3,4] v", "float[2,3,4] y", constants, lines)


def convolution(rows: str = "5") -> ir.Model:
    weights = ", ".join(str(i % 7 - 3) for i in range(9))
    constants = [
        "float s = {0.1}",
        "int8 z = {0}",
        "float t = {0.4}",
        f"int8[1,1,3,3] w = {{{weights}}}",
    ]
    lines = [
        *("a = DequantizeLinear(x, s, z)", "k = DequantizeLinear(w, s, z)", "c = Conv(a, k)"),
        *("q = QuantizeLinear(c, t, z)", "y = DequantizeLinear(q, t, z)"),
    ]
    return text(f"int8[n,1,{rows},5] x", "float[n,1,a,3] y", constants, lines)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("model", "verdict", "inputs"),
    [
        (chain(Grid(0.2), integers_in=Grid(0.1)), PassVerdict.PROVEN, 256),
        (chain(Grid(0.2), integers_in=Grid(0.1, qtype="uint16")), PassVerdict.PROVEN, 65_536),
        (chain(Grid(0.2)), PassVerdict.PROVEN, 516),
        (pairs(), PassVerdict.PROVEN, 65_536),
        (pairs(channels=3), PassVerdict.PROVEN, 65_536),
        (pairs("int16"), PassVerdict.TRIED, 65_536),
        (convolution(), PassVerdict.TRIED, 24),
    ],
)
def test_what_can_be_counted_is_proven(model: ir.Model, verdict: PassVerdict, inputs: int) -> None:
    (region,) = check_pass(Does(respelled), model).regions
    assert (region.verdict, region.moved, region.steps) == (verdict, 0, 0)
    assert region.inputs == pytest.approx(inputs, abs=8), (
        "both sides of 255 steps, both infinities and zeros, say"
    )


def test_levels_are_tried_within_the_limits_of_what_makes_them() -> None:
    model = chain(Grid(0.1, low=-3, high=5), Grid(0.2))
    found = check_pass(Does(respelled), model)
    assert {one.output: one.inputs for one in found.regions}["q1"] == 9
    assert (
        reach_of(Side.of(model).values["q1"]).low,
        reach_of(Side.of(model).values["q1"]).high,
    ) == (-2, 2)


def test_values_that_stem_from_one_another_are_no_inputs_beside_each_other() -> None:
    """Two quantizers of one value become one; levels of the first and the value itself would
    contradict each other.
    """
    constants = ["float s = {0.1}", "float u = {0.3}", "int8 z = {0}"]
    lines = [
        *("p = QuantizeLinear(x, s, z)", "a = DequantizeLinear(p, s, z)"),
        *("q = QuantizeLinear(x, s, z)", "b = DequantizeLinear(q, s, z)"),
        *("c = Sub(a, b)", "r = QuantizeLinear(c, u, z)", "y = DequantizeLinear(r, u, z)"),
    ]
    model = text("float[4] x", "float[4] y", constants, lines)
    found = check_pass(ShareQuantize(), model)
    assert found.changed
    assert not found.refuted, str(found)
    (region,) = changed_regions(
        Side.of(model), Side.of(run_pipeline(model, Pipeline((ShareQuantize(),))).model)
    )
    assert region.inputs == ("x",)


def test_limits_may_wander_where_what_reads_them_does_not_notice() -> None:
    """The limits of a second border move into the first,
    whose levels keep their name and are others since.
    """
    model = chain(Grid(0.1), Grid(0.1, low=-3, high=5), Grid(0.2))

    def wandered(graph: ir.Model) -> bool:
        first, clip = (
            next(node for node in graph.graph if node.name == name) for name in ("q0", "c1")
        )
        if clip.inputs[0] is first.outputs[0]:
            return False
        second, levels = clip.inputs[0].producer(), first.outputs[0]
        clip.outputs[0].replace_all_uses_with(second.outputs[0])
        graph.graph.remove(clip)
        levels.replace_all_uses_with(clip.outputs[0])
        clip.replace_input_with(0, levels)
        graph.graph.insert_after(first, clip)
        levels.name, clip.outputs[0].name = "free", "q0"
        return True

    found = check_pass(Does(wandered), model)
    assert found.changed
    assert not found.refuted, str(found)
    assert "q0" not in {one.output for one in found.regions}


def test_a_counterexample_is_one_element_and_runs() -> None:
    model = convolution()
    example = check_pass(moved(1), model).counterexample
    assert example is not None
    assert example.elements == ()
    assert (example.before, example.after) == (0.0, pytest.approx(0.4))
    assert (example.output, example.steps, example.arithmetic) == ("y", 1, "qdq")
    pair = check_pass(moved(1), pairs()).counterexample
    assert pair is not None
    assert [(name, value) for name, _, value in pair.elements] == [("x", 0.0), ("v", 0.0)]


def test_shrinking_leaves_what_is_needed_and_makes_it_small() -> None:
    array = np.random.default_rng(1).integers(-90, 90, (4, 6)).astype(np.int8)
    array[1, 2], array[3, 5] = 77, 66
    found = shrunk(
        {"x": array}, {"x": 0.0}, lambda feeds: bool(feeds["x"][1, 2] > 5 and feeds["x"][3, 5] > 60)
    )
    assert np.flatnonzero(found["x"]).tolist() == [8, 23]
    assert 5 < found["x"][1, 2] < 20


def test_an_effect_is_measured_in_steps_and_saturation() -> None:
    model = chain(Grid(0.3), Grid(0.19), integers_in=Grid(0.1))
    rounding = check_pass(MergeRequantize(1), model)
    assert rounding.regions[0].steps == 1
    assert rounding.regions[0].moved > 0
    declared_less = Does(MergeRequantize(1).run, EXACT)
    assert check_pass(declared_less, model).refuted
    lossy = chain(Grid(0.5), Grid(0.1), integers_in=Grid(0.1))
    assert not check_pass(MergeRequantize(3), lossy).refuted
    assert check_pass(Does(MergeRequantize(3).run, within(1)), lossy).refuted


def test_a_promise_is_tried_under_other_machines() -> None:
    model = chain(Grid(0.1), Grid(0.2), integers_in=Grid(0.1))
    found = check_pass(Does(respelled), model, arithmetics=("gemmlowp", "qdq"))
    assert found.arithmetics == ("gemmlowp", "qdq")
    assert found.verdict is PassVerdict.PROVEN
    with pytest.raises(InputError, match="gemmlow"):
        check_pass(Does(respelled), model, arithmetics=("gemmlow",))


def test_samples_are_tried_inside_and_on_the_whole() -> None:
    model = convolution()
    samples = [{"x": np.full((1, 1, 5, 5), 3, np.int8)}] * 2
    found = check_pass(Does(respelled), model, samples=samples)
    plain = check_pass(Does(respelled), model)
    assert [one.output for one in found.regions] == ["q", "y"]
    assert found.regions[0].inputs == plain.regions[0].inputs + 2


def test_free_dimensions_take_samples_where_nothing_says_their_size() -> None:
    """Rows of 2 leave a window of 3 nothing; 32 do."""
    (region,) = check_pass(Does(respelled), convolution("rows")).regions
    assert region.verdict is PassVerdict.TRIED
    assert region.inputs > 0


def test_a_graph_that_no_machine_runs_is_tried_on_nothing_and_says_so() -> None:
    model = text(
        "float[4] x",
        "float[4] y",
        ["float s = {0.1}", "int8 z = {0}"],
        ["a = strange.Thing(x)", "q = QuantizeLinear(a, s, z)", "y = DequantizeLinear(q, s, z)"],
        ', "strange" : 1',
    )
    (region,) = check_pass(Does(respelled), model).regions
    assert (region.verdict, region.inputs) == (PassVerdict.TRIED, 0)
    assert "cannot run it" in str(region)


def lose_output(model: ir.Model) -> bool:
    model.graph.outputs[0].name = "lost"
    return True


def rename_for_ever(model: ir.Model) -> bool:
    node = next(iter(model.graph))
    node.name = f"{node.name}_"
    return True


def break_down(_: ir.Model) -> bool:
    raise KeyError("what")


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lose_output, "it leaves the output"),
        (lambda _: True, "returned True, and the graph is the same"),
        (
            lambda model: rename_for_ever(model) and False,
            "returned False, and the graph is another",
        ),
        (rename_for_ever, "run on its own result it changes that once more"),
        (break_down, "breaks down (KeyError: 'what')"),
    ],
)
def test_what_is_wrong_whatever_the_numbers(edit: Callable[[ir.Model], bool], fault: str) -> None:
    found = check_pass(Does(edit), chain(Grid(0.1)))
    assert found.refuted
    assert fault in str(found)
    with pytest.raises(AssertionError, match="the pass 'does', which declares exact, is refuted"):
        assert_effect(Does(edit), chain(Grid(0.1)))


def test_a_value_of_another_shape_is_refuted_in_words() -> None:
    def turned(model: ir.Model) -> bool:
        node = next(one for one in model.graph if one.op_type == "Transpose")
        node.attributes["perm"] = ir.AttrInt64s("perm", [0, 1])
        return "turned" not in model.metadata_props and not model.metadata_props.update(
            turned="yes"
        )

    lines = [
        "a = DequantizeLinear(x, s, z)",
        "b = Transpose<perm=[1,0]>(a)",
        "q = QuantizeLinear(b, s, z)",
    ]
    model = text("int8[2,3] x", "int8[3,2] q", ["float s = {0.1}", "int8 z = {0}"], lines)
    assert "'q' is int8[3,2] before and int8[2,3] after" in str(check_pass(Does(turned), model))


def test_the_model_is_left_alone_and_a_seed_gives_the_same_again() -> None:
    model = convolution()
    names = [node.name for node in model.graph]
    first, second = (check_pass(moved(1), model, seed=4) for _ in range(2))
    assert [node.name for node in model.graph] == names
    assert str(first) == str(second)


def test_a_graph_that_does_not_run_refutes_its_pass() -> None:
    def edit(model: ir.Model) -> bool:
        found = [node for node in model.graph if node.op_type == "Relu"]
        for node in found:
            node.op_type = "Einsum"  # without its equation
        return bool(found)

    lines = ["d = DequantizeLinear(x, s, z)", "y = Relu(d)"]
    model = text("int8[4] x", "float[4] y", ["float s = {0.5}", "int8 z = {0}"], lines)
    found = check_pass(Does(edit), model)
    assert found.verdict is PassVerdict.REFUTED
    assert "the graph after it does not run: " in str(found)


def unrounded(model: ir.Model) -> bool:
    """Drops a rounding: what reads 'e' reads 'd', within half a step of the grid that is gone
    where none saturates.
    """
    first, last = (next(one for one in model.graph if one.name == name) for name in ("d", "e"))
    found = bool(last.outputs[0].uses())
    last.outputs[0].replace_all_uses_with(first.outputs[0])
    return found


@pytest.mark.parametrize(
    ("behind", "step"), [("Neg(e)", 0.7), ("Tanh(e)", 0.7), ("Add(e, e)", 1.4), ("Exp(e)", None)]
)
def test_reals_behind_operators_are_measured_in_steps_of_the_grid_that_was_there(
    behind: str, step: float
) -> None:
    constants = ["float s = {0.3}", "float t = {0.7}", "int8 z = {0}"]
    lines = [
        "d = DequantizeLinear(x, s, z)",
        "q = QuantizeLinear(d, t, z)",
        "e = DequantizeLinear(q, t, z)",
    ]
    model = text("int8[256] x", "float[256] y", constants, [*lines, f"y = {behind}"])
    assert step_of(Side.of(model).end("y")) == (None if step is None else pytest.approx(step))
    found = check_pass(Does(unrounded, within(1)), model)
    assert found.changed
    assert found.refuted is (step is None)


@pytest.mark.parametrize(("steps", "refuted"), [(1, False), (2, True)])
def test_reals_that_move_by_more_steps_are_refuted(steps: int, refuted: bool) -> None:
    constants = [
        "float s = {0.3}",
        "float t = {0.7}",
        "int8 z = {0}",
        "int8 low = {-40}",
        "int8 high = {40}",
    ]
    lines = [
        "c = Clip(x, low, high)",
        "d = DequantizeLinear(c, s, z)",
        "q = QuantizeLinear(d, t, z)",
    ]
    model = text(
        "int8[256] x",
        "float[256] y",
        constants,
        [*lines, "e = DequantizeLinear(q, t, z)", "y = Neg(e)"],
    )
    assert check_pass(Does(moved(steps).edit, within(1)), model).refuted is refuted


@dataclass(frozen=True)
class Silent:
    """A pass that does not tell of its change."""

    effect: Effect = EXACT
    name: str = "silent"

    def run(self, model: ir.Model) -> bool:
        respelled(model)
        return False


def test_a_change_that_is_not_told_is_watched_and_counted() -> None:
    seen = []
    found = run_pipeline(
        pairs(), Pipeline((Silent(),)), watch=lambda one, _, __, said: seen.append((one.name, said))
    )
    assert seen == [("silent", False)]
    assert [one.changed for one in found.accounts] == [True]


def test_a_grid_of_channels_has_steps_too() -> None:
    """A pass that widens every channel's scale moves levels between the ends: nothing of that
    is proven by the ends.
    """
    constants = ["float[2] s = {0.5,0.25}", "int8[2] z = {0,3}"]
    lines = ["q = QuantizeLinear<axis=0>(x, s, z)", "y = DequantizeLinear<axis=0>(q, s, z)"]
    model = text("float[2,3] x", "float[2,3] y", constants, lines)

    def widened(graph: ir.Model) -> bool:
        scale = graph.graph.initializers["s"]
        known = scale.const_value.numpy()
        if known[0] > 0.6:
            return False
        scale.const_value = ir.tensor(known * np.float32(1.5), name="s")
        return True

    assert check_pass(Does(widened, EXACT), model).refuted
