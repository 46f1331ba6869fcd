"""Moving a bias that stands in a written graph: its integers where it has some, its float numbers where not.

integers    q := clip(q + round_half_even(δ / s))        on the grid that the plan gave it; ±2³⁰ in 32 bits
floats      b := b + δ
none        q := round_half_even(δ / (s_x · s_w)), int32, where both scales are known beforehand; else a float bias
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import constant_value, node_key
from qbench.numerics import QParams
from qbench.quantization.bias import LIMIT, bias_qparams
from qbench.quantization.node_writer import NodeWriter
from qbench.quantization.pair_writer import PairWriter
from qbench.quantization.plan import Plan
from qbench.quantization.slot import Role
from qbench.quantization.written_types import stored

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BiasPlace:
    """Where the bias of a unit stands.

    Args:
        unit: its name.
        node, index: the operand.
        behind_window: it is shaped [channels, 1, …] and not [.., channels].
        factor: what its node multiplies it with: β of a Gemm.
    """

    unit: str
    node: str
    index: int
    behind_window: bool = False
    factor: float = 1.0


def move_bias(model: ir.Model, node: ir.Node, place: BiasPlace, plan: Plan, shift: Doubles) -> int:
    """Add ``shift`` (float64, one a channel) to the bias at ``place``, which is an operand of ``node`` of ``model``.

    Returns:
        How many entries met the end of their grid.
    """
    value = node.inputs[place.index] if place.index < len(node.inputs) else None
    change = shift / place.factor
    if value is None:
        return _create(model, node, place, plan, change)
    maker = value.producer()
    if maker is None or maker.op_type != "DequantizeLinear":
        array = constant_value(value)
        assert array is not None
        moved = array.astype(np.float64) + _shaped(change, array, place)
        _give(model, node, place.index, ir.tensor(moved.astype(array.dtype)))
        return 0
    integers = constant_value(maker.inputs[0])
    assert integers is not None
    assert maker.inputs[0] is not None
    planned = (q for s, q in plan.constants.items() if (s.node, s.index) == (place.node, place.index))
    grid = next(planned, None) or _product(place, plan)  # that of a bias which an earlier correction made
    assert grid is not None
    scale = _spread(grid, integers.ndim)
    moved = integers.astype(np.float64) + np.rint(_shaped(change, integers, place) / scale)
    low, high = _ends(grid)
    dtype = maker.inputs[0].dtype
    assert dtype is not None
    _give(model, maker, 0, stored(np.clip(moved, low, high).astype(np.int64), dtype))
    return int(np.count_nonzero((moved < low) | (moved > high)))


def _create(model: ir.Model, node: ir.Node, place: BiasPlace, plan: Plan, change: Doubles) -> int:
    """A bias that was not there."""
    if place.index >= len(node.inputs):
        node.resize_inputs(place.index + 1)
    grid = _product(place, plan)
    saturated = 0
    if grid is not None:
        low, high = _ends(grid)
        levels = np.rint(change / grid.scale)
        saturated = int(np.count_nonzero((levels < low) | (levels > high)))
        scale = grid.scale.astype(np.float64)
        change = np.clip(change, low * scale, high * scale)  # the grid of the pair written below ends at 2³¹
    name = f"{place.unit}.bias"
    node.replace_input_with(place.index, NodeWriter(model).initializer(name, ir.tensor(change.astype(np.float32))))
    if grid is not None:
        writer = PairWriter(model)
        writer.constant(node, place.index, grid)
        writer.drop_unused()
    return saturated


def _product(place: BiasPlace, plan: Plan) -> QParams | None:
    """The grid of the products of the unit, where it is one of int32 that is known beforehand."""
    inputs = [plan.values.get(s.value) for s in plan.decisions if (s.node, s.role) == (place.unit, Role.INPUT)]
    weights = [q for s, q in plan.constants.items() if (s.node, s.role) == (place.unit, Role.WEIGHT)]
    first = inputs[0] if inputs else None
    if first is None or first.axis is not None or not weights or weights[0].block_size is not None:
        return None
    return bias_qparams(weights[0], float(first.scale), 0)


def _ends(grid: QParams) -> tuple[float, float]:
    return max(grid.qmin, -LIMIT), min(grid.qmax, LIMIT)


def _shaped(change: Doubles, bias: npt.NDArray[np.generic], place: BiasPlace) -> Doubles:
    """``change`` in a form that is added to ``bias`` channel by channel."""
    return change.reshape(-1, *[1] * (bias.ndim - 1)) if place.behind_window else change


def _spread(grid: QParams, rank: int) -> Doubles:
    """The scale in a form that broadcasts against a bias of ``rank`` dimensions."""
    scale = grid.scale.astype(np.float64)
    if grid.axis is None:
        return scale
    return np.asarray(scale.reshape([-1 if i == grid.axis % rank else 1 for i in range(rank)]))


def _give(model: ir.Model, node: ir.Node, index: int, tensor: ir.TensorProtocol) -> None:
    """A constant of its own instead of operand ``index`` of ``node``; one that nothing reads any more goes."""
    old = node.inputs[index]
    assert old is not None
    node.replace_input_with(index, NodeWriter(model).initializer(f"{old.name}_corrected", tensor))
    maker = old.producer()
    if old.uses() or old.is_graph_output():
        return
    if maker is not None:
        model.graph.remove(maker, safe=True)
    elif node_key(node) and str(old.name) in model.graph.initializers:
        del model.graph.initializers[str(old.name)]
