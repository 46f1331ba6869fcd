"""A bias that is split off behind its product, or has a scale of its own, as an operand of that
product.

    Conv(x, w, b)                           b with qparams of its own
    Add(Conv(x, w), b)                      the same, split off; or b at the product's scale
    Add(Conv(x, w) Div Round Clip Mul, b)   split off, and the product is rounded to the bias's
                                            scale in int32

A bias at the product's scale is that of the usual operator. One of its own makes the product a node
of ``qbench.integer`` whose last operands are the codes of the bias and its scale; how both meet is
the arithmetic's part (``numerics.own_bias``).
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.graph import (
    Kind,
    constant_value,
    input_at,
    int_attribute,
    only_consumer,
    op_spec,
    rounded_behind,
)
from qbench.passes.lowering.site import Operand, Site, on_the_product, operand_of

_ROUNDED = "int32"
_SPLIT = 2
"""Nodes of a product and the sum behind it."""


@dataclass(frozen=True, slots=True, eq=False)
class AddedBias:
    """A bias and the nodes from its product to their sum.

    Args:
        nodes: a chain, the product first.
        codes: (N,) or (1,), int32.
        scales: (N,) or (1,), float32.
        ruled: whether the product is rounded to the scale of the bias.
        on_product: whether it is int32 at the product's scale.
    """

    nodes: tuple[ir.Node, ...]
    codes: "np.typing.NDArray[np.int32]"
    scales: "np.typing.NDArray[np.float32]"
    ruled: bool
    on_product: bool

    @property
    def last(self) -> ir.Value:
        """The sum."""
        return self.nodes[-1].outputs[0]

    @property
    def attributes(self) -> list[ir.Attr]:
        """Where product and bias are summed."""
        return [ir.AttrString("sum_scale", "bias")] if self.ruled else []

    def operands(self, site: Site) -> tuple[ir.Value, ir.Value | None]:
        """The codes, and the scale where that is its own, as new constants."""
        stem = self.nodes[0].name or self.last.name
        codes = site.constant(f"{stem}_bias", self.codes)
        return codes, None if self.on_product else site.constant(f"{stem}_bias_scale", self.scales)


def added_bias(site: Site, product: ir.Node, data: Operand, weight: Operand) -> AddedBias | None:
    """The bias of ``product`` that the target adds, split off or at a scale of its own; None of
    any other.

    One in the product and at its scale is as the usual operator has it.
    """
    found = _found(product) if site.target.any_qparams else None
    columns = _columns(product, weight)
    if found is None or columns is None:
        return None
    nodes, value = found
    bias = operand_of(value)
    if bias is None or not bias.is_constant or bias.is_dynamic or bias.block or np.any(bias.points):
        return None
    ruled = len(nodes) > _SPLIT
    on_product = not ruled and on_the_product(bias, data, weight)
    if (on_product and len(nodes) < _SPLIT) or not (on_product or site.target.own_biases):
        return None
    codes = constant_value(bias.integers)
    assert codes is not None
    if not _per_column(codes.shape, columns, nodes, product) or bias.scales.size not in (
        1,
        columns,
    ):
        return None
    if ruled and not _same(rounded_behind(product), bias):
        return None
    return AddedBias(
        nodes, codes.astype(np.int32).reshape(-1), bias.scales.reshape(-1), ruled, on_product
    )


def _found(product: ir.Node) -> tuple[tuple[ir.Node, ...], ir.Value | None] | None:
    """The nodes from ``product`` to where its bias is added, and that."""
    index = op_spec(product).bias
    fused = None if index is None else input_at(product, index)
    if fused is not None:
        return (product,), fused
    rounded = rounded_behind(product)
    nodes = (product,) if rounded is None else (product, *rounded[0])
    result = nodes[-1].outputs[0]
    added = only_consumer(result)
    if added is None or added.domain or added.op_type != "Add":
        return None
    return (*nodes, added), added.inputs[1] if added.inputs[0] is result else added.inputs[0]


def _columns(product: ir.Node, weight: Operand) -> int | None:
    """How many channels or columns the product has; None where that is not known."""
    shape = weight.integers.shape
    if shape is None or len(shape) < 2:
        return None
    transposed = product.op_type == "ConvTranspose"
    first = product.op_type == "Conv" or (
        product.op_type == "Gemm" and int_attribute(product, "transB", 0)
    )
    size = shape[0 if first else 1]
    if not isinstance(size, int) or (product.op_type == "MatMul" and len(shape) != 2):
        return None
    return size * int_attribute(product, "group", 1) if transposed else size


def _per_column(
    shape: tuple[int, ...], columns: int, nodes: tuple[ir.Node, ...], product: ir.Node
) -> bool:
    """Whether a bias of ``shape`` is a number, or one per column, where it is added."""
    if all(size == 1 for size in shape):
        return True
    places = [index for index, size in enumerate(shape) if size != 1]
    if len(places) != 1 or shape[places[0]] != columns:
        return False
    behind = 0  # axes behind that of the columns
    if len(nodes) >= _SPLIT and op_spec(product).kind is Kind.CONVOLUTION:
        result = product.outputs[0].shape
        if result is None:
            return False
        behind = len(result) - 2
    return len(shape) - 1 - places[0] == behind


def _same(
    rounded: "tuple[object, str, np.typing.NDArray[np.float32]] | None", bias: Operand
) -> bool:
    """Whether the product is rounded in int32 to the scale of ``bias``."""
    if rounded is None or rounded[1] != _ROUNDED:
        return False
    scale, own = rounded[2].reshape(-1), bias.scales.reshape(-1)
    return bool(np.array_equal(scale, own)) or (scale.size == 1 and bool(np.all(own == scale)))
