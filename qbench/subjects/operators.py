"""Subjects of one operator by id: what is computed, on which quantized values, and which of
them are fed.
"""

import enum
import fnmatch
import functools
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

from qbench.errors import InputError, unknown_name

if TYPE_CHECKING:
    from qbench.numerics import QParams


# One operator between quantized tensors, as plain numbers: what is computed, on which codes, and
# which codes are fed.
#
#     x ─Q─DQ─┐
#     w ───DQ─┼─ operator ─Q─DQ─ y              w, bias: constant integers; the bias at s_x · s_w
#     b ───DQ─┘
#
# Fed reals are dequantized codes exactly, so that the first Q rounds nothing, whatever its rule.

Attribute = int | float | str | tuple[int, ...]
Shape = tuple[int, ...]
_ENDS = MappingProxyType({"int8": (-128, 127), "uint8": (0, 255)})


class Feed(enum.Enum):
    """Which codes the samples hold.

    SPREAD: all ends, the zero point, codes that make ties, and random ones. EVERY_CODE: each
    code of the one operand, in a few orders. EVERY_PAIR: all 65,536 pairs of codes of two
    operands.
    """

    SPREAD = "spread"
    EVERY_CODE = "every level"  # stored name
    EVERY_PAIR = "every pair"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandQParams:
    """The codes of one tensor: r = scale · (q − zero_point).

    Args:
        qtype: ``int8`` or ``uint8``. scales: one, or one per slice along ``axis``; exact as
            float32.
        zero_point: of all slices. axis: None where there is one scale.
    """

    qtype: str
    scales: tuple[float, ...]
    zero_point: int = 0
    axis: int | None = None

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and the highest code."""
        return _ENDS[self.qtype]

    def as_arrays(self) -> "QParams":
        """The same as arrays."""
        from qbench.numerics import QParams

        scale = self.scales[0] if self.axis is None else self.scales
        return QParams(scale, self.zero_point, self.qtype, axis=self.axis)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One input of the operator.

    Args:
        qparams: its codes.
        shape: without the batch where it is fed, whole where it is constant.
        step: codes that make ties are the zero point and multiples of ``step`` away; one number, or
            one per slice.
    """

    qparams: OperandQParams
    shape: Shape
    step: tuple[int, ...] = (1,)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSubject:
    """One operator, its qparams and its data; what the id does not say, the fields do.

    Args:
        id: name in suites.
        operator: as ONNX calls it; ``Requantize``: from some qparams to others, no operator
            between.
        inputs: the operands that are fed.
        output: the qparams of the result.
        weight: a constant second operand, if any.
        bias: how many numbers a constant bias has; 0: none.
        attributes: of the ONNX node.
        constants: further constant inputs after the operands, reals or integers.
        feed: which codes are fed.
    """

    id: str
    operator: str
    inputs: tuple[Operand, ...]
    output: OperandQParams
    weight: Operand | None = None
    bias: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    constants: tuple[tuple[str, tuple[float, ...] | tuple[int, ...] | float], ...] = ()
    feed: Feed = Feed.SPREAD

    @property
    def multipliers(self) -> tuple[float, ...]:
        """s_x · s_w / s_y of an operator that counts products, one or one per channel; else s_x
        / s_y.
        """
        weights = (1.0,) if self.weight is None else self.weight.qparams.scales
        return tuple(
            self.inputs[0].qparams.scales[0] * scale / self.output.scales[0] for scale in weights
        )


