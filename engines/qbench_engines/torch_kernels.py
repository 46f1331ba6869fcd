"""Operators on integers, borders and movers as kernels of PyTorch's quantized operators."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends import Array
from qbench.graph import (
    ENGINE_DOMAIN,
    INTEGER_DOMAIN,
    INTEGER_FORMS,
    float_attribute,
    int_attribute,
    ints_attribute,
    word_attribute,
)
from qbench.interpreter import KernelContext, Windows, make_kernel
from qbench.numerics import QParams

# What a step reads and gives: a quantized tensor with one scale, or an array of anything else.


@dataclass(frozen=True, slots=True)
class TorchQParams:
    """The scale, zero point and element type of a quantized tensor."""

    scale: float
    zero_point: int
    dtype: str

    @classmethod
    def of(cls, qparams: QParams) -> "TorchQParams":
        """Those of ``qparams``.

        Raises:
            ValueError: more than one scale, or a type that PyTorch does not have.
        """
        if qparams.axis is not None or np.ndim(qparams.scale):
            raise ValueError("activations with more than one scale, where PyTorch has one")
        if qparams.qtype.name not in ("int8", "uint8"):
            raise ValueError(f"{qparams.qtype.name}, where PyTorch's operators have 8 bits")
        return cls(float(qparams.scale), int(qparams.zero_point), qparams.qtype.name)

    @property
    def target(self) -> tuple[float, int]:
        """Scale and zero point, as operators take them for their result."""
        return self.scale, self.zero_point


Tensor = Any
Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A node as PyTorch runs it.

    Args:
        run: its computed operands, in order → its result; a tuple where it has several.
        operands: (index of the input, its qparams or None for an array).
        result: the qparams of the result; None: an array, or several.
        precision: the type that it is computed in; empty: that of its first input.
    """

    run: Run
    operands: tuple[tuple[int, TorchQParams | None], ...]
    result: TorchQParams | None = None
    precision: str = ""


@dataclass(frozen=True, slots=True)
class Making:
    """What a kernel is made from: the module, the node in its context, and qparams of what it
    reads.
    """

    torch: Any
    context: KernelContext
    held_qparams: Mapping[ir.Value, TorchQParams]

    @property
    def node(self) -> ir.Node:
        """The node."""
        return self.context.node

    @property
    def engine(self) -> str:
        """PyTorch's quantized engine, for which the kernel is made."""
        return str(self.torch.backends.quantized.engine)

    def qparams(self, index: int) -> TorchQParams:
        """The qparams whose scale and zero point are the inputs ``index`` and the next one."""
        return TorchQParams.of(self.context.qparams(index, index + 1))

    def held(self, index: int) -> TorchQParams | None:
        """The qparams of the tensor at input ``index``; None: an array."""
        value = self.node.inputs[index]
        return None if value is None else self.held_qparams.get(value)

    def quantizer(self, qparams: TorchQParams) -> Run:
        """What quantizes reals by PyTorch; it does not keep the graph."""
        quantize, target = self.torch.quantize_per_tensor, qparams.target
        kind = self.torch.quint8 if qparams.dtype == "uint8" else self.torch.qint8
        return lambda real: quantize(real, *target, kind)

    def through_floats(
        self, run: Run, operands: Sequence[tuple[int, TorchQParams]], result: TorchQParams | None
    ) -> Kernel:
        """A kernel that dequantizes, computes in float PyTorch, and quantizes."""
        finish: Run = _array if result is None else self.quantizer(result)

        def floats(*given: Tensor) -> Any:  # noqa: ANN401
            return finish(run(*(one.dequantize() for one in given)))

        return Kernel(floats, tuple(operands), result, "float32")


def _array(real: Tensor) -> Array:
    found: Array = real.numpy()
    return found


# Products. Weights are packed once; a bias becomes the float that its integers are.


