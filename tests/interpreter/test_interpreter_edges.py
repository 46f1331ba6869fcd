"""Where kernels could go wrong without a word: each against ONNX's evaluator,
ONNX Runtime or plain integers.
"""

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from qbench.errors import InputError, UnsupportedError
from qbench.host import processor_features
from qbench.interpreter import Means, Program, best_means, counting_means, float_gemm
from qbench.numerics import QParams, QType, add_quantized, get_arithmetic, quantize, requantize

INT8 = QType.parse("int8")
SATURATES = not any("vnni" in feature for feature in processor_features())


def model_of(text: str, opset: int = 17, **constants: Any) -> ir.Model:
    head = f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
    proto = onnx.parser.parse_model(f"{head}\n{text}")
    for name, array in constants.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return ir.serde.deserialize_model(proto)


def counted(
    model: ir.Model, machine: str, feeds: dict[str, Any], means: Means | None = None
) -> Any:
    return next(iter(Program(model, get_arithmetic(machine), means=means).run(feeds).values()))


def test_a_clip_with_computed_ends_is_one() -> None:
    model = model_of("g (float[4] x, float low) => (float[4] y) { m = Neg(low)\n y = Clip(x, m) }")
    feeds = {"x": np.array([-3, -1, 0, 2], np.float32), "low": np.float32(2)}
    np.testing.assert_array_equal(counted(model, "ideal", feeds), [-2, -1, 0, 2])


def test_a_clip_of_old_has_its_ends_in_attributes() -> None:
    model = model_of(
        "g (float[3] x) => (float[3] y) { y = Clip<min = -1.0, max = 1.0>(x) }", opset=10
    )
    np.testing.assert_array_equal(
        counted(model, "ideal", {"x": np.array([-3, 0.5, 9], np.float32)}), [-1, 0.5, 1]
    )


@pytest.mark.parametrize("means", [best_means(), counting_means()])
def test_sums_deeper_than_an_int32_holds(means: Means) -> None:
    depth = 70_001
    model = model_of(
        f"g (uint8[1, {depth}] x) => (uint8[1, 1] y) "
        f"{{ y = QLinearMatMul(x, s, z, w, s, v, t, z) }}",
        s=np.float32(1), z=np.uint8(0), v=np.int8(0), t=np.float32(2.0**24),
        w=np.full((depth, 1), 127, np.int8),
    )  # fmt: skip
    x = np.full((1, depth), 255, np.uint8)
    exact = depth * 255 * 127
    assert counted(model, "ideal", {"x": x}, means).item() == round(exact / 2**24)
    assert counted(model, "nvdla", {"x": x}, means).item() == round(min(exact, 2**33 - 1) / 2**24)
    wrapped = (exact + 2**31) % 2**32 - 2**31
    assert counted(model, "ort-x64", {"x": x}, means).item() == max(round(wrapped / 2**24), 0)


def grouped(groups: int, depth: int) -> tuple[ir.Model, dict[str, Any]]:
    channels = groups * depth
    model = model_of(
        f"g (uint8[1, {channels}, 5, 5] x) => (uint8[1, {channels}, 3, 3] y) "
        f"{{ y = QLinearConv<group = {groups}>(x, s, z, w, s, v, t, z) }}",
        s=np.float32(1), z=np.uint8(0), v=np.int8(0), t=np.float32(9 * depth * 130),
        w=np.full((channels, depth, 3, 3), 127, np.int8),
    )  # fmt: skip
    return model, {"x": np.full((1, channels, 5, 5), 255, np.uint8)}


@pytest.mark.parametrize(("groups", "depth"), [(1, 8), (2, 8), (4, 4)])
def test_groups_saturate_in_pairs_as_the_engine_does(groups: int, depth: int) -> None:
    model, feeds = grouped(groups, depth)
    ours = counted(model, "ort-x64-avx2", feeds)
    assert (ours != counted(model, "ort-x64", feeds)).all()
    np.testing.assert_array_equal(ours, counted(model, "ort-x64-avx2", feeds, counting_means()))
    if SATURATES:
        np.testing.assert_array_equal(ours, engine(model, feeds))


def test_depthwise_products_saturate_where_the_machine_says_so() -> None:
    model, feeds = grouped(16, 1)
    exact = counted(model, "ort-x64", feeds)
    np.testing.assert_array_equal(counted(model, "ort-x64-avx2", feeds), exact)
    np.testing.assert_array_equal(engine(model, feeds), exact)
    np.testing.assert_array_equal(counted(model, "fbgemm", feeds), exact)
    # four pairs of 2 · 255 · 127 → 32,767, and the ninth tap alone
    lost = np.rint((4 * 32767 + 255 * 127) / (9 * 130))
    assert (counted(model, "fbgemm-depthwise", feeds) == lost).all()