def single(value: float) -> float:
    """``value`` as float32 has it."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


# The subjects that count Σ x·w: Conv, ConvTranspose, Gemm and MatMul, over types, multipliers,
# windows and widths.
#
#     ties     M = 2⁻ᵖ, x and w in steps of which a product is a multiple of 2ᵖ⁻¹: every second
#              accumulator ends on a tie
#     real     M any number
#     pc       one scale per channel: even channels as ``ties``, with several p, the others as
#              ``real``
#
# Channel counts lie around vector widths, where kernels have their remainders.

_SPREAD = 74.0
"""Standard deviation of codes that are uniform over 8 bits."""
_AIM = 60.0
"""That of the results: a few per cent of them reach an end of their codes."""
_POINTS = MappingProxyType({"uint8": 131, "int8": -3})
_OUTPUT_POINTS = MappingProxyType({"uint8": 121, "int8": 5})
"""Odd, because half to even before and after an odd zero point differ."""
_WEIGHT_POINTS = MappingProxyType({"uint8": 129, "int8": 0})
_LETTERS = MappingProxyType({"u8": "uint8", "s8": "int8"})
_FACTORS = (1.0, 1.37, 0.81, 1.93, 0.593)
"""Odd channels' scales relative to the even ones'."""

WIDTHS = ((1, 33), (3, 31), (7, 16), (8, 9), (9, 8), (16, 7), (31, 3), (33, 1))
"""Input and output channels around the widths of vectors."""

_ALL = (
    "u8s8.ties",
    "u8s8.real",
    "u8s8.pc",
    "s8s8.ties",
    "s8s8.real",
    "s8s8.pc",
    "u8u8.ties",
    "u8u8.real",
)
_USUAL = ("u8s8.ties", "u8s8.pc", "s8s8.pc")
_WIDE = ("u8s8.pc",)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """One shape of an operator: ``x`` without the batch, ``weight`` as ONNX stores it, its axis
    of output channels.
    """

    name: str
    operator: str
    x: Shape
    weight: Shape
    axis: int
    depth: int
    channels: int
    kinds: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    bias: bool = True


def product_subjects() -> Iterator[OperatorSubject]:
    """Every one of them, in the order of lists."""
    for window in (*_convolutions(), *_transposed(), *_matrices()):
        for kind in window.kinds:
            yield _subject(window, kind)
    for types in ("u8u8", "s8s8"):
        for multiplier in ("ties", "real"):
            yield _computed(types, multiplier)


def _convolutions() -> Iterator[_Window]:
    padded: Mapping[str, Attribute] = {"pads": (1, 1, 1, 1)}
    yield _conv("dense", (6, 7, 5), (8, 6, 3, 3), _ALL, padded)
    yield _conv("pointwise", (9, 5, 5), (7, 9, 1, 1), _USUAL)
    yield _conv("grouped", (6, 6, 5), (9, 2, 3, 3), _USUAL, {"group": 3, **padded})
    yield _conv("depthwise", (9, 7, 6), (9, 1, 3, 3), _USUAL, {"group": 9, **padded})
    yield _conv(
        "dilated", (5, 9, 8), (6, 5, 3, 3), _USUAL, {"dilations": (2, 2), "pads": (2, 2, 2, 2)}
    )
    yield _conv("asymmetric", (5, 6, 7), (6, 5, 3, 2), _USUAL, {"pads": (0, 1, 2, 0)})
    yield _conv("strided", (5, 9, 8), (6, 5, 3, 3), _USUAL, {"strides": (2, 3), **padded})
    yield _conv("one_dimension", (5, 17), (6, 5, 3), _USUAL, {"pads": (2, 1)})
    for inner, outer in WIDTHS:
        yield _conv(f"in{inner}.out{outer}", (inner, 4, 3), (outer, inner, 3, 3), _WIDE, padded)
    for width in (1, 3, 7, 8, 16, 31, 33):
        shape = (width, 1, 3, 3)
        yield _conv(f"depthwise.c{width}", (width, 5, 4), shape, _WIDE, {"group": width, **padded})


def _conv(
    name: str,
    x: Shape,
    weight: Shape,
    kinds: tuple[str, ...],
    attributes: Mapping[str, Attribute] | None = None,
) -> _Window:
    return _Window(
        name=f"conv.{name}",
        operator="Conv",
        x=x,
        weight=weight,
        axis=0,
        depth=math.prod(weight[1:]),
        channels=weight[0],
        kinds=kinds,
        attributes={"kernel_shape": weight[2:], **(attributes or {})},
    )


def _transposed() -> Iterator[_Window]:
    forms: tuple[tuple[str, Mapping[str, Attribute]], ...] = (
        ("plain", {"pads": (1, 1, 1, 1)}),
        ("strided", {"strides": (2, 2), "pads": (1, 0, 1, 1), "output_padding": (1, 0)}),
    )
    for name, attributes in forms:
        yield _Window(
            name=f"convtranspose.{name}",
            operator="ConvTranspose",
            x=(5, 4, 5),
            weight=(5, 6, 3, 3),
            axis=1,
            depth=45 if name == "plain" else 12,
            channels=6,
            kinds=_USUAL,
            attributes={"kernel_shape": (3, 3), **attributes},
        )


def _matrices() -> Iterator[_Window]:
    yield _matrix("gemm.plain", "Gemm", (40,), (40, 10), _ALL)
    yield _matrix("gemm.transposed", "Gemm", (40,), (10, 40), _USUAL, {"transB": 1})
    yield _matrix("matmul.plain", "MatMul", (4, 40), (40, 10), _ALL)
    for inner, outer in WIDTHS:
        yield _matrix(f"gemm.in{inner}.out{outer}", "Gemm", (inner,), (inner, outer), _WIDE)
    for inner, outer in WIDTHS[::3]:
        yield _matrix(f"matmul.in{inner}.out{outer}", "MatMul", (3, inner), (inner, outer), _WIDE)


def _matrix(  # noqa: PLR0917 - as `_conv`
    name: str,
    operator: str,
    x: Shape,
    weight: Shape,
    kinds: tuple[str, ...],
    attributes: Mapping[str, Attribute] | None = None,
) -> _Window:
    axis = 0 if (attributes or {}).get("transB") else 1
    return _Window(
        name=name,
        operator=operator,
        x=x,
        weight=weight,
        axis=axis,
        depth=weight[1 - axis],
        channels=weight[axis],
        kinds=kinds,
        attributes=attributes or {},
        bias=operator == "Gemm",
    )


def _subject(window: _Window, kind: str) -> OperatorSubject:
    types, _, multiplier = kind.partition(".")
    x_type, w_type = _LETTERS[types[:2]], _LETTERS[types[2:]]
    power = _power(window.depth)
    x_step = 1 << ((power - 1) // 2)
    if multiplier == "real":
        x_scale, unit, factor = single(0.0193), single(0.00771), 1.13
    else:
        x_scale, unit, factor = 2.0**-6, 2.0**-7, 1.0
    y_scale = single(x_scale * unit * 2.0**power * factor)
    axis: int | None = None
    scales: tuple[float, ...] = (unit,)
    steps: tuple[int, ...] = (1,)
    if multiplier == "pc":
        axis = window.axis
        scales, steps = _mixed(window.channels, unit, power, x_step)
    elif multiplier == "ties":
        steps = ((1 << (power - 1)) // x_step,)
    weight = OperandQParams(
        qtype=w_type, scales=scales, zero_point=_WEIGHT_POINTS[w_type], axis=axis
    )
    return OperatorSubject(
        id=f"op.{window.name}.{kind}",
        operator=window.operator,
        inputs=(
            Operand(
                qparams=OperandQParams(qtype=x_type, scales=(x_scale,), zero_point=_POINTS[x_type]),
                shape=window.x,
                step=(x_step,),
            ),
        ),
        weight=Operand(qparams=weight, shape=window.weight, step=steps),
        bias=window.channels if window.bias else 0,
        output=OperandQParams(qtype=x_type, scales=(y_scale,), zero_point=_OUTPUT_POINTS[x_type]),
        attributes=window.attributes,
    )


def _power(depth: int) -> int:
    """The p of M = 2⁻ᵖ that brings sums of ``depth`` products to codes."""
    return round(math.log2(_SPREAD * _SPREAD * math.sqrt(depth) / _AIM))


def _mixed(
    channels: int, unit: float, power: int, x_step: int
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Scales and steps of weights, a channel: M = 2^−p, 2^−(p+1), 2^−p, … at even ones, any
    number at odd ones.
    """
    scales, steps = [], []
    for channel in range(channels):
        if channel % 2:
            scales.append(single(unit * _FACTORS[channel // 2 % len(_FACTORS)] * 0.917))
            steps.append(1)
        else:
            finer = channel // 2 % 2
            scales.append(unit / 2.0**finer)
            steps.append((1 << (power + finer - 1)) // x_step)
    return tuple(scales), tuple(steps)


def _computed(types: str, multiplier: str) -> OperatorSubject:
    """A matrix product of two computed operands, with zero points of both."""
    qtype = _LETTERS[types[:2]]
    ties = multiplier == "ties"
    power = _power(9)
    step = 1 << ((power - 1) // 2)
    scales = (2.0**-6, 2.0**-5) if ties else (single(0.0193), single(0.0271))
    output = single(scales[0] * scales[1] * 2.0**power * (1.0 if ties else 0.93))
    left = OperandQParams(qtype=qtype, scales=scales[:1], zero_point=_POINTS[qtype])
    right = OperandQParams(qtype=qtype, scales=scales[1:], zero_point=_POINTS[qtype] - 8)
    return OperatorSubject(
        id=f"op.matmul.computed.{types}.{multiplier}",
        operator="MatMul",
        inputs=(
            Operand(qparams=left, shape=(3, 5, 9), step=(step,)),
            Operand(qparams=right, shape=(3, 9, 7), step=((1 << (power - 1)) // step,)),
        ),
        output=OperandQParams(qtype=qtype, scales=(output,), zero_point=_OUTPUT_POINTS[qtype]),
    )


# The subjects without a weight: sums, products, functions of one value, pools, means, and what
# moves codes.
#
# ties     every scale a power of two, so that results lie on ties wherever they can; zero points
#          odd
# real     any scales
# one      input and output with the same qparams

_TYPES = MappingProxyType({"u8": "uint8", "s8": "int8"})
_CENTRES = MappingProxyType({"u8": 128, "s8": 0})
_PAIRS: Shape = (8, 32, 32)
"""An eighth of all pairs of codes."""
_CODES: Shape = (3, 7, 13)
"""All codes, and a remainder for every width of vectors."""
_NONE: Mapping[str, Attribute] = MappingProxyType({})


def pointwise_subjects() -> Iterator[OperatorSubject]:
    """Every one of them, in the order of lists."""
    for types in _TYPES:
        yield from _arithmetic(types)
        yield from _functions(types)
        yield from _pools(types)
        yield from _softmax(types)
        yield from _movers(types)
        yield from _requantized(types)


def _qparams(types: str, scale: float, offset: int) -> OperandQParams:
    """Qparams whose zero point lies ``offset`` codes from the middle of its type."""
    return OperandQParams(
        qtype=_TYPES[types], scales=(single(scale),), zero_point=_CENTRES[types] + offset
    )


def _arithmetic(types: str) -> Iterator[OperatorSubject]:
    for operator in ("Add", "Sub"):
        word = operator.lower()
        ties = (
            _qparams(types, 2.0**-4, 3),
            _qparams(types, 2.0**-5, -9),
            _qparams(types, 2.0**-3, 7),
        )
        real = (_qparams(types, 0.0311, 3), _qparams(types, 0.0173, -9), _qparams(types, 0.0427, 7))
        yield _pairwise(f"{word}.{types}.ties", operator, ties)
        yield _pairwise(f"{word}.{types}.real", operator, real)
        yield _spread(f"{word}.odd.{types}.real", operator, real, ((31, 33), (31, 33)))
        yield _spread(f"{word}.broadcast.{types}.real", operator, real, ((7, 5, 3), (7, 1, 1)))
    ties = (_qparams(types, 2.0**-4, 3), _qparams(types, 2.0**-5, -9), _qparams(types, 2.0**-2, 7))
    real = (_qparams(types, 0.0311, 3), _qparams(types, 0.0173, -9), _qparams(types, 0.0327, 7))
    yield _pairwise(f"mul.{types}.ties", "Mul", ties)
    yield _pairwise(f"mul.{types}.real", "Mul", real)
    yield _spread(f"mul.odd.{types}.real", "Mul", real, ((31, 33), (31, 33)))
    # The divisor's zero point lies outside what is fed: a quotient by 0 means nothing in codes.
    ties = (
        _qparams(types, 2.0**-4, 3),
        _qparams(types, 2.0**-5, -128),
        _qparams(types, 2.0**-3, 7),
    )
    real = (_qparams(types, 0.0311, 3), _qparams(types, 0.0173, -128), _qparams(types, 0.0427, 7))
    yield _pairwise(f"div.{types}.ties", "Div", ties)
    yield _pairwise(f"div.{types}.real", "Div", real)


def _functions(types: str) -> Iterator[OperatorSubject]:
    x = _qparams(types, 0.0571, 5)
    unit = OperandQParams(qtype=_TYPES[types], scales=(2.0**-8,), zero_point=_CENTRES[types] - 128)
    signed_unit = _qparams(types, 2.0**-7, 0)
    yield _unary(f"relu.{types}", "Relu", x, _qparams(types, 0.0279, -128))
    yield _unary(
        f"clip.{types}",
        "Clip",
        x,
        _qparams(types, 0.0239, -128),
        constants=(("low", 0.0), ("high", 6.0)),
    )
    for kind, each in (
        ("ties", (_qparams(types, 2.0**-4, 5), _qparams(types, 2.0**-4, -39))),
        ("real", (x, _qparams(types, 0.0421, -39))),
    ):
        yield _unary(f"leakyrelu.{types}.{kind}", "LeakyRelu", *each, attributes={"alpha": 0.125})
    yield _unary(f"sigmoid.{types}", "Sigmoid", x, unit)
    yield _unary(f"tanh.{types}", "Tanh", x, signed_unit)
    yield _unary(f"hardswish.{types}", "HardSwish", x, _qparams(types, 0.0301, -115))
    yield _unary(f"gelu.{types}", "Gelu", x, _qparams(types, 0.0301, -121))


def _pools(types: str) -> Iterator[OperatorSubject]:
    x, other = _qparams(types, 0.0311, 3), _qparams(types, 0.0227, -13)
    power, finer = _qparams(types, 2.0**-5, 3), _qparams(types, 2.0**-6, -13)
    window: Mapping[str, Attribute] = {"kernel_shape": (2, 2), "strides": (2, 2)}
    padded: Mapping[str, Attribute] = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    shape = ((9, 6, 8),)
    yield _spread(f"averagepool.{types}.ties", "AveragePool", (power, finer), shape, window)
    yield _spread(f"averagepool.{types}.one", "AveragePool", (x, x), shape, window)
    yield _spread(f"averagepool.{types}.real", "AveragePool", (x, other), shape, window)
    yield _spread(f"averagepool.padded.{types}.real", "AveragePool", (x, other), shape, padded)
    counted = {**padded, "count_include_pad": 1}
    yield _spread(f"averagepool.counted.{types}.real", "AveragePool", (x, other), shape, counted)
    yield _spread(f"maxpool.{types}", "MaxPool", (x, x), shape, {**window, "kernel_shape": (3, 3)})
    yield _spread(
        f"maxpool.padded.{types}", "MaxPool", (x, x), shape, {**padded, "strides": (2, 1)}
    )
    for kind, each in (
        ("ties", (power, _qparams(types, 2.0**-7, 7))),
        ("real", (x, _qparams(types, 0.0097, 7))),
    ):
        yield _spread(f"globalaveragepool.{types}.{kind}", "GlobalAveragePool", each, ((9, 4, 8),))
        yield _spread(
            f"reducemean.{types}.{kind}",
            "ReduceMean",
            each,
            ((9, 4, 8),),
            {"keepdims": 1},
            constants=(("axes", (2, 3)),),
        )


def _softmax(types: str) -> Iterator[OperatorSubject]:
    x, centre = _qparams(types, 0.0571, 5), _CENTRES[types]
    for kind, scale in (("ties", 2.0**-8), ("real", 1 / 255)):
        unit = OperandQParams(qtype=_TYPES[types], scales=(single(scale),), zero_point=centre - 128)
        yield _spread(f"softmax.{types}.{kind}", "Softmax", (x, unit), ((5, 33),), {"axis": -1})


def _movers(types: str) -> Iterator[OperatorSubject]:
    x = _qparams(types, 0.0311, 3)
    finer = _qparams(types, 0.0227, -13)
    coarser = _qparams(types, 0.0401, 20)
    yield _spread(
        f"concat.{types}.real", "Concat", (x, finer, coarser), ((3, 5, 4), (8, 5, 4)), {"axis": 1}
    )
    powers = (
        _qparams(types, 2.0**-5, 3),
        _qparams(types, 2.0**-7, -13),
        _qparams(types, 2.0**-4, 20),
    )
    yield _spread(f"concat.{types}.ties", "Concat", powers, ((3, 5, 4), (8, 5, 4)), {"axis": 1})
    resized: Mapping[str, Attribute] = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    scales = (("region", ()), ("scales", (1.0, 1.0, 2.0, 2.0)))
    yield _spread(f"resize.{types}", "Resize", (x, x), ((5, 4, 3),), resized, constants=scales)
    pads = (("pads", (0, 0, 1, 2, 0, 0, 0, 1)),)
    yield _spread(f"pad.{types}", "Pad", (x, x), ((5, 4, 3),), constants=pads)


def _requantized(types: str) -> Iterator[OperatorSubject]:
    x, power = _qparams(types, 0.0311, 3), _qparams(types, 2.0**-6, 3)
    yield _unary(f"requantize.{types}.ties", "Requantize", power, _qparams(types, 2.0**-5, 7))
    yield _unary(f"requantize.{types}.real", "Requantize", x, _qparams(types, 0.0417, 7))
    other = "s8" if types == "u8" else "u8"
    yield _unary(f"requantize.{types}to{other}", "Requantize", power, _qparams(other, 2.0**-6, 3))


def _pairwise(
    name: str, operator: str, each: tuple[OperandQParams, OperandQParams, OperandQParams]
) -> OperatorSubject:
    *inputs, output = each
    operands = tuple(Operand(qparams=qparams, shape=_PAIRS) for qparams in inputs)
    return OperatorSubject(
        id=f"op.{name}", operator=operator, inputs=operands, output=output, feed=Feed.EVERY_PAIR
    )


def _unary(
    name: str,
    operator: str,
    x: OperandQParams,
    output: OperandQParams,
    *,
    attributes: Mapping[str, Attribute] = _NONE,
    constants: tuple[tuple[str, float], ...] = (),
) -> OperatorSubject:
    return OperatorSubject(
        id=f"op.{name}",
        operator=operator,
        inputs=(Operand(qparams=x, shape=_CODES),),
        output=output,
        attributes=attributes,
        constants=constants,
        feed=Feed.EVERY_CODE,
    )


def _spread(
    name: str,
    operator: str,
    each: tuple[OperandQParams, ...],
    shapes: tuple[Shape, ...],
    attributes: Mapping[str, Attribute] = _NONE,
    *,
    constants: tuple[tuple[str, tuple[float, ...] | tuple[int, ...]], ...] = (),
) -> OperatorSubject:
    *inputs, output = each
    return OperatorSubject(
        id=f"op.{name}",
        operator=operator,
        inputs=tuple(
            Operand(qparams=own, shape=shape) for own, shape in zip(inputs, shapes, strict=True)
        ),
        output=output,
        attributes=attributes,
        constants=constants,
    )


# Every operator subject by its id; numbers and words only, so that listing them loads nothing.

PREFIX = "op."

T = TypeVar("T")


def list_operators(pattern: str = "*") -> tuple[str, ...]:
    """The ids of operator subjects that match ``pattern`` (``op.conv.*``), in table order.

    Raises:
        InputError: none does; the nearest id is suggested.
    """
    found = tuple(name for name in _subjects() if fnmatch.fnmatchcase(name, pattern))
    if not found:
        raise unknown_name("Listing operator subjects", "operator subject", pattern, _subjects())
    return found


def get_operator(name: str) -> OperatorSubject:
    """The operator subject called ``name``.

    Raises:
        InputError: there is none; the nearest id is suggested.
    """
    if name not in _subjects():
        raise unknown_name("Looking up an operator subject", "operator subject", name, _subjects())
    return _subjects()[name]


@dataclass(frozen=True, slots=True)
class OperatorNames(Generic[T]):
    """Their ids as a catalogue's further names: known, and not listed among trained networks.

    Args:
        kind: of the catalogue.
        make: an operator subject → the catalogue's value.
    """

    kind: str
    make: Callable[[OperatorSubject], T]

    @property
    def form(self) -> str:
        """How a name begins."""
        return f"one operator, {PREFIX}*, which suites/operators.qbench.toml lists"

    def maker(self, name: str) -> Callable[[], T] | None:
        """What makes the value called ``name``; None when it is not an operator subject."""
        if not name.startswith(PREFIX) or name not in _subjects():
            return None
        return functools.partial(self.make, _subjects()[name])

    def unknown(self, doing: str, name: str, listed: Iterable[str]) -> InputError:
        """The error for a ``name`` that is neither an operator subject nor among those
        ``listed``.
        """
        known = _subjects() if name.startswith(PREFIX) else listed
        return unknown_name(doing, self.kind, name, known)


@functools.cache
def _subjects() -> Mapping[str, OperatorSubject]:
    table: dict[str, OperatorSubject] = {}
    for subject in (*product_subjects(), *pointwise_subjects()):
        if subject.id in table:
            raise ValueError(f"two operator subjects '{subject.id}'")
        table[subject.id] = subject
    return MappingProxyType(table)
