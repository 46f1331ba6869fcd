"""Activations move between uint8 and int8 with the same meaning."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from qbench.graph import clip_of_codes, code_dtype, constant_value, is_constant, node_qparams
from qbench.passes.contract import EXACT, Effect, decline
from qbench.passes.editing import NameScope, add_constant
from qbench.passes.requantization.requantize import readers_behind

_HALF = 128
_OTHER = {ir.DataType.INT8: ir.DataType.UINT8, ir.DataType.UINT8: ir.DataType.INT8}


@dataclass(frozen=True, slots=True)
class RebaseInt8:
    """Requires: QDQ. Ensures: activations are int8 where they were uint8; inputs, outputs and
    dynamic values stay.
    """

    name: str = "rebase-int8"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Move them in graph order; True when there were any."""
        return _rebased(model, ir.DataType.INT8, self.name)


@dataclass(frozen=True, slots=True)
class RebaseUint8:
    """Requires: QDQ. Ensures: activations are uint8 where they were int8; inputs, outputs and
    dynamic values stay.
    """

    name: str = "rebase-uint8"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Move them in graph order; True when there were any."""
        return _rebased(model, ir.DataType.UINT8, self.name)


@dataclass(slots=True)
class _Constants:
    """Constants that were replaced: each once, and under its name where nothing else reads the
    old one.
    """

    graph: ir.Graph
    to: ir.DataType
    names: NameScope
    replaced: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def moved(self, node: ir.Node, index: int) -> None:
        """Let ``node`` read its constant operand ``index`` in the other type."""
        old = node.inputs[index]
        assert old is not None
        if old not in self.replaced:
            array = constant_value(old)
            assert array is not None
            codes = array.astype(np.int64) + (_HALF if self.to == ir.DataType.UINT8 else -_HALF)
            self.replaced[old] = add_constant(
                self.graph, f"{old.name}", codes.astype(self.to.numpy()), self.names
            )
        node.replace_input_with(index, self.replaced[old])

    def settle(self) -> None:
        """Give new constants the names of old ones that nothing reads any more."""
        for old, new in self.replaced.items():
            if old.uses() or not old.is_initializer() or old.is_graph_output() or old.name is None:
                continue
            del self.graph.initializers[old.name]
            self.names.release(new.name or "")
            new.name = old.name


def _rebased(model: ir.Model, to: ir.DataType, by: str) -> bool:
    start, graph = _OTHER[to], model.graph
    constants = _Constants(graph, to, NameScope.of_values(model))
    changed = False
    for node, codes in list(_places(graph, start)):
        reason = _problem(node, codes)
        if reason is not None:
            decline(node, reason, by)
        elif not (is_constant(codes) and _of_a_product(codes)):
            _move(node, codes, constants)
            changed = True
    constants.settle()
    return changed


def _places(graph: ir.Graph, start: ir.DataType) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Where codes of the type ``start`` come from: a quantizer and what it gives; else the
    first DQ and what it reads.

    Raises:
        InputError: an invalid Q or DQ.
    """
    seen = set[ir.Value]()
    for node in graph:
        if node.domain:
            continue
        if node.op_type == "QuantizeLinear" and code_dtype(node) == start:
            yield node, (clip_of_codes(node) or node).outputs[0]
        elif node.op_type == "DynamicQuantizeLinear" and start == ir.DataType.UINT8:
            yield node, node.outputs[0]
        elif node.op_type == "DequantizeLinear" and code_dtype(node) == start:
            source = node.inputs[0]
            if (
                source is not None
                and source not in seen
                and (is_constant(source) or source.is_graph_input())
            ):
                seen.add(source)
                yield node, source


def _problem(node: ir.Node, codes: ir.Value) -> str | None:
    if node.op_type == "DynamicQuantizeLinear":
        return "its parameters are computed, of uint8"
    if codes.is_graph_input() or codes.is_graph_output():
        return "it enters or leaves the graph, which keeps its types"
    for reader in (node, *(use.node for use in codes.uses())):
        if reader is not node and (reader.domain or reader.op_type != "DequantizeLinear"):
            return f"'{reader.name}' reads its integers as they are"
        if node_qparams(reader) is None:
            return f"the parameters of '{reader.name}' are computed, or no float32"
    return None


def _of_a_product(constant: ir.Value) -> bool:
    return any(reader.is_product for use in constant.uses() for reader in readers_behind(use.node))


def _move(node: ir.Node, codes: ir.Value, constants: _Constants) -> None:
    readers = [use.node for use in codes.uses()]
    if node.op_type == "QuantizeLinear":
        _point_moved(node, constants)
        clip = clip_of_codes(node)
        if clip is not None:
            for index in (
                index for index, end in enumerate(clip.inputs) if index and end is not None
            ):
                constants.moved(clip, index)
            clip.outputs[0].type = ir.TensorType(constants.to)
        node.outputs[0].type = ir.TensorType(constants.to)
        node.attributes.pop("output_dtype", None)
    for reader in readers:
        if node.op_type != "QuantizeLinear":
            constants.moved(reader, 0)
        _point_moved(reader, constants)


def _point_moved(node: ir.Node, constants: _Constants) -> None:
    """Move the zero point; where it is left out, it is 0 and is written first."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        scale = constant_value(node.inputs[1])
        assert scale is not None
        zeros = np.zeros(scale.shape, _OTHER[constants.to].numpy())
        node.resize_inputs(3)
        node.replace_input_with(
            2, add_constant(constants.graph, f"{node.name}_zero_point", zeros, constants.names)
        )
    constants.moved(node, 2)
