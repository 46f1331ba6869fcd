"""Integers with their grid around one float operator: what its DequantizeLinear read, what its QuantizeLinear gave."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import constant_value, input_at, int_attribute, is_constant, only_consumer

EIGHT_BITS = frozenset({ir.DataType.INT8, ir.DataType.UINT8})
UP_TO_16_BITS = EIGHT_BITS | {ir.DataType.INT16, ir.DataType.UINT16}


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """Integers, their scale and their zero point; ``axis`` of channels, ``block`` where there are blocks."""

    integers: ir.Value
    scale: ir.Value
    point: ir.Value
    axis: int | None
    block: bool

    @property
    def dtype(self) -> ir.DataType | None:
        """The element type of the integers."""
        return self.point.dtype or self.integers.dtype

    @property
    def triple(self) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The integers, their scale and their zero point, as QLinear operators take them."""
        return self.integers, self.scale, self.point

    @property
    def is_constant(self) -> bool:
        """Whether the integers are known."""
        return is_constant(self.integers)

    @property
    def is_dynamic(self) -> bool:
        """Whether every batch computes the parameters."""
        return not is_constant(self.scale) or not is_constant(self.point)

    @property
    def rank(self) -> int | None:
        """The number of dimensions, where it is known."""
        return None if self.integers.shape is None else len(self.integers.shape)

    @property
    def scales(self) -> npt.NDArray[np.float32]:
        """The scale or scales of a grid that is not dynamic."""
        return _array(self.scale)

    @property
    def points(self) -> npt.NDArray[Any]:
        """The zero point or points of a grid that is not dynamic."""
        return _array(self.point)

    def same_grid(self, other: "Operand") -> bool:
        """Whether both count by the same numbers."""
        if self.dtype != other.dtype or self.axis != other.axis or self.block or other.block:
            return False
        if self.is_dynamic or other.is_dynamic:
            return self.scale is other.scale and self.point is other.point
        pairs = ((self.scales, other.scales), (self.points, other.points))  # a list of one is the number in it
        return all(np.array_equal(a.reshape(-1), b.reshape(-1)) for a, b in pairs)


def operand_of(value: ir.Value | None) -> Operand | None:
    """What the DequantizeLinear that made ``value`` read, with the grid; None when nothing such did."""
    node = None if value is None else value.producer()
    return None if node is None or not _is(node, "DequantizeLinear") else _operand(node, node.inputs[0])


def result_of(value: ir.Value) -> tuple[ir.Node, Operand] | None:
    """The QuantizeLinear that alone reads ``value``, and what it gives; None when there is none, or more readers."""
    node = only_consumer(value)
    if node is None or not _is(node, "QuantizeLinear") or node.inputs[0] is not value:
        return None
    found = quantized_by(node)
    return None if found is None else (node, found)


def quantized_by(quantizer: ir.Node) -> Operand | None:
    """What a QuantizeLinear gives; None where its grid is not written out."""
    return _operand(quantizer, quantizer.outputs[0])


def is_quantize(node: ir.Node) -> bool:
    """Whether ``node`` is a Q or a DQ of the default domain."""
    return _is(node, "QuantizeLinear") or _is(node, "DequantizeLinear") or _is(node, "DynamicQuantizeLinear")


def on_the_product(bias: Operand, data: Operand, weight: Operand) -> bool:
    """Whether a bias is int32 at float32(scale of the data · scale of the weight), with zero point 0."""
    if bias.dtype != ir.DataType.INT32 or not bias.is_constant or bias.is_dynamic or np.any(bias.points):
        return False
    product, scales = data.scales.reshape(-1) * weight.scales.reshape(-1), bias.scales.reshape(-1)
    return scales.size in (1, product.size) and bool(np.all(scales == product))


def bias_per_column(bias: Operand, columns: int | ir.SymbolicDim | None) -> bool:
    """Whether a known bias holds one number for each of ``columns``: its shape is (columns,) or (1, columns)."""
    shape = None if bias.integers.shape is None else list(bias.integers.shape)
    return isinstance(columns, int) and shape in ([columns], [1, columns])


def _operand(node: ir.Node, integers: ir.Value | None) -> Operand | None:
    scale, point = node.inputs[1], input_at(node, 2)
    if integers is None or scale is None or point is None:
        return None
    known = constant_value(scale)
    single = known is None or known.size == 1
    rank = None if integers.shape is None else len(integers.shape)
    axis = int_attribute(node, "axis", 1)
    along = axis if rank is None else axis % max(rank, 1)
    return Operand(integers, scale, point, None if single else along, bool(int_attribute(node, "block_size", 0)))


def _array(value: ir.Value) -> npt.NDArray[Any]:
    found = constant_value(value)
    assert found is not None
    return found


def _is(node: ir.Node, operator: str) -> bool:
    return node.domain == "" and node.op_type == operator
