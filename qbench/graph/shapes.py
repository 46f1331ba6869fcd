"""Shapes and dtypes of the values inside a graph, inferred by onnx on a copy."""

import logging

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass


def with_shapes(model: ir.Model, *, free_dims: int | None = None) -> ir.Model:
    """A copy of ``model`` whose values carry every shape and dtype that can be inferred.

    Args:
        model: left untouched.
        free_dims: the size that symbolic dimensions of graph inputs take; None leaves them symbolic.
    """
    copy = model.clone()
    if free_dims is not None:
        for value in copy.graph.inputs:
            if value.shape is not None:
                value.shape = ir.Shape(d if isinstance(d, int) else free_dims for d in value.shape)
        for node in ir.traversal.RecursiveGraphIterator(copy.graph):
            for value in node.outputs:
                value.shape = None  # a stored symbolic shape would win over the inferred one
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.ERROR)  # where inference fails the copy stays without shapes: not worth a warning
    try:
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(copy)
    finally:
        logger.setLevel(level)
    return copy
