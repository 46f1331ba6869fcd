"""How a machine sums a product by constant weights: which operand is on the left, and in what order.

    acc[n] = Σ_k left[k] · right[k]        pairs are k = 0 and 1, 2 and 3, …, and saturate where left is unsigned

Convolutions run along the window, rows first, channels fastest; matrix products along K; data are on the left. A
ConvInteger is ONNX Runtime's own operator, and has the weights on the left and channels slowest (1.31 on AVX2); it has
no kernel of its own for one filter a channel.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.graph import int_attribute
from qbench.interpreter.arrays import Array
from qbench.interpreter.sum_shapes import sum_shape
from qbench.numerics import SumShape

_UNSIGNED, _SIGNED = "uint8", "int8"


@dataclass(frozen=True, slots=True)
class Summing:
    """The sums of one node.

    Args:
        shape: as engines look at it when they choose a kernel.
        weights_left: whether the weights are the left operand.
        convolves: whether weights are (filters, channels a group, …), or else (K, N).
        transposed: whether they are (N, K).
    """

    shape: SumShape
    weights_left: bool = False
    convolves: bool = False
    transposed: bool = False

    def columns(self, weight: Array) -> Array:
        """``weight`` as (K, N) in the order of the sums."""
        if not self.convolves:
            return weight.T if self.transposed else weight
        rows = weight if self.weights_left else np.moveaxis(weight, 1, -1)
        return rows.reshape(len(weight), -1).T

    def in_pairs(self, levels: str, weights: str) -> bool:
        """Whether products of data and weights of these types are summed in pairs where a machine has such sums."""
        left, right = (weights, levels) if self.weights_left else (levels, weights)
        return (left, right) == (_UNSIGNED, _SIGNED)


def summing(node: ir.Node, weight: tuple[int, ...]) -> Summing:
    """That of a product of integers with a weight of this shape."""
    if node.op_type == "ConvInteger":
        return Summing(SumShape(), weights_left=True, convolves=True)
    if node.op_type.endswith("Conv"):
        return Summing(sum_shape(node, weight), convolves=True)
    return Summing(SumShape(), transposed=node.op_type == "QGemm" and bool(int_attribute(node, "transB", 0)))
