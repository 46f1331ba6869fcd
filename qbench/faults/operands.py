"""Faults of operands: swapped order, other sign, other zero point."""

import numpy as np
import onnx_ir as ir

from qbench.faults.fault import (
    MOVERS,
    Fault,
    GraphEdit,
    Random,
    Story,
    has_weight,
    is_requantized,
    of_type,
    pair_in_front,
    put_constant,
    put_point,
    qparams_behind,
    qparams_in_front,
    quantizer_behind,
    reads_codes,
)
from qbench.graph import constant_value, float_attribute
from qbench.judging import Cause


def _differ(node: ir.Node, one: int, other: int) -> bool:
    if not (reads_codes(node, one) and reads_codes(node, other)):
        return False
    first, second = qparams_in_front(node, one), qparams_in_front(node, other)
    return (
        first is not None
        and second is not None
        and (first.scale, first.zero_point)
        != (
            second.scale,
            second.zero_point,
        )
    )


def _is_uneven_add(node: ir.Node) -> bool:
    return node.op_type == "Add" and len(node.inputs) == 2 and _differ(node, 0, 1)


def _is_uneven_concat(node: ir.Node) -> bool:
    return node.op_type == "Concat" and any(
        _differ(node, 0, index) for index in range(1, len(node.inputs))
    )


def _is_sub(node: ir.Node) -> bool:
    return node.op_type == "Sub" and all(pair_in_front(node, index) is not None for index in (0, 1))


def _has_point(node: ir.Node) -> bool:
    qparams = qparams_in_front(node, 0) if has_weight(node) and reads_codes(node, 0) else None
    return qparams is not None and int(np.asarray(qparams.zero_point)) != 0


def _can_move_point(node: ir.Node) -> bool:
    qparams = qparams_behind(node) if is_requantized(node) and node.op_type not in MOVERS else None
    return (
        qparams is not None
        and reads_codes(node, 0)
        and int(np.asarray(qparams.zero_point)) < qparams.qmax
    )


def _copy_qparams(node: ir.Node, source: int, to: int) -> None:
    pair, other = pair_in_front(node, source), pair_in_front(node, to)
    assert pair is not None
    assert other is not None
    for index in (1, 2):
        array = constant_value(pair.inputs[index])
        assert array is not None
        put_constant(other, index, array)


def _first_for_second(node: ir.Node, _: Random) -> None:
    """Codes of the second operand are read with the first one's qparams."""
    _copy_qparams(node, 0, 1)


def _first_for_all(node: ir.Node, _: Random) -> None:
    for index in range(1, len(node.inputs)):
        if reads_codes(node, index):
            _copy_qparams(node, 0, index)


def _swapped(node: ir.Node, _: Random) -> None:
    one, other = node.inputs[:2]
    node.replace_input_with(0, other)
    node.replace_input_with(1, one)


def _no_point(node: ir.Node, _: Random) -> None:
    pair = pair_in_front(node, 0)
    assert pair is not None
    put_point(pair, 0)


def _next_point(node: ir.Node, _: Random) -> None:
    quantizer, qparams = quantizer_behind(node), qparams_behind(node)
    assert quantizer is not None
    assert qparams is not None
    put_point(quantizer, int(np.asarray(qparams.zero_point)) + 1)


def _other_slope(node: ir.Node, _: Random) -> None:
    node.attributes["alpha"] = ir.AttrFloat32("alpha", -float_attribute(node, "alpha", 0.01))


FAULTS = (
    Fault(
        "residual-operand-unscaled",
        "A sum reads its second operand with the first one's qparams.",
        Story(
            "apache/mxnet#21041",
            "Of two operands of different types only one was brought to the common scale.",
        ),
        GraphEdit(_first_for_second),
        _is_uneven_add,
        (Cause.WRONG_SCALE,),
    ),
    Fault(
        "concat-without-rescale",
        "A concatenation copies codes as they are, with the first operand's qparams.",
        Story(
            "pytorch/pytorch#46604",
            "Concatenating quantized tensors kept the first one's scale and zero point.",
        ),
        GraphEdit(_first_for_all),
        _is_uneven_concat,
        (Cause.WRONG_SCALE,),
    ),
    Fault(
        "sub-operands-swapped",
        "A difference is taken the other way round.",
        Story(
            "Samsung/ONE#7084",
            "A pass that makes sums of differences is right for one order of operands alone.",
        ),
        GraphEdit(_swapped),
        _is_sub,
        (Cause.LAYOUT, Cause.WRONG_KERNEL),
    ),
    Fault(
        "input-zero-point-ignored",
        "Products are summed without taking the input's zero point off.",
        Story(
            "ROCm/AMDMIGraphX#2888",
            "An integer convolution left the zero points of its operands out.",
        ),
        GraphEdit(_no_point),
        _has_point,
        (Cause.ROUNDING, Cause.PADDING),
    ),
    Fault(
        "output-zero-point-off-by-one",
        "Every code of a result is one too high.",
        Story(
            "tenstorrent/tt-metal#26414",
            "Quantizing to 8 bits was off by exactly one on half of the elements.",
        ),
        GraphEdit(_next_point),
        _can_move_point,
        (Cause.ROUNDING,),
    ),
    Fault(
        "leaky-relu-slope-of-other-sign",
        "Negative numbers are multiplied by the slope with the other sign.",
        Story(
            "tensorflow/tensorflow#37279",
            "The quantized leaky ReLU was wrong below zero unless both sides had the same qparams.",
        ),
        GraphEdit(_other_slope),
        of_type("LeakyRelu", also=is_requantized),
        (Cause.WRONG_KERNEL, Cause.TABLE),
    ),
)
