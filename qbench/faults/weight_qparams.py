"""Faults of a weight's scales, zero points and order."""

import numpy as np
import onnx_ir as ir

from qbench.faults.fault import (
    Array,
    Fault,
    GraphEdit,
    Random,
    Stage,
    Story,
    channel_axis,
    has_weight,
    pair_in_front,
    put_constant,
    put_point,
    put_scales,
    qparams_in_front,
    weight_codes,
)
from qbench.graph import constant_value
from qbench.judging import Cause


def weight_pair(node: ir.Node) -> ir.Node:
    """The DequantizeLinear of a weight."""
    pair = pair_in_front(node, 1)
    assert pair is not None
    return pair


def weight_scales(node: ir.Node) -> Array:
    """Its scale or scales, float32."""
    scales = constant_value(weight_pair(node).inputs[1])
    assert scales is not None
    return scales


def has_channel_scales(node: ir.Node) -> bool:
    """Whether the weight has scales per channel that differ."""
    qparams = qparams_in_front(node, 1) if has_weight(node) else None
    return (
        qparams is not None
        and qparams.axis is not None
        and qparams.block_size is None
        and np.unique(qparams.scale).size > 1
    )


def _has_point(node: ir.Node) -> bool:
    qparams = qparams_in_front(node, 1) if has_weight(node) else None
    return qparams is not None and bool(np.any(np.asarray(qparams.zero_point) != 0))


def _has_inexact_scale(node: ir.Node) -> bool:
    return has_weight(node) and bool(np.any(np.frexp(weight_scales(node))[0] != 0.5))


def _neighbour_scales(node: ir.Node, _: Random) -> None:
    put_scales(weight_pair(node), np.roll(weight_scales(node), 1))


def _first_scale(node: ir.Node, _: Random) -> None:
    scales = weight_scales(node)
    put_scales(weight_pair(node), np.full_like(scales, scales[0]))


def _wrong_axis(node: ir.Node, _: Random) -> None:
    """The scales run along the other of the first two axes, repeated or cut to its length."""
    pair, axis = weight_pair(node), 1 - channel_axis(node)
    length = weight_codes(node).shape[axis]
    point = constant_value(pair.inputs[2])
    assert point is not None
    put_scales(pair, np.resize(weight_scales(node), length))
    put_constant(pair, 2, np.resize(point, length))
    pair.attributes["axis"] = ir.AttrInt64("axis", axis)


def _power_scales(node: ir.Node, _: Random) -> None:
    put_scales(weight_pair(node), np.exp2(np.rint(np.log2(weight_scales(node)))))


def _half_scales(node: ir.Node, _: Random) -> None:
    smallest = np.finfo(np.float16).smallest_subnormal
    put_scales(weight_pair(node), np.maximum(weight_scales(node).astype(np.float16), smallest))


def _no_point(node: ir.Node, _: Random) -> None:
    put_point(weight_pair(node), 0)


FAULTS = (
    Fault(
        "weight-scale-of-neighbour",
        "Every channel of a weight is scaled by its neighbour's scale.",
        Story(
            "Tencent/ncnn#1234",
            "A grouped convolution was requantized by scales that belong to another channel.",
        ),
        GraphEdit(_neighbour_scales),
        has_channel_scales,
        (Cause.WRONG_SCALE,),
    ),
    Fault(
        "weight-scale-of-first-channel",
        "The first channel's scale is used for all.",
        Story(
            "openvinotoolkit/nncf#241",
            "Scales were taken from the first slice of the data, the rest ignored.",
        ),
        GraphEdit(_first_scale),
        has_channel_scales,
        (Cause.WRONG_SCALE,),
    ),
    Fault(
        "weight-scales-along-wrong-axis",
        "Scales of output channels are applied along the input channels.",
        Story(
            "microsoft/onnxruntime#19694",
            "The quantizer took axis 0 for every weight, which runs over the inputs of a "
            "transposed convolution.",
        ),
        GraphEdit(_wrong_axis),
        has_channel_scales,
        (Cause.WRONG_SCALE, Cause.LAYOUT),
        Stage.PASS,
    ),
    Fault(
        "weight-scale-as-power-of-two",
        "A weight's scales are rounded to powers of two, its codes stay.",
        Story(
            "apache/tvm#7432",
            "Scales that are powers of two became shifts, and the shift did not match the scale.",
        ),
        GraphEdit(_power_scales),
        _has_inexact_scale,
        (Cause.WRONG_SCALE,),
    ),
    Fault(
        "weight-scale-as-float16",
        "A weight's scales are stored in half precision.",
        Story(
            "NVIDIA/Model-Optimizer#1350",
            "Scales of Q and DQ nodes were cast to half precision, where they underflow.",
        ),
        GraphEdit(_half_scales),
        _has_inexact_scale,
        (Cause.WRONG_SCALE,),
    ),
    Fault(
        "weight-zero-point-ignored",
        "A weight's zero point is taken for 0.",
        Story(
            "openvinotoolkit/openvino#8429",
            "Zero points of weights were dropped where they were small.",
        ),
        GraphEdit(_no_point),
        _has_point,
        (Cause.ROUNDING, Cause.WRONG_SCALE),
    ),
)
