"""Weights of linear operators as blocks, so that every operator has its channels on the same axes.

    [group, output channel of the group, input channel of the group, element of the window]

    Conv [G·O, I, …]    ConvTranspose [G·I, O, …]    Gemm [O, I] when transB, else [I, O]; one group, no window

Output channel o of group g is channel g·O + o of the result, input channel i of it channel g·I + i of the data.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import int_attribute

LINEAR = frozenset({"Conv", "ConvTranspose", "Gemm"})
"""The operators that have such blocks."""

_Array = npt.NDArray[Any]


def blocks_of(node: ir.Node, weight: _Array) -> _Array:
    """``weight`` of the linear ``node`` as blocks, shape [group, outputs, inputs, window]; same dtype."""
    if node.op_type == "Gemm":
        by_output = weight if int_attribute(node, "transB", 0) else weight.T
        return by_output[None, :, :, None]
    groups = int_attribute(node, "group", 1)
    blocks = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    return blocks if node.op_type == "Conv" else np.swapaxes(blocks, 1, 2)


def weight_of_blocks(node: ir.Node, blocks: _Array, shape: tuple[int, ...]) -> _Array:
    """The weight of ``shape`` whose blocks are ``blocks``: undoes ``blocks_of``."""
    if node.op_type == "Gemm":
        by_output = blocks[0, :, :, 0]
        return by_output if int_attribute(node, "transB", 0) else by_output.T
    return (blocks if node.op_type == "Conv" else np.swapaxes(blocks, 1, 2)).reshape(shape)
