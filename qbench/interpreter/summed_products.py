"""Products of floats of few bits and of numbers in blocks, summed as an arithmetic declares it."""

from __future__ import annotations  # help() shows npt.ArrayLike, and not the union behind it

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import constant_value, float_qparams, input_at, node_qparams
from qbench.interpreter.arrays import Array
from qbench.numerics import Arithmetic, FloatSums, QParams, ScaledPart, dequantize

# A MatMul, Gemm or Conv that reads a DequantizeLinear of floats of few bits, or of blocks, is
# computed from the codes themselves:
#
#     y = float32(s_x · s_w) · Σ_blocks s_b · Σ_(k in block) x[k] · w[k]
#
# with x and w the numbers of the codes; the sums inside of a block, and those of blocks, are the
# accumulator's (``numerics.float_accumulator``), and the last product is rounded to float32. An
# operand that is real in the graph enters as the float32 number that it is. A convolution runs
# along the window, rows first, channels fastest.

Reals64 = npt.NDArray[np.float64]
SUMMED = ", summed in "
"""In the precision of each such product: between its types and the accumulator."""
_OPERATORS = frozenset({"MatMul", "Gemm", "Conv"})


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """What a factor is read from, and its qparams; None: it is real."""

    value: ir.Value
    qparams: QParams | None

    @property
    def type_name(self) -> str:
        """As ``executed`` reports it."""
        return "float32" if self.qparams is None else self.qparams.qtype.name

    def numbers(self, array: Array, *, scaled: bool) -> Reals64:
        """Of its codes; ``scaled``: times their scales in float32."""
        if self.qparams is None:
            return array.astype(np.float64)
        if scaled:
            return dequantize(array, self.qparams).astype(np.float64)
        ones = np.ones_like(self.qparams.scale)
        plain = replace(self.qparams, scale=ones, scale_type=None, tensor_scale=None)
        return dequantize(array, plain).astype(np.float64)

    @property
    def has_parts(self) -> bool:
        """Whether parts of it, blocks or channels, have scales of their own."""
        return self.qparams is not None and self.qparams.scale.ndim > 0

    @property
    def whole_scale(self) -> np.float32:
        """The one scale of all its numbers; 1 where it is real, or its parts have scales."""
        if self.qparams is None or self.has_parts:
            return np.float32(1)
        return np.float32(self.qparams.scale)


@dataclass(frozen=True, slots=True, eq=False)
class SummedProduct:
    """How one node is computed from codes.

    Args:
        left, right: its factors.
        rules: how their products are summed.
    """

    left: Operand
    right: Operand
    rules: FloatSums

    @property
    def precision(self) -> str:
        """The types that it multiplies and the accumulator, for ``executed``."""
        register = self.rules.accumulator.value
        if self.rules.accumulator_bits:
            register += f" of {self.rules.accumulator_bits} bits"
        return f"{self.left.type_name} by {self.right.type_name}{SUMMED}{register}"

    def inputs(self, node: ir.Node) -> list[ir.Value | None]:
        """What its kernel reads: the codes in place of what they are dequantized to."""
        return [self.left.value, self.right.value, *node.inputs[2:]]

    @property
    def scales_operands(self) -> bool:
        """Whether codes are multiplied by their scales first, and not the sums of their numbers."""
        return self.rules.scaled is ScaledPart.OPERANDS

    def factor_of(self, operand: Operand) -> np.float32:
        """What its sums are multiplied by at the end for ``operand``."""
        return np.float32(1) if self.scales_operands else operand.whole_scale


def summed_products(
    graph: ir.Graph, rules: Callable[[ir.Node], Arithmetic]
) -> dict[ir.Node, SummedProduct]:
    """The nodes of ``graph`` that are computed from codes, by the ``rules`` of each node.

    Raises:
        InputError: an invalid DequantizeLinear.
    """
    found = {}
    for node in graph:
        if node.domain or node.op_type not in _OPERATORS or len(node.inputs) < 2:
            continue
        declared = rules(node).floats
        if declared is None:
            continue
        left, right = (_operand(value) for value in node.inputs[:2])
        if left is None or right is None:
            continue
        if not (_is_float_or_in_blocks(left) or _is_float_or_in_blocks(right)):
            continue
        if left.has_parts or (right.has_parts and not _is_weight(node, right)):
            continue
        found[node] = SummedProduct(left, right, declared)
    return found


def no_longer_read(
    products: Mapping[ir.Node, SummedProduct], wanted: Mapping[str, ir.Value]
) -> set[ir.Node]:
    """The DequantizeLinear nodes that ``products`` alone read, and nothing that is ``wanted``."""
    makers = (value.producer() for node in products for value in node.inputs[:2] if value)
    return {
        maker
        for maker in makers
        if maker is not None
        and maker.op_type == "DequantizeLinear"
        and maker.outputs[0].name not in wanted
        and all(use.node in products and use.idx < 2 for use in maker.outputs[0].uses())
    }


def _operand(value: ir.Value | None) -> Operand | None:
    """That of a factor; None where it is left out."""
    if value is None:
        return None
    maker = value.producer()
    if maker is None or maker.op_type != "DequantizeLinear":
        return Operand(value, None)
    codes, qparams = input_at(maker, 0), float_qparams(maker) or node_qparams(maker)
    return Operand(value, None) if codes is None or qparams is None else Operand(codes, qparams)


def _is_float_or_in_blocks(operand: Operand) -> bool:
    found = operand.qparams
    return found is not None and (found.qtype.is_float or found.block_size is not None)


def _is_weight(node: ir.Node, operand: Operand) -> bool:
    """Whether it is a constant that kernels take apart: a matrix, or the filters of a Conv."""
    codes = constant_value(operand.value)
    return codes is not None and (codes.ndim == 2 or node.op_type == "Conv")
