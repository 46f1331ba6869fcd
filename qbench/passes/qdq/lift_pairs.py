"""Q/DQ pairs leave the graph and are written down at the values they stand behind (``graph.pinned``).

    v ─Q(s,z)─ q ─DQ(s,z)─ d ─ reader       →   v (pinned: s, z) ─ reader
    integers ─DQ(s,z)─ d ─ reader           →   constant s·(integers − z) (pinned: s, z) ─ reader
    v ─Q─ q ─Reshape─ r ─DQ─ d ─ reader     →   v (pinned) ─Reshape─ (pinned) ─ reader
    v ─Q─ q ─Clip of levels─ r ─DQ─ reader  →   v ─Clip of real ends─ (pinned) ─ reader

Quantizing v, or the constant, again with what is pinned gives the very integers that were there.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import (
    Pin,
    PinKind,
    clip_of_levels,
    constant_value,
    grid_of,
    is_constant,
    is_pinned,
    node_key,
    operator_facts,
    pin_of,
    pin_value,
)
from qbench.numerics import QParams, QType, dequantize
from qbench.passes.canonical.remove_dead import RemoveDead
from qbench.passes.constants import add_constant
from qbench.passes.effect import LOSSY, Effect
from qbench.passes.naming import NameScope
from qbench.passes.qdq.moved_constants import moved_constant

_QUANTIZERS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})
_DOMAINS = ("", "com.microsoft")
_DYNAMIC = QType.parse("uint8")


@dataclass(frozen=True, slots=True)
class LiftPairs:
    """Requires: canonical passes. Ensures: no pair is left whose parameters can be kept at a value instead.

    A pair that guards a graph output leaves an Identity behind, so that the output stays rounded. Left in the graph are
    a Q whose integers something else reads or that leave the graph, a DQ of integers that are computed or fed, grids
    that are no integers, and two different grids met as one pair; the values around them are pinned all the same.

    Raises (from ``run``):
        InputError: a Q or DQ that means nothing.
    """

    name: str = "lift-pairs"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Lift them in graph order; True when anything changed."""
        if not any(_is(node, "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear") for node in model.graph):
            return False
        lifting, before = _Lifting(model), _contents(model)
        for node in list(model.graph):
            lifting.visit(node)
        RemoveDead().run(model)
        lifting.rename()
        # What was inserted and nothing came to read is gone again: then nothing changed.
        return lifting.changed or _contents(model) != before


def _contents(model: ir.Model) -> tuple[object, ...]:
    return (*model.graph, *model.graph.initializers.values(), dict(model.opset_imports))


def _is(node: ir.Node | None, *operators: str) -> bool:
    return node is not None and node.domain in _DOMAINS and node.op_type in operators


@dataclass(frozen=True, slots=True, eq=False)
class _Twin:
    """The real value that some integers stand for, and what is pinned to it."""

    value: ir.Value
    pin: Pin


