"""Faults of rounding, scaling and summing."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from qbench.faults.fault import (
    ArithmeticFault,
    Fault,
    Story,
    has_weight,
    is_binary,
    is_requantized,
    of_type,
    qparams_in_front,
    reads_codes,
    weight_codes,
)
from qbench.judging import Cause
from qbench.numerics import (
    Accumulator,
    Adding,
    AddScheme,
    Arithmetic,
    Averaging,
    MultiplierForm,
    Overflow,
    PairsIn,
    Rounding,
    Scaling,
    ZeroPoint,
)
from qbench.numerics import Stage as Shift

_NARROW, _WIDE = 16, 31
_FEW_BITS = 7


def _is_product(node: ir.Node) -> bool:
    return has_weight(node) and is_requantized(node) and reads_codes(node, 0)


def _can_saturate_pairs(node: ir.Node) -> bool:
    """Whether two products of the highest code may exceed 16 bits: unsigned codes, a dense sum,
    large weights.
    """
    qparams = qparams_in_front(node, 0)
    if not _is_product(node) or qparams is None or qparams.qmin < 0:
        return False
    codes = np.abs(weight_codes(node).astype(np.int64))
    dense = codes.ndim < 3 or codes.shape[1] > 1
    return dense and int(codes.max()) * 2 * qparams.qmax > np.iinfo(np.int16).max


def _can_leave_16_bits(node: ir.Node) -> bool:
    """Whether the largest sum that weights allow leaves 16 bits."""
    if not _is_product(node):
        return False
    return int(np.abs(weight_codes(node).astype(np.int64)).sum()) * 128 > np.iinfo(np.int16).max


def _is_mean(node: ir.Node) -> bool:
    return node.op_type in {"GlobalAveragePool", "AveragePool", "ReduceMean"} and reads_codes(
        node, 0
    )


def _rounding(rounding: Rounding) -> Callable[[Arithmetic], Arithmetic]:
    def counted(arithmetic: Arithmetic) -> Arithmetic:
        *first, last = arithmetic.scaling.stages
        return replace(
            arithmetic,
            scaling=replace(arithmetic.scaling, stages=(*first, replace(last, rounding=rounding))),
        )

    return counted


def _twice(arithmetic: Arithmetic) -> Arithmetic:
    stages = (Shift(Rounding.HALF_UP, _WIDE), Shift(Rounding.HALF_AWAY))
    return replace(
        arithmetic, scaling=Scaling(form=MultiplierForm.FIXED, bits=_WIDE, stages=stages)
    )


def _point_first(arithmetic: Arithmetic) -> Arithmetic:
    real = arithmetic.scaling.form in {
        MultiplierForm.FLOAT32,
        MultiplierForm.FLOAT64,
        MultiplierForm.CHAIN,
    }
    scaling = arithmetic.scaling if real else Scaling(form=MultiplierForm.EXACT)
    return replace(arithmetic, scaling=replace(scaling, zero_point=ZeroPoint.BEFORE))


def _pairs(arithmetic: Arithmetic) -> Arithmetic:
    return replace(arithmetic, accumulator=Accumulator(pair_bits=_NARROW, pairs_in=PairsIn.ALL))


def _sums(overflow: Overflow) -> Callable[[Arithmetic], Arithmetic]:
    return lambda arithmetic: replace(
        arithmetic, accumulator=Accumulator(bits=_NARROW, overflow=overflow)
    )


def _truncated_mean(arithmetic: Arithmetic) -> Arithmetic:
    truncated = _rounding(Rounding.FLOOR)(arithmetic)
    return replace(truncated, averaging=Averaging.SCALED, mean=Averaging.SCALED)


FAULTS = (
    Fault(
        "half-up-for-half-even",
        "Ties are rounded upwards in place of to even.",
        Story(
            "microsoft/onnxruntime#11540",
            "An option for ARM64 rounds half up where other kernels round to even.",
        ),
        ArithmeticFault(_rounding(Rounding.HALF_UP)),
        _is_product,
        (Cause.ROUNDING,),
    ),
    Fault(
        "half-away-for-half-even",
        "Ties are rounded away from zero in place of to even.",
        Story(
            "microsoft/onnxruntime#25045",
            "One execution provider rounds halves away from zero, the others to even.",
        ),
        ArithmeticFault(_rounding(Rounding.HALF_AWAY)),
        _is_product,
        (Cause.ROUNDING,),
    ),
    Fault(
        "truncated",
        "Results are cut off in place of rounded.",
        Story(
            "sgl-project/sglang-jax#1598",
            "A cast to int8 without rounding left half of the codes one too low.",
        ),
        ArithmeticFault(_rounding(Rounding.FLOOR)),
        _is_product,
        (Cause.ROUNDING,),
    ),
    Fault(
        "rounded-twice",
        "A product is rounded at 31 bits and once more to the code.",
        Story(
            "tensorflow/tensorflow#25087",
            "Two roundings in a row gave 12 where the real number rounds to 11.",
        ),
        ArithmeticFault(_twice),
        _is_product,
        (Cause.ROUNDING,),
    ),
    Fault(
        "multiplier-of-seven-bits",
        "A multiplier keeps 7 significant bits.",
        Story(
            "xmos/ai_tools#226",
            "A scale with a mantissa of 8 bits made errors that one of 16 bits did not.",
        ),
        ArithmeticFault(
            lambda arithmetic: replace(
                arithmetic, scaling=Scaling(form=MultiplierForm.FIXED, bits=_FEW_BITS)
            )
        ),
        _is_product,
        (Cause.WRONG_SCALE,),
    ),
    Fault(
        "multiplier-as-shift",
        "A multiplier is rounded to a power of two.",
        Story(
            "apache/tvm#6675",
            "Multipliers that are powers of two got a path of their own, recognised by one magic "
            "number.",
        ),
        ArithmeticFault(
            lambda arithmetic: replace(
                arithmetic, scaling=Scaling(form=MultiplierForm.FIXED, bits=1)
            )
        ),
        _is_product,
        (Cause.WRONG_SCALE,),
    ),
    Fault(
        "zero-point-before-rounding",
        "The zero point is added before the result is rounded.",
        Story(
            "apache/tvm#3531",
            "Where a requantization adds its zero point was settled only in review.",
        ),
        ArithmeticFault(_point_first),
        _is_product,
        (Cause.ROUNDING,),
    ),
    Fault(
        "pairs-saturate",
        "Two neighbouring products are summed in 16 bits, which saturate.",
        Story(
            "microsoft/onnxruntime#9365",
            "Per-channel convolutions were wrong for bright inputs on older processors.",
        ),
        ArithmeticFault(_pairs),
        _can_saturate_pairs,
        (Cause.PAIR_SATURATION,),
    ),
    Fault(
        "accumulator-wraps",
        "Sums wrap around in 16 bits.",
        Story(
            "Tencent/ncnn#717",
            "A convolution accumulated products of int8 in 16 bits, which overflow.",
        ),
        ArithmeticFault(_sums(Overflow.WRAP)),
        _can_leave_16_bits,
        (Cause.ACCUMULATOR,),
    ),
    Fault(
        "accumulator-saturates",
        "Sums saturate in 16 bits.",
        Story(
            "pytorch/pytorch#76390",
            "Products of large inputs and weights saturated, and results were far off.",
        ),
        ArithmeticFault(_sums(Overflow.SATURATE)),
        _can_leave_16_bits,
        (Cause.ACCUMULATOR,),
    ),
    Fault(
        "add-rounds-each-operand",
        "A sum requantizes each operand to the result's qparams by itself, with a rounding of its "
        "own.",
        Story(
            "pytorch/pytorch#37343",
            "One backend's quantized add is a step off where another's is right.",
        ),
        ArithmeticFault(
            lambda arithmetic: replace(arithmetic, adding=Adding(scheme=AddScheme.EACH))
        ),
        of_type("Add", also=is_binary),
        (Cause.ROUNDING,),
    ),
    Fault(
        "mean-truncated",
        "A mean is cut off in place of rounded.",
        Story(
            "apache/tvm#20298",
            "Integer average pools truncated where the source framework rounds half away.",
        ),
        ArithmeticFault(_truncated_mean),
        _is_mean,
        (Cause.ROUNDING,),
    ),
)
