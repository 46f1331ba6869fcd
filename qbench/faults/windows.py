"""Faults of padding, strides, dilations and averaging windows."""

import math

import numpy as np
import onnx_ir as ir

from qbench.faults.fault import (
    Fault,
    GraphEdit,
    Random,
    Story,
    has_weight,
    pads_of,
    pair_in_front,
    put_constant,
    put_ints,
    put_scales,
    qparams_behind,
    qparams_in_front,
    quantizer_behind,
    reads_codes,
    shape_of,
    window_of,
)
from qbench.graph import constant_value, int_attribute, ints_attribute, word_attribute
from qbench.judging import Cause

_CONV = "Conv"


def _point(node: ir.Node) -> int | None:
    qparams = qparams_in_front(node, 0)
    return (
        None if qparams is None or qparams.axis is not None else int(np.asarray(qparams.zero_point))
    )


def _is_padded(node: ir.Node) -> bool:
    return (
        any(pads_of(node))
        and reads_codes(node, 0)
        and word_attribute(node, "auto_pad", "NOTSET") == "NOTSET"
    )


def _is_padded_conv_off_zero(node: ir.Node) -> bool:
    return node.op_type == _CONV and has_weight(node) and _is_padded(node) and _point(node) != 0


def _is_padded_max_off_low(node: ir.Node) -> bool:
    qparams = qparams_in_front(node, 0)
    return (
        node.op_type == "MaxPool"
        and _is_padded(node)
        and qparams is not None
        and _point(node) != qparams.qmin
    )


def _is_padded_average(node: ir.Node) -> bool:
    return (
        node.op_type == "AveragePool"
        and _is_padded(node)
        and not int_attribute(node, "count_include_pad", 0)
    )


def _is_lopsided(node: ir.Node) -> bool:
    pads = pads_of(node)
    half = len(pads) // 2
    return (
        node.op_type == _CONV
        and has_weight(node)
        and _is_padded(node)
        and pads[:half] != pads[half:]
    )


def _steps(node: ir.Node) -> tuple[int, ...]:
    return ints_attribute(node, "strides", (1,) * len(window_of(node)))


