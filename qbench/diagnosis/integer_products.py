"""The products by constant weights in a graph of integer operators, each as the columns that the machine sums over.

    acc[n] = Σ_k (x[k] − z_x) (w[k, n] − z_w[n]) + bias[n]

k runs as the interpreter counts (``interpreter.sum_order``); in groups over the channels of the filter alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import constant_value, node_key
from qbench.interpreter import Summing, float_operator, sum_shape, summing
from qbench.numerics import QParams, QType

Ints = npt.NDArray[np.int64]
_RANGES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {name: (QType.parse(name).qmin, QType.parse(name).qmax) for name in ("uint8", "int8", "uint16", "int16", "int4")}
)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the inputs of an operator stand; None: it has none such."""

    x_zero: int
    weight: int
    weight_zero: int
    scales: tuple[int, int, int] | None = None
    bias: int | None = None
    output_zero: int | None = None


_PLACES: Mapping[str, _Places] = MappingProxyType(
    {
        "QLinearConv": _Places(2, 3, 5, (1, 4, 6), 8, 7),
        "QLinearMatMul": _Places(2, 3, 5, (1, 4, 6), None, 7),
        "QGemm": _Places(2, 3, 5, (1, 4, 7), 6, 8),
        "ConvInteger": _Places(2, 1, 3),
        "MatMulInteger": _Places(2, 1, 3),
        "MatMulIntegerToFloat": _Places(4, 1, 5),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntegerProduct:
    """One product.

    Args:
        node, operator: its name, and what it is called in a float graph.
        levels: type of x; weights: type of w.
        low, high: the levels that x can have.
        x_zero: z_x; None where it is computed. weight: (K, N) levels. weight_zero: (N,).
        bias: (N,), zeros where there is none.
        scales: of x, of w (N,), and of the result; None where the result is no level.
        output: the grid of the result, likewise.
        depthwise: one filter a channel.
        order: of its sums.
    """

    node: str
    operator: str
    levels: str
    weights: str
    low: int
    high: int
    x_zero: int | None
    weight: Ints
    weight_zero: Ints
    bias: Ints
    scales: tuple[float, npt.NDArray[np.float64], float] | None
    output: QParams | None
    depthwise: bool
    order: Summing


def integer_products(model: ir.Model) -> tuple[tuple[IntegerProduct, ...], tuple[str, ...]]:
    """The products of ``model`` by constant weights, in order, and the names of those that are not judged.

    These have two computed operands, or sum another set of weights at every place (ConvTranspose).
    """
    found, others = [], []
    for node in model.graph:
        if node.op_type in _PLACES or node.op_type == "QLinearConvTranspose":
            product = _product(node, _PLACES[node.op_type]) if node.op_type in _PLACES else None
            if product is None:
                others.append(node_key(node))
            else:
                found.append(product)
    return tuple(found), tuple(others)


def _product(node: ir.Node, places: _Places) -> IntegerProduct | None:
    weight, x_zero = _constant(node, places.weight), _constant(node, places.x_zero)
    x = node.inputs[0]
    levels = "" if x is None or x.dtype is None else x.dtype.numpy().name
    levels = levels or ("uint8" if x_zero is None else x_zero.dtype.name)
    is_conv = "Conv" in node.op_type
    if (
        weight is None
        or levels not in _RANGES
        or weight.dtype.name not in _RANGES
        or (weight.ndim != 2 and not is_conv)
    ):
        return None
    order = summing(node, weight.shape)
    columns = order.columns(weight.astype(np.int64))
    count = columns.shape[1]
    low, high = _ends(x, levels)
    bias = None if places.bias is None else _constant(node, places.bias)
    return IntegerProduct(
        node=node_key(node),
        operator=float_operator(node),
        levels=levels,
        weights=weight.dtype.name,
        low=low,
        high=high,
        x_zero=_first(x_zero, 0) if x_zero is not None or _absent(node, places.x_zero) else None,
        weight=columns,
        weight_zero=_spread(_constant(node, places.weight_zero), count),
        bias=_spread(bias, count),
        scales=_scales(node, places, count),
        output=_output(node, places),
        depthwise=is_conv and sum_shape(node, weight.shape).depthwise,
        order=order,
    )


def _ends(x: ir.Value | None, levels: str) -> tuple[int, int]:
    """The levels that ``x`` can have: those of its type, or of the clip that makes it."""
    low, high = _RANGES[levels]
    node = None if x is None else x.producer()
    if node is None or node.op_type != "Clip":
        return low, high
    ends = [_constant(node, place) for place in (1, 2)]
    return max(low, _first(ends[0], low)), min(high, _first(ends[1], high))


def _scales(node: ir.Node, places: _Places, count: int) -> tuple[float, npt.NDArray[np.float64], float] | None:
    if places.scales is None:
        return None
    x, w, y = (_constant(node, place) for place in places.scales)
    if x is None or w is None or y is None:
        return None
    return float(x.reshape(-1)[0]), np.broadcast_to(w.astype(np.float64).reshape(-1), (count,)), float(y.reshape(-1)[0])


def _output(node: ir.Node, places: _Places) -> QParams | None:
    if places.scales is None or places.output_zero is None:
        return None
    scale, zero = _constant(node, places.scales[2]), _constant(node, places.output_zero)
    if scale is None or zero is None:
        return None
    return QParams(float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]), QType.parse(zero.dtype.name))


def _constant(node: ir.Node, place: int) -> npt.NDArray[Any] | None:
    return constant_value(node.inputs[place]) if place < len(node.inputs) else None


def _absent(node: ir.Node, place: int) -> bool:
    return place >= len(node.inputs) or node.inputs[place] is None


def _spread(values: npt.NDArray[Any] | None, count: int) -> Ints:
    """``values`` (None: 0), one a column."""
    return np.broadcast_to(np.zeros(1, np.int64) if values is None else values.astype(np.int64).reshape(-1), (count,))


def _first(values: npt.NDArray[Any] | None, default: int) -> int:
    return default if values is None else int(values.reshape(-1)[0])
