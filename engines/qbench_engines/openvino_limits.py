"""Graphs that OpenVINO runs without a word and computes wrong: found before they are handed to it.

    products    two matrix products by constants, one behind the other, whose sizes are all fixed,
                and one of which has no bias and data with a zero point: codes unlike the right
                ones, by up to all 255 steps; with VNNI alone
    averages    an average pool that counts padding, over data with a zero point: padding holds
                code 0
    windows     a convolution by a window of one element with padding and strides: a result of
                another shape
    gaps        a transposed convolution of data without a zero point, with a scale per
                channel and a bias, whose stride is longer than its window: what no tap reaches has
                other codes
    factors     a product with, or quotient by, a constant with elements of both signs in front of
                a quantizer to int8
    limits      a Clip behind DequantizeLinear whose ends lie between codes: the engine clips
                codes, and truncates end / scale + zero point; an end a rounding below a code is
                one code off

Source: OpenVINO 2026.4.1 on x64, compared with ONNX Runtime (docs/backends.md lists what was
measured).
"""

import math
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends import Miscomputed
from qbench.graph import (
    ENGINE_DOMAIN,
    Form,
    constant_value,
    form_of,
    input_at,
    int_attribute,
    ints_attribute,
    node_key,
    node_qparams,
    op_spec,
)
from qbench.numerics import dequantize
from qbench.passes import lower_to_integers

PATTERNS = MappingProxyType(
    {
        "products": (
            "a matrix product without a bias, of data with a zero point, next to another product "
            "(with VNNI)"
        ),
        "averages": "an average pool that counts padding, of data with a zero point",
        "windows": "a convolution by a window of one element, with padding and strides",
        "gaps": (
            "a transposed convolution with scales per channel and a bias, whose stride is longer "
            "than its window"
        ),
        "factors": "a product with, or quotient by, a constant of both signs, quantized to int8",
        "limits": "a Clip of quantized values whose ends lie between their codes",
    }
)
"""Pattern → what it is."""
Nodes = Iterator[ir.Node]

_ENGINE = "OpenVINO"
ARITHMETICS = ("openvino-amx", "openvino-avx2", "openvino-vnni")
"""The arithmetics by which it counts, on one processor or another."""
_WHERE = {"products": ("openvino-amx", "openvino-vnni")}
"""Pattern → the arithmetics with which it is wrong, where that is not all of them."""

_NEAR = 1e-3
"""Of a step: an end that is nearer to the code that the engine makes of it is that code."""
_NO_BIAS = 1e-20
"""The engine leaves a bias out that is no more than this."""


def miscomputed(model: ir.Model) -> tuple[Miscomputed, ...]:
    """The nodes of ``model`` that OpenVINO computes wrong, with the reason; empty: none is known.

    Raises:
        InputError: an invalid Q or DQ.
    """
    graph = model.graph
    found = {"windows": _windows(graph), "gaps": _gaps(graph), "limits": _limits(graph)}
    if form_of(model) is not Form.FLOAT:
        lowered = lower_to_integers(model).graph
        found |= {
            "products": _products(graph),
            "averages": _averages(lowered),
            "factors": _factors(graph),
        }
    return tuple(
        Miscomputed(
            pattern, node_key(node), PATTERNS[pattern], _ENGINE, _WHERE.get(pattern, ARITHMETICS)
        )
        for pattern, nodes in found.items()
        for node in nodes
    )


def _products(graph: ir.Graph) -> Nodes:
    """A product is in a row where another one is before or behind it, whatever lies between."""
    sources = {node: source for node in graph if (source := _quantized_data(node)) is not None}
    before = {node: _ancestors(node) for node in sources}
    for node, source in sources.items():
        data = node.inputs[0]
        fixed = (
            data is None or data.shape is None or all(isinstance(size, int) for size in data.shape)
        )
        in_a_row = any(other in before[node] or node in before[other] for other in sources)
        if in_a_row and fixed and _zero_point(source, 2) and not _biased(node):
            yield node


def _quantized_data(node: ir.Node) -> ir.Node | None:
    """The DequantizeLinear that gives a matrix product by a constant its data; None of anything
    else.
    """
    if (
        node.domain
        or node.op_type not in ("MatMul", "Gemm")
        or _real_constant(input_at(node, 1)) is None
    ):
        return None
    data = input_at(node, 0)
    while data is not None and (maker := data.producer()) is not None:
        if maker.op_type == "DequantizeLinear":
            return maker
        if not op_spec(maker).is_mover:
            return None
        data = maker.inputs[0]
    return None


def _biased(node: ir.Node) -> bool:
    """Whether there is a bias that is not 0: the engine leaves one of zeros out."""
    added = [input_at(node, 2)]
    for use in node.outputs[0].uses():
        if use.node.op_type == "Add":
            added += [value for value in use.node.inputs if value is not node.outputs[0]]
    reals = [real for value in added if (real := _real_constant(value)) is not None]
    return any(bool(np.any(np.abs(real) > _NO_BIAS)) for real in reals)


def _ancestors(node: ir.Node) -> set[ir.Node]:
    waiting, found = [node], set()
    while waiting:
        for value in waiting.pop().inputs:
            producer = None if value is None else value.producer()
            if producer is not None and producer not in found:
                found.add(producer)
                waiting.append(producer)
    return found