def _convolution(making: Making) -> Kernel:
    """QLinearConv: x s z, w s z, s_y z_y, bias."""
    node, ops, x, y = making.node, making.torch.ops.quantized, _data(making), making.qparams(6)
    weight = making.context.needed(3)
    rank, windows = weight.ndim - 2, Windows.of(node, weight.shape[2:])
    if rank not in (1, 2, 3):
        raise ValueError(f"a convolution over {rank} axes")
    fixed = _fixed_pads(node, rank)
    even = fixed is not None and fixed[:rank] == fixed[rank:]
    given = fixed[:rank] if fixed is not None and even else (0,) * rank
    steps = (ints_attribute(node, name, (1,) * rank) for name in ("strides", "dilations"))
    stride, dilation = (list(one) for one in steps)
    packed = getattr(ops, f"conv{rank}d_prepack")(
        _weight(making, weight, 0),
        _bias(making, x, 8),
        stride,
        list(given),
        dilation,
        int_attribute(node, "group", 1),
    )
    run, target, pad = getattr(ops, f"conv{rank}d"), y.target, making.torch.nn.functional.pad

    def padded(one: Tensor) -> Tensor:
        pads = windows.pads_for(tuple(one.shape[2:]))
        return run(pad(one, [size for pair in reversed(pads) for size in pair]), packed, *target)

    return Kernel((lambda one: run(one, packed, *target)) if even else padded, ((0, x),), y)


def _transposed_convolution(making: Making) -> Kernel:
    """QLinearConvTranspose, as QLinearConv."""
    node, ops, x, y = making.node, making.torch.ops.quantized, _data(making), making.qparams(6)
    weight = making.context.needed(3)
    rank = weight.ndim - 2
    pads = _fixed_pads(node, rank)
    if (
        rank not in (1, 2, 3)
        or pads is None
        or pads[:rank] != pads[rank:]
        or "output_shape" in node.attributes
    ):
        raise ValueError(
            "a transposed convolution whose padding differs at the two ends, or is computed"
        )
    channels, filters = weight.shape[0] // int_attribute(node, "group", 1), weight.shape[1]
    if making.engine == "onednn" and 1 not in (channels, filters) and channels != filters:
        raise ValueError(
            f"a transposed convolution of {channels} channels by {filters} filters: wrong in oneDNN"
        )
    steps = [
        list(ints_attribute(node, name, (value,) * rank))
        for name, value in (("output_padding", 0), ("dilations", 1), ("strides", 1))
    ]
    packed = getattr(ops, f"conv_transpose{rank}d_prepack")(
        _weight(making, weight, 1), _bias(making, x, 8), steps[2], list(pads[:rank]), *steps[:2],
        int_attribute(node, "group", 1),
    )  # fmt: skip
    run, target = getattr(ops, f"conv_transpose{rank}d"), y.target
    return Kernel(lambda one: run(one, packed, *target), ((0, x),), y)


def _gemm(making: Making) -> Kernel:
    """QGemm: x s z, w s z, bias, s_y z_y; by floats where its result is real or its weight
    computed.
    """
    y = None if making.context.absent(7) else making.qparams(7)
    return _linear(making, y, transposed=bool(int_attribute(making.node, "transB", 0)), bias=6)


def _matrix_product(making: Making) -> Kernel:
    """QLinearMatMul: a s z, b s z, s_y z_y; by floats where both operands are computed, as
    PyTorch has it.
    """
    return _linear(making, making.qparams(6), transposed=False, bias=None)


def _linear(
    making: Making, y: TorchQParams | None, *, transposed: bool, bias: int | None
) -> Kernel:
    torch, x, weight = making.torch, _data(making), making.context.constant(3)
    if weight is None:
        if bias is not None:
            raise ValueError("a Gemm with a computed weight")
        return making.through_floats(torch.matmul, ((0, x), (3, making.qparams(4))), y)
    if weight.ndim != 2:
        raise ValueError(f"a weight of {weight.ndim} axes, where PyTorch's linear has two")
    rows = _weight(making, weight if transposed else weight.T, 0)
    real = None if bias is None else _bias(making, x, bias)
    if y is None:
        floats = rows.dequantize()
        return making.through_floats(
            lambda one: torch.nn.functional.linear(one, floats, real), ((0, x),), None
        )
    packed = torch.ops.quantized.linear_prepack(rows, real)
    run = torch.ops.quantized.linear
    target = y.target
    return Kernel(lambda one: run(one, packed, *target), ((0, x),), y)


def _data(making: Making) -> TorchQParams:
    x = making.qparams(1)
    if x.dtype != "uint8":
        raise ValueError("signed activations, where PyTorch's products take unsigned ones")
    return x


