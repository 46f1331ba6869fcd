"""PyTorch's kernels that depend on the engine or on the order of axes in memory,
in small graphs.
"""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.errors import UnsupportedError
from qbench.host import DotProduct, probe_dot_product

pytestmark = pytest.mark.oracle
# Without VNNI pairs of products saturate in 16 bits: weights of half the size on twice the scale
# keep them below.
MOST, WEIGHT_SCALE = (127, 0.01) if probe_dot_product() is DotProduct.EXACT else (63, 0.02)
pytest.importorskip("torch")
BEHIND = "rq = QuantizeLinear (r, t, tz)  y = DequantizeLinear (rq, t, tz)"
ENGINES = ("fbgemm", "qnnpack", "onednn")
HEAD = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 6, 7, 7] x) => (float y)
<float s = {0.02}, uint8 z = {113}, float ws = {WEIGHTS}, int8 wz = {0},
 float t = {0.05}, uint8 tz = {90},
 float low = {-1.0}, float high = {1.5}, float p = {0.00390625}, uint8 pz = {0}>
{ q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z) """


def graph(body: str) -> ir.Model:
    proto = onnx.parser.parse_model(HEAD.replace("WEIGHTS", str(WEIGHT_SCALE)) + body + " }")
    random = np.random.default_rng(3)
    proto.graph.initializer.append(
        onnx.numpy_helper.from_array(
            random.integers(-MOST, MOST + 1, (6, 6, 1, 1)).astype(np.int8), "w"
        )
    )
    proto.graph.initializer.append(
        onnx.numpy_helper.from_array(np.zeros((6, 6, 3, 3), np.int8), "up")
    )
    return ir.from_proto(proto if "up," in body else onnx.shape_inference.infer_shapes(proto))


def outputs(body: str, *backends: str) -> list[np.ndarray[Any, Any]]:
    model, x = graph(body), np.random.default_rng(4).normal(0, 1.5, (2, 6, 7, 7)).astype(np.float32)
    found = []
    for name in backends:
        with get_backend(name).prepare(model) as executor:
            found.append(executor.run({"x": x})["y"])
    return found


def pooled(operator: str, attributes: str) -> str:
    # one grid
    return (
        f"r = {operator} <{attributes}> (d)  rq = QuantizeLinear (r, s, z)  "
        "y = DequantizeLinear (rq, s, z)"
    )


CONV = "wd = DequantizeLinear (w, ws, wz)  c = Conv (d, wd)  cq = QuantizeLinear (c, t, tz) "


@pytest.mark.parametrize("engine", ENGINES)
def test_a_clip_of_its_own_behind_a_convolution(engine: str) -> None:
    body = CONV + (
        "cd = DequantizeLinear (cq, t, tz) r = Clip (cd, low, high) rq = QuantizeLinear (r, t, tz) "
    )
    theirs, ours = outputs(
        body + "y = DequantizeLinear (rq, t, tz)", f"torch-{engine}", f"integer-{engine}"
    )
    assert int((theirs != ours).sum()) == 0
    assert ours.max() == np.float32(1.5)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("engine", ENGINES)
def test_pools_by_windows_of_one_element(engine: str, operator: str) -> None:
    body = pooled(operator, "kernel_shape = [1, 1], strides = [2, 3]")
    theirs, ours = outputs(body, f"torch-{engine}", f"integer-{engine}")
    assert theirs.shape == (2, 6, 4, 3)
    assert int((theirs != ours).sum()) == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_padding_that_is_left_out_of_an_average(engine: str) -> None:
    body = pooled(
        "AveragePool", "kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 0"
    )
    if engine == "qnnpack":
        with pytest.raises(UnsupportedError) as error:
            outputs(body, "torch-qnnpack")
        assert "QNNPACK counts it" in error.value.found
        return
    theirs, ours = outputs(body, f"torch-{engine}", f"integer-{engine}")
    assert np.abs(theirs - ours).max() <= np.float32(0.021)  # one step, next to the end of a vector


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("axis", [-1, 1, -3, 3])
def test_softmax_along_any_axis(engine: str, axis: int) -> None:
    body = (
        f"r = Softmax <axis = {axis}> (d)  rq = QuantizeLinear (r, p, pz)  "
        "y = DequantizeLinear (rq, p, pz)"
    )
    theirs, ours = outputs(body, f"torch-{engine}", f"integer-{engine}")
    assert np.abs(theirs - ours).max() <= np.float32(1 / 256)


@pytest.mark.parametrize("filters", [1, 4, 6])
def test_transposed_convolutions_that_onednn_gets_wrong(filters: int) -> None:
    model = graph(
        "ud = DequantizeLinear (up, ws, wz)  r = ConvTranspose <strides = [2, 2]> (d, ud) " + BEHIND
    )
    levels = np.random.default_rng(5).integers(-MOST, MOST + 1, (6, filters, 3, 3)).astype(np.int8)
    model.graph.initializers["up"].const_value = ir.tensor(levels)
    x = np.random.default_rng(4).normal(0, 1.5, (2, 6, 7, 7)).astype(np.float32)
    if filters == 4:
        with pytest.raises(UnsupportedError) as error:
            get_backend("torch-onednn").prepare(model)
        assert "6 channels by 4 filters" in error.value.found
        return
    with (
        get_backend("torch-onednn").prepare(model) as theirs,
        get_backend("integer-onednn").prepare(model) as ours,
    ):
        assert np.count_nonzero(theirs.run({"x": x})["y"] != ours.run({"x": x})["y"]) == 0
