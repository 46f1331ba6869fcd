"""Types of a file's weights that a backend lacks, and which backends take them."""

from functools import partial

import onnx_ir as ir

from qbench.backends.protocol import Backend
from qbench.backends.registry import backends_that
from qbench.errors import UnsupportedError
from qbench.graph import PRODUCTS, Capabilities, input_at, is_constant, is_mover


def untaken_type(model: ir.Model, backend: Backend) -> UnsupportedError | None:
    """The error for ``model``, which ``backend`` did not load, where it lacks a type of the
    dequantized constants or of their scales; None: it lacks none.
    """
    takes = backend.capabilities
    for node in model.graph:
        codes, scale = input_at(node, 0), input_at(node, 1)
        if node.op_type != "DequantizeLinear" or codes is None or not is_constant(codes):
            continue
        if codes.dtype == ir.DataType.INT32:  # a bias, which every engine of Q and DQ takes
            continue
        stored, scaled = _type_name(codes), _type_name(scale)
        if _is_data(node, stored, takes):
            continue
        scale_type = scaled if scaled.startswith("float8") else None
        if _has_weights(stored, scale_type, takes):
            continue
        named = f"weights of {stored}"
        if scale_type is not None:
            named += f" with scales of {scale_type}"
        takers = " or ".join(backends_that(partial(_has_weights, stored, scale_type)))
        return UnsupportedError(
            f"Preparing '{model.graph.name or 'model'}' on '{backend.name}'",
            found=f"'{codes.name}', {named}",
            expected=f"weights of {', '.join(sorted(takes.weight_qtypes))}",
            remedy=(
                f"Run it on {takers}, next to its float model (--fp32)."
                if takers
                else "Quantize the float model to a type that the backend has."
            ),
        )
    return None


def _has_weights(stored: str, scale_type: str | None, takes: Capabilities) -> bool:
    return stored in takes.weight_qtypes and (scale_type is None or scale_type in takes.scale_types)


def _is_data(node: ir.Node, stored: str, takes: Capabilities) -> bool:
    """Whether ``node`` dequantizes a constant that is data, not a weight, of a type of data that
    the backend multiplies: a factor of a Mul, which has the type of activations.
    """
    readers = _readers(node.outputs[0])
    is_weight = not readers or any(reader.op_type in PRODUCTS for reader in readers)
    return not is_weight and any(data == stored for data, _ in takes.integer_products or ())


def _readers(constant: ir.Value) -> list[ir.Node]:
    """What reads ``constant``, also where it is moved as a whole (Transpose, Reshape) before."""
    moved, readers = [constant], []
    for value in moved:
        for node, index in ((use.node, use.idx) for use in value.uses()):
            others = (one for one in node.inputs[1:] if one is not None)
            if index == 0 and is_mover(node) and all(map(is_constant, others)):
                moved += node.outputs
            else:
                readers.append(node)
    return readers


def _type_name(value: ir.Value | None) -> str:
    return "" if value is None or value.dtype is None else value.dtype.name.lower()
