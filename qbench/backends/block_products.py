"""Whether ONNX Runtime's product with weights in blocks rounds its real data to 8 bits here.

    MatMulNBits     y[m, n] = Σ_k x[m, k] · s[n, k // B] (w[n, k] − z[n, k // B])

With the value 4 of an attribute (``ATTRIBUTE``) its kernel may round each block of x to int8, on a
scale of max |x| / 127; whether it does depends on the bits, the size of the block and the
processor. So one small product is computed and compared with the sum in float64. Source:
docs/ContribOperators.md of onnxruntime, MatMulNBits.
"""

import functools

import numpy as np
import numpy.typing as npt
import onnx

OPERATOR = "MatMulNBits"
ATTRIBUTE = "accuracy_level"  # stored name
ROUNDING = 4
"""Its value with which data may be rounded to int8."""

_Bytes = npt.NDArray[np.uint8]

_DOMAIN = "com.microsoft"
_BLOCKS, _COLUMNS, _ROWS = 2, 8, 4
_EXACT = 1e-4
"""Of the largest result: float32 sums of so few terms are nearer, those of 8-bit data are not."""


@functools.cache
def rounds_data(bits: int, block_size: int) -> bool:
    """Whether a product with weights of ``bits`` in blocks of ``block_size`` rounds its data to 8
    bits on this processor; False where the engine refuses it.
    """
    import onnxruntime

    random = np.random.default_rng(0)
    depth = _BLOCKS * block_size
    x = random.normal(size=(_ROWS, depth)).astype(np.float32)
    packed = random.integers(0, 256, (_COLUMNS, _BLOCKS, block_size * bits // 8), dtype=np.uint8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # stored name
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            _model(packed, depth, bits, block_size).SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
        )
        (found,) = session.run(None, {"x": x})
    except Exception:  # onnxruntime's exceptions share no public parent; it lacks this product
        return False
    exact = x.astype(np.float64) @ _codes(packed, depth, bits).T
    return bool(np.abs(found - exact).max() > _EXACT * np.abs(exact).max())


def _codes(packed: _Bytes, depth: int, bits: int) -> npt.NDArray[np.float64]:
    """The weights (N, K) of ``packed``, lowest bits first, less 2^(bits − 1): no zero point."""
    single = np.unpackbits(packed.reshape(_COLUMNS, -1), axis=1, bitorder="little")
    places = single.reshape(_COLUMNS, depth, bits) * (1 << np.arange(bits))
    codes: npt.NDArray[np.float64] = places.sum(axis=-1).astype(np.float64)
    return codes - (1 << (bits - 1))


def _model(packed: _Bytes, depth: int, bits: int, block_size: int) -> onnx.ModelProto:
    from onnx import TensorProto, helper, numpy_helper

    node = helper.make_node(OPERATOR, ["x", "w", "s"], ["y"], domain=_DOMAIN)
    numbers = {"K": depth, "N": _COLUMNS, "bits": bits, "block_size": block_size}
    for name, number in (numbers | {ATTRIBUTE: ROUNDING}).items():
        node.attribute.append(helper.make_attribute(name, number))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [_ROWS, size])
        for name, size in (("x", depth), ("y", _COLUMNS))
    ]
    scales = np.ones((_COLUMNS, _BLOCKS), np.float32)
    constants = [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scales, "s")]
    graph = helper.make_graph([node], "probe", ends[:1], ends[1:], constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)