class _Lifting:
    """The state of one lifting: integers met so far, with their real twins."""

    def __init__(self, model: ir.Model) -> None:
        self.changed = False
        self._graph = model.graph
        self._values = NameScope.of_values(model)
        self._nodes = NameScope.of_nodes(model)
        self._twins: dict[ir.Value, _Twin] = {}
        self._parallel = {value for value in _quantized_values(model.graph) if _asks_for_two_grids(value)}
        self._copies: list[tuple[ir.Node, str]] = []

    def visit(self, node: ir.Node) -> None:
        """Note what ``node`` quantizes, moves or gives back."""
        if _is(node, "QuantizeLinear"):
            self._quantize(node)
        elif _is(node, "DynamicQuantizeLinear") and node.inputs[0] is not None:
            pin = Pin(PinKind.DYNAMIC, f"the DynamicQuantizeLinear '{node_key(node)}'", qtype=_DYNAMIC)
            self._twins[node.outputs[0]] = _Twin(self._dynamic(node.inputs[0], pin, node), pin)
        elif _is(node, "DequantizeLinear"):
            self._dequantize(node)
        elif node.inputs and node.inputs[0] in self._twins and _moves(node):
            self._move(node, self._twins[node.inputs[0]])

    def rename(self) -> None:
        """Give copies of integer movers the names of what they were copied from, where that is gone."""
        alive = {node.name for node in self._graph}
        for copy, name in self._copies:
            if name not in alive:
                copy.name = name

    def _quantize(self, node: ir.Node) -> None:
        grid, source = grid_of(node), node.inputs[0]
        if grid is None or source is None:
            return
        pin = Pin(PinKind.GRID, f"the QuantizeLinear '{node_key(node)}'", grid)
        clip = clip_of_levels(node) if grid.axis is None else None
        if clip is None or source in self._parallel:
            self._twins[node.outputs[0]] = _Twin(self._pinned(source, pin, node), pin)
            return
        ends = [self._constant(end, grid) for end in clip.inputs[1:]]
        real = self._copied(clip, [source, *ends])
        pin_value(real, pin)
        self._twins[clip.outputs[0]] = _Twin(real, pin)

    def _dequantize(self, node: ir.Node) -> None:
        source, grid = node.inputs[0], grid_of(node)
        twin = None if source is None else self._twins.get(source)
        if twin is not None and (_same_dynamic(node, twin) or (grid is not None and grid == twin.pin.qparams)):
            self._give(node, twin.value)
        elif grid is not None and source is not None and is_constant(source):
            integers = constant_value(source)
            assert integers is not None
            stem = (source.name or "constant").removesuffix("_quantized")
            self._give_constant(node, node.outputs[0], (integers, grid), stem)
        elif grid is not None:
            pin = Pin(PinKind.GRID, f"the DequantizeLinear '{node_key(node)}'", grid)
            self.changed |= pin_value(node.outputs[0], pin)

    def _give(self, node: ir.Node, real: ir.Value) -> None:
        """Every reader of ``node`` reads ``real`` instead."""
        for use in tuple(node.outputs[0].uses()):
            use.node.replace_input_with(use.idx, real)
        if node.outputs[0].is_graph_output():
            self._give_output(node, real)
        self.changed = True

    def _give_output(self, node: ir.Node, real: ir.Value) -> None:
        """An Identity of ``real`` leaves the graph where the result of ``node`` did."""
        result = node.outputs[0]
        name, result.name = result.name, None
        bridge = self._inserted("Identity", [real], node, f"{node_key(node)}_output")
        bridge.shape = result.shape
        result.replace_all_uses_with(bridge, replace_graph_outputs=True)
        bridge.name = name

    def _give_constant(
        self, node: ir.Node, result: ir.Value, levels: tuple[npt.NDArray[Any], QParams], stem: str
    ) -> None:
        """Every reader of ``result``, which ``node`` gives, reads a pinned constant of its own; movers move it."""
        integers, grid = levels
        for use in tuple(result.uses()):
            moved = moved_constant(use.node, integers, grid) if use.idx == 0 else None
            if moved is not None and not use.node.outputs[0].is_graph_output():
                self._give_constant(node, use.node.outputs[0], moved, stem)
            else:
                use.node.replace_input_with(use.idx, self._real_constant(node, levels, stem))
        if result.is_graph_output():
            self._give_output(node, self._real_constant(node, levels, stem))
        self.changed = True

    def _real_constant(self, node: ir.Node, levels: tuple[npt.NDArray[Any], QParams], stem: str) -> ir.Value:
        integers, grid = levels
        real = add_constant(self._graph, stem, dequantize(integers, grid), self._values)
        pin_value(real, Pin(PinKind.GRID, f"the DequantizeLinear '{node_key(node)}'", grid))
        return real

    def _constant(self, end: ir.Value | None, grid: QParams) -> ir.Value | None:
        array = constant_value(end)
        if end is None or array is None:
            return None
        return add_constant(self._graph, f"{end.name}_real", dequantize(array, grid), self._values)

    def _pinned(self, value: ir.Value, pin: Pin, quantizer: ir.Node) -> ir.Value:
        """``value`` with ``pin``, or an Identity of it where it has another one."""
        if value in self._parallel:
            self.changed |= pin_value(value, Pin(PinKind.FLOAT, "two pairs of different grids"))
        known = pin_of(value)
        if known is None:
            self.changed |= pin_value(value, pin)
            return value
        return value if _same(known, pin) else self._guarded(value, pin, quantizer)

    def _dynamic(self, value: ir.Value, pin: Pin, quantizer: ir.Node) -> ir.Value:
        """``value`` with ``pin``, or an Identity of it where others read the value as it is.

        A grid known beforehand is that of a value, for all its readers; one of a batch serves the product behind it.
        """
        others = [use for use in value.uses() if not _is(use.node, *_QUANTIZERS)]
        if others and not is_pinned(value):
            return self._guarded(value, pin, quantizer)
        return self._pinned(value, pin, quantizer)

    def _guarded(self, value: ir.Value, pin: Pin, quantizer: ir.Node) -> ir.Value:
        """An Identity of ``value`` with ``pin``; no change until something reads it."""
        value = self._inserted("Identity", [value], quantizer, f"{node_key(quantizer)}_input")
        pin_value(value, pin)
        return value

    def _move(self, node: ir.Node, twin: _Twin) -> None:
        """A real copy of ``node``, which moves integers about."""
        if twin.pin.qparams is None or twin.pin.qparams.axis is not None:
            return
        self._copied(node, [twin.value, *node.inputs[1:]])
        copy = self._copies[-1][0]
        for before, after in zip(node.outputs, copy.outputs, strict=True):
            pin_value(after, twin.pin)
            self._twins[before] = _Twin(after, twin.pin)

    def _copied(self, node: ir.Node, inputs: list[ir.Value | None]) -> ir.Value:
        """The first result of a real copy of ``node`` with other ``inputs``."""
        copy = ir.Node(
            "", node.op_type, inputs, list(node.attributes.values()), num_outputs=len(node.outputs),
            name=self._nodes.fresh(node_key(node)),
        )  # fmt: skip
        copy.metadata_props.update(node.metadata_props)
        for before, after in zip(node.outputs, copy.outputs, strict=True):
            after.dtype, after.shape = ir.DataType.FLOAT, before.shape
            after.name = self._values.fresh(f"{(before.name or '').removesuffix('_quantized')}_real")
        self._graph.insert_before(node, copy)
        self._copies.append((copy, node_key(node)))
        return copy.outputs[0]

    def _inserted(self, operator: str, inputs: list[ir.Value], before: ir.Node, wanted: str) -> ir.Value:
        node = ir.Node("", operator, inputs, num_outputs=1, name=self._nodes.fresh(wanted))
        node.outputs[0].name = self._values.fresh(wanted)
        node.outputs[0].dtype = ir.DataType.FLOAT
        node.outputs[0].shape = inputs[0].shape
        self._graph.insert_before(before, node)
        return node.outputs[0]


def _quantized_values(graph: ir.Graph) -> dict[ir.Value, None]:
    return {node.inputs[0]: None for node in graph if _is(node, *_QUANTIZERS) and node.inputs[0] is not None}


def _asks_for_two_grids(value: ir.Value) -> bool:
    quantizers = [use.node for use in value.uses() if use.idx == 0 and _is(use.node, *_QUANTIZERS)]
    if len(quantizers) < 2:
        return False
    grids = [None if node.op_type == "DynamicQuantizeLinear" else grid_of(node) for node in quantizers]
    return any(grid != grids[0] for grid in grids)


def _same(known: Pin, pin: Pin) -> bool:
    return (known.kind, known.qparams, known.qtype) == (pin.kind, pin.qparams, pin.qtype)


def _same_dynamic(node: ir.Node, twin: _Twin) -> bool:
    maker = None if node.inputs[0] is None else node.inputs[0].producer()
    return maker is not None and twin.pin.kind is PinKind.DYNAMIC and list(node.inputs[1:]) == list(maker.outputs[1:])


def _moves(node: ir.Node) -> bool:
    """Whether ``node`` gives integers of its first input and nothing else; Pad mixes a constant in."""
    return node.op_type != "Pad" and operator_facts(node).moved == (0,)
