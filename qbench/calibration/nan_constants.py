"""NaN among the constants of a model, looked for before the data are blamed; ±Inf may stand in a mask."""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from qbench.errors import InputError

_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def refuse_nan(model: ir.Model) -> None:
    """Check that no float constant of ``model`` holds NaN.

    Raises:
        InputError: one does; it is named.
    """
    for name, tensor in _constants(model):
        if tensor.dtype in _FLOATS and np.isnan(tensor.numpy()).any():
            raise InputError(
                f"Calibrating the model '{model.graph.name}'",
                found=f"NaN in its constant '{name}'",
                expected="numbers",
                remedy="Mend the model: whatever reads the constant is lost.",
            )


def _constants(model: ir.Model) -> Iterator[tuple[str, ir.TensorProtocol]]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.name or "", value.const_value
        for node in graph:
            attribute = node.attributes.get("value") if node.op_type == "Constant" else None
            if attribute is not None and attribute.type is ir.AttributeType.TENSOR:
                yield node.outputs[0].name or "", attribute.as_tensor()
