"""One function per operator of ONNX that makes it of PyTorch's layers and functions.

Sources: the operator definitions of ONNX at opset 21, the documentation of ``torch.nn``.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import nn
from torch.nn import functional

from qbench.graph import (
    constant_value,
    float_attribute,
    input_at,
    int_attribute,
    ints_attribute,
    is_constant,
    word_attribute,
)
from qbench.interpreter import Windows
from qbench_engines.torch_import import Made, Maker, Translation

Tensor = Any
Pads = Sequence[tuple[int, int]]
"""(before, after) of every spatial axis."""

# Products.


def _parameter(array: "np.typing.NDArray[Any]") -> Any:  # noqa: ANN401 - a torch parameter
    return nn.Parameter(torch.from_numpy(np.array(array, np.float32)))


def _even(pads: Pads) -> bool:
    return all(before == after for before, after in pads)


def _flat(pads: Pads) -> list[int]:
    """As ``functional.pad`` takes them: the last axis first."""
    return [size for pair in reversed(pads) for size in pair]


def _pads(made: Translation, node: ir.Node, windows: Windows) -> Pads:
    """The padding of every spatial axis.

    Raises:
        UnsupportedError: a rule for it, where the size of the picture is not known.
    """
    if windows.pads is not None:
        return windows.pads_for(())
    sizes = made.sizes(node)[2:]
    known = tuple(size for size in sizes if size is not None)
    if len(known) != len(sizes):
        raise made.refused(node, "with auto_pad for any size of picture", "given sizes or pads")
    return windows.pads_for(known)


def _convolution(made: Translation, node: ir.Node) -> Made:
    weight, bias = constant_value(input_at(node, 1)), constant_value(input_at(node, 2))
    shape = tuple(size or 0 for size in made.sizes(node, 1))
    rank = len(shape) - 2
    if rank not in (1, 2, 3):
        raise made.refused(node, f"over {rank} axes", "one to three")
    windows = Windows.of(node, shape[2:])
    pads = _pads(made, node, windows)
    x, group = made.read(node, 0), int_attribute(node, "group", 1)
    if not _even(pads):
        x = made.call(functional.pad, x, _flat(pads))
        pads = [(0, 0)] * rank
    padding = tuple(before for before, _ in pads)
    is_whole = weight is not None and (bias is not None or input_at(node, 2) is None)
    if not (made.layers and is_whole):
        run = getattr(functional, f"conv{rank}d")
        operands = (x, made.read(node, 1), made.read(node, 2))
        return made.call(run, *operands, windows.strides, padding, windows.dilations, group)
    assert weight is not None
    layer = getattr(nn, f"Conv{rank}d")(
        weight.shape[1] * group,
        weight.shape[0],
        shape[2:],
        windows.strides,
        padding,
        windows.dilations,
        group,
        bias=bias is not None,
    )
    return made.layer(node, _filled(layer, weight, bias), x)


def _filled(layer: Any, weight: Any, bias: Any) -> Any:  # noqa: ANN401 - of torch, of numpy
    layer.weight = _parameter(weight)
    if bias is not None:
        layer.bias = _parameter(bias.reshape(-1))
    return layer


def _transposed_convolution(made: Translation, node: ir.Node) -> Made:
    shape = tuple(size or 0 for size in made.sizes(node, 1))
    rank = len(shape) - 2
    windows = Windows.of(node, shape[2:])
    is_computed = "output_shape" in node.attributes or windows.pads is None
    if rank not in (1, 2, 3) or is_computed or not _even(windows.pads_for(())):
        raise made.refused(node, "with padding that differs or is computed", "equal pads")
    padding = tuple(before for before, _ in windows.pads_for(()))
    more = ints_attribute(node, "output_padding", (0,) * rank)
    group = int_attribute(node, "group", 1)
    run = getattr(functional, f"conv_transpose{rank}d")
    operands = [made.read(node, index) for index in range(3)]
    return made.call(run, *operands, windows.strides, padding, more, group, windows.dilations)


def _gemm(made: Translation, node: ir.Node) -> Made:
    alpha, beta = (float_attribute(node, name, 1.0) for name in ("alpha", "beta"))
    flips = [bool(int_attribute(node, name, 0)) for name in ("transA", "transB")]
    weight, bias = constant_value(input_at(node, 1)), constant_value(input_at(node, 2))
    a = made.read(node, 0)
    if flips[0]:
        a = made.call(torch.transpose, a, 0, 1)
    is_whole = weight is not None and (bias is not None or input_at(node, 2) is None)
    columns = made.sizes(node, 1)[0 if flips[1] else 1]
    is_row = bias is None or bias.size == columns
    if alpha == beta == 1.0 and is_whole and is_row and made.layers:
        assert weight is not None
        rows = weight if flips[1] else weight.T
        layer = nn.Linear(rows.shape[1], rows.shape[0], bias=bias is not None)
        return made.layer(node, _filled(layer, rows, bias), a)
    b, c = made.read(node, 1), made.read(node, 2)
    if flips[1]:
        b = made.call(torch.transpose, b, 0, 1)
    y = made.call(torch.matmul, a, b)
    if alpha != 1.0:
        y = made.call(torch.mul, y, alpha)
    if c is None:
        return y
    return made.call(torch.add, y, c if beta == 1.0 else made.call(torch.mul, c, beta))


def _matrix_product(made: Translation, node: ir.Node) -> Made:
    weight = constant_value(input_at(node, 1))
    if weight is None or weight.ndim != 2 or not made.layers:
        return made.call(torch.matmul, made.read(node, 0), made.read(node, 1))
    layer = nn.Linear(*weight.shape, bias=False)
    return made.layer(node, _filled(layer, weight.T, None), made.read(node, 0))


# Functions of one or more values, element by element.


def _of_all(function: Callable[..., Any]) -> Maker:
    """``function`` of two operands, of any number one after the other."""

    def make(made: Translation, node: ir.Node) -> Made:
        each = [made.read(node, index) for index in range(len(node.inputs))]
        whole = each[0]
        for one in each[1:]:
            whole = made.call(function, whole, one)
        return whole

    return make


def _function(
    function: Callable[..., Any],
    layer: Callable[..., Any] | None = None,
    **settings: tuple[str, float],
) -> Maker:
    """``function`` of the first operand, or the ``layer``.

    ``settings``: name of an argument → the attribute that it is, and its default.
    """

    def make(made: Translation, node: ir.Node) -> Made:
        given = {
            name: float_attribute(node, attribute, default)
            for name, (attribute, default) in settings.items()
        }
        x = made.read(node, 0)
        if layer is None or not made.layers:
            return made.call(function, x, **given)
        return made.layer(node, layer(**given), x)

    return make


def _clip(made: Translation, node: ir.Node) -> Made:
    ends = [made.constant(node, index) for index in (1, 2)]
    low, high = (None if end is None else float(end.reshape(())) for end in ends)
    x = made.read(node, 0)
    if made.layers and (low, high) == (0.0, 6.0):
        return made.layer(node, nn.ReLU6(), x)
    if low is None and high is None:
        return x
    return made.call(torch.clamp, x, min=low, max=high)


def _prelu(made: Translation, node: ir.Node) -> Made:
    """Slopes broadcast against the value, which PyTorch's own layer does not do."""
    x, slope = made.read(node, 0), made.read(node, 1)
    negative = made.call(torch.mul, x, slope)
    return made.call(torch.where, made.call(torch.lt, x, 0), negative, x)


