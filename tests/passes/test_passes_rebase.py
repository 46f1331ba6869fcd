"""Activations move to the other type of 8 bits and back without a real moving;
what keeps its type says why.
"""

import numpy as np
import onnx_ir as ir
import pytest
from chains import Grid, chain, operators, run_machine, run_qdq, text

from qbench.calibration import calibrate
from qbench.graph import check_convention, constant_value, graph_digest
from qbench.passes import Pass, Pipeline, assert_effect, run_pipeline
from qbench.passes.rewrites.rebase import RebaseInt8, RebaseUint8
from qbench.quantization import make_plan, quantize_model

TO_INT8, TO_UINT8 = RebaseInt8(), RebaseUint8()
# beyond 2³¹ steps ONNX's own evaluator wraps around; what is infinite is in what ``assert_effect``
# tries
ADVERSARIAL = np.array(
    [
        0.0,
        -0.0,
        1e6,
        -1e6,
        2e8,
        -2e8,
        0.05,
        -0.05,
        0.15,
        12.85,
        12.75,
        -12.8,
        3.15,
        1e-30,
        25.45,
        25.5,
    ],
    np.float32,
)


def rebased(model: ir.Model, one: Pass = TO_INT8) -> ir.Model:
    return run_pipeline(model, Pipeline((one,))).model


def types(model: ir.Model) -> list[str]:
    """Of the levels that quantizers and clips give, and of what DequantizeLinear reads,
    in graph order.
    """
    found = [
        (node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0])
        for node in model.graph
    ]
    wanted = {"QuantizeLinear", "DequantizeLinear", "Clip"}
    return [
        value.dtype.name.lower()
        for node, value in zip(model.graph, found, strict=True)
        if node.op_type in wanted and value is not None and value.dtype is not None
    ]


def same(before: ir.Model, after: ir.Model, **feeds: np.ndarray) -> None:
    for run in (run_qdq, run_machine):
        np.testing.assert_array_equal(run(after, **feeds)["y"], run(before, **feeds)["y"])


@pytest.mark.parametrize(
    "grid",
    [
        Grid(0.1, 0, 7, 200, "uint8"),
        Grid(0.1, 255, None, 200, "uint8"),
        Grid(0.1, 128, 128, None, "uint8"),
    ],
)
def test_zero_points_and_limits_move_and_no_real_does(grid: Grid) -> None:
    before = chain(grid, Grid(0.3, 11, qtype="uint8"))
    after = rebased(before)
    assert set(types(after)) == {"int8"}
    assert operators(after) == operators(before)
    (clip,) = [node for node in after.graph if node.op_type == "Clip"]
    ends = [end if end is None else int(constant_value(end)) for end in clip.inputs[1:]]  # type: ignore[arg-type]
    wanted = [grid.low, grid.high][: len(ends)]
    assert [None if end is None else end + 128 for end in ends] == wanted
    assert check_convention(after) == check_convention(before) == ()
    same(before, after, x=ADVERSARIAL)
    assert_effect(TO_INT8, before)
    assert_effect(TO_UINT8, after)
    assert graph_digest(rebased(after, TO_UINT8)) == graph_digest(before)


def network() -> ir.Model:
    constants = [
        f"float[4,3,3,3] w = {{{', '.join(str(np.sin(i).round(3)) for i in range(108))}}}",
        "float[4] b = {0.5, -0.5, 0.1, 0.0}",
        f"float[4,4,1,1] v = {{{', '.join(str(np.cos(i).round(3)) for i in range(16))}}}",
        "float[1,4,1,1] k = {0.5, 1.5, -1.0, 2.0}",
    ]
    lines = [
        *(
            "c = Conv<pads=[1,1,1,1]>(x, w, b)",
            "r = Relu(c)",
            "d = Conv(r, v)",
            "a = Add(d, r)",
            "m = Mul(a, k)",
        ),
        *(
            "p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(m)",
            "s = Sigmoid(p)",
            "g = GlobalAveragePool(s)",
        ),
        *("j = Concat<axis=1>(g, g)", "y = Flatten(j)"),
    ]
    return text("float[1,3,6,6] x", "float[1,8] y", constants, lines)


PICTURE = np.random.default_rng(3).normal(size=(1, 3, 6, 6)).astype(np.float32)


@pytest.mark.parametrize(
    ("schema", "there", "back"),
    [("w8a8_asym_pc", TO_INT8, TO_UINT8), ("w8a8_sym_pt", TO_UINT8, TO_INT8)],
)
def test_a_network_gives_the_same_bits_and_comes_back_whole(
    schema: str, there: Pass, back: Pass
) -> None:
    model = network()
    plan = make_plan(model, calibrate(model, [{"x": PICTURE}, {"x": -PICTURE}]), schema)
    before = quantize_model(model, plan)
    after = rebased(before, there)
    assert "uint8" in types(before if there is TO_INT8 else after)
    assert graph_digest(after) != graph_digest(before)
    assert check_convention(after) == ()
    same(before, after, x=PICTURE * 2)
    assert not there.run(after)
    assert graph_digest(rebased(after, back)) == graph_digest(before)


