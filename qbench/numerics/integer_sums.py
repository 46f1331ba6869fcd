"""Sums and differences of levels of two grids by integers: y ≈ z_y + (s_a c_a ± s_b c_b) / s_y, c = q − z.

    EXACT       round((A c_a ± B c_b) / D), A : B : D = s_a : s_b : s_y in whole numbers, half to even
    HEADROOM    r(r_o(2ʰ c_a) ± r_o(2ʰ c_b)), r_o to t = 2 · max(s_a, s_b), r from 2⁻ʰ t to s_y; h = 20, of 16 bits 15
    WEIGHTED    (m_a c_a ± m_b c_b) >> n, m = rne(s / s_y · 2ⁿ), n so that the larger m has ``bits`` bits
    EACH        r(c_a) ± r(c_b), each at the output's scale
    FINEST      r(r'(c_a) ± r'(c_b)), r' to the smaller scale

A second operand is negated behind its rounding, so that what rounds half up is not mirrored. Sources: TFLite
kernels/add.cc and sub.cc (left_shift), XNNPACK and QNNPACK operators/add (weights, and the ratios that they take).
"""

import math
from fractions import Fraction

import numpy as np

from qbench.numerics.arithmetic import Arithmetic
from qbench.numerics.operands import Grids, refused
from qbench.numerics.requantization import scaler
from qbench.numerics.rounding import WIDEST, Ints, half_even_quotients, shift_right
from qbench.numerics.schemes import AddScheme

_BYTE, _WORD = 8, 16
_HEADROOM, _HEADROOM_OF_WORDS = 20, 15
_HIGHEST_POWER = 8


def exact_sum(a: Ints, b: Ints, grids: Grids, sign: int) -> Ints:
    """``a`` ± ``b``, centred levels of any width, rounded once; cut to ±2⁴⁰, behind every grid."""
    scales = [Fraction(float(grid.scale)) for grid in grids]
    ratios = [scale / scales[2] for scale in scales[:2]]
    down = math.lcm(*(ratio.denominator for ratio in ratios))
    left, right = (int(ratio * down) for ratio in ratios)
    # Whole numbers of any length are vectors of Python's where int64 has no room for the sum, or for twice the rest.
    reach = left * max(_largest(a), 1) + right * max(_largest(b), 1)
    counting = np.int64 if max(reach, 2 * down) < 1 << 62 else object
    sums = a.astype(counting) * left + sign * right * b.astype(counting)
    levels, limit = half_even_quotients(np.asarray(sums, counting), np.asarray(down, counting)), int(WIDEST)
    return np.asarray(np.clip(levels, -limit, limit)).astype(np.int64) + int(grids[2].zero_point)


def integer_sum(a: Ints, b: Ints, grids: Grids, machine: Arithmetic, sign: int) -> Ints:
    """``a`` ± ``b``, centred levels, by the machine's HEADROOM, WEIGHTED, EACH or FINEST.

    Raises:
        InputError: levels so wide that a product of 64 bits has no room for them, or scales that the machine does not
            bring together.
    """
    bits = max(grid.qtype.bits for grid in grids[:2])
    if bits > _WORD:
        raise refused(f"operands of {bits} bits", f"up to {_WORD}")
    if machine.adding.scheme is AddScheme.WEIGHTED:
        return _weighted(a, b, grids, machine, sign)
    left, right, out = (float(grid.scale) for grid in grids)
    first, up = machine.scaling, 0
    match machine.adding.scheme:
        case AddScheme.HEADROOM:
            middle, up = 2 * max(left, right), _HEADROOM if bits <= _BYTE else _HEADROOM_OF_WORDS
            first = machine.adding.operands or machine.scaling
        case AddScheme.FINEST:
            middle = min(left, right)
        case _:
            middle = out
    sums = scaler((left, 1.0, middle), first)(a << up) + sign * scaler((right, 1.0, middle), first)(b << up)
    if machine.adding.scheme is AddScheme.EACH:
        return sums + int(grids[2].zero_point)
    return scaler((middle, 2.0**-up, out), machine.scaling, int(grids[2].zero_point))(sums)


def _weighted(a: Ints, b: Ints, grids: Grids, machine: Arithmetic, sign: int) -> Ints:
    adding = machine.adding
    with np.errstate(over="ignore", under="ignore"):
        ratios = [float(grid.scale / grids[2].scale) for grid in grids[:2]]
    for ratio in ratios:
        if not 2.0**adding.least_power <= ratio < 2.0**_HIGHEST_POWER:
            expected = f"a ratio in [2^{adding.least_power}, 2^{_HIGHEST_POWER})"
            raise refused(f"a scale that is {ratio:g} times the result's", expected)
    _, exponent = np.frexp(max(ratios))
    shift = adding.bits - int(exponent)
    left, right = (int(np.rint(np.ldexp(ratio, shift))) for ratio in ratios)
    return shift_right(left * a + sign * right * b, shift, adding.rounding) + int(grids[2].zero_point)


def _largest(levels: Ints) -> int:
    return max(-int(levels.min(initial=0)), int(levels.max(initial=0)))
