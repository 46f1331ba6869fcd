"""Models quantized by others: their parameters come out of them, and written again they give
the very same numbers.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from onnxruntime import quantization
from quantization_subjects import SUBJECTS, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.graph import Form, check_convention, form_of, graph_digest, load_model, node_macs
from qbench.numerics import quantize
from qbench.passes import canonicalize, plannable
from qbench.quantization import (
    Dynamic,
    Given,
    Plan,
    Role,
    is_quantized,
    load_plan,
    qparams_of,
    quantize_model,
    read_plan,
    save_plan,
)

Array = np.ndarray[Any, Any]


def answers(
    model: ir.Model, feeds: dict[str, Array], backend: str = "ort-cpu-noopt"
) -> dict[str, Array]:
    with get_backend(backend).prepare(model) as executor:
        return executor.run(feeds)


def given(plan: Plan) -> dict[str, Given]:
    return {
        str(slot): decision
        for slot, decision in plan.decisions.items()
        if isinstance(decision, Given)
    }


def statically(name: str, folder: Path, form: str, per_channel: bool) -> ir.Model:
    """``name`` quantized by onnxruntime, calibrated on one batch of ours."""
    model = SUBJECTS[name]()
    ir.save(model, folder / "float.onnx")

    class Reader(quantization.CalibrationDataReader):
        batches = iter([feeds_of(model, rows=8)])

        def get_next(self) -> Any:
            return next(self.batches, None)

    quantization.quantize_static(
        folder / "float.onnx",
        folder / "int8.onnx",
        Reader(),
        quant_format=quantization.QuantFormat[form],
        per_channel=per_channel,
    )
    return load_model(folder / "int8.onnx")


STATIC = ("conv_relu", "residual", "depthwise", "pooled_concat", "attention")


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("name", STATIC)
def test_static_models_of_onnxruntime(
    name: str, form: str, per_channel: bool, tmp_path: Path
) -> None:
    model = statically(name, tmp_path, form, per_channel)
    plan = read_plan(model)
    assert plan.schema == "given"
    assert plan.integer_macs == 1.0
    assert plan.refusals == ()
    assert plan.macs == sum(node_macs(canonicalize(SUBJECTS[name]())).values())
    assert is_quantized(model)

    scales = [
        numpy_helper.to_array(tensor).astype(np.float32)
        for tensor in onnx.load(tmp_path / "int8.onnx").graph.initializer
        if tensor.name.endswith("_scale")
    ]
    grids = [decision.qparams for decision in given(plan).values()]
    read = {scale.tobytes() for grid in grids for scale in (grid.scale,)}
    stored = {scale.tobytes() for scale in scales if scale.size}
    # A bias in operator form has no scale of its own in the file: it is the product of two others.
    assert stored - read == set()
    assert (
        per_channel == any(grid.axis is not None for grid in grids if grid.qtype.bits == 8)
        or name == "attention"
    )

    again = quantize_model(model, plan)
    assert check_convention(again) == ()
    feeds = feeds_of(model, seed=9)
    before, after = answers(model, feeds), answers(again, feeds)
    assert all(np.array_equal(before[key], after[key]) for key in before)
    onnx.checker.check_model(ir.to_proto(again), full_check=True)
    assert quantize_model(again, plan).metadata_props == again.metadata_props

    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan


@pytest.mark.parametrize("name", ["conv_relu", "residual", "gates", "attention"])
def test_dynamic_models_of_onnxruntime(name: str, tmp_path: Path) -> None:
    ir.save(SUBJECTS[name](), tmp_path / "float.onnx")
    quantization.quantize_dynamic(tmp_path / "float.onnx", tmp_path / "int8.onnx")
    model = load_model(tmp_path / "int8.onnx")
    assert form_of(model) is Form.QOPERATOR
    plan = read_plan(model)
    assert is_quantized(model)
    weighted = [slot for slot in plan.decisions if slot.role is Role.WEIGHT]
    assert weighted
    for slot in weighted:
        data = next(
            d for s, d in plan.decisions.items() if (s.node, s.role) == (slot.node, Role.INPUT)
        )
        assert data == Dynamic(data.qtype)  # type: ignore[union-attr]
        assert isinstance(plan.decisions[slot], Given)
    assert plan.integer_macs == 1.0 if name != "attention" else plan.integer_macs < 1.0
    again = quantize_model(model, plan)
    feeds = feeds_of(model, seed=9)
    # onnx's evaluator: without a dot product instruction onnxruntime adds pairs of int8 products in
    # 16 bits.
    before, after = (answers(m, feeds, "onnx-reference") for m in (model, again))
    for key in before:  # the products are exact integers; their scale is applied in another order
        assert np.abs(before[key] - after[key]).max() <= 1e-5 * np.abs(before[key]).max()


def test_products_that_an_engine_fused_are_read(tmp_path: Path) -> None:
    """What onnxruntime saves after its optimizations: DynamicQuantizeMatMul."""
    import onnxruntime

    model = model_of(
        "float[N,8] x",
        "float[N,6] z",
        "p = MatMul(x, w)\n z = Add(p, b)",
        w=weights(0, 8, 6),
        b=weights(1, 6),
    )
    ir.save(model, tmp_path / "float.onnx")
    quantization.quantize_dynamic(tmp_path / "float.onnx", tmp_path / "int8.onnx", per_channel=True)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(
        tmp_path / "int8.onnx", options, providers=["CPUExecutionProvider"]
    )
    plain, fused = (load_model(tmp_path / f"{name}.onnx") for name in ("int8", "fused"))
    assert {node.op_type for node in fused.graph} == {"DynamicQuantizeMatMul"}
    weight, of_fused = (
        [qparams_of(d) for slot, d in read_plan(m).decisions.items() if slot.role is Role.WEIGHT]
        for m in (plain, fused)
    )
    assert weight == of_fused
    assert weight[0] is not None
    assert (weight[0].axis, weight[0].scale.size) == (1, 6)
    feeds = feeds_of(plain, seed=9)
    expected = answers(plain, feeds, "onnx-reference")["z"]
    found = answers(quantize_model(fused, read_plan(fused)), feeds, "onnx-reference")["z"]
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


# -- conventions of others, by hand

INT8 = np.random.default_rng(3).integers(-127, 128, (4, 3, 1, 1)).astype(np.int8)
S, W = np.float32(0.0371), np.float32(0.0113)
CONSTANTS = {
    "w": INT8,
    "sw": W,
    "zw": np.int8(0),
    "sx": S,
    "zx": np.uint8(117),
    "sy": np.float32(0.05),
}
CONV = "float[N,3,5,5] x", "float[N,4,5,5] y"
WEIGHT = "wr = DequantizeLinear(w, sw, zw)\n"

FOREIGN = {  # the body, and how many values of it are on a grid
    "one DQ for two readers": (
        "q = QuantizeLinear(x, sx, zx)\n d = DequantizeLinear(q, sx, zx)\n"
        + WEIGHT
        + "a = Conv(d, wr)\n"
        "b = Conv(d, wr)\n y = Add(a, b)",
        1,
    ),
    "no zero points": (
        "q = QuantizeLinear(x, sx)\n d = DequantizeLinear(q, sx)\n wr = DequantizeLinear(w, sw)\n"
        " y = Conv(d, wr)",
        1,
    ),
    "scales as nodes": (
        "s = Constant<value_float=0.0371>()\n q = QuantizeLinear(x, s, zx)\n"
        " d = DequantizeLinear(q, s, zx)\n" + WEIGHT + "y = Conv(d, wr)",
        1,
    ),
    "the engine's own domain": (
        "q = com.microsoft.QuantizeLinear(x, sx, zx)\n"
        " d = com.microsoft.DequantizeLinear(q, sx, zx)\n"
        "wr = com.microsoft.DequantizeLinear(w, sw, zw)\n y = Conv(d, wr)",
        1,
    ),
    "a pair around a float weight": (
        "q = QuantizeLinear(x, sx, zx)\n d = DequantizeLinear(q, sx, zx)\n"
        " wq = QuantizeLinear(wf, sw, zw)\n" + WEIGHT.replace("(w,", "(wq,") + "y = Conv(d, wr)",
        1,
    ),
    "two pairs in a row": (
        "q = QuantizeLinear(x, sx, zx)\n d = DequantizeLinear(q, sx, zx)\n"
        " q2 = QuantizeLinear(d, sx, zx)\n"
        "d2 = DequantizeLinear(q2, sx, zx)\n" + WEIGHT + "y = Conv(d2, wr)",
        1,
    ),
    "two grids in a row": (
        "q = QuantizeLinear(x, sx, zx)\n d = DequantizeLinear(q, sx, zx)\n"
        " q2 = QuantizeLinear(d, sy, zx)\n"
        "d2 = DequantizeLinear(q2, sy, zx)\n" + WEIGHT + "y = Conv(d2, wr)",
        2,
    ),
    "two grids side by side": (
        "q = QuantizeLinear(x, sx, zx)\n d = DequantizeLinear(q, sx, zx)\n"
        " q2 = QuantizeLinear(x, sy, zx)\n"
        "d2 = DequantizeLinear(q2, sy, zx)\n"
        + WEIGHT
        + "a = Conv(d, wr)\n b = Conv(d2, wr)\n y = Sub(a, b)",
        2,
    ),
    "integers moved between Q and DQ": (
        "q = QuantizeLinear(x, sx, zx)\n m = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(q)\n"
        "t = Transpose<perm=[0,1,3,2]>(m)\n d = DequantizeLinear(t, sx, zx)\n"
        + WEIGHT
        + "y = Conv(d, wr)",
        3,
    ),
    "levels clipped between Q and DQ": (
        "q = QuantizeLinear(x, sx, zx)\n c = Clip(q, zx, top)\n d = DequantizeLinear(c, sx, zx)\n"
        + WEIGHT
        + "y = Conv(d, wr)",
        1,
    ),
    "an output that leaves rounded": (
        "q = QuantizeLinear(x, sx, zx)\n d = DequantizeLinear(q, sx, zx)\n"
        + WEIGHT
        + "c = Conv(d, wr)\n"
        "r = QuantizeLinear(c, sy, zx)\n y = DequantizeLinear(r, sy, zx)",
        2,
    ),
    "a weight that is computed on behind its DQ": (
        "q = QuantizeLinear(x, sx, zx)\n d = DequantizeLinear(q, sx, zx)\n"
        + WEIGHT.replace("wr", "wd")
        + "wr = Neg(wd)\n y = Conv(d, wr)",
        1,
    ),
    "another grid on the way back": (
        "q = QuantizeLinear(x, sx, zx)\n d = DequantizeLinear(q, sy, zx)\n"
        + WEIGHT
        + "y = Conv(d, wr)",
        2,
    ),
}


def foreign(name: str) -> ir.Model:
    body, _ = FOREIGN[name]
    wf = (INT8 * W * np.float32(1.0005)).astype(np.float32)
    constants = {**CONSTANTS, "wf": wf, "top": np.uint8(201)}
    used = {
        k: np.asarray(v)
        for k, v in constants.items()
        if any(f"{c}{k}{e}" in body for c in " (" for e in ",)")
    }
    model = model_of(*CONV, body, **used)
    model.opset_imports["com.microsoft"] = 1
    return model


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_conventions_are_read_and_written_in_ours(name: str) -> None:
    model = foreign(name)
    plan = read_plan(model)
    feeds = {"x": np.random.default_rng(7).normal(0, 2, (6, 3, 5, 5)).astype(np.float32)}
    again = quantize_model(model, plan)
    assert np.array_equal(answers(model, feeds)["y"], answers(again, feeds)["y"])
    assert len(plan.values) == FOREIGN[name][1]
    if name != "another grid on the way back":  # it has no form in the convention
        assert check_convention(again) == ()
    weight = next(d.qparams for slot, d in given(plan).items() if "weight" in slot)
    assert (weight.scale, weight.zero_point, weight.qtype.name) == (W, 0, "int8")
    lifted = plannable(model)
    lifted.metadata_props.clear()  # or its mark says that nothing is to be done
    assert graph_digest(plannable(lifted)) == graph_digest(lifted) == plan.graph
    assert read_plan(lifted).decisions == plan.decisions
    assert graph_digest(plannable(canonicalize(model))) == plan.graph


def test_stored_integers_come_back_exactly() -> None:
    model = foreign("one DQ for two readers")
    lifted = plannable(model)
    plan = read_plan(model)
    for slot, grid in plan.constants.items():
        value = lifted.graph.initializers[slot.value].const_value
        assert value is not None
        assert np.array_equal(quantize(value.numpy(), grid), INT8)


@pytest.mark.parametrize("axis", [0, 1])
def test_transposed_weights_keep_the_axis_of_their_scales(axis: int) -> None:
    """As torch exports a linear layer: int8 (out, in), scales along ``axis``, DequantizeLinear,
    Transpose, MatMul.
    """
    weight = np.random.default_rng(1).integers(-127, 128, (6, 8)).astype(np.int8)
    scales = np.linspace(0.01, 0.03, weight.shape[axis], dtype=np.float32)
    model = model_of(
        "float[N,8] x",
        "float[N,6] y",
        f"""q = QuantizeLinear(x, sx, zx)
        d = DequantizeLinear(q, sx, zx)
        wr = DequantizeLinear<axis={axis}>(w, sw, zw)
        t = Transpose<perm=[1,0]>(wr)
        y = MatMul(d, t)""",
        w=weight,
        sw=scales,
        zw=np.zeros(weight.shape[axis], np.int8),
        sx=np.asarray(S),
        zx=np.asarray(np.uint8(117)),
    )
    plan = read_plan(model)
    (grid,) = plan.constants.values()
    assert (grid.axis, grid.scale.tolist()) == (1 - axis, scales.tolist())
    assert plan.integer_macs == 1.0
    feeds = {"x": weights(4, 5, 8)}
    assert np.array_equal(
        answers(model, feeds)["y"], answers(quantize_model(model, plan), feeds)["y"]
    )


OF_ENGINE = {
    "QLinearAdd": "r = com.microsoft.QLinearAdd(q, sx, zx, q2, sy, zy, sz, zz)",
    "QLinearMul": "r = com.microsoft.QLinearMul(q, sx, zx, q2, sy, zy, sz, zz)",
    "QLinearLeakyRelu": "r = com.microsoft.QLinearLeakyRelu<alpha=0.2>(q, sx, zx, sz, zz)",
    "QLinearSigmoid": "r = com.microsoft.QLinearSigmoid(q, sx, zx, sz, zz)",
    "QLinearSoftmax": "r = com.microsoft.QLinearSoftmax<axis=-1, opset=13>(q, sx, zx, sz, zz)",
    "QLinearAveragePool": (
        "r = com.microsoft.QLinearAveragePool<kernel_shape=[3,3], "
        "pads=[1,1,1,1]>(q, sx, zx, sz, zz)"
    ),
    "QLinearGlobalAveragePool": "r = com.microsoft.QLinearGlobalAveragePool(q, sx, zx, sz, zz)",
    "QLinearConcat": "r = com.microsoft.QLinearConcat<axis=1>(sz, zz, q, sx, zx, q2, sy, zy)",
    "QLinearWhere": "r = com.microsoft.QLinearWhere(m, q, sx, zx, q2, sy, zy, sz, zz)",
}


@pytest.mark.parametrize("operator", OF_ENGINE)
def test_operators_of_the_engine_become_float_ones_between_pairs(operator: str) -> None:
    constants = {
        "sx": np.float32(0.031), "zx": np.uint8(120), "sy": np.float32(0.022), "zy": np.uint8(99),
        "sz": np.float32(0.047), "zz": np.uint8(101),
        "m": np.random.default_rng(0).random((4, 6, 6)) < 0.5,
    }  # fmt: skip
    body = f"""q = QuantizeLinear(x, sx, zx)
    q2 = QuantizeLinear(x, sy, zy)
    {OF_ENGINE[operator]}
    y = DequantizeLinear(r, sz, zz)"""
    used = {
        key: np.asarray(value)
        for key, value in constants.items()
        if f"{key}," in body or f"{key})" in body
    }
    model = model_of("float[N,4,6,6] x", "float[N,a,b,c] y", body, **used)
    model.opset_imports["com.microsoft"] = 1
    plan = read_plan(model)
    again = quantize_model(model, plan)
    assert {node.op_type for node in again.graph} >= {operator.removeprefix("QLinear")}
    feeds = {"x": np.random.default_rng(7).normal(0, 2, (6, 4, 6, 6)).astype(np.float32)}
    before, after = answers(model, feeds)["y"], answers(again, feeds)["y"]
    steps = np.rint(np.abs(before - after) / constants["sz"])
    assert steps.max() <= 1  # ties: these kernels round behind the zero point, or look a table up
    # ONNX Runtime sums exponentials out of a table in fixed point: its softmax is another one
    assert (steps > 0).mean() < (0.1 if operator == "QLinearSoftmax" else 0.02)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_a_gemm_of_the_engine_has_its_bias_inside_its_bracket(alpha: float) -> None:
    rng = np.random.default_rng(2)
    model = model_of(
        "float[N,8] x",
        "float[N,5] y",
        f"""q = QuantizeLinear(x, sx, zx)
        r = com.microsoft.QGemm<transB=1, alpha={alpha}>(q, sx, zx, w, sw, zw, c, sz, zz)
        y = DequantizeLinear(r, sz, zz)""",
        sx=np.asarray(S),
        zx=np.asarray(np.uint8(117)),
        w=rng.integers(-60, 60, (5, 8)).astype(np.int8),
        sw=np.linspace(0.01, 0.02, 5, dtype=np.float32),
        zw=np.zeros(5, np.int8),
        c=rng.integers(-9000, 9000, 5).astype(np.int32),
        sz=np.asarray(np.float32(0.06)),
        zz=np.asarray(np.uint8(120)),
    )
    model.opset_imports["com.microsoft"] = 1
    plan = read_plan(model)
    (bias,) = (qparams_of(d) for slot, d in plan.decisions.items() if slot.role is Role.BIAS)
    assert bias is not None
    assert np.array_equal(
        bias.scale, S * np.linspace(0.01, 0.02, 5, dtype=np.float32) * np.float32(alpha)
    )
    feeds = {"x": weights(4, 200, 8, size=1.5)}
    before, after = answers(model, feeds)["y"], answers(quantize_model(model, plan), feeds)["y"]
    assert np.abs(before - after).max() < 0.061
    assert (before != after).mean() < 0.01


def test_integer_inputs_and_outputs_stay_integers() -> None:
    model = model_of(
        "uint8[N,3,5,5] x",
        "uint8[N,4,5,5] y",
        "d = DequantizeLinear(x, sx, zx)\n"
        + WEIGHT
        + "c = Conv(d, wr)\n y = QuantizeLinear(c, sy, zx)",
        **{key: np.asarray(value) for key, value in CONSTANTS.items()},
    )
    plan = read_plan(model)
    assert plan.integer_macs == 1.0
    feeds = {"x": np.random.default_rng(7).integers(0, 256, (6, 3, 5, 5)).astype(np.uint8)}
    again = quantize_model(model, plan)
    before, after = answers(model, feeds)["y"], answers(again, feeds)["y"]
    assert before.dtype == after.dtype == np.uint8
    assert np.array_equal(before, after)


# -- what means nothing


@pytest.mark.parametrize(
    ("body", "constants", "found"),
    [
        ("y = DequantizeLinear(q, s, z)", {"s": np.float32(0)}, "found a scale of 0.0"),
        ("y = DequantizeLinear(q, s, z)", {"s": np.float32(np.nan)}, "found a scale of nan"),
        ("y = DequantizeLinear(q, s, z)", {"s": np.float32(-1)}, "found a scale of -1.0"),
        (
            "y = DequantizeLinear(q, s, z)",
            {"s": np.float32([0.1, np.inf, 0.1])},
            "found a scale of inf",
        ),
        ("y = DequantizeLinear(x, s, z)", {}, "found integers that are float"),
        (
            "y = DequantizeLinear(q, s, z)",
            {"z": np.int8(3)},
            "found integers of uint8 and a zero point of int8",
        ),
        (
            "y = DequantizeLinear(q, s, z)",
            {"s": np.float32([0.1, 0.1])},
            "found 2 scales for 3 slices of axis 1",
        ),
        (
            "y = DequantizeLinear<axis=4>(q, s, z)",
            {"s": np.float32([0.1, 0.1])},
            "along axis 4 of 4 dimensions",
        ),
    ],
)
def test_what_means_nothing_is_refused_in_a_sentence(
    body: str, constants: dict[str, Array], found: str
) -> None:
    all_constants = {"s": S, "z": np.uint8(117), "s0": S, **constants}
    model = model_of(
        "float[N,3,5,5] x",
        "float[N,3,5,5] y",
        "q = QuantizeLinear(x, s0, z0)\n" + body,
        z0=np.asarray(np.uint8(117)),
        **{key: np.asarray(value) for key, value in all_constants.items()},
    )
    with pytest.raises(InputError, match="Reading the DequantizeLinear 'y'") as refused:
        read_plan(model)
    assert found in str(refused.value)


@pytest.mark.parametrize("name", SUBJECTS)
def test_float_models_have_an_empty_plan(name: str) -> None:
    model = SUBJECTS[name]()
    plan = read_plan(model)
    assert (plan.decisions, plan.integer_macs) == ({}, 0.0)
    assert not is_quantized(model)
    assert graph_digest(plannable(model)) == graph_digest(canonicalize(model))


@pytest.mark.parametrize("mover", ["Flatten", "Reshape"])
def test_what_is_moved_between_its_pair_and_a_product_stays_on_its_codes(mover):
    model = onnx.helper.make_model(
        onnx.parser.parse_graph(
            """
            g (float[N, 2, 3] x) => (float[N, 4] y)
            <float sx = {0.02}, uint8 zx = {128}, float sw = {0.01}, int8 zw = {0},
             int64[2] shape = {-1, 6}>
            {
                q = QuantizeLinear(x, sx, zx)
                d = DequantizeLinear(q, sx, zx)
                y = Identity(d)
            }
            """
        ),
        opset_imports=[onnx.helper.make_opsetid("", 21)],
        ir_version=10,
    )
    codes = np.arange(-12, 12, dtype=np.int8).reshape(6, 4)
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(codes, "w"))
    del graph.node[-1]
    inputs = ["d"] if mover == "Flatten" else ["d", "shape"]
    graph.node.extend(
        [
            onnx.helper.make_node(mover, inputs, ["f"], name="flat"),
            onnx.helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], name="dq"),
            onnx.helper.make_node("Gemm", ["f", "wd"], ["y"], name="fc"),
        ]
    )
    loaded = ir.from_proto(model)
    plan = read_plan(loaded)
    assert (plan.integer_macs, plan.floats) == (1.0, {})
    (name,) = [name for name in given(plan) if name.startswith("fc.input")]
    assert float(given(plan)[name].qparams.scale) == np.float32(0.02)
    feeds = {"x": np.linspace(-3, 3, 30, dtype=np.float32).reshape(5, 2, 3)}
    again = quantize_model(loaded, plan)
    np.testing.assert_array_equal(answers(again, feeds)["y"], answers(loaded, feeds)["y"])
