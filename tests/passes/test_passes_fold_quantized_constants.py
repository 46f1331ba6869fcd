"""Constants are quantized, requantized and moved beforehand, to the very levels;
none becomes a float again.
"""

import numpy as np
import onnx_ir as ir
from chains import operators, run_machine, run_qdq, text

from qbench.graph import constant_value
from qbench.numerics import QParams, dequantize, quantize
from qbench.passes import Pipeline, Policy, assert_effect, lower_to_qoperator, run_pipeline
from qbench.passes.contract import ARITHMETICS
from qbench.passes.rewrites.pairs import FoldQuantizedConstants

PASSES = Pipeline((FoldQuantizedConstants(),))
GRIDS = [
    *(
        "float s = {0.1}",
        "int8 z = {3}",
        "float t = {0.25}",
        "int8 w = {-2}",
        "float u = {0.125}",
        "uint8 v = {9}",
    ),
    *("float[2] k = {0.25, 0.5}", "int8[2] n = {0, 0}", "int8 l = {-5}", "int8 h = {3}"),
]


def folded(model: ir.Model) -> ir.Model:
    return run_pipeline(model, PASSES).model


def levels(model: ir.Model, name: str) -> np.ndarray:
    found = constant_value(model.graph.initializers[name])
    assert found is not None
    return found


def added(*lines: str, constants: str) -> ir.Model:
    """x on levels plus a constant, which ``lines`` make ``c`` of, dequantized by u and v."""
    whole = [
        *("a = DequantizeLinear(x, s, z)", *lines, "e = Add(a, d)", "f = QuantizeLinear(e, t, w)"),
        "y = DequantizeLinear(f, t, w)",
    ]
    return text("int8[2,4] x", "float[2,4] y", [*GRIDS, constants], whole)


FEED = np.array([[-128, 127, 0, 3], [-1, 1, 64, -64]], np.int8)
TIES = "float[4] r = {0.125, -0.375, 1000.0, -1000.0}"


def same(before: ir.Model, after: ir.Model, **feeds: np.ndarray) -> None:
    for run in (run_qdq, run_machine):
        np.testing.assert_array_equal(run(after, **feeds)["y"], run(before, **feeds)["y"])


def test_a_quantized_constant_is_integers_that_round_and_saturate() -> None:
    before = added("c = QuantizeLinear(r, t, w)", "d = DequantizeLinear(c, t, w)", constants=TIES)
    after = folded(before)
    assert operators(after) == [
        "DequantizeLinear",
        "DequantizeLinear",
        "Add",
        "QuantizeLinear",
        "DequantizeLinear",
    ]
    np.testing.assert_array_equal(levels(after, "c"), np.array([-2, -4, 127, -128], np.int8))
    same(before, after, x=FEED)
    assert_effect(FoldQuantizedConstants(), before)


def test_limits_hold_in_the_constant() -> None:
    lines = ["b = QuantizeLinear(r, t, w)", "c = Clip(b, l, h)", "d = DequantizeLinear(c, t, w)"]
    before = added(*lines, constants=TIES)
    after = folded(before)
    assert "Clip" not in operators(after)
    np.testing.assert_array_equal(levels(after, "c"), np.array([-2, -4, 3, -5], np.int8))
    same(before, after, x=FEED)


def test_a_requantized_constant_keeps_the_rounding_and_the_range_of_the_first_grid() -> None:
    lines = [
        *(
            "b = QuantizeLinear(r, t, w)",
            "o = DequantizeLinear(b, t, w)",
            "c = QuantizeLinear(o, u, v)",
        ),
        "d = DequantizeLinear(c, u, v)",
    ]
    before = added(*lines, constants=TIES)
    after = folded(before)
    assert operators(after) == [
        "DequantizeLinear",
        "DequantizeLinear",
        "Add",
        "QuantizeLinear",
        "DequantizeLinear",
    ]
    numbers, grid = np.array([0.125, -0.375, 1000, -1000], np.float32), QParams(0.125, 9, "uint8")
    stored = dequantize(quantize(numbers, QParams(0.25, -2, "int8")), QParams(0.25, -2, "int8"))
    np.testing.assert_array_equal(levels(after, "c"), quantize(stored, grid))
    assert (levels(after, "c") != quantize(numbers, grid)).any(), (
        "as from the numbers before, which Glow takes"
    )
    same(before, after, x=FEED)


def test_a_dequantized_constant_is_never_floats() -> None:
    before = added("d = DequantizeLinear(c, t, w)", constants="int8[4] c = {1, 2, 3, 4}")
    found = run_pipeline(before, PASSES)
    assert operators(found.model) == operators(before)
    assert levels(found.model, "c").dtype == np.int8


