"""Between which ends the values of a QDQ graph lie."""

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, node_qparams, op_spec
from qbench.numerics import QParams, dequantize, quantize

# Between which ends a value of a graph lies, as it follows from borders, clips and operators: what
# inputs can be.
#
#     Q                   both ends quantized
#     DQ                  dequantized
#     Clip, Relu          cut off
#     what moves values   the ends of its source
#
# All of these are monotone. Wider than the truth never hurts a promise that holds; narrower would
# hide what breaks it.

_HOPS = 40
"""Nodes looked back at."""
_WIDEST = 16


@dataclass(frozen=True, slots=True)
class Reach:
    """Lowest and highest number, codes or reals; both are taken. ``zero`` is what counts as
    nothing.
    """

    low: float
    high: float
    zero: float = 0.0

    @property
    def size(self) -> float:
        """How many whole numbers."""
        return self.high - self.low + 1


def common_reach(before: ir.Value, after: ir.Value) -> Reach:
    """Of a value that two graphs agree on: it lies within the range that follows from either.

    Raises:
        InputError: an invalid Q or DQ.
    """
    one, other = reach_of(before), reach_of(after)
    low, high = max(one.low, other.low), min(one.high, other.high)
    return one if low > high else Reach(low, high, one.zero)


def reach_of(value: ir.Value, hops: int = _HOPS) -> Reach:
    """Of a value of a main graph; of channels with qparams of their own, the whole type.

    Raises:
        InputError: an invalid Q or DQ.
    """
    constant = constant_value(value)
    if constant is not None and constant.size and constant.dtype.kind in "iuf":
        return Reach(float(constant.min()), float(constant.max()))
    node = value.producer()
    if node is None or node.domain or not hops or not node.inputs or node.inputs[0] is None:
        return _of_type(value)
    source = node.inputs[0]
    match node.op_type:
        case "QuantizeLinear" | "DequantizeLinear":
            return _over_border(node, source, hops) or _of_type(value)
        case "Clip":
            return _clipped(node, reach_of(source, hops - 1))
        case "Concat":
            return _joined([reach_of(one, hops // 2) for one in node.inputs if one is not None])
        case _:
            return _of_operator(node, source, hops)


def _over_border(node: ir.Node, source: ir.Value, hops: int) -> Reach | None:
    qparams = _static(node)
    if qparams is None:
        return None
    found = reach_of(source, hops - 1)
    if node.op_type == "QuantizeLinear":
        low, high = quantize(np.array([found.low, found.high], np.float32), qparams).astype(float)
        return Reach(low, high, float(qparams.zero_point))
    ends = np.clip([found.low, found.high], qparams.qmin, qparams.qmax).astype(
        qparams.qtype.storage_dtype
    )
    return Reach(*map(float, dequantize(ends, qparams)))


def _of_operator(node: ir.Node, source: ir.Value, hops: int) -> Reach:
    if node.op_type == "Relu":
        found = reach_of(source, hops - 1)
        return Reach(max(found.low, 0.0), max(found.high, 0.0))
    facts, widest = op_spec(node), _of_type(node.outputs[0])
    if facts.moved and node.op_type != "Pad":
        return _joined(
            [
                reach_of(moved, hops - 1)
                for i in facts.moved
                if (moved := node.inputs[i]) is not None
            ]
        )
    return Reach(max(widest.low, facts.low), min(widest.high, facts.high), widest.zero)


def _clipped(node: ir.Node, found: Reach) -> Reach:
    ends = [
        constant_value(node.inputs[index]) if index < len(node.inputs) else None for index in (1, 2)
    ]
    low, high = (float(end.reshape(-1)[0]) if end is not None else None for end in ends)
    low, high = (found.low if low is None else low, found.high if high is None else high)
    return Reach(min(max(found.low, low), high), min(max(found.high, low), high), found.zero)


def _joined(found: list[Reach]) -> Reach:
    return Reach(min(one.low for one in found), max(one.high for one in found), found[0].zero)


def _of_type(value: ir.Value) -> Reach:
    """All that its type holds; its zero is the zero point of the DequantizeLinear that reads
    its codes.
    """
    dtype = value.dtype
    if dtype is None or not dtype.is_integer():
        return Reach(-math.inf, math.inf)
    low = -(2 ** (dtype.bitwidth - 1)) if dtype.is_signed() else 0
    reader = next(
        (use.node for use in value.uses() if use.node.op_type == "DequantizeLinear"), None
    )
    read = reader is not None and not reader.domain and reader.inputs[0] is value
    qparams = _static(reader) if read and reader is not None else None
    return Reach(
        low, low + 2**dtype.bitwidth - 1, 0.0 if qparams is None else float(qparams.zero_point)
    )


def _static(node: ir.Node) -> QParams | None:
    qparams = node_qparams(node)
    return (
        None
        if qparams is None or qparams.axis is not None or qparams.qtype.bits > _WIDEST
        else qparams
    )
