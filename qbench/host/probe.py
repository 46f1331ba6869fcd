"""How the engine on this computer sums u8×s8 products: exactly, or saturating each pair to 16 bits.

[255, 255] · [127, 127] = 64770    exact (VNNI, or kernels that widen first)
                        → 32767    ``vpmaddubsw`` saturated the pair (x64 without VNNI)
"""

import enum
import functools

_EXACT = 2 * 255 * 127
_SATURATED = 2**15 - 1


class DotProduct(enum.Enum):
    """What the probe saw; unknown without an engine, or when it saw neither number."""

    EXACT = "exact"
    SATURATING = "saturating"
    UNKNOWN = "unknown"


@functools.cache
def probe_dot_product() -> DotProduct:
    """Run one 1×2 · 2×1 MatMulInteger on ONNX Runtime, once a process."""
    try:
        import numpy as np
        import onnxruntime
        from onnx import TensorProto, helper
    except ImportError:
        return DotProduct.UNKNOWN
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "probe",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1])],
        [helper.make_tensor("b", TensorProto.INT8, [2, 1], [127, 127])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"a": np.full((1, 2), 255, np.uint8)})
    return {_EXACT: DotProduct.EXACT, _SATURATED: DotProduct.SATURATING}.get(int(result[0, 0]), DotProduct.UNKNOWN)