def engine(model: ir.Model, feeds: dict[str, Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    data = ir.serde.serialize_model(model).SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "machine", ["tflite-single", "nvdla", "tvm-upward", "tvm-tonearest", "gemmlowp"]
)
def test_weights_of_nothing_but_their_zero_point_bound_nothing(machine: str) -> None:
    model = model_of(
        "g (uint8[1, 100] x) => (uint8[1, 2] y) { y = QLinearMatMul(x, s, z, w, s, v, t, z) }",
        s=np.float32(1), z=np.uint8(0), v=np.uint8(128), t=np.float32(0.001),
        w=np.zeros((100, 2), np.uint8),
    )  # fmt: skip
    x = {"x": np.full((1, 100), 255, np.uint8)}
    np.testing.assert_array_equal(
        counted(model, machine, x), counted(model, machine, x, counting_means())
    )


def test_a_narrow_machine_never_reaches_the_lowest_level() -> None:
    one = QParams(1.0, 0, INT8)
    assert quantize([-500], one, "tvm-relay").item() == -127
    assert add_quantized([-100], [-100], one, one, one, "tvm-relay").item() == -127
    assert requantize([-500], (1.0, 1.0, 1.0), 0, INT8, "tvm-relay").item() == -127
    model = model_of(
        "g (int8[1] a, int8[1] b) => (int8[1] y) "
        "{ y = com.microsoft.QLinearMul(a, s, z, b, s, z, s, z) }",
        s=np.float32(1), z=np.int8(0),
    )  # fmt: skip
    feeds = {"a": np.array([-100], np.int8), "b": np.array([100], np.int8)}
    assert counted(model, "tvm-relay", feeds).item() == -127


@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_an_average_counts_what_onnx_counts(count_include_pad: int) -> None:
    attributes = (
        "kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], ceil_mode=1, "
        f"count_include_pad={count_include_pad}"
    )
    float_pool = model_of(
        f"g (float[1,1,6,6] x) => (float[1,1,h,w] y) {{ y = AveragePool<{attributes}>(x) }}", 19
    )
    pool = model_of(
        f"g (uint8[1,1,6,6] x) => (uint8[1,1,h,w] y) "
        f"{{ y = com.microsoft.QLinearAveragePool<{attributes}>(x, s, z, s, z) }}",
        s=np.float32(1), z=np.uint8(0),
    )  # fmt: skip
    x = np.random.default_rng(0).integers(0, 255, (1, 1, 6, 6)).astype(np.uint8)
    evaluator = ReferenceEvaluator(ir.serde.serialize_model(float_pool))
    (mean,) = evaluator.run(None, {"x": x.astype(np.float32)})
    found = counted(pool, "ideal", {"x": x}).astype(np.float32)
    assert found.shape == mean.shape
    assert np.abs(found - mean).max() <= 0.5


def test_a_multiplier_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="positive float32"):
        requantize([1], (1e-30, 1e-30, 1.0), 0, INT8, "glow-cpu")


def test_a_node_with_graphs_of_its_own_is_refused() -> None:
    model = model_of(
        "g (bool c, float[1] x) => (float[1] y) "
        "{ y = If<then_branch = t () => (float[1] a) { a = Neg(x) },"
        "         else_branch = e () => (float[1] b) { b = Abs(x) }>(c) }"
    )
    with pytest.raises(UnsupportedError, match="graphs of its own"):
        Program(model, get_arithmetic("ideal"))


def test_a_zero_point_that_is_left_out_is_zero() -> None:
    model = model_of(
        "g (float[3] x) => (float[3] y) { q = QuantizeLinear(x, s)\n y = DequantizeLinear(q, s) }",
        s=np.float32(0.5),
    )
    np.testing.assert_array_equal(
        counted(model, "ort-x64", {"x": np.array([-1, 0.6, 200], np.float32)}), [0, 0.5, 127.5]
    )


def test_what_is_clipped_and_wrapped_is_counted() -> None:
    model = model_of(
        "g (uint8[1, 4] x) => (uint8[1, 1] y) { y = QLinearMatMul(x, s, z, w, s, v, s, z) }",
        s=np.float32(1), z=np.uint8(0), v=np.int8(0), w=np.full((4, 1), 127, np.int8),
    )  # fmt: skip
    program = Program(
        model, get_arithmetic("ort-x64-avx2"), means=Means(float_gemm, compiled=False)
    )
    program.run({"x": np.full((1, 4), 255, np.uint8)})
    (counters,) = program.counters.values()
    assert (counters.levels, counters.clipped_low, counters.clipped_high) == (1, 0, 1)
    assert (counters.clipped, counters.overflowed, counters.saturated) == (1, 0, 2)
