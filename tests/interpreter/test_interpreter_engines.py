"""Whole graphs, counted here and by ONNX Runtime: every bit equal, on processors that saturate
pairs and others.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from qbench.graph import load_model
from qbench.host import processor_features
from qbench.interpreter import Means, Program, float_gemm, risky_pairs
from qbench.numerics import get_arithmetic, list_arithmetics

NET = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[N, 3, 17, 15] x) => (float[N, 7] y)
<float[12,3,3,3] w0, float[12] b0, float[12,1,3,3] w1, float[12] b1, float[12,6,1,1] w2,
 float[12] b2, float[12,7] w3>
{
  c0 = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w0, b0)
  r0 = Relu(c0)
  c1 = Conv<pads=[2,2,2,2], group=12, dilations=[2,2]>(r0, w1, b1)
  r1 = Relu(c1)
  c2 = Conv<group=2>(r1, w2, b2)
  s = Add(r0, c2)
  m = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(s)
  p = Mul(m, m)
  l = Sigmoid(p)
  g = GlobalAveragePool(l)
  f = Flatten(g)
  y = MatMul(f, w3)
}
"""


class Batches(CalibrationDataReader):
    def __init__(self, x: np.ndarray) -> None:
        self._batches = iter([{"x": x[i : i + 1]} for i in range(len(x))])

    def get_next(self):
        return next(self._batches, None)


def quantized(
    folder: Path, *, per_channel: bool, weights: QuantType, reduce: bool = False
) -> tuple[Path, np.ndarray]:
    random = np.random.default_rng(7)
    model = onnx.parser.parse_model(NET)
    for value in model.graph.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = random.normal(0, 1 / np.sqrt(max(np.prod(shape[1:]), 1)), shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    del model.graph.value_info[:]
    onnx.save(model, folder / "float.onnx")
    x = random.normal(0, 1, (16, 3, 17, 15)).astype(np.float32)
    quantize_static(
        folder / "float.onnx", folder / "q.onnx", Batches(x), quant_format=QuantFormat.QOperator,
        per_channel=per_channel, reduce_range=reduce, activation_type=QuantType.QUInt8,
        weight_type=weights,
    )  # fmt: skip
    return folder / "q.onnx", x


def engine(path: Path, *, optimized: bool, precise: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    if precise:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weights", [QuantType.QInt8, QuantType.QUInt8])
def test_exact_engines_and_the_exact_machine_agree_in_every_bit(
    per_channel, weights, tmp_path
) -> None:
    path, x = quantized(tmp_path, per_channel=per_channel, weights=weights)
    (theirs,) = engine(path, optimized=True, precise=True).run(None, {"x": x})
    program = Program(load_model(path), get_arithmetic("ort-x64"))
    np.testing.assert_array_equal(program.run({"x": x})["y"], theirs)
    assert sum(one.overflowed + one.saturated for one in program.counters.values()) == 0


@pytest.mark.slow
def test_this_processor_is_one_of_the_two_machines(tmp_path) -> None:
    path, x = quantized(tmp_path, per_channel=True, weights=QuantType.QInt8)
    (theirs,) = engine(path, optimized=False, precise=False).run(None, {"x": x})
    saturates = not any("vnni" in feature for feature in processor_features())
    program = Program(load_model(path), get_arithmetic("ort-x64-avx2" if saturates else "ort-x64"))
    np.testing.assert_array_equal(program.run({"x": x})["y"], theirs)
    slow = Program(
        load_model(path), get_arithmetic("ort-x64-avx2"), means=Means(float_gemm, compiled=False)
    )
    assert np.array_equal(slow.run({"x": x})["y"], theirs) == saturates
    assert sum(one.saturated for one in slow.counters.values()) > 0


@pytest.mark.slow
def test_smoke_no_machine_is_far_from_the_exact_one(tmp_path) -> None:
    """12 steps are what a mistake of a whole layer leaves behind;
    every bit is compared elsewhere.
    """
    path, x = quantized(tmp_path, per_channel=True, weights=QuantType.QInt8, reduce=True)
    model = load_model(path)
    ideal = Program(model, get_arithmetic("ideal")).run({"x": x})["y"]
    step = np.abs(np.diff(np.unique(ideal))).min()
    for name in ("gemmlowp", "tflite-single", "xnnpack", "glow-cpu", "nvdla", "tvm-tonearest"):
        other = Program(model, get_arithmetic(name)).run({"x": x})["y"]
        assert np.abs(other - ideal).max() <= 12 * step, name
    assert np.count_nonzero(Program(model, get_arithmetic("glow-cpu")).run({"x": x})["y"] != ideal)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("name", sorted({*list_arithmetics()} - {"pow2-shift", "tqt"}))
def test_no_bit_depends_on_the_means(name, tmp_path) -> None:
    path, x = quantized(tmp_path, per_channel=True, weights=QuantType.QInt8)
    model = load_model(path)
    quick = Program(model, get_arithmetic(name)).run({"x": x})["y"]
    slow = Program(model, get_arithmetic(name), means=Means(float_gemm, compiled=False)).run(
        {"x": x}
    )["y"]
    np.testing.assert_array_equal(quick, slow)


def test_taps_change_nothing(tmp_path) -> None:
    path, x = quantized(tmp_path, per_channel=False, weights=QuantType.QInt8)
    model = load_model(path)
    inner = [value.name for node in model.graph for value in node.outputs]
    tapped = Program(model, get_arithmetic("ort-x64"), taps=inner).run({"x": x})
    plain = Program(model, get_arithmetic("ort-x64")).run({"x": x})
    assert set(tapped) == {*inner, "y"}
    np.testing.assert_array_equal(tapped["y"], plain["y"])


def test_pairs_that_can_saturate_are_known_beforehand() -> None:
    weight = np.array(
        [[100, 100, -1], [29, 28, 127], [-128, 127, 0], [-1, 127, 0], [127, 127, 127]], np.int8
    )
    pair, column = risky_pairs(weight)
    assert sorted(zip(pair.tolist(), column.tolist(), strict=True)) == [(0, 0), (1, 0), (1, 1)]
