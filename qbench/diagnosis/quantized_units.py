"""A quantized graph in pieces: for each value on a grid, what makes its levels out of the levels before it.

    levels → DequantizeLinear → one operator, or a few → (Relu | Clip) → QuantizeLinear → levels

Each piece is a graph of its own, with levels as inputs and as output, so that an engine fuses in it what it fuses in
the whole, and no difference comes in from elsewhere. A tap in the middle of a piece would stop that fusion.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.diagnosis.step_causes import Ends
from qbench.graph import clip_of_levels, constant_value, grid_of, is_constant, node_key, with_shapes
from qbench.numerics import QParams

Array = npt.NDArray[Any]

_ENDLESS = float("inf")
_MOST_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedUnit:
    """What makes the levels ``value``.

    Args:
        value: name of the levels. node: of the operator in front. operators: those between the pairs, in order.
        graph: the piece; its inputs are ``feeds``, its one output ``value``.
        real: name of the float value in front of rounding and of a Relu or Clip.
        grid, ends: of the levels.
    """

    value: str
    node: str
    operators: tuple[str, ...]
    graph: ir.Model
    feeds: tuple[str, ...]
    real: str
    grid: QParams
    ends: Ends

    def in_steps(self, values: Mapping[str, Array]) -> Array:
        """``real`` among the ``values`` of a run, in steps, zero point left out: float64."""
        return values[self.real].astype(np.float64) / float(self.grid.scale)

    def levels(self, reals: Array) -> Array:
        """The levels of dequantized numbers: int64."""
        return np.rint(reals.astype(np.float64) / float(self.grid.scale)).astype(np.int64) + int(self.grid.zero_point)


def quantized_units(model: ir.Model) -> tuple[QuantizedUnit, ...]:
    """The pieces of ``model``, in its order: one for each value with one static grid of at most 16 bits.

    Raises:
        InputError: a Q or DQ means nothing.
    """
    shaped = with_shapes(model)
    quantizers = [node for node in shaped.graph if _on_one_grid(node)]
    borders = {_levels(node): node for node in quantizers}
    units = (_unit(shaped, node, set(borders)) for node in quantizers)
    return tuple(unit for unit in units if unit is not None)


def _on_one_grid(node: ir.Node) -> bool:
    if node.op_type != "QuantizeLinear" or is_constant(node.inputs[0]):
        return False
    grid = grid_of(node)
    return grid is not None and grid.axis is None and grid.qtype.bits <= _MOST_BITS


def _levels(quantizer: ir.Node) -> ir.Value:
    clip = clip_of_levels(quantizer)
    return (quantizer if clip is None else clip).outputs[0]


def _unit(model: ir.Model, quantizer: ir.Node, borders: set[ir.Value]) -> QuantizedUnit | None:
    grid, levels, source = grid_of(quantizer), _levels(quantizer), quantizer.inputs[0]
    assert grid is not None
    assert source is not None
    feeds, nodes = _behind(levels, borders, set(model.graph.inputs))
    if not feeds:
        return None
    ends = Ends.of_grid(*_grid_ends(quantizer, grid), int(grid.zero_point))
    maker = source.producer()
    if (limits := _limits(maker, float(grid.scale))) is not None and maker is not None:
        ends, source = ends.within(*limits), maker.inputs[0]
    order = {node: index for index, node in enumerate(model.graph)}
    between = sorted((node for node in nodes if node.op_type not in _PAIRS), key=order.__getitem__)
    piece = ir.convenience.extract(model.graph, feeds, [levels])
    return QuantizedUnit(
        value=str(levels.name),
        node=node_key(between[-1] if between else quantizer),
        operators=tuple(node.op_type for node in between if node is not levels.producer()),
        graph=ir.Model(piece, ir_version=model.ir_version),
        feeds=tuple(str(feed.name) for feed in feeds),
        real=str(source.name if source is not None else ""),
        grid=grid,
        ends=ends,
    )


_PAIRS = frozenset({"QuantizeLinear", "DequantizeLinear"})


def _behind(levels: ir.Value, borders: set[ir.Value], inputs: set[ir.Value]) -> tuple[list[ir.Value], set[ir.Node]]:
    """The borders and graph inputs that ``levels`` are made of, and the nodes in between."""
    feeds: dict[ir.Value, None] = {}
    nodes: set[ir.Node] = set()
    waiting = [levels]
    while waiting:
        value = waiting.pop()
        maker = value.producer()
        if value is not levels and (value in borders or value in inputs):
            feeds[value] = None
        elif maker is not None and maker not in nodes:
            nodes.add(maker)
            waiting += [one for one in maker.inputs if one is not None]
    return list(feeds), nodes


def _limits(node: ir.Node | None, scale: float) -> tuple[float, float] | None:
    """What a Relu or Clip with constant ends lets through, in steps; None of any other node."""
    if node is None or node.domain or node.op_type not in {"Relu", "Clip"}:
        return None
    if node.op_type == "Relu":
        return 0.0, _ENDLESS
    low, high = (_end(node, index) for index in (1, 2))
    if low is None or high is None:
        return None
    return low / scale, high / scale


def _end(clip: ir.Node, index: int) -> float | None:
    """One end of a Clip; endless where it is left out, None where it is computed."""
    value = clip.inputs[index] if index < len(clip.inputs) else None
    if value is None:
        return -_ENDLESS if index == 1 else _ENDLESS
    constant = constant_value(value)
    return None if constant is None else float(constant.reshape(()))


def _grid_ends(quantizer: ir.Node, grid: QParams) -> tuple[int, int]:
    """The lowest and highest level: those of the type, or of the Clip behind."""
    clip = clip_of_levels(quantizer)
    low, high = (-_ENDLESS, _ENDLESS) if clip is None else (_end(clip, 1), _end(clip, 2))
    assert low is not None
    assert high is not None
    return int(max(grid.qtype.qmin, low)), int(min(grid.qtype.qmax, high))
