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
    infer_shapes(copy)
    return copy


def infer_shapes(model: ir.Model) -> bool:
    """Write every shape and dtype that can be inferred into ``model``; True when any was new.

    Where inference fails as a whole (an impossible shape), the model stays as it is.
    """
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.ERROR)  # a failed inference is no news to a user: what is unknown stays unknown
    try:
        return ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model).modified
    finally:
        logger.setLevel(level)