GRIDS = ["float s = {0.1}", "uint8 z = {7}", "float t = {0.2}", "uint8 w = {130}"]


def test_a_constant_that_no_product_reads_is_an_activation() -> None:
    lines = [
        *(
            "a = QuantizeLinear(x, s, z)",
            "b = DequantizeLinear(a, s, z)",
            "c = DequantizeLinear(k, t, w)",
        ),
        *("d = Add(b, c)", "e = QuantizeLinear(d, t, w)", "y = DequantizeLinear(e, t, w)"),
    ]
    before = text("float[2,3] x", "float[2,3] y", [*GRIDS, "uint8[3] k = {0, 255, 128}"], lines)
    after = rebased(before)
    assert set(types(after)) == {"int8"}
    np.testing.assert_array_equal(
        constant_value(after.graph.initializers["k"]), np.array([-128, 127, 0], np.int8)
    )  # type: ignore[arg-type]
    same(before, after, x=ADVERSARIAL[4:10].reshape(2, 3))
    assert graph_digest(rebased(after, TO_UINT8)) == graph_digest(before)


def test_a_weight_stays() -> None:
    lines = [
        *(
            "a = QuantizeLinear(x, s, z)",
            "b = DequantizeLinear(a, s, z)",
            "c = DequantizeLinear(k, t, w)",
        ),
        *(
            "t0 = Transpose(c)",
            "d = MatMul(b, t0)",
            "e = QuantizeLinear(d, t, w)",
            "y = DequantizeLinear(e, t, w)",
        ),
    ]
    before = text(
        "float[2,3] x", "float[2,2] y", [*GRIDS, "uint8[2,3] k = {0, 255, 128, 1, 2, 3}"], lines
    )
    after = rebased(before)
    assert types(after) == ["int8", "int8", "uint8", "int8", "int8"]
    same(before, after, x=ADVERSARIAL[4:10].reshape(2, 3))


def test_a_zero_point_that_was_left_out_is_written() -> None:
    before = text(
        "float[4] x",
        "float[4] y",
        GRIDS,
        ["a = QuantizeLinear(x, s)", "y = DequantizeLinear(a, s)"],
    )
    after = rebased(before)
    assert [int(constant_value(node.inputs[2])) for node in after.graph] == [-128, -128]  # type: ignore[arg-type]
    assert types(after) == ["int8", "int8"]
    same(before, after, x=ADVERSARIAL[:4])


@pytest.mark.parametrize(
    ("inputs", "outputs", "lines", "why"),
    [
        (
            "uint8[4] x",
            "float[4] y",
            ["y = DequantizeLinear(x, s, z)"],
            "enters or leaves the graph",
        ),
        ("float[4] x", "uint8[4] y", ["y = QuantizeLinear(x, s, z)"], "enters or leaves the graph"),
        (
            "float[4] x",
            "float[2,2] y",
            ["a = QuantizeLinear(x, s, z)", "b = Reshape(a, n)", "y = DequantizeLinear(b, s, z)"],
            "'b' reads its integers as they are",
        ),
        (
            "float[4] x",
            "float[4] y",
            ["a, b, c = DynamicQuantizeLinear(x)", "y = DequantizeLinear(a, b, c)"],
            "its parameters are computed",
        ),
    ],
)
def test_what_keeps_its_type_says_why(
    inputs: str, outputs: str, lines: list[str], why: str
) -> None:
    before = text(inputs, outputs, [*GRIDS, "int64[2] n = {2, 2}"], lines)
    found = run_pipeline(before, Pipeline((TO_INT8,)))
    assert graph_digest(found.model) == graph_digest(before)
    assert [why in one.reason for one in found.declined] == [True]


def test_an_input_of_levels_keeps_its_type_among_others_that_do_not() -> None:
    lines = [
        *(
            "a = DequantizeLinear(x, s, z)",
            "b = QuantizeLinear(a, t, w)",
            "c = DequantizeLinear(b, t, w)",
        ),
        *("d = Add(a, c)", "e = QuantizeLinear(d, t, w)", "y = DequantizeLinear(e, t, w)"),
    ]
    before = text("uint8[256] x", "float[256] y", GRIDS, lines)
    after = rebased(before)
    assert types(after) == ["uint8", "int8", "int8", "int8", "int8"]
    same(before, after, x=np.arange(256).astype(np.uint8))
