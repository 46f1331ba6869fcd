"""A real value with several readers, one of them quantized, is stored once, quantized."""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.graph import origin_of, set_origin
from qbench.passes.contract import LOSSY, Effect, decline
from qbench.passes.editing import NameScope
from qbench.passes.requantization.border import Border, border_of
from qbench.passes.requantization.requantize import UNREAD

_SHAPES = frozenset({"Shape", "Size"})


@dataclass(frozen=True, slots=True)
class StoreNarrow:
    """Requires: QDQ. Ensures: nothing reads reals that are quantized with static qparams for
    another reader.
    """

    name: str = "store-narrow"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Let them read codes, in graph order; True when there was such a value."""
        names = NameScope.of_values(model), NameScope.of_nodes(model)
        changed = False
        for node in list(model.graph):
            if node.domain or node.op_type not in {"DequantizeLinear", "Constant"}:
                changed |= sum(self._stored(value, names) for value in node.outputs) > 0
        if changed:
            model.graph.sort()  # a quantizer goes before all that read its value now
        return changed

    def _stored(self, value: ir.Value, names: tuple[NameScope, NameScope]) -> bool:
        quantizers = [use.node for use in value.uses() if use.idx == 0 and _quantizes(use.node)]
        others = [
            use
            for use in value.uses()
            if use.node not in quantizers and use.node.op_type not in _SHAPES
        ]
        maker = value.producer()
        if not quantizers or not others or maker is None:
            return False
        border = border_of(quantizers[0])
        if (reason := _problem(value, quantizers, border)) is not None:
            return decline(quantizers[0], reason, self.name) and False
        assert border is not None
        for use in others:
            use.node.replace_input_with(use.idx, _read(border, names))
        return True


def _problem(value: ir.Value, quantizers: list[ir.Node], border: Border | None) -> str | None:
    if value.is_graph_output():
        return f"'{value.name}' leaves the graph, hence is stored as it is"
    if len(quantizers) > 1:
        return f"'{value.name}' is quantized {len(quantizers)} times"
    return UNREAD if border is None else None


def _quantizes(node: ir.Node) -> bool:
    return not node.domain and node.op_type == "QuantizeLinear"


def _read(border: Border, names: tuple[NameScope, NameScope]) -> ir.Value:
    """What a new DequantizeLinear of the codes of ``border`` gives."""
    values, nodes = names
    quantizer, source, codes = border.quantizer, border.source, border.codes
    graph = quantizer.graph
    assert isinstance(graph, ir.Graph)
    name = nodes.fresh(f"{source.name}_dequantize")
    node = ir.Node("", "DequantizeLinear", [codes, *quantizer.inputs[1:]], num_outputs=1, name=name)
    real = node.outputs[0]
    real.name = values.fresh(f"{source.name}_narrow")
    real.type = source.type
    real.shape = source.shape
    set_origin(node, origin_of(quantizer))
    maker = codes.producer()
    assert maker is not None
    graph.insert_after(maker, node)
    return real
