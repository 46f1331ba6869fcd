"""Faults of clips and limits."""

import numpy as np
import onnx_ir as ir

from qbench.faults.fault import (
    Fault,
    GraphEdit,
    Random,
    Stage,
    Story,
    grid_behind,
    grid_in_front,
    pair_in_front,
    put_constant,
    quantizer_behind,
)
from qbench.graph import clip_of_levels, constant_value, grid_of, input_at, only_consumer
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
    """What limits the result: of reals in front of the grid, or of levels behind it."""
    quantizer = quantizer_behind(node)
    if quantizer is None:
        return None
    return _clip_of_reals(node) or clip_of_levels(quantizer)


def _has_clip(node: ir.Node) -> bool:
    return _clip_behind(node) is not None


def _upper_level(node: ir.Node) -> int | None:
    """The level above which the result is clipped, where that is below its grid's highest."""
    clip, grid = _clip_behind(node), grid_behind(node)
    high = None if clip is None or clip.op_type == "Relu" else constant_value(input_at(clip, 2))
    if clip is None or grid is None or grid.axis is not None or high is None:
        return None
    level = int(high) if high.dtype.kind in "iu" else round(float(high) / float(grid.scale)) + int(grid.zero_point)
    return level if level < grid.qmax else None


def _has_upper(node: ir.Node) -> bool:
    return _upper_level(node) is not None


def _has_level_clip(node: ir.Node) -> bool:
    """Whether levels are clipped in the middle of their grid, and the operand has another grid."""
    quantizer, before, grid = quantizer_behind(node), grid_in_front(node, 0), grid_behind(node)
    if quantizer is None or before is None or grid is None or before.axis is not None or grid.axis is not None:
        return False
    clip = clip_of_levels(quantizer)
    return clip is not None and constant_value(input_at(clip, 2)) is not None and before.scale != grid.scale


def _chained(node: ir.Node) -> ir.Node | None:
    """The quantizer that alone reads the dequantized result: levels that go from one grid to another."""
    first = quantizer_behind(node)
    pair = None if first is None else _only_pair(first)
    second = None if pair is None else only_consumer(pair.outputs[0])
    return second if second is not None and second.op_type == "QuantizeLinear" else None


def _only_pair(quantizer: ir.Node) -> ir.Node | None:
    """The one DequantizeLinear that reads its levels."""
    clip = clip_of_levels(quantizer)
    pair = only_consumer((quantizer if clip is None else clip).outputs[0])
    return pair if pair is not None and pair.op_type == "DequantizeLinear" else None


def _joined(node: ir.Node) -> list[tuple[int, ir.Node]]:
    """Of a Concat: its operands whose levels nothing else reads, with their quantizers."""
    if node.op_type != "Concat" or grid_behind(node) is None:
        return []
    found = []
    for index in range(len(node.inputs)):
        pair = pair_in_front(node, index)
        maker = None if pair is None or pair.inputs[0] is None else pair.inputs[0].producer()
        if maker is not None and maker.op_type == "QuantizeLinear" and _only_pair(maker) is pair:
            found.append((index, maker))
    return found


def _ends(grid: QParams) -> tuple[float, float]:
    scale, point = float(grid.scale), int(grid.zero_point)
    return (grid.qmin - point) * scale, (grid.qmax - point) * scale


def _holds_back(first: QParams | None, last: QParams | None) -> bool:
    """Whether ``first`` saturates where ``last`` does not yet."""
    if first is None or last is None or first.axis is not None or last.axis is not None:
        return False
    (low, high), (lowest, highest) = _ends(first), _ends(last)
    return lowest < low or highest > high


def _narrower(node: ir.Node) -> list[tuple[int, ir.Node]]:
    return [
        (index, quantizer) for index, quantizer in _joined(node) if _holds_back(grid_of(quantizer), grid_behind(node))
    ]


def _is_narrower(node: ir.Node) -> bool:
    """Whether a chain of two grids starts or ends here, of which the first holds back what the second lets through."""
    second = _chained(node)
    if second is not None:
        return _holds_back(grid_behind(node), grid_of(second))
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
    if quantizer is not None and clip is clip_of_levels(quantizer):
        _keep_name(quantizer, clip)
    else:
        _bypass(clip)


def _keep_name(quantizer: ir.Node, clip: ir.Node) -> None:
    """The clip lets every level through, so that levels keep the name that others know them by."""
    grid = grid_of(quantizer)
    assert grid is not None
    dtype = grid.qtype.storage_dtype
    for index, end in ((1, grid.qmin), (2, grid.qmax)):
        if index < len(clip.inputs) and clip.inputs[index] is not None:
            put_constant(clip, index, np.array(end, dtype))


def _no_upper(node: ir.Node, _: Random) -> None:
    clip, grid = _clip_behind(node), grid_behind(node)
    assert clip is not None
    assert grid is not None
    high = constant_value(input_at(clip, 2))
    assert high is not None
    top = grid.qmax if high.dtype.kind in "iu" else np.finfo(np.float32).max
    put_constant(clip, 2, np.array(top, high.dtype))


def _on_other_grid(node: ir.Node, _: Random) -> None:
    """The upper limit as a level of the operand's grid."""
    quantizer, before, grid = quantizer_behind(node), grid_in_front(node, 0), grid_behind(node)
    assert quantizer is not None
    assert before is not None
    assert grid is not None
    clip = clip_of_levels(quantizer)
    assert clip is not None
    high = constant_value(input_at(clip, 2))
    assert high is not None
    real = (int(high) - int(grid.zero_point)) * float(grid.scale)
    level = round(real / float(before.scale)) + int(before.zero_point)
    low = constant_value(input_at(clip, 1))
    least = grid.qmin if low is None else int(low)
    put_constant(clip, 2, np.array(np.clip(level, least, grid.qmax), high.dtype))


def _last_range(node: ir.Node, random: Random) -> None:
    """The chain's first grid goes: numbers stand on the last one at once, with its limits alone."""
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
        "A Relu or Clip is taken for absorbed by a grid that reaches beyond it.",
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
        "clip-on-operands-grid",
        "A limit is put on the operand's grid in place of the result's.",
        Story(
            "majianjia/nnom#167", "Quantized networks with a capped ReLU failed; its limit may not have been rescaled."
        ),
        GraphEdit(_on_other_grid),
        _has_level_clip,
        (Cause.ABSORBED_CLIP,),
        Stage.PASS,
    ),
    Fault(
        "requantize-merged-with-last-range",
        "Two requantizations in a row become one that has the last one's limits alone.",
        Story("pytorch/glow#5729", "Merging a chain of rescales forgot that each of them saturates."),
        GraphEdit(_last_range),
        _is_narrower,
        (Cause.ABSORBED_CLIP, Cause.ROUNDING),  # rounding: of values that the first grid does not limit
        Stage.PASS,
    ),
)
