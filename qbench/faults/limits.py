"""Faults of clips and limits."""

import numpy as np
import onnx_ir as ir

from qbench.faults.fault import (
    Fault,
    GraphEdit,
    Random,
    Stage,
    Story,
    pair_in_front,
    put_constant,
    qparams_behind,
    qparams_in_front,
    quantizer_behind,
)
from qbench.graph import clip_of_codes, constant_value, input_at, node_qparams, only_consumer
from qbench.judging import Cause
from qbench.numerics import QParams

_LIMITS = frozenset({"Relu", "Clip"})


def _clip_of_reals(node: ir.Node) -> ir.Node | None:
    """The Relu or Clip that alone reads the real result."""
    reader = only_consumer(node.outputs[0])
    if reader is None or reader.op_type not in _LIMITS or reader.inputs[0] is not node.outputs[0]:
        return None
    return reader


def _clip_behind(node: ir.Node) -> ir.Node | None:
    """What limits the result: a clip of reals before the quantizer, or of codes after it."""
    quantizer = quantizer_behind(node)
    if quantizer is None:
        return None
    return _clip_of_reals(node) or clip_of_codes(quantizer)


def _has_clip(node: ir.Node) -> bool:
    return _clip_behind(node) is not None


def _upper_code(node: ir.Node) -> int | None:
    """The code above which the result is clipped, where that is below the highest one of its
    qparams.
    """
    clip, qparams = _clip_behind(node), qparams_behind(node)
    high = None if clip is None or clip.op_type == "Relu" else constant_value(input_at(clip, 2))
    if clip is None or qparams is None or qparams.axis is not None or high is None:
        return None
    code = (
        int(high)
        if high.dtype.kind in "iu"
        else round(float(high) / float(qparams.scale)) + int(qparams.zero_point)
    )
    return code if code < qparams.qmax else None


def _has_upper(node: ir.Node) -> bool:
    return _upper_code(node) is not None


def _clips_codes(node: ir.Node) -> bool:
    """Whether codes are clipped inside their range, and the operand has another scale."""
    quantizer = quantizer_behind(node)
    before = qparams_in_front(node, 0)
    qparams = qparams_behind(node)
    if (
        quantizer is None
        or before is None
        or qparams is None
        or before.axis is not None
        or qparams.axis is not None
    ):
        return False
    clip = clip_of_codes(quantizer)
    return (
        clip is not None
        and constant_value(input_at(clip, 2)) is not None
        and before.scale != qparams.scale
    )


def _chained(node: ir.Node) -> ir.Node | None:
    """The quantizer that alone reads the dequantized result: codes are requantized there."""
    first = quantizer_behind(node)
    pair = None if first is None else _only_pair(first)
    second = None if pair is None else only_consumer(pair.outputs[0])
    return second if second is not None and second.op_type == "QuantizeLinear" else None


def _only_pair(quantizer: ir.Node) -> ir.Node | None:
    """The one DequantizeLinear that reads its codes."""
    clip = clip_of_codes(quantizer)
    pair = only_consumer((quantizer if clip is None else clip).outputs[0])
    return pair if pair is not None and pair.op_type == "DequantizeLinear" else None


def _joined(node: ir.Node) -> list[tuple[int, ir.Node]]:
    """Of a Concat: its operands whose codes nothing else reads, with their quantizers."""
    if node.op_type != "Concat" or qparams_behind(node) is None:
        return []
    found = []
    for index in range(len(node.inputs)):
        pair = pair_in_front(node, index)
        maker = None if pair is None or pair.inputs[0] is None else pair.inputs[0].producer()
        if maker is not None and maker.op_type == "QuantizeLinear" and _only_pair(maker) is pair:
            found.append((index, maker))
    return found


def _ends(qparams: QParams) -> tuple[float, float]:
    scale, point = float(qparams.scale), int(qparams.zero_point)
    return (qparams.qmin - point) * scale, (qparams.qmax - point) * scale


def _holds_back(first: QParams | None, last: QParams | None) -> bool:
    """Whether ``first`` saturates where ``last`` does not yet."""
    if first is None or last is None or first.axis is not None or last.axis is not None:
        return False
    (low, high), (lowest, highest) = _ends(first), _ends(last)
    return lowest < low or highest > high


def _narrower(node: ir.Node) -> list[tuple[int, ir.Node]]:
    return [
        (index, quantizer)
        for index, quantizer in _joined(node)
        if _holds_back(node_qparams(quantizer), qparams_behind(node))
    ]


