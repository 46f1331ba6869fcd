"""The graph that is being lowered, and the integers around one float operator."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import (
    ENGINE_DOMAIN,
    INTEGER_DOMAIN,
    INTEGER_FORMS,
    constant_value,
    input_at,
    int_attribute,
    is_constant,
    only_consumer,
    origin_of,
    set_origin,
)
from qbench.interpreter import KERNELS
from qbench.numerics import Arithmetic, BiasScheme
from qbench.passes.editing import NameScope, add_constant, remove_unread, take_place

# What a graph is lowered for: the engine or interpreter that runs it, as its operators on integers
# by domain and name.
#
# Only operators that lowering makes are looked up. Those that merely move integers (``movers``) are
# the graph's own.

__all__ = ["ENGINE_DOMAIN", "INTEGER_DOMAIN", "ONNX_RUNTIME", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """The integer operators of one engine, device or interpreter.

    Args:
        operators: (domain, operator), as in ``("", "QLinearConv")``.
        any_qparams: whether its products take any integers of 8 bits or 16 by 8, give any of 8 or
            16, and take a zero point a channel, or only what ONNX Runtime has kernels of.
        outside: whether it looks up functions that extensions define.
        own_biases: whether its products add a bias at a scale of its own.
    """

    operators: frozenset[tuple[str, str]]
    any_qparams: bool = False
    outside: bool = False
    own_biases: bool = False

    def lacks(self, operator: str, domain: str = "") -> str | None:
        """Why ``operator`` cannot be in its graphs; None when it can."""
        return None if (domain, operator) in self.operators else f"the target has no {operator}"


ONNX_RUNTIME = Target(
    frozenset(
        key for key, form in INTEGER_FORMS.items() if form.kernel and form.domain != INTEGER_DOMAIN
    )
)
"""ONNX Runtime 1.31 on the CPU: whatever lowering knows."""


# Integers with their qparams around one float operator: what its DequantizeLinear read, what its
# QuantizeLinear gave.

EIGHT_BITS = frozenset({ir.DataType.INT8, ir.DataType.UINT8})
UP_TO_16_BITS = EIGHT_BITS | {ir.DataType.INT16, ir.DataType.UINT16}


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """Integers, their scale and their zero point; ``axis`` of channels, ``block`` where there
    are blocks.
    """

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
        """The scale or scales; not of dynamic ones."""
        return _array(self.scale)

    @property
    def points(self) -> npt.NDArray[Any]:
        """The zero point or points; not of dynamic ones."""
        return _array(self.point)

    def same_qparams(self, other: "Operand") -> bool:
        """Whether both have the same qparams."""
        if self.dtype != other.dtype or self.axis != other.axis or self.block or other.block:
            return False
        if self.is_dynamic or other.is_dynamic:
            return self.scale is other.scale and self.point is other.point
        # a list of one is the number in it
        pairs = ((self.scales, other.scales), (self.points, other.points))
        return all(np.array_equal(a.reshape(-1), b.reshape(-1)) for a, b in pairs)


def operand_of(value: ir.Value | None) -> Operand | None:
    """What the DequantizeLinear that made ``value`` read, with its qparams; None of any other
    value.
    """
    node = None if value is None else value.producer()
    return (
        None
        if node is None or not _is(node, "DequantizeLinear")
        else _operand(node, node.inputs[0])
    )


def result_of(value: ir.Value) -> tuple[ir.Node, Operand] | None:
    """The QuantizeLinear that alone reads ``value``, and what it gives; None when there is
    none, or more readers.
    """
    node = only_consumer(value)
    if node is None or not _is(node, "QuantizeLinear") or node.inputs[0] is not value:
        return None
    found = quantized_by(node)
    return None if found is None else (node, found)


def quantized_by(quantizer: ir.Node) -> Operand | None:
    """What a QuantizeLinear gives; None where its qparams are not all given."""
    return _operand(quantizer, quantizer.outputs[0])


def is_quantize(node: ir.Node) -> bool:
    """Whether ``node`` is a Q or a DQ of the default domain."""
    return (
        _is(node, "QuantizeLinear")
        or _is(node, "DequantizeLinear")
        or _is(node, "DynamicQuantizeLinear")
    )


def on_the_product(bias: Operand, data: Operand, weight: Operand) -> bool:
    """Whether a bias is int32 at float32(scale of the data · scale of the weight), with zero
    point 0.
    """
    if (
        bias.dtype != ir.DataType.INT32
        or not bias.is_constant
        or bias.is_dynamic
        or np.any(bias.points)
    ):
        return False
    product, scales = data.scales.reshape(-1) * weight.scales.reshape(-1), bias.scales.reshape(-1)
    return scales.size in (1, product.size) and bool(np.all(scales == product))


def bias_per_column(codes: ir.Value, columns: int | ir.SymbolicDim | None) -> bool:
    """Whether the ``codes`` of a known bias are one number for each of ``columns``: their shape
    is (columns,) or (1, columns).
    """
    shape = None if codes.shape is None else list(codes.shape)
    return isinstance(columns, int) and shape in ([columns], [1, columns])


def _operand(node: ir.Node, integers: ir.Value | None) -> Operand | None:
    scale, point = node.inputs[1], input_at(node, 2)
    if integers is None or scale is None or point is None:
        return None
    if point.dtype is not None and not point.dtype.is_integer():
        return None  # floats of few bits
    known = constant_value(scale)
    single = known is None or known.size == 1
    rank = None if integers.shape is None else len(integers.shape)
    axis = int_attribute(node, "axis", 1)
    along = axis if rank is None else axis % max(rank, 1)
    return Operand(
        integers,
        scale,
        point,
        None if single else along,
        bool(int_attribute(node, "block_size", 0)),
    )


def _array(value: ir.Value) -> npt.NDArray[Any]:
    found = constant_value(value)
    assert found is not None
    return found


def _is(node: ir.Node, operator: str) -> bool:
    return node.domain == "" and node.op_type == operator


# The graph that is being lowered: an integer operator replaces a float one and its Q and DQ.


class Site:
    """A model that is being lowered, the names taken in it, and its target."""

    def __init__(self, model: ir.Model, target: Target) -> None:
        self.graph, self.target = model.graph, target
        self._model = model
        self._values = NameScope.of_values(model)
        self._nodes = NameScope.of_nodes(model)

    def replace(
        self,
        nodes: Sequence[ir.Node],
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Sequence[ir.Attr] = (),
        *,
        domain: str = "",
    ) -> ir.Node:
        """``operator`` in the place of ``nodes`` (a chain); what the last gave, it gives under
        the same name.

        It takes the name and the origin of the first.
        """
        first, last = nodes[0], nodes[-1]
        node = self._made(operator, inputs, attributes, domain)
        node.name, first.name = first.name, None
        set_origin(node, origin_of(first) or node.name or "")
        node.meta.update(first.meta)
        self.graph.insert_before(first, node)
        take_place(last.outputs[0], node.outputs[0])
        self.remove(nodes)
        return node

    def before(
        self,
        at: ir.Node,
        operator: str,
        inputs: Sequence[ir.Value | None],
        dtype: ir.DataType,
        word: str,
    ) -> ir.Value:
        """The result, of ``dtype``, of a new ``operator`` before ``at``."""
        attributes = [ir.AttrInt64("to", dtype)] if operator == "Cast" else []
        node = self._made(operator, inputs, attributes, "")
        stem = f"{at.name or at.outputs[0].name}_{word}"
        node.name, node.outputs[0].name = self._nodes.fresh(stem), self._values.fresh(stem)
        node.outputs[0].dtype = dtype
        set_origin(node, origin_of(at))
        self.graph.insert_before(at, node)
        return node.outputs[0]

    def dequantize_behind(self, at: ir.Node, value: ir.Value, qparams: Operand) -> None:
        """Readers of ``value``, a result of ``at`` that is integers now, read its
        DequantizeLinear, under its name.
        """
        node = self._made("DequantizeLinear", [None, qparams.scale, qparams.point], [], "")
        real = node.outputs[0]
        real.dtype, real.shape = ir.DataType.FLOAT, value.shape
        value.replace_all_uses_with(real, replace_graph_outputs=True)
        node.replace_input_with(0, value)
        real.name, value.name = value.name, self._values.fresh(f"{value.name}_quantized")
        node.name = self._nodes.fresh(f"{real.name}_dequantize")
        set_origin(node, origin_of(at))
        self.graph.insert_after(at, node)

    def constant(self, name: str, array: "np.typing.NDArray[np.generic]") -> ir.Value:
        """A new constant called ``name`` or that with a number."""
        return add_constant(self.graph, name, array, self._values)

    def remove(self, nodes: Sequence[ir.Node]) -> None:
        """Remove a chain that nothing reads any more, and the DequantizeLinear that fed it
        alone.
        """
        fed = [v.producer() for node in nodes for v in node.inputs if v is not None]
        for node in reversed(nodes):
            self.graph.remove(node, safe=True)
        for maker in fed:
            if (
                maker is not None
                and maker.graph is self.graph
                and maker.op_type == "DequantizeLinear"
            ):
                remove_unread(maker)

    def widened(self, operand: Operand) -> Operand:
        """A constant of 4 bits in 8, with the same codes; anything else as it is."""
        if operand.dtype not in (ir.DataType.INT4, ir.DataType.UINT4) or not operand.is_constant:
            return operand
        codes = constant_value(operand.integers)
        assert codes is not None
        narrow = np.int8 if operand.dtype is ir.DataType.INT4 else np.uint8
        integers = self.constant(f"{operand.integers.name}_in_8_bits", codes.astype(narrow))
        point = self.constant(f"{operand.point.name}_in_8_bits", operand.points.astype(narrow))
        return Operand(integers, operand.scale, point, operand.axis, operand.block)

    def _made(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Sequence[ir.Attr],
        domain: str,
    ) -> ir.Node:
        if domain:
            self._model.graph.opset_imports.setdefault(domain, 1)
        return ir.Node(domain, operator, inputs, attributes, num_outputs=1)


def kept_attributes(node: ir.Node, *names: str) -> list[ir.Attr]:
    """The attributes of ``node`` that are called so and given."""
    return [node.attributes[name] for name in names if name in node.attributes]


def has_unit_factors(gemm: ir.Node) -> bool:
    """Whether alpha and beta are 1 and the first operand is not transposed."""
    factors = (gemm.attributes.get("alpha"), gemm.attributes.get("beta"))
    return all(f is None or f.as_float() == 1.0 for f in factors) and not int_attribute(
        gemm, "transA", 0
    )


# What the integer interpreter has operators for.

INTEGER_INTERPRETER = Target(frozenset(KERNELS), any_qparams=True, outside=True)
"""Whatever the interpreter counts under any arithmetic: engines have no more."""


def integer_target(arithmetic: Arithmetic) -> Target:
    """What the interpreter counts under ``arithmetic``."""
    return replace(INTEGER_INTERPRETER, own_biases=arithmetic.biases is BiasScheme.FINEST)