def _can_shift(node: ir.Node) -> bool:
    """Whether ``node`` has strides over 1, and padding at an edge that a fault can shift."""
    pads = pads_of(node)
    return (
        node.op_type == _CONV
        and has_weight(node)
        and max(_steps(node), default=1) > 1
        and any(pads[: len(pads) // 2])
    )


def _is_dilated(node: ir.Node) -> bool:
    gaps = ints_attribute(node, "dilations")
    if node.op_type != _CONV or not has_weight(node) or max(gaps, default=1) == 1:
        return False
    return min(_tighter_pads(node)) >= 0


def _tighter_pads(node: ir.Node) -> list[int]:
    """Pads that give the same size of result without dilations."""
    window, gaps, pads = window_of(node), ints_attribute(node, "dilations"), pads_of(node)
    less = [(size - 1) * (gap - 1) for size, gap in zip(window, gaps, strict=True)]
    half = len(window)
    before = [pad - (one + 1) // 2 for pad, one in zip(pads[:half], less, strict=True)]
    return before + [pad - one // 2 for pad, one in zip(pads[half:], less, strict=True)]


def _area(node: ir.Node) -> tuple[int, int] | None:
    sizes = shape_of(node.inputs[0])[2:]
    if len(sizes) != 2 or sizes[0] is None or sizes[1] is None:
        return None
    return sizes[0], sizes[1]


def _is_global_mean(node: ir.Node) -> bool:
    return (
        node.op_type == "GlobalAveragePool"
        and _area(node) is not None
        and qparams_behind(node) is not None
    )


def _is_nearest(node: ir.Node) -> bool:
    return (
        node.op_type == "Resize"
        and word_attribute(node, "mode", "nearest") == "nearest"
        and reads_codes(node, 0)
    )


def _pad_with_code(node: ir.Node, code: int) -> None:
    """Let a Pad of quantized values before the pair pad with ``code``; the operator itself no
    longer pads.
    """
    pair, pads = pair_in_front(node, 0), pads_of(node)
    assert pair is not None
    codes, half, graph = pair.inputs[0], len(pads) // 2, node.graph
    assert codes is not None
    assert isinstance(graph, ir.Graph)
    assert codes.dtype is not None
    padded = ir.node(
        "Pad",
        [codes, None, None],
        name=f"{node.name}.padded",
        outputs=[ir.val(f"{node.name}.padded")],
    )
    sizes = shape_of(codes)
    grown = [
        None,
        None,
        *(_grown(s, a, b) for s, a, b in zip(sizes[2:], pads[:half], pads[half:], strict=True)),
    ]
    padded.outputs[0].dtype = codes.dtype
    padded.outputs[0].shape = ir.Shape(
        [one if one is not None else f"d{i}" for i, one in enumerate(grown)]
    )
    graph.insert_before(pair, padded)
    put_constant(padded, 1, np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64))
    put_constant(padded, 2, np.array(code, codes.dtype.numpy()))
    pair.replace_input_with(0, padded.outputs[0])
    pair.outputs[0].shape = padded.outputs[0].shape
    put_ints(node, "pads", [0] * len(pads))


def _grown(size: int | None, before: int, behind: int) -> int | None:
    return None if size is None else size + before + behind


def _zero_beyond(node: ir.Node, _: Random) -> None:
    _pad_with_code(node, 0)


def _real_zero_beyond(node: ir.Node, _: Random) -> None:
    point = _point(node)
    assert point is not None
    _pad_with_code(node, point)


def _counts_all(node: ir.Node, _: Random) -> None:
    node.attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)


def _other_side(node: ir.Node, _: Random) -> None:
    pads = pads_of(node)
    half = len(pads) // 2
    put_ints(node, "pads", [*pads[half:], *pads[:half]])


def _later_start(node: ir.Node, _: Random) -> None:
    """A row and a column less before, one more behind: windows start a pixel later."""
    pads = list(pads_of(node))
    half = len(pads) // 2
    for axis in range(half):
        if pads[axis] and _steps(node)[axis] > 1:
            pads[axis], pads[half + axis] = pads[axis] - 1, pads[half + axis] + 1
    put_ints(node, "pads", pads)


def _no_gaps(node: ir.Node, _: Random) -> None:
    put_ints(node, "pads", _tighter_pads(node))
    put_ints(node, "dilations", [1] * len(window_of(node)))


def _over_padded(node: ir.Node, _: Random) -> None:
    """The sum is divided by the area with a row and a column more: results are that much
    smaller.
    """
    area, quantizer = _area(node), quantizer_behind(node)
    assert area is not None
    assert quantizer is not None
    scale = constant_value(quantizer.inputs[1])
    assert scale is not None
    put_scales(
        quantizer, scale * np.float32(math.prod(size + 1 for size in area) / math.prod(area))
    )


def _other_neighbour(node: ir.Node, _: Random) -> None:
    """Another rule of the nearest: upwards in place of downwards, or the reverse."""
    for name in ("coordinate_transformation_mode", "nearest_mode"):
        node.attributes.pop(name, None)
    node.attributes["coordinate_transformation_mode"] = ir.AttrString(
        "coordinate_transformation_mode", "half_pixel"
    )
    node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", "ceil")


FAULTS = (
    Fault(
        "padding-with-level-zero",  # stored name
        "The padding is code 0 where the zero point is another.",
        Story(
            "apache/tvm#4807",
            "A quantized convolution was padded with 0 and not with the zero point.",
        ),
        GraphEdit(_zero_beyond),
        _is_padded_conv_off_zero,
        (Cause.PADDING,),
    ),
    Fault(
        "max-pool-padded-with-zero",
        "A maximum takes the zeros beyond the edge for numbers.",
        Story(
            "zylo117/Yet-Another-EfficientDet-Pytorch#352",
            "Max pools were padded with zeros in place of −∞.",
        ),
        GraphEdit(_real_zero_beyond),
        _is_padded_max_off_low,
        (Cause.PADDING,),
    ),
    Fault(
        "average-over-full-window",
        "At the edge an average is divided by the whole window.",
        Story(
            "VeriSilicon/TIM-VX#423",
            "The engine's average counted the padding, which ONNX leaves out by default.",
        ),
        GraphEdit(_counts_all),
        _is_padded_average,
        (Cause.PADDING,),
    ),
    Fault(
        "padding-on-other-side",
        "Unequal paddings change sides.",
        Story(
            "mil-tokyo/webdnn#796",
            "One framework pads at the bottom right first, the converter did at the top left.",
        ),
        GraphEdit(_other_side),
        _is_lopsided,
        (Cause.PADDING, Cause.LAYOUT),
    ),
    Fault(
        "stride-starts-a-pixel-later",
        "Windows that step over pixels start one pixel too far.",
        Story(
            "microsoft/MMdnn#660",
            "Strided convolutions with padding were converted with an offset of a pixel.",
        ),
        GraphEdit(_later_start),
        _can_shift,
        (Cause.PADDING, Cause.LAYOUT),
    ),
    Fault(
        "dilation-ignored",
        "Taps of a dilated convolution stand side by side.",
        Story(
            "tensorflow/tflite-micro#2319",
            "Dilated convolutions gave wrong results, in int8 and in fp32.",
        ),
        GraphEdit(_no_gaps),
        _is_dilated,
        (Cause.LAYOUT, Cause.WRONG_KERNEL),
    ),
    Fault(
        "global-mean-over-padded-area",
        "A global mean is divided by the area with its padding.",
        Story(
            "apache/mxnet#9714",
            "Global pooling kept a padding, and divided by an area that was not the image's.",
        ),
        GraphEdit(_over_padded),
        _is_global_mean,
        (Cause.PADDING, Cause.WRONG_SCALE),
    ),
    Fault(
        "resize-takes-other-neighbour",
        "A nearest resize rounds coordinates by another rule.",
        Story("iree-org/iree#24581", "Nearest resizes read pixels at other places than ONNX says."),
        GraphEdit(_other_neighbour),
        _is_nearest,
        (Cause.LAYOUT,),
    ),
)
