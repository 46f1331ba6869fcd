"""From the sum of n levels to their mean on another grid: y = clamp(round(Σ (x − z_x) · s_x / (s_y · n)) + z_y).

The schemes are named in ``schemes.Averaging``. Those that need nothing but the sum are here; REAL, whose result
depends on the order in which floats are summed, belongs to whoever has the order.
"""

from collections.abc import Callable

import numpy as np

from qbench.numerics.arithmetic import Arithmetic
from qbench.numerics.multiplier import fixed_multiplier, folded_multiplier, real_multiplier
from qbench.numerics.qparams import QParams
from qbench.numerics.requantization import fixed_scaler, scaler
from qbench.numerics.rounding import Ints, Rounding, round_reals
from qbench.numerics.scaling import MultiplierForm, Precision
from qbench.numerics.schemes import Averaging

Averager = Callable[[Ints], Ints]
"""Σ (x − z_x), int64 → levels, not yet clamped."""


def averager(scheme: Averaging, x: QParams, y: QParams, counts: Ints, arithmetic: Arithmetic) -> Averager:
    """What makes means of sums of ``counts`` levels each (≥ 1, broadcast against the sums).

    RAW and WITHIN keep to grids that are one; between two they are SCALED. A FOLDED count needs a fixed multiplier,
    else it is SCALED too.

    Raises:
        InputError: a multiplier that the arithmetic cannot hold.
        ValueError: REAL, which is no function of the sum.
    """
    same = (x.scale, x.zero_point, x.qtype) == (y.scale, y.zero_point, y.qtype)
    if scheme is Averaging.REAL:
        raise ValueError("a mean in floats depends on their order")
    if scheme is Averaging.RAW and same:
        return _raw(int(x.zero_point), counts)
    if scheme is Averaging.FOLDED and arithmetic.scaling.form is MultiplierForm.FIXED:
        return _folded(x, y, counts, arithmetic)
    if scheme is Averaging.BIASED:
        return _biased(x, y, counts, arithmetic)
    if scheme is Averaging.DIVIDED:
        return _divided(x, y, counts, arithmetic)
    if scheme is Averaging.WITHIN and same:
        return scaler((1.0, 1.0, counts), arithmetic.scaling, int(y.zero_point))
    return _scaled(x, y, counts, arithmetic)


def _scaled(x: QParams, y: QParams, counts: Ints, arithmetic: Arithmetic) -> Averager:
    """The count multiplies the output's scale, in the precision in which the multiplier is computed."""
    single = arithmetic.scaling.precision is not Precision.DOUBLE
    over = np.float32(y.scale) * counts.astype(np.float32) if single else float(y.scale) * counts.astype(np.float64)
    return scaler((x.scale, 1.0, over), arithmetic.scaling, int(y.zero_point))


def _folded(x: QParams, y: QParams, counts: Ints, arithmetic: Arithmetic) -> Averager:
    real = real_multiplier((x.scale, 1.0, y.scale), arithmetic.scaling.precision)
    folded = folded_multiplier(fixed_multiplier(real, arithmetic.scaling), counts)
    return fixed_scaler(folded, arithmetic.scaling, int(y.zero_point))


def _biased(x: QParams, y: QParams, counts: Ints, arithmetic: Arithmetic) -> Averager:
    """round(Σ x · M) + z_y − rha(z_x · s_x / s_y), the last in float32: LiteRT optimized/integer_ops/mean.h."""
    zero, scale = int(x.zero_point), np.float32(x.scale)
    moved = round_reals(np.asarray(np.float32(zero) * scale / np.float32(y.scale)), Rounding.HALF_AWAY)
    over = float(y.scale) * counts.astype(np.float64)
    rounded = scaler((x.scale, 1.0, over), arithmetic.scaling, int(y.zero_point) - int(moved))
    return lambda sums: rounded(sums + counts * zero)


def _divided(x: QParams, y: QParams, counts: Ints, arithmetic: Arithmetic) -> Averager:
    """round_half_away(S(Σ (x − z_x)) / n) + z_y, S brings sums to the output's scale: libjit_avg_pool of Glow."""
    rounded = scaler((x.scale, 1.0, y.scale), arithmetic.scaling)
    return lambda sums: _quotients(rounded(sums), counts) + int(y.zero_point)


def _raw(zero: int, counts: Ints) -> Averager:
    """round_half_away(Σ x / n), the zero points left in the sum: not what rounding Σ (x − z) / n gives."""
    return lambda sums: _quotients(sums + counts * zero, counts)


def _quotients(totals: Ints, counts: Ints) -> Ints:
    """round_half_away(totals / counts); 0 / 0, of a window without elements, is 0."""
    counts = np.maximum(counts, 1)
    size = (np.abs(totals) + counts // 2) // counts
    return np.asarray(np.where(totals >= 0, size, -size), np.int64)
