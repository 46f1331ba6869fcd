"""Borders between reals and quantized values in a QDQ graph, each with its limits."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import (
    clip_of_codes,
    code_dtype,
    constant_value,
    input_at,
    node_qparams,
    only_consumer,
)
from qbench.numerics import QParams, quantize
from qbench.passes.editing import NameScope, add_constant
from qbench.passes.lowering.site import UP_TO_16_BITS

# Borders between reals and codes (quantized values) in a QDQ graph, each with the limits at which
# it saturates.
#
#     reals ─QuantizeLinear(s, z)─[Clip(low, high)]─ codes ─DequantizeLinear(s, z)─ reals
#
# A requantize is a DequantizeLinear that one border alone reads: codes of one set of qparams become
# codes of another. Its limits are those of the border: the Clip's, or else the ends of the type.

WIDEST = 16
"""Bits of the widest type whose codes can all be tried."""
_CLIPPED_BITS = 8
_CLIPPED_SINCE = 12
"""The opset whose Clip takes integers."""
_KEPT = 8192
"""Qparams remembered: every pass reads all of them again, and few are new."""
_TYPES = UP_TO_16_BITS | {ir.DataType.INT4, ir.DataType.UINT4}


@dataclass(frozen=True, slots=True, eq=False)
class Border:
    """Where reals become codes of static qparams per tensor, of at most 16 bits.

    Args:
        quantizer: the QuantizeLinear.
        clip: the Clip of its quantized values, where there is one.
        qparams: its parameters. low, high: the limits, as codes; low > high, of a Clip whose ends
            cross, never occurs.
    """

    quantizer: ir.Node
    clip: ir.Node | None
    qparams: QParams
    low: int
    high: int

    @property
    def source(self) -> ir.Value:
        """The reals."""
        value = self.quantizer.inputs[0]
        assert value is not None
        return value

    @property
    def codes(self) -> ir.Value:
        """What it gives."""
        return (self.clip or self.quantizer).outputs[0]

    @property
    def is_limited(self) -> bool:
        """Whether the limits are narrower than the type."""
        return (self.low, self.high) != (self.qparams.qmin, self.qparams.qmax)


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """Codes that a DequantizeLinear reads: their qparams, and between which limits they lie.

    Args:
        dequantizer: reads them.
        qparams: its parameters. low, high: the limits of the border before it, or those of the
            type.
        border: who gives them; None: a constant, an input, or an operator that moves them.
    """

    dequantizer: ir.Node
    qparams: QParams
    low: int
    high: int
    border: Border | None = None


def border_of(quantizer: ir.Node) -> Border | None:
    """The border at a QuantizeLinear; None of any other node, and of qparams that are computed,
    per channel or wider.

    Raises:
        InputError: an invalid Q.
    """
    if quantizer.domain or quantizer.op_type != "QuantizeLinear" or quantizer.inputs[0] is None:
        return None
    qparams = _static(quantizer)
    if qparams is None:
        return None
    clip = clip_of_codes(quantizer)
    low, high = _limits(clip, qparams)
    return None if low > high else Border(quantizer, clip, qparams, low, high)


def codes_of(dequantizer: ir.Node | None) -> Codes | None:
    """The codes that ``dequantizer`` reads; None of any other node, or where ``border_of``
    would find none.

    Raises:
        InputError: an invalid DQ.
    """
    if dequantizer is None or dequantizer.domain or dequantizer.op_type != "DequantizeLinear":
        return None
    qparams = _static(dequantizer)
    source = dequantizer.inputs[0]
    if qparams is None or source is None:
        return None
    maker = source.producer()
    if maker is not None and maker.op_type == "Clip" and maker.inputs[0] is not None:
        maker = maker.inputs[0].producer()
    border = None if maker is None else border_of(maker)
    if border is None or border.codes is not source or border.qparams.qtype != qparams.qtype:
        return Codes(dequantizer, qparams, qparams.qmin, qparams.qmax)
    return Codes(dequantizer, qparams, border.low, border.high, border)


def requantized_at(border: Border) -> Codes | None:
    """The codes that ``border`` brings to other qparams; None where it quantizes reals, or
    others read its input.
    """
    maker = border.source.producer()
    if maker is None or only_consumer(border.source) is not border.quantizer:
        return None
    return codes_of(maker)


def readers_of(border: Border) -> tuple[ir.Node, ...]:
    """The readers of the codes, in order; a graph output has no node, so look at
    ``codes.is_graph_output()`` too.
    """
    return tuple(use.node for use in border.codes.uses())


def can_limit(border: Border, low: int, high: int) -> bool:
    """Whether ``set_limits`` can write these: engines clip integers of 8 bits and none of 16,
    from opset 12 on.
    """
    graph = border.quantizer.graph
    imports = {} if not isinstance(graph, ir.Graph) else graph.opset_imports
    opset = imports.get("", imports.get("ai.onnx", 0))
    whole = (low, high) == (border.qparams.qmin, border.qparams.qmax)
    return whole or (border.qparams.qtype.bits <= _CLIPPED_BITS and opset >= _CLIPPED_SINCE)


def set_limits(border: Border, low: int, high: int, names: NameScope) -> bool:
    """Let ``border`` saturate at ``low`` and ``high`` by writing, changing or removing a Clip;
    False: it does already.

    The codes keep their name. The graph is changed in place; ``border`` is out of date afterwards.
    """
    if (low, high) == (border.low, border.high):
        return False
    graph, codes = border.quantizer.graph, border.codes
    assert isinstance(graph, ir.Graph)
    whole = (low, high) == (border.qparams.qmin, border.qparams.qmax)
    if border.clip is None:
        clip = ir.Node(
            "", "Clip", [None, None, None], num_outputs=1, name=f"{border.quantizer.name}_limits"
        )
        clip.metadata_props.update(border.quantizer.metadata_props)
        limited = clip.outputs[0]
        limited.type, limited.shape = codes.type, codes.shape
        codes.replace_all_uses_with(limited, replace_graph_outputs=True)
        clip.replace_input_with(0, codes)
        limited.name, codes.name = codes.name, names.fresh(f"{codes.name}_unlimited")
        graph.insert_after(border.quantizer, clip)
        _set_ends(clip, (low, high), border.qparams, names)
    elif whole:
        quantized = border.quantizer.outputs[0]
        name, codes.name = codes.name, None
        codes.replace_all_uses_with(quantized, replace_graph_outputs=True)
        # Files of others give types to inputs and outputs alone: an output that moves takes its
        # type along.
        quantized.name, quantized.type, quantized.shape = name, codes.type, codes.shape
        graph.remove(border.clip, safe=True)
    else:
        _set_ends(border.clip, (low, high), border.qparams, names)
    return True


def _set_ends(clip: ir.Node, ends: tuple[int, int], qparams: QParams, names: NameScope) -> None:
    graph = clip.graph
    assert isinstance(graph, ir.Graph)
    if len(clip.inputs) < 3:
        clip.resize_inputs(3)
    for index, (end, word) in enumerate(zip(ends, ("low", "high"), strict=True), start=1):
        array = np.array(end, qparams.qtype.storage_dtype)
        clip.replace_input_with(
            index, add_constant(graph, f"{clip.outputs[0].name}_{word}", array, names)
        )


def _limits(clip: ir.Node | None, qparams: QParams) -> tuple[int, int]:
    ends = [
        None if clip is None or index >= len(clip.inputs) else constant_value(clip.inputs[index])
        for index in (1, 2)
    ]
    low, high = (None if end is None else int(end.reshape(())) for end in ends)
    return (
        qparams.qmin if low is None else max(low, qparams.qmin),
        qparams.qmax if high is None else min(high, qparams.qmax),
    )


def _static(node: ir.Node) -> QParams | None:
    scale, point = (
        constant_value(node.inputs[index]) if index < len(node.inputs) else None for index in (1, 2)
    )
    if scale is not None and point is not None and _is_plain(node, scale, point):
        return _plain(scale.item(), int(point.item()), code_dtype(node).name.lower())
    qparams = node_qparams(node)
    return (
        None
        if qparams is None or qparams.axis is not None or qparams.qtype.bits > WIDEST
        else qparams
    )


def _is_plain(node: ir.Node, scale: npt.NDArray[Any], point: npt.NDArray[Any]) -> bool:
    """Whether ``node`` has one float32 scale and one point of up to 16 bits, and means
    something by them.
    """
    alone = scale.size == point.size == 1 and not node.attributes and code_dtype(node) in _TYPES
    return alone and scale.dtype == np.float32 and bool(0 < scale.item() < np.inf)


@lru_cache(maxsize=_KEPT)
def _plain(scale: float, point: int, qtype: str) -> QParams:
    return QParams(scale, point, qtype)


# Relu and Clip with constant ends, as the interval of reals that they let through.
#
# A quantizer is monotone, so that quantizing what was clipped is clipping what was quantized:
#
#     Q(min(max(x, a), b)) = min(max(Q(x), Q(a)), Q(b))          for every number x

_ENDS_ARE_INPUTS = 11


@dataclass(frozen=True, slots=True, eq=False)
class RealClip:
    """A node that clips float32 reals to [low, high]; infinite where it has no such end."""

    node: ir.Node
    low: float
    high: float

    @property
    def source(self) -> ir.Value:
        """What is clipped."""
        value = self.node.inputs[0]
        assert value is not None
        return value


def real_clip_of(node: ir.Node | None) -> RealClip | None:
    """``node`` as a clip; None of any other node, of ends that are computed or NaN, of other
    types than float32.
    """
    if node is None or node.domain or not node.inputs or node.inputs[0] is None:
        return None
    if node.outputs[0].dtype not in (None, ir.DataType.FLOAT):
        return None
    if node.op_type == "Relu":
        return RealClip(node, 0.0, math.inf)
    if node.op_type != "Clip" or "min" in node.attributes or "max" in node.attributes:
        return None
    ends = []
    for index, missing in ((1, -math.inf), (2, math.inf)):
        value = input_at(node, index)
        array = constant_value(value)
        if value is not None and (array is None or array.dtype != np.float32 or array.size != 1):
            return None
        ends.append(missing if array is None else float(array.reshape(())))
    low, high = ends
    return None if math.isnan(low) or math.isnan(high) else RealClip(node, min(low, high), high)


def limits_behind(clip: RealClip, border: Border) -> tuple[int, int]:
    """The limits of ``border`` once it quantizes what ``clip`` read."""
    ends = quantize(np.array([clip.low, clip.high], np.float32), border.qparams).astype(np.int64)
    low, high = np.clip(ends, border.low, border.high)
    return int(low), int(high)