def _is_narrower(node: ir.Node) -> bool:
    """Whether a chain of two qparams starts or ends here, and the first range cuts what the
    second lets through.
    """
    second = _chained(node)
    if second is not None:
        return _holds_back(qparams_behind(node), node_qparams(second))
    return bool(_narrower(node))


def _bypass(clip: ir.Node) -> None:
    graph, source, result = clip.graph, clip.inputs[0], clip.outputs[0]
    assert isinstance(graph, ir.Graph)
    assert source is not None
    for use in tuple(result.uses()):
        use.node.replace_input_with(use.idx, source)
    graph.remove(clip, safe=True)


def _removed(node: ir.Node, _: Random) -> None:
    clip = _clip_behind(node)
    assert clip is not None
    quantizer = quantizer_behind(node)
    if quantizer is not None and clip is clip_of_codes(quantizer):
        _keep_name(quantizer, clip)
    else:
        _bypass(clip)


def _keep_name(quantizer: ir.Node, clip: ir.Node) -> None:
    """The clip lets every code through, so that codes keep the name that others know them by."""
    qparams = node_qparams(quantizer)
    assert qparams is not None
    dtype = qparams.qtype.storage_dtype
    for index, end in ((1, qparams.qmin), (2, qparams.qmax)):
        if index < len(clip.inputs) and clip.inputs[index] is not None:
            put_constant(clip, index, np.array(end, dtype))


def _no_upper(node: ir.Node, _: Random) -> None:
    clip, qparams = _clip_behind(node), qparams_behind(node)
    assert clip is not None
    assert qparams is not None
    high = constant_value(input_at(clip, 2))
    assert high is not None
    top = qparams.qmax if high.dtype.kind in "iu" else np.finfo(np.float32).max
    put_constant(clip, 2, np.array(top, high.dtype))


def _by_qparams_of_operand(node: ir.Node, _: Random) -> None:
    """The upper limit as a code by the operand's qparams."""
    quantizer = quantizer_behind(node)
    before = qparams_in_front(node, 0)
    qparams = qparams_behind(node)
    assert quantizer is not None
    assert before is not None
    assert qparams is not None
    clip = clip_of_codes(quantizer)
    assert clip is not None
    high = constant_value(input_at(clip, 2))
    assert high is not None
    real = (int(high) - int(qparams.zero_point)) * float(qparams.scale)
    code = round(real / float(before.scale)) + int(before.zero_point)
    low = constant_value(input_at(clip, 1))
    least = qparams.qmin if low is None else int(low)
    put_constant(clip, 2, np.array(np.clip(code, least, qparams.qmax), high.dtype))


def _last_range(node: ir.Node, random: Random) -> None:
    """The chain's first quantization goes: numbers are quantized by the last qparams at once,
    with its limits alone.
    """
    second, first = _chained(node), quantizer_behind(node)
    if second is not None and first is not None:
        second.replace_input_with(0, first.inputs[0])
        return
    operands = _narrower(node)
    index, quantizer = operands[int(random.integers(len(operands)))]
    node.replace_input_with(index, quantizer.inputs[0])


FAULTS = (
    Fault(
        "clip-removed",
        "A Relu or Clip counts as absorbed by qparams whose range reaches beyond it.",
        Story("Tencent/ncnn#1609", "A ReLU6 came out of a converter with limits of ±3.4e38."),
        GraphEdit(_removed),
        _has_clip,
        (Cause.ABSORBED_CLIP,),
        Stage.PASS,
    ),
    Fault(
        "relu6-as-relu",
        "The upper limit of a Clip is gone.",
        Story("jakc4103/DFQ#34", "Replacing ReLU6 by ReLU before quantizing lost much accuracy."),
        GraphEdit(_no_upper),
        _has_upper,
        (Cause.ABSORBED_CLIP,),
        Stage.PASS,
    ),
    Fault(
        "clip-on-operands-grid",  # stored name
        "A limit is quantized by the operand's qparams in place of the result's.",
        Story(
            "majianjia/nnom#167",
            "Quantized networks with a capped ReLU failed; its limit may not have been rescaled.",
        ),
        GraphEdit(_by_qparams_of_operand),
        _clips_codes,
        (Cause.ABSORBED_CLIP,),
        Stage.PASS,
    ),
    Fault(
        "requantize-merged-with-last-range",
        "Two requantizations in a row become one that has the last one's limits alone.",
        Story(
            "pytorch/glow#5729", "Merging a chain of rescales forgot that each of them saturates."
        ),
        GraphEdit(_last_range),
        _is_narrower,
        # rounding: of values that the first range does not limit
        (Cause.ABSORBED_CLIP, Cause.ROUNDING),
        Stage.PASS,
    ),
)
