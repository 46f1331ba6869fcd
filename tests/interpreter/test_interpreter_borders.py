"""Q and DQ as others write them, in either form: against ONNX Runtime, and refused where their
rule is not known.
"""

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

from qbench.backends import get_backend
from qbench.errors import UnsupportedError

RANDOM = np.random.default_rng(11)
PRODUCT = (
    "g (int8[2, 4] x) => (float[2, 3] y)"
    "<float s = {0.5}, int8 z = {3}, float t = {0.25}, float u = {4.0}, int8 v = {0}>"
    "{ q = QLinearMatMul(x, s, z, w, t, v, u, v)  y = DequantizeLinear(q, u) }"
)
SUMS = (
    "g (int8[2, 4] x) => (float[2, 3] y) <float s = {0.5}> { q = MatMulInteger(x, w)  y = "
    "DequantizeLinear(q, s) }"
)
CONSTANT = (
    "g (int8[2, 4] x) => (float[2, 3] y) <float s = {0.5}>"
    "{ q = MatMulInteger(x, w)  r = Cast<to = 1>(q)  c = DequantizeLinear(w, s)  m = "
    "ReduceSum<keepdims = 1>(c)"
    " y = Add(r, m) }"
)
WRITTEN = (
    "g (int8[2, 4] x) => (int8[2, 3] y) <float s = {30.0}>"
    "{ q = MatMulInteger(x, w)  r = Cast<to = 1>(q)  y = QuantizeLinear<output_dtype = 3>(r, s) }"
)
SIGMOID = (
    "g (int8[2, 4] x) => (int8[2, 4] y) <float s = {0.05}, int8 z = {3}, float t = {0.0078125}>"
    "{ y = com.microsoft.QLinearSigmoid(x, s, z, t) }"
)


def model_of(text: str, opset: int = 21, **constants: Any) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n{text}'
    )
    for name, array in constants.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return proto


def ours(proto: onnx.ModelProto, feeds: dict[str, Any]) -> Any:
    with get_backend("integer-ort-x64").prepare(ir.from_proto(proto)) as executor:
        return executor.run(feeds)["y"]


@pytest.mark.parametrize("text", [PRODUCT, SUMS, CONSTANT, WRITTEN])
def test_a_zero_point_that_is_left_out_has_the_type_of_the_integers(text: str) -> None:
    """Of a product's result, of int32 sums, of a constant, and as written."""
    proto = model_of(text, w=RANDOM.integers(-128, 128, (4, 3)).astype(np.int8))
    names = [value.name for value in proto.graph.input]
    feeds = {name: RANDOM.integers(-128, 128, (2, 4)).astype(np.int8) for name in names}
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (theirs,) = session.run(None, feeds)
    found = ours(proto, feeds)
    assert found.dtype == theirs.dtype
    np.testing.assert_array_equal(found, theirs)


def test_an_operator_has_the_type_of_its_data() -> None:
    """ONNX Runtime 1.31 aborts the process on a QLinearSigmoid without the last zero point."""
    feeds = {"x": RANDOM.integers(-128, 128, (2, 4)).astype(np.int8)}
    written = model_of(SIGMOID.replace("z, t)", "z, t, v)"), v=np.int8(0))
    found = ours(model_of(SIGMOID), feeds)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, ours(written, feeds))


def test_a_zero_point_of_no_known_type_is_refused() -> None:
    proto = model_of(
        SIGMOID.replace("{ y", "{ a = Abs(x)  y").replace("(x, s, z, t)", "(a, s, , t)")
    )
    with pytest.raises(UnsupportedError, match="its type is unknown"):
        ours(proto, {})


HALVES = (
    "g (float16[N, 4] x) => (float16[N, 4] y) { q = QuantizeLinear(x, s, z)  y = "
    "DequantizeLinear(q, s, z) }"
)
CAST = (
    "g (float[N, 4] x) => (float16[N, 4] y)"
    "{ q = QuantizeLinear(x, s, z)  y = DequantizeLinear<output_dtype = 10>(q, s, z) }"
)


def test_a_pair_in_halves_gives_the_halves_that_the_engine_gives() -> None:
    proto = model_of(HALVES, 21, s=np.float16(0.3), z=np.int8(-7))
    x = (RANDOM.normal(size=(2, 4)) * 9).astype(np.float16)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (theirs,) = session.run(None, {"x": x})
    found = ours(proto, {"x": x})
    assert found.dtype == theirs.dtype == np.float16
    np.testing.assert_array_equal(found, theirs)


def test_reals_of_16_bits_out_of_codes_are_refused() -> None:
    """The answer would be float32 where the graph says float16,
    and nobody measured how engines round it.
    """
    proto = model_of(CAST, 23, s=np.float32(0.5), z=np.int8(0))
    with pytest.raises(UnsupportedError, match="float16"):
        ours(proto, {"x": np.zeros((2, 4), np.float32)})


def test_blocks_along_one_axis_are_refused_before_anything_runs() -> None:
    text = "g (float[4] x) => (int8[4] y) { y = QuantizeLinear<axis = 0, block_size = 2>(x, s, z) }"
    proto = model_of(text, s=np.ones(2, np.float32), z=np.zeros(2, np.int8))
    with pytest.raises(UnsupportedError, match="blocks"):
        get_backend("integer-ort-x64").prepare(ir.from_proto(proto))