def _hard_swish(made: Translation, node: ir.Node) -> Made:
    """The product x · min(max(x/6 + 1/2, 0), 1); PyTorch's layer rounds in another order."""
    x = made.read(node, 0)
    if made.layers:
        return made.layer(node, nn.Hardswish(), x)
    return made.call(torch.mul, x, _line(made, x, 1 / 6, 0.5))


def _hard_sigmoid(made: Translation, node: ir.Node) -> Made:
    slope, middle = (
        float_attribute(node, name, value) for name, value in (("alpha", 0.2), ("beta", 0.5))
    )
    return _line(made, made.read(node, 0), slope, middle)


def _line(made: Translation, x: Made, slope: float, middle: float) -> Made:
    whole = made.call(torch.add, made.call(torch.mul, x, slope), middle)
    return made.call(torch.clamp, whole, min=0.0, max=1.0)


def _gelu(made: Translation, node: ir.Node) -> Made:
    way = word_attribute(node, "approximate", "none")
    return made.call(functional.gelu, made.read(node, 0), approximate=way)


def _softmax(function: Callable[..., Any]) -> Maker:
    return lambda made, node: made.call(
        function, made.read(node, 0), dim=int_attribute(node, "axis", -1)
    )


def _batch_normalization(made: Translation, node: ir.Node) -> Made:
    """Scale, offset, mean and variance in this order; PyTorch's function has the mean first."""
    parts = [made.read(node, index) for index in range(5)]
    if int_attribute(node, "training_mode", 0):
        raise made.refused(node, "in training mode", "one for inference")
    x, scale, offset, mean, variance = parts
    epsilon = float_attribute(node, "epsilon", 1e-5)
    return made.call(functional.batch_norm, x, mean, variance, scale, offset, eps=epsilon)


