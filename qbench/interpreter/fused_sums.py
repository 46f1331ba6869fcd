"""Sums that an arithmetic takes of a convolution's result before it is rounded: which they are,
and their kernel.

The first operand that is the result of a convolution, which nothing else reads, is fused; the other
operand is codes.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.graph import ENGINE_DOMAIN, constant_value
from qbench.interpreter.arrays import Array
from qbench.interpreter.integer_kernels.convolutions import conv, convolution_sums
from qbench.interpreter.integer_kernels.functions import add
from qbench.interpreter.integer_kernels.products import optional
from qbench.interpreter.kernel import KernelContext, KernelFunction
from qbench.interpreter.windows import Windows, behind_clip, channels_first, channels_last, onward
from qbench.numerics import Arithmetic, MultiplierForm, Ranges, residual_steps

_OPERANDS = (0, 3)
"""The places of both operands of a QLinearAdd; scale and zero point follow each."""


@dataclass(frozen=True, slots=True)
class FusedSum:
    """The convolution that a QLinearAdd is fused with, and the place of its result among the
    inputs of that.
    """

    convolution: ir.Node
    place: int


def fused_sums(graph: ir.Graph, rules: Callable[[ir.Node], Arithmetic]) -> dict[ir.Node, FusedSum]:
    """QLinearAdd → what it is fused with, by the ``rules`` of each node."""
    found: dict[ir.Node, FusedSum] = {}
    for node in graph:
        if (node.domain, node.op_type) != (ENGINE_DOMAIN, "QLinearAdd") or not rules(
            node
        ).adding.fused:
            continue
        for place in _OPERANDS:
            one, other = node.inputs[place], node.inputs[_other(place)]
            if (
                one is None
                or other is None
                or constant_value(other) is not None
                or not _alike(one, other)
            ):
                continue
            producer = one.producer()
            if (
                producer is not None
                and _fits(producer)
                and rules(producer).scaling.form is MultiplierForm.RANGE
            ):
                found[node] = FusedSum(producer, place)
                break
    return found


def _alike(one: ir.Value, other: ir.Value) -> bool:
    """Whether both have one type and may have one shape: sizes that are not known are compared
    batch by batch.
    """
    if (
        one.dtype != other.dtype
        or one.shape is None
        or other.shape is None
        or len(one.shape) != len(other.shape)
    ):
        return False
    sizes = zip(one.shape, other.shape, strict=True)
    return all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in sizes)


def _fits(producer: ir.Node) -> bool:
    (result,) = producer.outputs[:1]
    read_once = len(list(result.uses())) == 1 and not result.is_graph_output()
    return (producer.domain, producer.op_type) == ("", "QLinearConv") and read_once


def fused_sum(place: int, convolution: KernelContext, summing: KernelContext) -> KernelFunction:
    """The kernel of both nodes: inputs of the sum, with the convolution's data at ``place``.

    Raises:
        ValueError: qparams that the convolution cannot be computed on.
    """
    found = convolution_sums(convolution)
    x, own = convolution.qparams(1, 2), convolution.qparams(6, 7)
    other_place = _other(place)
    other, result = summing.qparams(other_place + 1, other_place + 2), summing.qparams(6, 7)
    bias, each = optional(convolution, 8), convolution.scales(4).astype(np.float64)
    steps = residual_steps(
        (x.scale, each.reshape(-1) if each.size > 1 else each.reshape(()), own.scale),
        None if bias is None else bias.astype(np.int64).reshape(-1),
        Ranges.of(
            x,
            own.qtype,
            clipped=behind_clip(convolution.node),
            signed=convolution.arithmetic.scaling.signed,
        ),
        (own, other, result),
        onward=onward(summing.node),
    )
    (low, high), dtype = summing.arithmetic.limits(result), result.qtype.storage_dtype
    windows = Windows.of(convolution.node, tuple(convolution.needed(3).shape[2:]))
    filters = len(convolution.needed(3))

    @functools.cache
    def apart() -> tuple[KernelFunction, KernelFunction]:
        return conv(convolution), add(summing)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        data, added = inputs[place], inputs[other_place]
        assert data is not None
        assert added is not None
        if added.shape != (len(data), filters, *windows.outputs_for(data.shape[2:])):
            # OpenVINO fuses no broadcasting
            alone, summed = apart()
            values = list(inputs)
            (values[place],) = alone([data])
            return tuple(summed(values))
        results = []
        for sample, codes in zip(data, channels_last(added), strict=True):
            total = steps.codes(found.sums(sample[None], int(x.zero_point)), codes[None])
            results.append(summing.counters.clip(total, low, high).astype(dtype))
        return (channels_first(np.concatenate(results)),)

    return run


def _other(place: int) -> int:
    return sum(_OPERANDS) - place
