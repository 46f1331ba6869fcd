"""Smaller pieces of a unit, where its operators admit them: fewer rows and columns, fewer channels in and out.

Windows and functions of one value are the same on a part of a picture. A dense layer without some of its outputs gives
the others as before; without some of its inputs it is another layer, which is tried like any other candidate.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from qbench.backends import Array
from qbench.graph import constant_value, int_attribute, own_copy

Sliced = tuple[ir.Model, dict[str, Array]]

_WINDOWS = frozenset({"Conv", "MaxPool", "AveragePool", "GlobalAveragePool"})
_OF_EACH_VALUE = frozenset(
    {"Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Gelu"}
)
_OF_TWO = frozenset({"Add", "Sub", "Mul", "Div", "Min", "Max", "Where", "Concat"})
_LOCAL = _WINDOWS | _OF_EACH_VALUE | _OF_TWO | {"QuantizeLinear", "DequantizeLinear"}
"""Whose results in one place depend on places near it, or on all alike."""
_PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})
_CHANNEL_AXIS = 1


def with_free_sizes(model: ir.Model) -> ir.Model:
    """A copy of ``model`` that takes inputs of any size of their rank."""
    copy = own_copy(model)
    for value in copy.graph.inputs:
        if value.shape is not None and value.name not in copy.graph.initializers:
            value.shape = ir.Shape([None] * len(value.shape))
    for node in copy.graph:
        for value in node.outputs:
            if value.shape is not None:
                value.shape = ir.Shape([None] * len(value.shape))
    return copy


def with_sizes(model: ir.Model, feeds: Mapping[str, Array], results: Mapping[str, Array]) -> ir.Model:
    """A copy of ``model`` that declares the shapes of ``feeds`` and ``results``."""
    copy = own_copy(model)
    for value in (*copy.graph.inputs, *copy.graph.outputs):
        array = feeds.get(str(value.name), results.get(str(value.name)))
        if array is not None:
            value.shape = ir.Shape(array.shape)
    return copy


def spatial_axes(model: ir.Model, feeds: Mapping[str, Array]) -> tuple[int, ...]:
    """The axes behind the channels along which all feeds can be cut alike; none where an operator mixes places."""
    if any(node.op_type not in _LOCAL or node.domain for node in model.graph):
        return ()
    shapes = [array.shape[_CHANNEL_AXIS + 1 :] for array in feeds.values() if array.ndim]
    if not shapes or any(shape != shapes[0] for shape in shapes):
        return ()
    return tuple(range(_CHANNEL_AXIS + 1, _CHANNEL_AXIS + 1 + len(shapes[0])))


def cropped(feeds: Mapping[str, Array], axis: int, start: int, stop: int) -> dict[str, Array]:
    """``feeds`` from ``start`` to ``stop`` along ``axis``."""
    cut = (slice(None),) * axis + (slice(start, stop),)
    return {name: array[cut] if array.ndim else array for name, array in feeds.items()}


def channel_cut(model: ir.Model, feeds: Mapping[str, Array]) -> "tuple[tuple[Cutter, int], ...]":
    """Ways to keep some channels of the one product in ``model``, each with how many there are; outputs first.

    A depthwise convolution has one way, which keeps the same channels of both sides.
    """
    products = [node for node in model.graph if node.op_type in _PRODUCTS and not node.domain]
    if len(products) != 1 or len(feeds) != 1:
        return ()
    node = products[0]
    weight = _constant_behind(node.inputs[1])
    if weight is None or weight.const_value is None:
        return ()
    shape = weight.const_value.shape.numpy()
    groups = int_attribute(node, "group", 1)
    ((name, feed),) = feeds.items()
    if node.op_type == "Conv":
        if groups == 1:
            return (_cutter(0, None, None), shape[0]), (_cutter(None, 1, (name, _CHANNEL_AXIS)), shape[1])
        if groups == shape[0] == feed.shape[_CHANNEL_AXIS]:
            return ((_cutter(0, None, (name, _CHANNEL_AXIS), depthwise=True), shape[0]),)
        return ()
    if len(shape) != 2:
        return ()
    swapped = bool(int_attribute(node, "transB", 0))
    outputs, inputs = (0, 1) if swapped else (1, 0)
    ways = [(_cutter(outputs, None, None), shape[outputs])]
    if feed.shape[-1] == shape[inputs]:
        ways.append((_cutter(None, inputs, (name, feed.ndim - 1)), shape[inputs]))
    return tuple(ways)


Cutter = Callable[[ir.Model, Mapping[str, Array], Sequence[int]], Sliced]
"""(model, feeds, channels to keep) → both with these alone."""


def _cutter(
    outputs: int | None, inputs: int | None, feed: tuple[str, int] | None, *, depthwise: bool = False
) -> Cutter:
    """What keeps channels of the weight's axis ``outputs`` or ``inputs``, and of an axis of a feed."""

    def cut(model: ir.Model, feeds: Mapping[str, Array], channels: Sequence[int]) -> Sliced:
        copy, kept = own_copy(model), np.asarray(channels, dtype=np.int64)
        node = next(node for node in copy.graph if node.op_type in _PRODUCTS)
        axis = outputs if outputs is not None else inputs
        assert axis is not None
        _slice_operand(node.inputs[1], axis, kept)
        if outputs is not None and len(node.inputs) > 2:
            _slice_operand(node.inputs[2], -1, kept)
        if depthwise:
            node.attributes["group"] = ir.AttrInt64("group", len(kept))
        cut_feeds = dict(feeds)
        if feed is not None:
            cut_feeds[feed[0]] = np.take(feeds[feed[0]], kept, axis=feed[1])
        return copy, cut_feeds

    return cut


def _constant_behind(value: ir.Value | None) -> ir.Value | None:
    """The constant that ``value`` is, or is dequantized from."""
    maker = None if value is None else value.producer()
    if maker is not None and maker.op_type == "DequantizeLinear":
        value = maker.inputs[0]
    return value if value is not None and value.const_value is not None else None


def _slice_operand(value: ir.Value | None, axis: int, kept: Array) -> None:
    """Keep slices of a constant, and of the scales and zero points of the pair behind it that run along ``axis``."""
    maker = None if value is None else value.producer()
    if value is None:
        return
    if maker is None or maker.op_type != "DequantizeLinear":
        _slice(value, axis, kept)
        return
    rank = len(maker.inputs[0].shape) if maker.inputs[0] is not None and maker.inputs[0].shape is not None else 1
    along = int_attribute(maker, "axis", 1) % rank
    for index, part in enumerate(maker.inputs):
        numbers = constant_value(part)
        if part is None or numbers is None:
            continue
        if index == 0:
            _slice(part, axis, kept)
        elif numbers.ndim == 1 and numbers.size > 1 and along == axis % rank:
            _slice(part, 0, kept)


def _slice(value: ir.Value, axis: int, kept: Array) -> None:
    numbers = constant_value(value)
    assert numbers is not None
    taken = np.take(numbers, kept, axis=axis % max(numbers.ndim, 1))
    name = str(value.name)
    dtype = value.const_value.dtype if value.const_value is not None else None
    value.const_value = ir.tensor(taken, dtype=dtype, name=name)
    value.shape = ir.Shape(taken.shape)
