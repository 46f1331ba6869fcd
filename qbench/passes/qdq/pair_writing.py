"""Putting Q, DQ and float operators in the place of an integer operator, under names that people recognise."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, origin_of, set_origin
from qbench.passes.constants import add_constant
from qbench.passes.naming import NameScope

_SUFFIX = "_quantized"


class PairWriter:
    """The graph being rewritten and the names taken in it."""

    def __init__(self, model: ir.Model, values: NameScope, nodes: NameScope) -> None:
        self.graph = model.graph
        self.values = values
        self._nodes = nodes

    def dequantized(self, at: ir.Node, operand: Sequence[ir.Value | None], axis: int | None, wanted: str) -> ir.Value:
        """A DequantizeLinear of ``operand`` (integers, scale, zero point) before ``at``; its real result."""
        integers, scale, point = operand
        attributes = [] if axis is None else [ir.AttrInt64("axis", axis)]
        inputs = [
            integers,
            self._parameter(scale, axis),
            *([self._parameter(point, axis)] if point is not None else []),
        ]
        node = self.before(at, "DequantizeLinear", inputs, attributes, name=f"{wanted}_dequantize")
        real = node.outputs[0]
        real.shape = None if integers is None else integers.shape
        return real

    def dynamically_quantized(self, at: ir.Node, real: ir.Value | None, wanted: str) -> list[ir.Value]:
        """A DynamicQuantizeLinear of ``real`` before ``at``: integers, scale, zero point."""
        inputs = [real]
        node = ir.Node("", "DynamicQuantizeLinear", inputs, num_outputs=3, name=self._nodes.fresh(f"{wanted}_quantize"))
        kinds = (ir.DataType.UINT8, ir.DataType.FLOAT, ir.DataType.UINT8)
        for value, word, kind in zip(node.outputs, ("quantized", "scale", "zero_point"), kinds, strict=True):
            value.name = self.values.fresh(f"{wanted}_{word}")
            value.type = ir.TensorType(kind)
        set_origin(node, origin_of(at))
        self.graph.insert_before(at, node)
        return list(node.outputs)

    def requantized(
        self,
        at: ir.Node,
        real: ir.Node,
        parameters: tuple[ir.Value | None, ir.Value | None],
        kind: ir.DataType | None,
    ) -> None:
        """A QuantizeLinear of the result of ``real`` that takes the place of ``at``, whose result keeps its name."""
        scale, point = parameters
        old = at.outputs[0]
        stem = (old.name or "").removesuffix(_SUFFIX)
        real.outputs[0].name = self.values.fresh(stem if stem != old.name else f"{old.name}_real")
        real.outputs[0].shape = old.shape
        if point is None and kind is not None:
            point = add_constant(self.graph, f"{old.name}_zero_point", np.zeros((), kind.numpy()), self.values)
        inputs = [real.outputs[0], self._parameter(scale, None), *([self._parameter(point, None)] if point else [])]
        node = self.before(at, "QuantizeLinear", inputs, [], name=f"{real.name}_quantize")
        kind = None if point is None else point.dtype
        node.outputs[0].type = ir.TensorType(kind or ir.DataType.UINT8)
        node.outputs[0].shape = old.shape
        self.take_place(at, node)

    def before(
        self,
        at: ir.Node,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Sequence[ir.Attr],
        *,
        name: str,
    ) -> ir.Node:
        """A new node before ``at``, with one result of float; it may bear the very name of ``at``, which is to go."""
        origin = origin_of(at)
        if name == at.name:
            at.name = None
            self._nodes.release(name)
        node = ir.Node("", operator, inputs, attributes, num_outputs=1, name=self._nodes.fresh(name))
        node.outputs[0].dtype = ir.DataType.FLOAT
        node.outputs[0].name = self.values.fresh(f"{node.name}_out")
        set_origin(node, origin)
        self.graph.insert_before(at, node)
        return node

    def take_place(self, old: ir.Node, new: ir.Node) -> None:
        """The result of ``new`` stands where that of ``old`` stood, under its name; ``old`` goes."""
        before, after = old.outputs[0], new.outputs[0]
        name = before.name
        before.replace_all_uses_with(after, replace_graph_outputs=True)
        before.name = None
        if after.name is not None:
            self.values.release(after.name)
        after.name = name
        after.shape = after.shape or before.shape
        self.graph.remove(old, safe=True)

    def _parameter(self, value: ir.Value | None, axis: int | None) -> ir.Value | None:
        """``value``, as a number where it is a list of one and no axis is meant."""
        array = constant_value(value) if axis is None else None
        if value is None or array is None or array.ndim == 0 or array.size != 1:
            return value
        return add_constant(self.graph, f"{value.name}_number", array.reshape(()), self.values)