# Windows and means.


def _max_pool(made: Translation, node: ir.Node) -> Made:
    windows = Windows.of(node, ints_attribute(node, "kernel_shape"))
    rank, pads, x = len(windows.sizes), _pads(made, node, windows), made.read(node, 0)
    half = all(2 * before <= size for (before, _), size in zip(pads, windows.sizes, strict=True))
    if not (_even(pads) and half):
        if windows.ceil:
            raise made.refused(node, "with unequal padding, its windows rounded up", "one of both")
        x = made.call(functional.pad, x, _flat(pads), value=-math.inf)
        pads = [(0, 0)] * rank
    padding = tuple(before for before, _ in pads)
    settings = (windows.sizes, windows.strides, padding, windows.dilations)
    if made.layers:
        layer = getattr(nn, f"MaxPool{rank}d")(*settings, ceil_mode=windows.ceil)
        return made.layer(node, layer, x)
    return made.call(getattr(functional, f"max_pool{rank}d"), x, *settings, ceil_mode=windows.ceil)


def _average_pool(made: Translation, node: ir.Node) -> Made:
    windows = Windows.of(node, ints_attribute(node, "kernel_shape"))
    rank, pads, x = len(windows.sizes), _pads(made, node, windows), made.read(node, 0)
    counted = bool(int_attribute(node, "count_include_pad", 0))
    run = getattr(functional, f"avg_pool{rank}d")
    if any(gap != 1 for gap in windows.dilations):
        raise made.refused(node, "with dilations", "none")
    half = all(2 * before <= size for (before, _), size in zip(pads, windows.sizes, strict=True))
    padding = tuple(before for before, _ in pads)
    if _even(pads) and half:
        settings = (windows.sizes, windows.strides, padding, windows.ceil, counted)
        if made.layers:
            return made.layer(node, getattr(nn, f"AvgPool{rank}d")(*settings), x)
        return made.call(run, x, *settings)
    if windows.ceil:
        raise made.refused(node, "with unequal padding, its windows rounded up", "one of both")
    sums = made.call(functional.pad, x, _flat(pads))
    if counted:
        return made.call(run, sums, windows.sizes, windows.strides)
    ones = made.call(functional.pad, made.call(torch.ones_like, x), _flat(pads))
    both = (
        made.call(run, one, windows.sizes, windows.strides, divisor_override=1)
        for one in (sums, ones)
    )
    return made.call(torch.div, *both)


def _global_pool(layer: str, function: Callable[..., Any]) -> Maker:
    def make(made: Translation, node: ir.Node) -> Made:
        x, rank = made.read(node, 0), made.rank(node)
        if made.layers and rank == 4:
            return made.layer(node, getattr(nn, layer)(1), x)
        return made.call(function, x, dim=tuple(range(2, rank)), keepdim=True)

    return make


def _reduced(function: Callable[..., Any]) -> Maker:
    """Over the axes of the second operand; over all of them where there is none."""

    def make(made: Translation, node: ir.Node) -> Made:
        axes, x = made.integers(node, 1), made.read(node, 0)
        if not axes:
            if int_attribute(node, "noop_with_empty_axes", 0):
                return x
            axes = tuple(range(made.rank(node)))
        return made.call(function, x, dim=axes, keepdim=bool(int_attribute(node, "keepdims", 1)))

    return make


# What only moves values.


def _concat(made: Translation, node: ir.Node) -> Made:
    each = [made.read(node, index) for index in range(len(node.inputs))]
    return made.call(torch.cat, each, dim=int_attribute(node, "axis", 0))


def _flatten(made: Translation, node: ir.Node) -> Made:
    axis = int_attribute(node, "axis", 1) % max(made.rank(node), 1)
    if axis == 1 and made.rank(node) > 1:
        return made.call(torch.flatten, made.read(node, 0), 1)
    return made.call(two_axes, made.read(node, 0), axis)


def two_axes(x: Tensor, axis: int) -> Tensor:
    """``x`` as rows of all before ``axis`` and columns of all from it on."""
    rows = math.prod(x.shape[:axis])
    return x.reshape(rows, -1 if rows else math.prod(x.shape[axis:]))