def _weight(making: Making, codes: Array, axis: int) -> Tensor:
    """The constant weight at input 3, per tensor or per channel along ``axis``; unsigned codes
    become signed.
    """
    torch = making.torch
    if codes.dtype not in (np.int8, np.uint8):
        raise ValueError(f"a weight of {codes.dtype}, where PyTorch has 8 bits")
    scales = making.context.scales(4).reshape(-1)
    found = making.context.constant(5) if not making.context.absent(5) else None
    points = (
        np.zeros(scales.size, np.int64) if found is None else found.astype(np.int64).reshape(-1)
    )
    if codes.dtype == np.uint8:
        codes, points = (codes.astype(np.int16) - 128).astype(np.int8), points - 128
    stored = torch.from_numpy(np.ascontiguousarray(codes))
    if scales.size == 1 and points.size == 1:
        return torch._make_per_tensor_quantized_tensor(stored, float(scales[0]), int(points[0]))  # noqa: SLF001
    sizes = np.ones(codes.shape[axis])
    return torch._make_per_channel_quantized_tensor(  # noqa: SLF001 - PyTorch's only way
        stored,
        torch.from_numpy(scales * sizes),
        torch.from_numpy((points * sizes).astype(np.int64)),
        axis,
    )


def _bias(making: Making, x: TorchQParams, index: int) -> Tensor | None:
    if making.context.absent(index):
        return None
    scale = np.float32(x.scale) * making.context.scales(4).reshape(-1)
    real = making.context.needed(index).reshape(-1) * scale.astype(np.float64)
    return making.torch.from_numpy(real.astype(np.float32))


def _fixed_pads(node: ir.Node, rank: int) -> tuple[int, ...] | None:
    """The padding at the beginnings and the ends; None where it depends on the picture."""
    if word_attribute(node, "auto_pad", "NOTSET").startswith("SAME"):
        return None
    return ints_attribute(node, "pads", (0,) * 2 * rank)


# Sums, pools and functions.


def _two(name: str) -> "Maker":
    def made(making: Making) -> Kernel:
        a, b, y = (making.qparams(index) for index in (1, 4, 6))
        if len({a.dtype, b.dtype, y.dtype}) > 1:
            raise ValueError("operands of two types, where PyTorch has one")
        run, target = getattr(making.torch.ops.quantized, name), y.target
        return Kernel(lambda left, right: run(left, right, *target), ((0, a), (3, b)), y)

    return made


def _concat(making: Making) -> Kernel:
    """QLinearConcat: s_y z_y, then x s z of each."""
    node, torch, y = making.node, making.torch, making.qparams(0)
    places = range(2, len(node.inputs), 3)
    each = [making.qparams(place + 1) for place in places]
    axis = int_attribute(node, "axis", 1)
    cat = torch.ops.quantized.cat
    target = y.target
    last = torch.channels_last

    def run(*parts: Tensor) -> Tensor:
        if axis % parts[0].dim() == 1 and parts[0].dim() == 4:
            # its kernel for channels that lie last
            parts = tuple(part.contiguous(memory_format=last) for part in parts)
        return cat(parts, axis, *target)

    return Kernel(run, tuple(zip(places, each, strict=True)), y)


def _function(name: str, *settings: Callable[[ir.Node], Any]) -> "Maker":
    """What makes the operator ``name`` of the inputs x s z s_y z_y; ``settings`` find what it
    takes after x.
    """

    def made(making: Making) -> Kernel:
        x, y = making.qparams(1), making.qparams(3)
        run = getattr(making.torch.ops.quantized, name)
        found = [setting(making.node) for setting in settings]
        return Kernel(lambda one: run(one, *found, *y.target), ((0, x),), y)

    return made


def _elu(making: Making) -> Kernel:
    x, end = making.qparams(1), making.qparams(3)
    alpha, run = float_attribute(making.node, "alpha", 1.0), making.torch.ops.quantized.elu
    return Kernel(lambda one: run(one, *end.target, alpha, 1.0, 1.0), ((0, x),), end)


def _tanh(making: Making) -> Kernel:
    """PyTorch's has the qparams (2 / 256, 128) alone; others are by floats."""
    x, y, tanh = making.qparams(1), making.qparams(3), making.torch.tanh
    fixed = y == TorchQParams(2 / 256, 128, "uint8") and x.dtype == "uint8"
    return Kernel(tanh, ((0, x),), y) if fixed else making.through_floats(tanh, ((0, x),), y)


def _softmax(making: Making) -> Kernel:
    """Axes count from the first: QNNPACK's kernel looks up a negative one as it is."""
    x, y, run = making.qparams(1), making.qparams(3), making.torch.ops.quantized.softmax
    axis = int_attribute(making.node, "axis", -1)
    rows = int_attribute(making.node, "opset", 13) < 13

    def by_rows(one: Tensor) -> Tensor:
        flat = one.reshape(math.prod(one.shape[:axis]), -1)
        return run(flat, 1, *y.target).reshape(one.shape)

    return Kernel(
        by_rows if rows else (lambda one: run(one, axis % one.dim(), *y.target)), ((0, x),), y
    )


