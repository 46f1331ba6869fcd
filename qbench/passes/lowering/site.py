"""The graph that is being lowered: putting an integer operator where a float one stood between its Q and DQ."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, int_attribute, origin_of, set_origin
from qbench.passes.constants import add_constant
from qbench.passes.lowering.operands import Operand
from qbench.passes.lowering.target import Target
from qbench.passes.naming import NameScope


class Site:
    """One model in the making, the names taken in it, and the machine it is made for."""

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
        """``operator`` in the place of ``nodes`` (a chain); what the last gave, it gives under the same name.

        It takes the name and the origin of the first.
        """
        first, last = nodes[0], nodes[-1]
        node = self._made(operator, inputs, attributes, domain)
        node.name, first.name = first.name, None
        old, new = last.outputs[0], node.outputs[0]
        new.name, old.name = old.name, None
        new.type, new.shape = old.type, old.shape
        set_origin(node, origin_of(first) or node.name or "")
        node.meta.update(first.meta)
        self.graph.insert_before(first, node)
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        self.remove(nodes)
        return node

    def before(
        self, at: ir.Node, operator: str, inputs: Sequence[ir.Value | None], dtype: ir.DataType, word: str
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

    def dequantize_behind(self, at: ir.Node, value: ir.Value, grid: Operand) -> None:
        """Readers of ``value``, a result of ``at`` that is integers now, read its DequantizeLinear, under its name."""
        node = self._made("DequantizeLinear", [None, grid.scale, grid.point], [], "")
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
        """Remove a chain that nothing reads any more, and the DequantizeLinear that fed it alone."""
        fed = [v.producer() for node in nodes for v in node.inputs if v is not None]
        for node in reversed(nodes):
            self.graph.remove(node, safe=True)
        for maker in fed:
            if maker is not None and maker.graph is self.graph and maker.op_type == "DequantizeLinear":
                result = maker.outputs[0]
                if not result.uses() and not result.is_graph_output():
                    self.graph.remove(maker, safe=True)

    def widened(self, operand: Operand) -> Operand:
        """A constant of 4 bits in 8, at the very levels; anything else as it is."""
        if operand.dtype not in (ir.DataType.INT4, ir.DataType.UINT4) or not operand.is_constant:
            return operand
        levels = constant_value(operand.integers)
        assert levels is not None
        narrow = np.int8 if operand.dtype is ir.DataType.INT4 else np.uint8
        integers = self.constant(f"{operand.integers.name}_in_8_bits", levels.astype(narrow))
        point = self.constant(f"{operand.point.name}_in_8_bits", operand.points.astype(narrow))
        return Operand(integers, operand.scale, point, operand.axis, operand.block)

    def _made(
        self, operator: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr], domain: str
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
    return all(f is None or f.as_float() == 1.0 for f in factors) and not int_attribute(gemm, "transA", 0)