def _reshape(made: Translation, node: ir.Node) -> Made:
    sizes = made.integers(node, 1)
    assert sizes is not None
    if int_attribute(node, "allowzero", 0) and 0 in sizes:
        raise made.refused(node, "to a size of 0", "sizes from 1")
    if 0 not in sizes:
        return made.call(torch.reshape, made.read(node, 0), sizes)
    return made.call(resized, made.read(node, 0), sizes)


def resized(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """``x`` in other sizes; 0 is the size that it has there."""
    return x.reshape([size or x.shape[axis] for axis, size in enumerate(sizes)])


def _transpose(made: Translation, node: ir.Node) -> Made:
    order = ints_attribute(node, "perm", tuple(reversed(range(made.rank(node)))))
    return made.call(torch.permute, made.read(node, 0), order)


def _squeeze(made: Translation, node: ir.Node) -> Made:
    axes, x = made.integers(node, 1), made.read(node, 0)
    return made.call(torch.squeeze, x) if axes is None else made.call(torch.squeeze, x, axes)


def _unsqueeze(made: Translation, node: ir.Node) -> Made:
    axes, x = made.integers(node, 1) or (), made.read(node, 0)
    whole = made.rank(node) + len(axes)
    for axis in sorted(axis % whole for axis in axes):
        x = made.call(torch.unsqueeze, x, axis)
    return x


def _identity(made: Translation, node: ir.Node) -> Made:
    return made.read(node, 0)


def _pad(made: Translation, node: ir.Node) -> Made:
    rank, pads, axes = made.rank(node), made.integers(node, 1) or (), made.integers(node, 3)
    modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    mode = word_attribute(node, "mode", "constant")
    filler = made.constant(node, 2)
    sides = [(0, 0)] * rank
    for place, axis in enumerate(range(rank) if axes is None else axes):
        sides[axis % rank] = (pads[place], pads[place + len(pads) // 2])
    if mode == "constant":
        value = 0.0 if filler is None or not filler.size else float(filler.reshape(()))
        return made.call(functional.pad, made.read(node, 0), _flat(sides), value=value)
    if any(map(any, sides[:2])):
        raise made.refused(node, f"by {mode} of channels", "of spatial axes")
    return made.call(functional.pad, made.read(node, 0), _flat(sides[2:]), mode=modes[mode])


def _slice(made: Translation, node: ir.Node) -> Made:
    begins, ends = (made.integers(node, index) or () for index in (1, 2))
    rank, axes = made.rank(node), made.integers(node, 3) or tuple(range(len(begins)))
    steps = made.integers(node, 4) or (1,) * len(begins)
    if min(steps, default=1) < 1:
        raise made.refused(node, "backward", "steps from 1")
    cuts = [slice(None)] * rank
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        cuts[axis % rank] = slice(begin, end, step)
    return made.call(operator.getitem, made.read(node, 0), tuple(cuts))


def _split(made: Translation, node: ir.Node) -> Made:
    axis, parts = int_attribute(node, "axis", 0), made.integers(node, 1)
    if parts is None:
        size = made.sizes(node)[axis]
        if size is None:
            raise made.refused(node, "of an axis of any size", "a known size")
        part = math.ceil(size / len(node.outputs))
        parts = tuple(min(part, size - part * place) for place in range(len(node.outputs)))
    whole = made.call(torch.split, made.read(node, 0), list(parts), dim=axis)
    return tuple(made.call(operator.getitem, whole, place) for place in range(len(parts)))


def _gather(made: Translation, node: ir.Node) -> Made:
    places, axis = made.constant(node, 1), int_attribute(node, "axis", 0)
    assert places is not None
    if places.ndim > 1 or not is_constant(input_at(node, 1)):
        raise made.refused(node, f"of places of {places.ndim} axes", "one place, or a list")
    if places.ndim == 0:
        return made.call(torch.select, made.read(node, 0), axis, int(places))
    if places.size and places.min() < 0:
        raise made.refused(node, "of places from the end", "places from 0")
    return made.call(torch.index_select, made.read(node, 0), axis, made.read(node, 1))


def _resize(made: Translation, node: ir.Node) -> Made:
    """The forms that ``functional.interpolate`` has, of spatial axes."""
    mode, way = (
        word_attribute(node, name, default)
        for name, default in (
            ("mode", "nearest"),
            ("coordinate_transformation_mode", "half_pixel"),
        )
    )
    rounding = word_attribute(node, "nearest_mode", "round_prefer_floor")
    sizes, scales = made.integers(node, 3), made.constant(node, 2)
    rank, known = made.rank(node), made.sizes(node)
    is_nearest = mode == "nearest" and way == "asymmetric" and rounding == "floor"
    is_linear = mode == "linear" and way in ("half_pixel", "align_corners", "pytorch_half_pixel")
    if not (is_nearest or is_linear) or "axes" in node.attributes or rank not in (3, 4, 5):
        raise made.refused(
            node,
            f"by {mode}, {way}, {rounding}",
            "nearest with asymmetric and floor, or linear with half_pixel or align_corners",
        )
    settings: dict[str, Any] = {"mode": "nearest"}
    if is_linear:
        words = {3: "linear", 4: "bilinear", 5: "trilinear"}
        settings = {"mode": words[rank], "align_corners": way == "align_corners"}
    if sizes is not None:
        if sizes[:2] != known[:2] and known[1] != sizes[1]:
            raise made.refused(node, "of channels", "of spatial axes")
        return made.call(
            functional.interpolate, made.read(node, 0), size=list(sizes[2:]), **settings
        )
    assert scales is not None
    if not np.array_equal(scales[:2], [1, 1]):
        raise made.refused(node, "of channels", "of spatial axes")
    factors = [float(scale) for scale in scales[2:]]
    return made.call(functional.interpolate, made.read(node, 0), scale_factor=factors, **settings)


def _depth_to_space(made: Translation, node: ir.Node) -> Made:
    size, x = int_attribute(node, "blocksize", 1), made.read(node, 0)
    if word_attribute(node, "mode", "DCR") == "CRD":
        return made.call(functional.pixel_shuffle, x, size)
    return made.call(depth_first, x, size)


def depth_first(x: Tensor, size: int) -> Tensor:
    """DepthToSpace in the order depth, column, row."""
    count, depth, height, width = x.shape
    parts = x.reshape(count, size, size, depth // size**2, height, width)
    moved = parts.permute(0, 3, 4, 1, 5, 2)
    return moved.reshape(count, depth // size**2, height * size, width * size)


OPERATORS: Mapping[str, Maker] = MappingProxyType(
    {
        "Conv": _convolution,
        "ConvTranspose": _transposed_convolution,
        "Gemm": _gemm,
        "MatMul": _matrix_product,
        "Add": _of_all(torch.add),
        "Sub": _of_all(torch.sub),
        "Mul": _of_all(torch.mul),
        "Div": _of_all(torch.div),
        "Pow": _of_all(torch.pow),
        "Sum": _of_all(torch.add),
        "Max": _of_all(torch.maximum),
        "Min": _of_all(torch.minimum),
        "Relu": _function(torch.relu, nn.ReLU),
        "Clip": _clip,
        "LeakyRelu": _function(functional.leaky_relu, nn.LeakyReLU, negative_slope=("alpha", 0.01)),
        "PRelu": _prelu,
        "Elu": _function(functional.elu, nn.ELU, alpha=("alpha", 1.0)),
        "HardSwish": _hard_swish,
        "HardSigmoid": _hard_sigmoid,
        "Sigmoid": _function(torch.sigmoid, nn.Sigmoid),
        "Tanh": _function(torch.tanh, nn.Tanh),
        "Gelu": _gelu,
        "Softplus": _function(functional.softplus, nn.Softplus),
        "Mish": _function(functional.mish, nn.Mish),
        "Abs": _function(torch.abs),
        "Neg": _function(torch.neg),
        "Exp": _function(torch.exp),
        "Log": _function(torch.log),
        "Sqrt": _function(torch.sqrt),
        "Erf": _function(torch.erf),
        "Reciprocal": _function(torch.reciprocal),
        "Softmax": _softmax(torch.softmax),
        "LogSoftmax": _softmax(torch.log_softmax),
        "BatchNormalization": _batch_normalization,
        "MaxPool": _max_pool,
        "AveragePool": _average_pool,
        "GlobalAveragePool": _global_pool("AdaptiveAvgPool2d", torch.mean),
        "GlobalMaxPool": _global_pool("AdaptiveMaxPool2d", torch.amax),
        "ReduceMean": _reduced(torch.mean),
        "ReduceSum": _reduced(torch.sum),
        "ReduceMax": _reduced(torch.amax),
        "ReduceMin": _reduced(torch.amin),
        "Concat": _concat,
        "Flatten": _flatten,
        "Reshape": _reshape,
        "Transpose": _transpose,
        "Squeeze": _squeeze,
        "Unsqueeze": _unsqueeze,
        "Identity": _identity,
        "Pad": _pad,
        "Slice": _slice,
        "Split": _split,
        "Gather": _gather,
        "Resize": _resize,
        "DepthToSpace": _depth_to_space,
    }
)
"""Operator of the default domain → what makes it; all others are unsupported."""
