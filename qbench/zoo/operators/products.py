"""The subjects that count Σ x·w: Conv, ConvTranspose, Gemm and MatMul, over types, multipliers, windows and widths.

    ties     M = 2⁻ᵖ, x and w in steps of which a product is a multiple of 2ᵖ⁻¹: every second accumulator ends on a tie
    real     M any number
    pc       a scale a channel: even channels as ``ties``, with several p, odd ones as ``real``

Channel counts lie around vector widths, where kernels have their remainders.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from qbench.zoo.operators.subject import Attribute, Operand, OperandGrid, OperatorSubject, Shape, single

_SPREAD = 74.0
"""Standard deviation of levels that are uniform over 8 bits."""
_AIM = 60.0
"""That of the results: a few per cent of them reach an end of their grid."""
_POINTS = MappingProxyType({"uint8": 131, "int8": -3})
_OUTPUT_POINTS = MappingProxyType({"uint8": 121, "int8": 5})
"""Odd, because half to even before and after an odd zero point differ."""
_WEIGHT_POINTS = MappingProxyType({"uint8": 129, "int8": 0})
_LETTERS = MappingProxyType({"u8": "uint8", "s8": "int8"})
_FACTORS = (1.0, 1.37, 0.81, 1.93, 0.593)
"""Odd channels' scales relative to the even ones'."""

WIDTHS = ((1, 33), (3, 31), (7, 16), (8, 9), (9, 8), (16, 7), (31, 3), (33, 1))
"""Input and output channels around the widths of vectors."""

_ALL = ("u8s8.ties", "u8s8.real", "u8s8.pc", "s8s8.ties", "s8s8.real", "s8s8.pc", "u8u8.ties", "u8u8.real")
_USUAL = ("u8s8.ties", "u8s8.pc", "s8s8.pc")
_WIDE = ("u8s8.pc",)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """One shape of an operator: ``x`` without the batch, ``weight`` as ONNX stores it, its axis of output channels."""

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
    yield _conv("dilated", (5, 9, 8), (6, 5, 3, 3), _USUAL, {"dilations": (2, 2), "pads": (2, 2, 2, 2)})
    yield _conv("asymmetric", (5, 6, 7), (6, 5, 3, 2), _USUAL, {"pads": (0, 1, 2, 0)})
    yield _conv("strided", (5, 9, 8), (6, 5, 3, 3), _USUAL, {"strides": (2, 3), **padded})
    yield _conv("one_dimension", (5, 17), (6, 5, 3), _USUAL, {"pads": (2, 1)})
    for inner, outer in WIDTHS:
        yield _conv(f"in{inner}.out{outer}", (inner, 4, 3), (outer, inner, 3, 3), _WIDE, padded)
    for width in (1, 3, 7, 8, 16, 31, 33):
        shape = (width, 1, 3, 3)
        yield _conv(f"depthwise.c{width}", (width, 5, 4), shape, _WIDE, {"group": width, **padded})


def _conv(
    name: str, x: Shape, weight: Shape, kinds: tuple[str, ...], attributes: Mapping[str, Attribute] | None = None
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
    x_scale, unit = (single(0.0193), single(0.00771)) if multiplier == "real" else (2.0**-6, 2.0**-7)
    y_scale = single(x_scale * unit * 2.0**power * (1.13 if multiplier == "real" else 1.0))
    if multiplier == "pc":
        scales, steps = _mixed(window.channels, unit, power, x_step)
    else:
        scales, steps = (unit,), ((1 << (power - 1)) // x_step if multiplier == "ties" else 1,)
    axis = window.axis if multiplier == "pc" else None
    weight = OperandGrid(qtype=w_type, scales=scales, zero_point=_WEIGHT_POINTS[w_type], axis=axis)
    return OperatorSubject(
        id=f"op.{window.name}.{kind}",
        operator=window.operator,
        inputs=(
            Operand(
                grid=OperandGrid(qtype=x_type, scales=(x_scale,), zero_point=_POINTS[x_type]),
                shape=window.x,
                step=(x_step,),
            ),
        ),
        weight=Operand(grid=weight, shape=window.weight, step=steps),
        bias=window.channels if window.bias else 0,
        output=OperandGrid(qtype=x_type, scales=(y_scale,), zero_point=_OUTPUT_POINTS[x_type]),
        attributes=window.attributes,
    )


def _power(depth: int) -> int:
    """The p of M = 2⁻ᵖ that brings sums of ``depth`` products to levels."""
    return round(math.log2(_SPREAD * _SPREAD * math.sqrt(depth) / _AIM))


def _mixed(channels: int, unit: float, power: int, x_step: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Scales and steps of weights, a channel: M = 2^−p, 2^−(p+1), 2^−p, … at even ones, any number at odd ones."""
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
    left = OperandGrid(qtype=qtype, scales=scales[:1], zero_point=_POINTS[qtype])
    right = OperandGrid(qtype=qtype, scales=scales[1:], zero_point=_POINTS[qtype] - 8)
    return OperatorSubject(
        id=f"op.matmul.computed.{types}.{multiplier}",
        operator="MatMul",
        inputs=(
            Operand(grid=left, shape=(3, 5, 9), step=(step,)),
            Operand(grid=right, shape=(3, 9, 7), step=((1 << (power - 1)) // step,)),
        ),
        output=OperandGrid(qtype=qtype, scales=(output,), zero_point=_OUTPUT_POINTS[qtype]),
    )
