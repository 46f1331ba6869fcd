"""Softmax of levels, along the last axis: y_i = exp(s (q_i − max q)) / Σ_j exp(s (q_j − max q)) on another grid.

The schemes are named in ``schemes.Softmax``; their formulas stand at the functions below. TABLE is of one type of 8
bits; FIXED of 8 bits and of a grid with 256 levels from 0 to 1. Other grids are computed as REAL, which those engines
would refuse or dequantize.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics.affine import dequantize, quantize
from qbench.numerics.arithmetic import Arithmetic
from qbench.numerics.fixed_point import exp_of_negatives, high_product, reciprocal
from qbench.numerics.multiplier import fixed_multiplier
from qbench.numerics.qparams import QParams
from qbench.numerics.rounding import Ints, Rounding, shift_right
from qbench.numerics.scaling import MultiplierForm, Scaling
from qbench.numerics.schemes import Softmax

Levels = npt.NDArray[Any]
SoftmaxOfLevels = Callable[[Levels], tuple[Levels, int]]
"""(…, n) levels → (…, n) levels, and how many sums overflowed."""

_DIFFERENCE_BITS, _SUM_BITS = 5, 12
_FINEST = 2.0 ** (_DIFFERENCE_BITS - 31)
"""A scale of one step of the fixed-point differences: TFLite takes none as fine."""
_RESERVE = 5.0
_LOWEST = -(1 << 31)
_Q31 = Scaling(form=MultiplierForm.FIXED, bits=31)


def softmax_of_levels(x: QParams, y: QParams, length: int, machine: Arithmetic) -> SoftmaxOfLevels:
    """Softmax of rows of ``length`` levels of ``x``, on grid ``y``, under ``machine``.

    Raises:
        ValueError: a grid per channel.
    """
    if x.axis is not None or y.axis is not None:
        raise ValueError("a softmax has grids per tensor")
    one_type = x.qtype == y.qtype and x.qtype.bits == 8
    if machine.softmax is Softmax.TABLE and one_type:
        return _by_table(x, y, length)
    of_fractions = y.scale == 1 / 256 and y.zero_point == y.qtype.qmin and x.scale > _FINEST
    if machine.softmax is Softmax.FIXED and one_type and of_fractions:
        return _by_fixed_point(x, y)
    return lambda q: (_real(q, x, y, machine), 0)


def _real(q: Levels, x: QParams, y: QParams, machine: Arithmetic) -> Levels:
    """Dequantized; exp(x − max) / Σ in float32; quantized by the machine's own rule."""
    real = dequantize(q, x)
    powers = np.exp(real - real.max(axis=-1, keepdims=True))
    return quantize(powers / powers.sum(axis=-1, keepdims=True), y, machine)


def _by_table(x: QParams, y: QParams, length: int) -> SoftmaxOfLevels:
    """t_d = f32(exp(s (d + b))), b = max(0, ln(f32 max / n) − 5) / s;  y = rne(t_d · ⌊1/s_y⌋ / Σ t) + z_y.

    d ≤ 0 is the difference to the row's largest level; sums in float32 run along the row. ⌊1/s_y⌋ makes 254 of the
    usual 1/255 in float32. Source: ONNX Runtime, qlinear_softmax.cc.

    A short row has t near the largest float32: for one level and ⌊1/s_y⌋ > 148 their product is infinite. Of that x64
    makes 0 as an unsigned integer and −2³¹ as a signed one, to which it adds the zero point in 32 bits, which wrap.
    """
    scale = float(x.scale)
    room = math.log(np.float32(np.finfo(np.float32).max) / np.float32(length))
    raised = max(0.0, room - _RESERVE) / scale
    table = np.exp((np.arange(-255, 1) + raised) * scale).astype(np.float32)
    infinite = float(_LOWEST) if y.qtype.signed else 0.0
    steps, zero = np.floor(np.float32(1) / np.float32(y.scale)), int(y.zero_point)

    def run(q: Levels) -> tuple[Levels, int]:
        levels = q.astype(np.int32)
        powers = table[levels - levels.max(axis=-1, keepdims=True) + 255]
        sums = np.add.accumulate(powers, axis=-1, dtype=np.float32)[..., -1:]
        with np.errstate(over="ignore"):
            shares = np.rint(powers * steps / sums)
        whole = np.where(np.isinf(shares), infinite, shares).astype(np.int64) + zero
        wrapped = np.where(whole < _LOWEST, whole + (1 << 32), whole)
        return np.clip(wrapped, y.qtype.qmin, y.qtype.qmax).astype(y.qtype.storage_dtype), 0

    return run


def _by_fixed_point(x: QParams, y: QParams) -> SoftmaxOfLevels:
    """E(d) = exp(d · s) in Q0.31, d · s in Q5.26;  r · 2⁻ᵉ = 1 / Σ E, sums in Q12.19;  y = (r ⊗ E) >> (e + 23) + z_y.

    Differences below −⌊31 · 2²⁶ / 2^shift⌋ count as nothing. A sum beyond 12 integer bits, which takes more than 4,095
    levels, saturates. Source: TFLite reference/softmax.h.
    """
    beta = min(float(x.scale) * 2.0 ** (31 - _DIFFERENCE_BITS), 2.0**31 - 1)
    fixed = fixed_multiplier(np.asarray(beta), _Q31)
    factor, left = int(fixed.factor), 31 - int(fixed.shift)
    lowest = -math.floor(((1 << _DIFFERENCE_BITS) - 1) * 2.0 ** (31 - _DIFFERENCE_BITS) / 2.0**left)
    differences = np.arange(-255, 1, dtype=np.int64)
    known = differences >= lowest
    scaled = high_product(np.where(known, differences, 0) << left, factor)
    powers = np.where(known, exp_of_negatives(scaled, _DIFFERENCE_BITS), 0)
    addends = np.where(known, shift_right(powers, _SUM_BITS, Rounding.HALF_AWAY), 0)
    low, high, dtype = y.qtype.qmin, y.qtype.qmax, y.qtype.storage_dtype
    highest = (1 << 31) - 1

    def run(q: Levels) -> tuple[Levels, int]:
        levels = q.astype(np.int64)
        places = levels - levels.max(axis=-1, keepdims=True) + 255
        sums: Ints = addends[places].sum(axis=-1, keepdims=True)
        inverse, over_unit = reciprocal(np.minimum(sums, highest), _SUM_BITS)
        shares = shift_right(high_product(powers[places], inverse), over_unit + 31 - 8, Rounding.HALF_AWAY) + low
        return np.clip(shares, low, high).astype(dtype), int(np.count_nonzero(sums > highest))

    return run