def _global_average(making: Making) -> Kernel:
    """PyTorch's mean has the qparams of its input; others are by floats."""
    if int_attribute(making.node, "channels_last", 0):
        raise ValueError("a mean of channels that lie last")
    return _mean(making, making.qparams(3), None, keep=True)


def _reduced_mean(making: Making) -> Kernel:
    """QLinearReduceMean: x s z, axes as an operand or an attribute, s_y z_y."""
    node, end = making.node, len(making.node.inputs)
    axes: tuple[int, ...] = ints_attribute(node, "axes")
    if end > 5 and not making.context.absent(3):
        axes = tuple(int(axis) for axis in making.context.needed(3).reshape(-1))
    if not axes:
        raise ValueError("a mean without axes")
    return _mean(
        making, making.qparams(end - 2), axes, keep=bool(int_attribute(node, "keepdims", 1))
    )


def _mean(making: Making, y: TorchQParams, axes: tuple[int, ...] | None, *, keep: bool) -> Kernel:
    """Over ``axes``; None: all but the first two."""
    x, torch = making.qparams(1), making.torch
    pool = torch.nn.functional.adaptive_avg_pool2d

    def over(one: Tensor) -> tuple[int, ...]:
        return (
            tuple(range(2, one.dim()))
            if axes is None
            else tuple(sorted(axis % one.dim() for axis in axes))
        )

    def run(one: Tensor) -> Tensor:
        if over(one) != (2, 3) or one.dim() != 4:
            return torch.mean(one, over(one), keepdim=keep)
        mean = pool(one, 1)  # sums integers, which torch.mean does not where channels lie last
        return mean if keep else mean.reshape(mean.shape[:2])

    if x == y:
        return Kernel(run, ((0, x),), y)
    return making.through_floats(lambda one: torch.mean(one, over(one), keepdim=keep), ((0, x),), y)


def _average_pool(making: Making) -> Kernel:
    """PyTorch's has the qparams of its input; others are by floats."""
    node = making.node
    x = making.qparams(1)
    y = making.qparams(3)
    functional = making.torch.nn.functional
    window = ints_attribute(node, "kernel_shape")
    rank, counted = len(window), bool(int_attribute(node, "count_include_pad", 0))
    pads, stride = _fixed_pads(node, rank), ints_attribute(node, "strides", (1,) * rank)
    if (
        rank not in (1, 2)
        or pads is None
        or pads[:rank] != pads[rank:]
        or int_attribute(node, "channels_last", 0)
    ):
        raise ValueError(
            "an average pool over other than one or two axes, or padded differently at its ends"
        )
    if x == y and making.engine == "qnnpack" and any(pads) and not counted:
        raise ValueError("an average pool that leaves padding out, where QNNPACK counts it")
    if x == y and math.prod(window) == 1 and not any(pads):
        return Kernel(_taken(stride), ((0, x),), y)
    pool, last = getattr(functional, f"avg_pool{rank}d"), making.torch.channels_last
    settings = (
        list(window),
        list(stride),
        list(pads[:rank]),
        bool(int_attribute(node, "ceil_mode", 0)),
        counted,
    )

    def run(one: Tensor) -> Tensor:
        if one.dim() == 4:
            # where channels lie first, all of it is rounded as the end of an array is
            one = one.contiguous(memory_format=last)
        return pool(one, *settings)

    return Kernel(run, ((0, x),), y) if x == y else making.through_floats(run, ((0, x),), y)


def _taken(stride: Sequence[int]) -> Run:
    """A pool by windows of one element, which QNNPACK lacks: it takes one element per step of
    the ``stride``.
    """
    steps = (slice(None), slice(None), *(slice(None, None, step) for step in stride))
    return lambda one: one[steps].contiguous()


def _requantized(making: Making) -> Kernel:
    x, y = making.qparams(1), making.qparams(3)
    return making.through_floats(lambda real: real, ((0, x),), y)


