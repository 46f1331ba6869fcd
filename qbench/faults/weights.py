"""Faults of a weight's bytes: another order of channels or taps, another sign."""

import numpy as np
import onnx_ir as ir

from qbench.faults.fault import (
    Fault,
    GraphEdit,
    Random,
    Stage,
    Story,
    channel_axis,
    group_of,
    has_channels,
    has_weight,
    pair_in_front,
    put_codes,
    put_constant,
    put_scales,
    qparams_in_front,
    stored,
    weight_codes,
    window_of,
)
from qbench.graph import constant_value
from qbench.judging import Cause
from qbench.numerics import dequantize


def _is_square(node: ir.Node) -> bool:
    """Whether its window, or its matrix, is as high as wide and no transpose of itself."""
    codes = weight_codes(node) if has_weight(node) else None
    if (
        codes is None
        or codes.ndim < 2
        or codes.shape[-1] != codes.shape[-2]
        or codes.shape[-1] == 1
    ):
        return False
    return not bool(np.array_equal(codes, np.swapaxes(codes, -1, -2)))


def _is_last(node: ir.Node) -> bool:
    return has_channels(node) and node.outputs[0].is_graph_output()


def _is_grouped(node: ir.Node) -> bool:
    return node.op_type == "Conv" and has_weight(node) and group_of(node) > 1


def _has_multiples(node: ir.Node) -> bool:
    return (
        _is_grouped(node)
        and weight_codes(node).shape[0] >= 2 * group_of(node)
        and _is_depthwise(node)
    )


def _is_depthwise(node: ir.Node) -> bool:
    return bool(weight_codes(node).shape[1] == 1)


def _is_signed(node: ir.Node) -> bool:
    return (
        has_weight(node)
        and weight_codes(node).dtype == np.int8
        and bool(np.any(weight_codes(node) < 0))
    )


def _has_window(node: ir.Node) -> bool:
    return node.op_type == "Conv" and has_weight(node) and max(window_of(node), default=1) > 1


def _transposed(node: ir.Node, _: Random) -> None:
    put_codes(node, 1, np.swapaxes(weight_codes(node), -1, -2))


def _rolled(node: ir.Node, _: Random) -> None:
    put_codes(node, 1, np.roll(weight_codes(node), 1, axis=channel_axis(node)))


def _flipped(node: ir.Node, _: Random) -> None:
    codes = weight_codes(node)
    put_codes(node, 1, np.flip(codes, axis=tuple(range(2, codes.ndim))))


def _in_float(node: ir.Node, _: Random) -> None:
    """The weight is a constant of floats with the same values, so that no engine multiplies
    integers.
    """
    pair, qparams = pair_in_front(node, 1), qparams_in_front(node, 1)
    assert pair is not None
    assert qparams is not None
    put_constant(node, 1, np.asarray(dequantize(weight_codes(node), qparams), np.float32))


def _next_group(node: ir.Node, _: Random) -> None:
    codes = weight_codes(node)
    put_codes(node, 1, np.roll(codes, codes.shape[0] // group_of(node), axis=0))


def _multiplier_order(node: ir.Node, _: Random) -> None:
    """Filters stand channel by channel; they are read multiple by multiple."""
    codes, groups = weight_codes(node), group_of(node)
    split = codes.reshape(groups, codes.shape[0] // groups, *codes.shape[1:])
    put_codes(node, 1, np.swapaxes(split, 0, 1).reshape(codes.shape))


def _unsigned(node: ir.Node, _: Random) -> None:
    """A negative code is read 256 higher: the same bits of an unsigned type."""
    codes, pair = weight_codes(node), pair_in_front(node, 1)
    assert pair is not None
    point = constant_value(pair.inputs[2])
    assert point is not None
    put_constant(pair, 2, point.astype(np.uint8))
    put_codes(node, 1, codes.view(np.uint8))


def _swapped_classes(node: ir.Node, random: Random) -> None:
    """Two outputs change places, with all that belongs to them."""
    order = np.arange(weight_codes(node).shape[channel_axis(node)])
    one, other = random.permutation(len(order))[:2]
    order[[one, other]] = order[[other, one]]
    for index, axis in ((1, channel_axis(node)), (2, 0)):
        codes, pair = stored(node, index), pair_in_front(node, index)
        if codes is None or pair is None:
            continue
        put_codes(node, index, np.take(codes, order, axis=axis))
        scales = constant_value(pair.inputs[1])
        if scales is not None and scales.size == len(order):
            put_scales(pair, scales[order])


FAULTS = (
    Fault(
        "weight-transposed",
        "Height and width of a window, or rows and columns of a square matrix, are swapped.",
        Story("kneron/ONNX_Convertor#21", "A converter wrote the window as width by height."),
        GraphEdit(_transposed),
        _is_square,
        (Cause.LAYOUT,),
        Stage.PASS,
    ),
    Fault(
        "weight-window-flipped",
        "The window is turned around: a convolution of mathematics in place of a correlation.",
        Story(
            "apache/tvm#9336",
            "Two conventions of the kernel of a transposed convolution were mixed up.",
        ),
        GraphEdit(_flipped),
        _has_window,
        (Cause.LAYOUT,),
        Stage.PASS,
    ),
    Fault(
        "output-channels-shifted",
        "Every output channel is computed by its neighbour's filter, with its own scale and bias.",
        Story(
            "pytorch/executorch#17423",
            "Filters of a depthwise convolution were passed on in another layout.",
        ),
        GraphEdit(_rolled),
        has_channels,
        (Cause.LAYOUT,),
    ),
    Fault(
        "group-index-off-by-one",
        "Every group is computed by the next group's filters.",
        Story(
            "pytorch/pytorch#19912",
            "A grouped convolution with few channels gave another group's results.",
        ),
        GraphEdit(_next_group),
        _is_grouped,
        (Cause.LAYOUT,),
    ),
    Fault(
        "depthwise-multiplier-order",
        "Filters of a depthwise convolution with a multiplier are read multiple by multiple.",
        Story(
            "onnx/onnx-tensorflow#306",
            "A depthwise convolution with a multiplier was exported in the wrong order.",
        ),
        GraphEdit(_multiplier_order),
        _has_multiples,
        (Cause.LAYOUT,),
        Stage.PASS,
    ),
    Fault(
        "signed-read-as-unsigned",
        "The bytes of a signed weight are read as unsigned ones.",
        Story(
            "llvm/torch-mlir#3122",
            "Integers of 8 bits were extended with the wrong sign while they were lowered.",
        ),
        GraphEdit(_unsigned),
        _is_signed,
        (Cause.LAYOUT, Cause.WRONG_KERNEL),
    ),
    Fault(
        "two-classes-swapped",
        "Two outputs of the last layer have changed places.",
        Story(
            "szagoruyko/loadcaffe#34",
            "Accuracy was near zero because classes were counted in another order.",
        ),
        GraphEdit(_swapped_classes),
        _is_last,
        (Cause.LAYOUT,),
        Stage.PASS,
    ),
    Fault(
        "layer-silently-in-float",
        "A layer's weight is turned back into floats, so that the engine multiplies in float.",
        Story(
            "onnx/tensorflow-onnx#1719",
            "Constant folding replaced quantized weights of convolutions by floats.",
        ),
        GraphEdit(_in_float),
        has_weight,
        (Cause.IN_FLOAT,),
    ),
)
