"""Shapes and types of the values inside a graph, inferred by onnx from those of its inputs."""

import onnx
import onnx_ir as ir

from qbench.graph.dimensions import declared_dims

_SMALL = 1024
"""Bytes of a constant up to which its numbers are handed on, as they may say a shape or axes."""


def with_shapes(model: ir.Model, *, free_dims: int | None = None) -> ir.Model:
    """A copy of ``model`` whose values carry every shape and type that can be inferred.

    Args:
        model: left untouched.
        free_dims: the size that symbolic dimensions of graph inputs take, other than those the model declares
            a usual size for; None leaves all of them symbolic.
    """
    copy = model.clone()
    if free_dims is not None:
        usual = declared_dims(model)
        for value in copy.graph.inputs:
            if value.shape is not None:
                value.shape = ir.Shape(
                    d if isinstance(d, int) else usual.get(d.value or "", free_dims) for d in value.shape
                )
        for node in ir.traversal.RecursiveGraphIterator(copy.graph):
            for value in node.outputs:
                value.shape = None  # a stored symbolic shape would win over the inferred one
    infer_shapes(copy)
    return copy


def infer_shapes(model: ir.Model) -> bool:
    """Write every shape and type that can be inferred into ``model``; True when any was new.

    Where inference fails as a whole (an impossible shape), the model stays as it is.
    """
    try:
        proto = onnx.shape_inference.infer_shapes(ir.to_proto(_skeleton(model)), data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return False
    modified = False
    for graph, inferred in zip(model.graphs(), ir.from_proto(proto).graphs(), strict=True):
        found = {value.name: value for node in inferred for value in node.outputs}
        for value in (value for node in graph for value in node.outputs):
            if value.name in found:
                modified |= _take(value, found[value.name])
    return modified


def _skeleton(model: ir.Model) -> ir.Model:
    """A copy in which large constants are inputs, so that their bytes are neither copied nor limited."""
    copy = model.clone()
    copy.ir_version = max(copy.ir_version, 10)  # before 4, a constant that is no input is not looked at
    for value in list(copy.graph.initializers.values()):
        tensor = value.const_value
        if tensor is None or tensor.nbytes <= _SMALL or value.name is None:
            continue
        value.dtype, value.shape = tensor.dtype, ir.Shape(d if isinstance(d, int) else None for d in tensor.shape)
        del copy.graph.initializers[value.name]
        value.const_value = None
        if not value.is_graph_input():
            copy.graph.inputs.append(value)
    return copy


def _take(value: ir.Value, inferred: ir.Value) -> bool:
    modified = False
    if inferred.type is not None and value.type != inferred.type:
        value.type = inferred.type
        modified = True
    if inferred.shape is not None and value.shape != inferred.shape:
        value.shape = inferred.shape
        modified = True
    return modified