def _averages(graph: ir.Graph) -> Nodes:
    for node in graph:
        kind = (node.domain, node.op_type)
        if kind == (ENGINE_DOMAIN, "QLinearAveragePool"):
            of_codes = node
        elif kind == ("", "AveragePool") and (maker := _dequantizer(node)) is not None:
            of_codes = maker  # a result of reals
        else:
            continue
        if _pads(node) and int_attribute(node, "count_include_pad", 0) and _zero_point(of_codes, 2):
            yield node


def _dequantizer(node: ir.Node) -> ir.Node | None:
    """The DequantizeLinear that gives ``node`` its data; None: something else does."""
    maker = None if node.inputs[0] is None else node.inputs[0].producer()
    return maker if maker is not None and maker.op_type == "DequantizeLinear" else None


def _windows(graph: ir.Graph) -> Nodes:
    for node in graph:
        weight = None if len(node.inputs) < 2 else node.inputs[1]
        if node.domain or node.op_type != "Conv" or weight is None or weight.shape is None:
            continue
        window = [size for size in weight.shape[2:] if isinstance(size, int)]
        if (
            math.prod(window) == 1
            and _pads(node)
            and max(ints_attribute(node, "strides", (1,))) > 1
        ):
            yield node


def _gaps(graph: ir.Graph) -> Nodes:
    for node in graph:
        weight = None if len(node.inputs) < 2 else node.inputs[1]
        if node.domain or node.op_type != "ConvTranspose" or weight is None or weight.shape is None:
            continue
        window = [size for size in weight.shape[2:] if isinstance(size, int)]
        is_longer = any(
            stride > size
            for stride, size in zip(ints_attribute(node, "strides"), window, strict=False)
        )
        has_bias, each = input_at(node, 2) is not None, _is_per_channel(input_at(node, 1))
        if (
            is_longer
            and has_bias
            and each
            and _of_bare_codes(node)
            and _readers(node) == ["QuantizeLinear"]
        ):
            yield node


def _is_per_channel(weight: ir.Value | None) -> bool:
    maker = None if weight is None else weight.producer()
    qparams = (
        node_qparams(maker) if maker is not None and maker.op_type == "DequantizeLinear" else None
    )
    return qparams is not None and np.size(qparams.scale) > 1


def _of_bare_codes(node: ir.Node) -> bool:
    """Whether the data are codes whose zero point is 0: others run in float."""
    data = input_at(node, 0)
    maker = None if data is None else data.producer()
    qparams = (
        node_qparams(maker) if maker is not None and maker.op_type == "DequantizeLinear" else None
    )
    return qparams is not None and not np.any(qparams.zero_point)


def _readers(node: ir.Node) -> list[str]:
    return [use.node.op_type for use in node.outputs[0].uses()]


def _factors(graph: ir.Graph) -> Nodes:
    for node in graph:
        if node.domain or node.op_type not in ("Mul", "Div"):
            continue
        factors = [real for value in node.inputs if (real := _real_constant(value)) is not None]
        both = any((one < 0).any() and (one > 0).any() for one in factors)
        if both and _readers(node) == ["QuantizeLinear"] and _is_signed(node.outputs[0]):
            yield node


def _is_signed(value: ir.Value) -> bool:
    readers = [node_qparams(use.node) for use in value.uses()]
    return any(one is not None and one.qtype.signed for one in readers)


def _real_constant(value: ir.Value | None) -> "np.ndarray[Any, Any] | None":
    """The reals of a constant, quantized or not."""
    maker = None if value is None else value.producer()
    if maker is None or maker.op_type != "DequantizeLinear":
        return constant_value(value)
    codes, qparams = constant_value(input_at(maker, 0)), node_qparams(maker)
    return None if codes is None or qparams is None else dequantize(codes, qparams)


def _limits(graph: ir.Graph) -> Nodes:
    for node in graph:
        data = node.inputs[0] if node.inputs else None
        maker = None if data is None else data.producer()
        if (
            node.domain
            or node.op_type != "Clip"
            or maker is None
            or maker.op_type != "DequantizeLinear"
        ):
            continue
        scale, zero = (constant_value(input_at(maker, place)) for place in (1, 2))
        ends = [constant_value(input_at(node, place)) for place in (1, 2)]
        if scale is None or scale.size > 1:
            continue
        at = 0 if zero is None else int(zero.reshape(-1)[0])
        if any(
            end is not None and _between(float(end.reshape(-1)[0]), float(scale.reshape(-1)[0]), at)
            for end in ends
        ):
            yield node


def _between(end: float, scale: float, zero: int) -> bool:
    """Whether the engine clips elsewhere than at ``end``; an end beyond every code clips nothing.

    The engine computes the code in float64 and truncates it: 0.5 / float32(0.02) is 25.0000006, so
    −0.5 becomes code 102 instead of 103 where 0 is 128.
    """
    steps = end / scale
    code = steps + zero
    return abs(steps) < 256 + abs(zero) and abs(code - math.trunc(code)) > _NEAR


def _pads(node: ir.Node) -> bool:
    return any(ints_attribute(node, "pads"))


def _zero_point(node: ir.Node, place: int) -> bool:
    found = constant_value(input_at(node, place))
    return found is not None and bool(np.any(found))