def multiplied(weight: str, axis: int, *lines: str) -> ir.Model:
    whole = [
        *(
            "a = DequantizeLinear(x, s, z)",
            f"b = DequantizeLinear<axis={axis}>({weight}, k, n)",
            *lines,
        ),
        *("e = MatMul(a, d)", "f = QuantizeLinear(e, t, w)", "y = DequantizeLinear(f, t, w)"),
    ]
    rows = "int8[2,3] rows = {1, -128, 127, 4, 5, 6}"
    return text("int8[5,3] x", "float[5,2] y", [*GRIDS, rows, "int64[2] order = {3, 2}"], whole)


def test_the_axis_of_the_scales_is_transposed_with_a_weight() -> None:
    before = multiplied("rows", 0, "d = Transpose(b)")
    after = folded(before)
    assert "Transpose" not in operators(after)
    (weight,) = [node for node in after.graph if node.outputs[0].name == "d"]
    assert weight.attributes["axis"].as_int() == 1
    np.testing.assert_array_equal(
        constant_value(weight.inputs[0]), np.array([[1, 4], [-128, 5], [127, 6]], np.int8)
    )  # type: ignore[arg-type]
    same(before, after, x=np.arange(-7, 8).astype(np.int8).reshape(5, 3))
    assert_effect(FoldQuantizedConstants(), before)


def test_blocks_of_scales_are_transposed_too() -> None:
    grids = [
        "float[2,2] k = {0.25, 0.5, 1.0, 2.0}",
        "int8[2,2] n = {0, 1, 2, 3}",
        "int8[2,4] rows = {1,2,3,4,5,6,7,8}",
    ]
    lines = [
        "b = DequantizeLinear<axis=1, block_size=2>(rows, k, n)",
        "d = Transpose(b)",
        "y = MatMul(x, d)",
    ]
    before = text("float[5,4] x", "float[5,2] y", grids, lines)
    after = folded(before)
    assert operators(after) == ["DequantizeLinear", "MatMul"]
    same(before, after, x=np.arange(20).astype(np.float32).reshape(5, 4))


def test_a_reshape_does_not_move_scales_of_channels() -> None:
    before = multiplied("rows", 0, "d = Reshape(b, order)")
    assert not any(one.changed for one in run_pipeline(before, PASSES).accounts)


def test_what_others_read_unmoved_is_not_stored_twice() -> None:
    lines = [
        "b = DequantizeLinear<axis=0>(rows, k, n)",
        "d = Transpose(b)",
        "e = MatMul(x, d)",
        "y = MatMul(e, b)",
    ]
    before = text(
        "float[5,3] x", "float[5,3] y", [*GRIDS, "int8[2,3] rows = {1, 2, 3, 4, 5, 6}"], lines
    )
    found = run_pipeline(before, PASSES)
    assert "stored twice" in found.declined[0].reason


def test_a_weight_that_is_quantized_in_the_graph_is_counted_in_integers_with_and_without() -> None:
    lines = [
        *(
            "a = DequantizeLinear(x, s, z)",
            "c = QuantizeLinear<axis=0>(r, k, n)",
            "b = DequantizeLinear<axis=0>(c, k, n)",
        ),
        *("e = Conv(a, b)", "f = QuantizeLinear(e, t, w)", "y = DequantizeLinear(f, t, w)"),
    ]
    before = text(
        "int8[1,1,2,2] x", "float[1,2,2,2] y", [*GRIDS, "float[2,1,1,1] r = {0.3, -1.7}"], lines
    )
    after = folded(before)
    assert operators(after).count("QuantizeLinear") == 1
    for model in (before, after):
        assert operators(lower_to_qoperator(model)) == ["QLinearConv", "DequantizeLinear"]
    same(before, after, x=np.array([-128, 127, 3, 4], np.int8).reshape(1, 1, 2, 2))


def test_where_a_machine_quantizes_otherwise_it_stays(words) -> None:
    before = added("c = QuantizeLinear(r, t, w)", "d = DequantizeLinear(c, t, w)", constants=TIES)
    one = FoldQuantizedConstants((*ARITHMETICS, "gemmlowp"))
    found = run_pipeline(before, Pipeline((one,)), Policy.EXACT)
    words(found.declined[0].reason)


def test_no_rule_says_what_nan_becomes() -> None:
    before = added("c = QuantizeLinear(r, t, w)", "d = DequantizeLinear(c, t, w)", constants=TIES)
    before.graph.initializers["r"].const_value = ir.tensor(
        np.array([0.1, np.nan, 1, 2], np.float32), name="r"
    )
    assert "NaN" in run_pipeline(before, PASSES).declined[0].reason


def test_levels_that_leave_the_graph_stay_computed() -> None:
    lines = ["c = QuantizeLinear(r, t, w)", "y = DequantizeLinear(c, t, w)"]
    before = text("float[1] x", "float[4] y, int8[4] c", [*GRIDS, TIES], lines)
    found = run_pipeline(before, PASSES)
    assert operators(found.model) == operators(before)
    assert "leave the graph" in found.declined[0].reason