Maker = Callable[[Making], Kernel]
_ALPHA = lambda node: float_attribute(node, "alpha", 0.01)  # noqa: E731
QUANTIZED: Mapping[tuple[str, str], Maker] = MappingProxyType(
    {
        ("", "QLinearConv"): _convolution,
        ("", "QLinearMatMul"): _matrix_product,
        (ENGINE_DOMAIN, "QGemm"): _gemm,
        (ENGINE_DOMAIN, "QLinearAdd"): _two("add"),
        (ENGINE_DOMAIN, "QLinearAveragePool"): _average_pool,
        (ENGINE_DOMAIN, "QLinearConcat"): _concat,
        (ENGINE_DOMAIN, "QLinearGlobalAveragePool"): _global_average,
        (ENGINE_DOMAIN, "QLinearLeakyRelu"): _function("leaky_relu", _ALPHA, lambda _: False),
        (ENGINE_DOMAIN, "QLinearMul"): _two("mul"),
        (ENGINE_DOMAIN, "QLinearSigmoid"): _function("sigmoid"),
        (ENGINE_DOMAIN, "QLinearSoftmax"): _softmax,
        (INTEGER_DOMAIN, "QLinearConvTranspose"): _transposed_convolution,
        (INTEGER_DOMAIN, "QLinearElu"): _elu,
        (INTEGER_DOMAIN, "QLinearHardSwish"): _function("hardswish"),
        (INTEGER_DOMAIN, "QLinearReduceMean"): _reduced_mean,
        (INTEGER_DOMAIN, "QLinearRequantize"): _requantized,
        (INTEGER_DOMAIN, "QLinearTanh"): _tanh,
    }
)
"""(domain, operator) → what makes its kernel of PyTorch's; the operators of ``_TARGET``."""


# The borders of integers, and operators that only move quantized values. None: another kernel is to
# be taken.


def _quantize(making: Making) -> Kernel | None:
    if making.node.inputs[0] is None or making.node.inputs[0].dtype is not ir.DataType.FLOAT:
        return None
    try:
        y = making.qparams(1)
    except ValueError:  # per channel, or of other bits
        return None
    tensor, quantize = making.torch.from_numpy, making.quantizer(y)
    return Kernel(lambda real: quantize(tensor(real)), ((0, None),), y)


def _dequantize(making: Making) -> Kernel | None:
    try:
        x = making.qparams(1)
    except ValueError:
        return None
    return Kernel(lambda one: one.dequantize().numpy(), ((0, x),))


def _clip(making: Making) -> Kernel | None:
    """Limits of codes."""
    x = making.held(0)
    ends = [making.context.constant(index) for index in (1, 2) if not making.context.absent(index)]
    if x is None or len(ends) != 2 or ends[0] is None or ends[1] is None:
        return None
    low, high = (
        (float(end.reshape(())) - x.zero_point) * x.scale for end in ends if end is not None
    )
    clamp = making.torch.clamp  # QNNPACK's is wrong where channels lie last
    return Kernel(lambda one: clamp(one.contiguous(), low, high), ((0, x),), x)


