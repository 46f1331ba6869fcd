"""One digest for what a graph computes and how its parts are named."""

import enum
import hashlib
from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from qbench.storage import Plain, digest_plain


def graph_digest(model: ir.Model) -> str:
    """64 hexadecimal digits over opsets, functions, inputs, outputs, nodes and constants."""
    functions = {str(key): _function(function) for key, function in model.functions.items()}
    return digest_plain(
        {
            "opsets": _opsets(model.opset_imports),
            "graph": _graph(model.graph),
            "functions": functions,
        }
    )


def _opsets(imports: dict[str, int]) -> Plain:
    return {"" if domain == "ai.onnx" else domain: version for domain, version in imports.items()}


def _graph(graph: ir.Graph) -> Plain:
    return {
        "inputs": [_typed(value) for value in graph.inputs],
        "outputs": [_typed(value) for value in graph.outputs],
        "constants": {
            str(name): _tensor(value.const_value) for name, value in graph.initializers.items()
        },
        "nodes": _nodes(graph),
    }


def _function(function: ir.Function) -> Plain:
    return {
        "inputs": [value.name for value in function.inputs],
        "outputs": [value.name for value in function.outputs],
        "opsets": _opsets(function.opset_imports),
        "attributes": {
            name: _attribute(attribute) for name, attribute in function.attributes.items()
        },
        "nodes": _nodes(function),
    }


def _nodes(nodes: Iterable[ir.Node]) -> Plain:
    return [
        {
            "name": node.name or "",
            "operator": [
                "" if node.domain == "ai.onnx" else node.domain,
                node.op_type,
                node.overload,
            ],
            "inputs": [None if value is None else value.name for value in node.inputs],
            "outputs": [value.name or "" for value in node.outputs],
            "attributes": {
                name: _attribute(attribute) for name, attribute in node.attributes.items()
            },
        }
        for node in nodes
    ]


def _typed(value: ir.Value) -> Plain:
    return [value.name, None if value.dtype is None else value.dtype.name, _sizes(value.shape)]


def _sizes(shape: ir.Shape | None) -> Plain:
    """Its sizes, ``?`` for each that is not fixed; None for a shape that is not known."""
    if shape is None:
        return None
    return [dim if isinstance(dim, int) else "?" for dim in shape]


def _attribute(attribute: ir.Attr) -> Plain:
    if attribute.is_ref():
        return ["reference", attribute.ref_attr_name]
    return [attribute.type.name, _attribute_value(attribute.value)]


def _attribute_value(value: object) -> Plain:
    """An attribute's value; floats as the float32 a file will hold, so that 1e-5 equals its
    saved copy.
    """
    match value:
        case ir.Graph():
            return _graph(value)
        case enum.Enum():
            return str(value.name)
        case str() | bytes() | None:
            return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
        case bool() | int() | np.integer():
            return int(value)
        case float() | np.floating():
            return float(np.float32(value)).hex()
        case list() | tuple():
            return [_attribute_value(item) for item in value]
        case _ if isinstance(value, ir.TensorProtocol):
            return _tensor(value)
        case _:
            return repr(value)


def _tensor(tensor: ir.TensorProtocol | None) -> Plain:
    if tensor is None:
        return None
    return [tensor.dtype.name, [int(d) for d in tensor.shape], _content(tensor)]  # type: ignore[arg-type]


def _content(tensor: ir.TensorProtocol) -> str:
    """The digest of a tensor's little-endian bytes, packed for types below 8 bits; of words, of
    their list.
    """
    if tensor.dtype is ir.DataType.STRING:
        return hashlib.sha256(repr(tensor.numpy().tolist()).encode()).hexdigest()
    if tensor.dtype.bitwidth >= 8:
        array = tensor.numpy()
        if array.dtype.newbyteorder("<") == array.dtype and array.flags.c_contiguous:
            # hashed where it lies, not copied
            return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()
    return hashlib.sha256(tensor.tobytes()).hexdigest()
