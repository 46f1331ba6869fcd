"""A node as its grids alone would have it: the fp32 operators, with every operand rounded to the grid that it has.

    y = round(f(round(x), round(w)))        f, x, w of fp32; the rounding is that of the quantized graph's own grids

The quantized graph holds weights, limits, attributes and operators that a pass or an exporter may have got wrong. None
of them is used here but its grids, so what the patient's node is further from fp32 than this one is no grid's fault.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.backends import Array
from qbench.diagnosis.quantized_units import QuantizedUnit
from qbench.graph import constant_value, grid_of, is_constant, node_key, producer, values_by_name
from qbench.numerics import QParams, quantize

_WEIGHT_BITS = 16
_PAIRS = frozenset({"QuantizeLinear", "DequantizeLinear"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshUnit:
    """The fp32 counterpart of a unit.

    Args:
        graph: fp32 operators with rounded constants; inputs are ``feeds``.
        feeds: fp32 values in front, one for each of the unit's, in its order.
        moved: constants that the unit has otherwise than rounding alone would make them: name → rms, in steps of
            theirs; of a bias, which is added to the result, in steps of the result.
    """

    graph: ir.Model
    feeds: tuple[str, ...]
    moved: Mapping[str, float]


def fresh_unit(
    unit: QuantizedUnit, original: ir.Model, stands_for: Mapping[str, str], *, rounded: bool = True
) -> FreshUnit:
    """The counterpart of ``unit``.

    Args:
        unit: of the quantized graph.
        original: the float graph that it was written into, with shapes; not touched.
        stands_for: levels (or an input) → the fp32 value that they are of, for every feed of the unit.
        rounded: whether its constants are put on the unit's grids.

    Raises:
        LookupError: fp32 has no such values, or they do not follow from each other; the text says which.
    """
    known = values_by_name(original)
    feeds = tuple(stands_for[feed] for feed in unit.feeds)
    for name in (*feeds, unit.stands_for):
        if name not in known:
            raise LookupError(f"fp32 has no value '{name}'")
    if any(node.op_type == "DynamicQuantizeLinear" for node in unit.graph.graph):
        raise LookupError(f"grids in front of '{unit.value}' are computed at run time")
    if unit.stands_for in feeds:
        raise LookupError(f"'{unit.value}' only changes the grid of '{unit.stands_for}'")
    ends = [known[name] for name in dict.fromkeys(feeds)]
    try:
        piece = ir.convenience.extract(original.graph, ends, [known[unit.stands_for]])
    except ValueError as error:
        raise LookupError(f"'{unit.stands_for}' does not follow from {', '.join(feeds)} in fp32") from error
    moved = dict(_round_constants(piece, _rounded_constants(unit), unit.scale)) if rounded else {}
    return FreshUnit(graph=ir.Model(piece, ir_version=original.ir_version), feeds=feeds, moved=moved)


def _rounded_constants(unit: QuantizedUnit) -> dict[tuple[str, int], tuple[QParams, Array]]:
    """(operator, place of its operand) → the grid of that constant, and its numbers.

    Raises:
        LookupError: a constant comes off no grid that is known beforehand.
    """
    found = {}
    for node in unit.graph.graph:
        if node.op_type in _PAIRS:
            continue
        for place, value in enumerate(node.inputs):
            maker = producer(value)
            if maker is None or maker.op_type != "DequantizeLinear" or not is_constant(maker.inputs[0]):
                continue
            grid, levels = grid_of(maker), constant_value(maker.inputs[0])
            if grid is None or levels is None:
                raise LookupError(f"nothing says on which grid '{value.name if value else place}' lies")
            found[node_key(node), place] = (grid, _dequantized(levels, grid))
    return found


def _round_constants(
    piece: ir.Graph, grids: Mapping[tuple[str, int], tuple[QParams, Array]], step: float
) -> Iterator[tuple[str, float]]:
    """Put the constants of ``piece`` on their grids; name → how far the unit's are from these, where they are not.

    Raises:
        LookupError: one of the grids is of an operand that fp32 has not.
    """
    left = dict(grids)
    for node in piece:
        for place, value in enumerate(node.inputs):
            constant = constant_value(value)
            if value is None or constant is None or (node_key(node), place) not in left:
                continue
            grid, theirs = left.pop((node_key(node), place))
            try:
                rounded = _dequantized(quantize(constant.astype(np.float32), grid), grid)
            except ValueError:
                yield str(value.name), float("inf")  # the grid does not fit fp32's shape: another layout
                continue
            if theirs.shape != rounded.shape:
                yield str(value.name), float("inf")
            else:
                apart, size = theirs.astype(np.float64) - rounded, grid.expanded(rounded.shape)[0]
                if (np.abs(apart) > size).any():  # a step is what ties and corrections of rounding may move
                    yield str(value.name), float(np.sqrt(np.mean(np.square(apart / (step if _adds(grid) else size)))))
            name = f"{value.name}_rounded_{node_key(node)}"
            held = ir.Value(name=name, const_value=ir.tensor(rounded.astype(np.float32), name=name))
            piece.initializers[name] = held
            node.replace_input_with(place, held)
    for operator, place in left:
        raise LookupError(f"fp32 has no operand {place} of '{operator}'")


def _adds(grid: QParams) -> bool:
    """Whether a constant on ``grid`` is a bias: weights have no more than 16 bits."""
    return grid.qtype.bits > _WEIGHT_BITS


def _dequantized(levels: Array, grid: QParams) -> Array:
    """In float64 before it is rounded: biases of 32 bits are beyond float32."""
    scale, point = grid.expanded(levels.shape)
    return np.asarray((levels.astype(np.int64) - point) * scale.astype(np.float64), np.float32)