def _reshape(making: Making) -> Kernel | None:
    x, shape = making.held(0), making.context.constant(1)
    if x is None or shape is None or int_attribute(making.node, "allowzero", 0):
        return None
    sizes = [int(size) for size in shape.reshape(-1)]

    def run(one: Tensor) -> Tensor:
        return one.reshape(
            [one.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
        )

    return Kernel(run, ((0, x),), x)


def _flatten(making: Making) -> Kernel | None:
    x, axis = making.held(0), int_attribute(making.node, "axis", 1)
    if x is None:
        return None

    def run(one: Tensor) -> Tensor:
        rows = math.prod(one.shape[: axis if axis >= 0 else axis + one.dim()])
        return one.reshape(rows, one.numel() // max(rows, 1))

    return Kernel(run, ((0, x),), x)


def _transpose(making: Making) -> Kernel | None:
    x, order = making.held(0), ints_attribute(making.node, "perm")
    return None if x is None or not order else Kernel(lambda one: one.permute(order), ((0, x),), x)


def _max_pool(making: Making) -> Kernel | None:
    node, x, window = making.node, making.held(0), ints_attribute(making.node, "kernel_shape")
    if x is None or len(window) != 2 or len(node.outputs) > 1:
        return None
    pads = _fixed_pads(node, 2)
    if (
        pads is None
        or pads[:2] != pads[2:]
        or any(2 * pad > size for pad, size in zip(pads, window, strict=False))
    ):
        return None
    stride, dilation = (
        list(ints_attribute(node, name, (1, 1))) for name in ("strides", "dilations")
    )
    if math.prod(window) == 1 and not any(pads):
        return Kernel(_taken(stride), ((0, x),), x)
    pool, ceil = making.torch.ops.quantized.max_pool2d, bool(int_attribute(node, "ceil_mode", 0))
    return Kernel(
        lambda one: pool(one, list(window), stride, list(pads[:2]), dilation, ceil), ((0, x),), x
    )


MOVING: Mapping[str, Callable[[Making], Kernel | None]] = MappingProxyType(
    {
        "Clip": _clip,
        "DequantizeLinear": _dequantize,
        "Flatten": _flatten,
        "MaxPool": _max_pool,
        "QuantizeLinear": _quantize,
        "Reshape": _reshape,
        "Transpose": _transpose,
    }
)


# What stays float.


def _float_conv(making: Making) -> Kernel | None:
    node, weight = making.node, making.node.inputs[1]
    rank = 0 if weight is None or weight.shape is None else len(weight.shape) - 2
    pads = _fixed_pads(node, rank)
    if rank not in (1, 2, 3) or pads is None or pads[:rank] != pads[rank:]:
        return None
    steps = [ints_attribute(node, name, (1,) * rank) for name in ("strides", "dilations")]
    run = getattr(making.torch.nn.functional, f"conv{rank}d")
    group = int_attribute(node, "group", 1)
    return _real(making, lambda x, w, b=None: run(x, w, b, steps[0], pads[:rank], steps[1], group))


def _float_gemm(making: Making) -> Kernel | None:
    node, torch = making.node, making.torch
    factors = [float_attribute(node, name, 1.0) for name in ("alpha", "beta")]
    flips = [bool(int_attribute(node, name, 0)) for name in ("transA", "transB")]

    def run(a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        a, b = (one.t() if flip else one for one, flip in zip((a, b), flips, strict=True))
        return (
            torch.matmul(a, b) * factors[0]
            if c is None
            else torch.addmm(c, a, b, beta=factors[1], alpha=factors[0])
        )

    return _real(making, run)


def _real(making: Making, run: Run) -> Kernel | None:
    """``run`` on tensors of float32; None where the node has other types."""
    values = [value for value in (*making.node.inputs, *making.node.outputs) if value is not None]
    if any(value.dtype is not ir.DataType.FLOAT for value in values):
        return None
    places = tuple(
        (index, None) for index, value in enumerate(making.node.inputs) if value is not None
    )
    tensor = making.torch.from_numpy
    return Kernel(lambda *given: run(*(tensor(np.asarray(one)) for one in given)).numpy(), places)


FLOATS: Mapping[str, Callable[[Making], Kernel | None]] = MappingProxyType(
    {
        "Conv": _float_conv,
        "Gemm": _float_gemm,
        **{
            operator: lambda making, name=name: _real(making, getattr(making.torch, name))  # type: ignore[misc]
            for operator, name in {
                "Add": "add",
                "Div": "div",
                "MatMul": "matmul",
                "Mul": "mul",
                "Relu": "relu",
                "Sigmoid": "sigmoid",
                "Sub": "sub",
                "Tanh": "tanh",
            }.items()
        },
    }
)
"""Float operators that run in PyTorch; others run by the kernels of the ``onnx`` package."""


def make_torch_kernel(making: Making) -> Kernel:
    """The kernel of a node: PyTorch's, or that of the ``onnx`` package for what stays float or
    moves.

    Raises:
        ValueError: an operator on integers that PyTorch does not have, or not of such operands.
        RuntimeError: PyTorch refuses the weights.
        UnsupportedError: no kernel at all.
    """
    node = making.node
    if maker := QUANTIZED.get((node.domain, node.op_type)):
        return maker(making)
    if (node.domain, node.op_type) in INTEGER_FORMS:
        raise ValueError("PyTorch has no quantized operator for it")
    if not node.domain:
        for table in (MOVING, FLOATS):
            found = table.get(node.op_type)
            if found is not None and (kernel := found(making)) is not None:
                return kernel
    return _of_others(making)


def _of_others(making: Making) -> Kernel:
    node, run = making.node, make_kernel(making.context)
    places = [place for place, value in enumerate(node.inputs) if value is not None]

    def others(*given: Array) -> Any:  # noqa: ANN401
        inputs: list[Array | None] = [None] * len(node.inputs)
        for place, array in zip(places, given, strict=True):
            inputs[place] = array
        results = run(inputs)
        return results[0] if len(node.outputs) == 1 else results

    return Kernel(others, tuple((place, None) for place in places))
