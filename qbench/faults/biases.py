"""Faults of biases."""

import numpy as np
import onnx_ir as ir

from qbench.faults.fault import (
    Array,
    Fault,
    GraphEdit,
    Random,
    Stage,
    Story,
    has_bias,
    put_codes,
    qparams_behind,
    qparams_in_front,
    stored,
)
from qbench.judging import Cause

_INT16, _INT32 = np.iinfo(np.int16), np.iinfo(np.int32)


def _bias(node: ir.Node) -> Array:
    codes = stored(node, 2)
    assert codes is not None
    return codes


def _put(node: ir.Node, codes: Array) -> None:
    put_codes(node, 2, np.clip(np.rint(codes), _INT32.min, _INT32.max).astype(np.int32))


def _differs(node: ir.Node) -> bool:
    return has_bias(node) and np.unique(_bias(node)).size > 1


def _exceeds_int16(node: ir.Node) -> bool:
    return has_bias(node) and bool(np.any((_bias(node) > _INT16.max) | (_bias(node) < _INT16.min)))


def _is_rescaled(node: ir.Node) -> bool:
    """Whether the scale of the result is static and not that of the operand."""
    before, behind = qparams_in_front(node, 0), qparams_behind(node)
    return (
        has_bias(node)
        and before is not None
        and behind is not None
        and before.scale != behind.scale
    )


def _dropped(node: ir.Node, _: Random) -> None:
    _put(node, np.zeros_like(_bias(node)))


def _doubled(node: ir.Node, _: Random) -> None:
    _put(node, _bias(node).astype(np.float64) * 2)


def _shared(node: ir.Node, _: Random) -> None:
    _put(node, np.full_like(_bias(node), _bias(node)[0]))


def _at_output_scale(node: ir.Node, _: Random) -> None:
    before, behind = qparams_in_front(node, 0), qparams_behind(node)
    assert before is not None
    assert behind is not None
    _put(node, _bias(node).astype(np.float64) * float(before.scale) / float(behind.scale))


def _at_another_scale(node: ir.Node, random: Random) -> None:
    """As if it had been quantized for another consumer, whose operand is coarser by some factor."""
    _put(node, _bias(node).astype(np.float64) / random.uniform(2.0, 12.0))


def _saturated(node: ir.Node, _: Random) -> None:
    _put(node, np.clip(_bias(node), _INT16.min, _INT16.max))


def _eight_bits(node: ir.Node, _: Random) -> None:
    """With 8 bits and a scale of its own, a power of two."""
    step = np.exp2(
        np.ceil(np.log2(max(float(np.abs(_bias(node).astype(np.float64)).max()) / 127, 1.0)))
    )
    _put(node, np.rint(_bias(node) / step) * step)


def _needs_more_bits(node: ir.Node) -> bool:
    return has_bias(node) and int(np.abs(_bias(node).astype(np.int64)).max()) > 127


FAULTS = (
    Fault(
        "bias-dropped",
        "The bias is not added.",
        Story(
            "neuralmagic/sparseml#463",
            "Conversion to a quantized graph lost the biases of some layers.",
        ),
        GraphEdit(_dropped),
        has_bias,
        (Cause.WRONG_BIAS,),
    ),
    Fault(
        "bias-doubled",
        "The bias is added twice.",
        Story(
            "pytorch/pytorch#48514",
            "A fused convolution added its bias inside and once more behind.",
        ),
        GraphEdit(_doubled),
        has_bias,
        (Cause.WRONG_BIAS,),
        Stage.PASS,
    ),
    Fault(
        "bias-of-first-channel",
        "The first channel's bias is added to all channels.",
        Story(
            "Tencent/ncnn#6658", "With another packing every lane got the first entry of the bias."
        ),
        GraphEdit(_shared),
        _differs,
        (Cause.WRONG_BIAS,),
    ),
    Fault(
        "bias-at-output-scale",
        "The bias is quantized with the scale of the result in place of the operand's.",
        Story("pytorch/pytorch#23874", "Biases were quantized by output scale times weight scale."),
        GraphEdit(_at_output_scale),
        _is_rescaled,
        (Cause.WRONG_BIAS,),
        Stage.PASS,
    ),
    Fault(
        "bias-shared-between-layers",
        "A bias that several layers share has the codes of only one of them.",
        Story(
            "onnxruntime/onnxruntime-qnn#739",
            "Four convolutions shared one bias, whose scale was right for the first alone.",
        ),
        GraphEdit(_at_another_scale),
        has_bias,
        (Cause.WRONG_BIAS,),
        Stage.PASS,
    ),
    Fault(
        "bias-saturated",
        "A bias of 32 bits is clamped to 16.",
        Story(
            "pytorch/glow#5033",
            "Tiny weights of depthwise layers made scales so small that biases saturated.",
        ),
        GraphEdit(_saturated),
        _exceeds_int16,
        (Cause.BIAS_SATURATION, Cause.WRONG_BIAS),
        Stage.PASS,
    ),
    Fault(
        "bias-in-eight-bits",
        "A bias keeps 8 significant bits.",
        Story(
            "apache/tvm#2116",
            "Constants of sums were quantized as weights are, biases among them: to 8 bits.",
        ),
        GraphEdit(_eight_bits),
        _needs_more_bits,
        (Cause.WRONG_BIAS,),
        Stage.PASS,
    ),
)
