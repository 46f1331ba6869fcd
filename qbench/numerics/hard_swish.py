"""Hard swish of levels in 16-bit fixed point, as TFLite counts it: y ≈ x · clamp(x + 3, 0, 6) / 6.

    h = (q − z_x) · 2⁷                               16 bits, at s_x / 128
    v = h ⊗ m_y                                      at the output's scale but for 2^e_y, m_y · 2^e_y = s_x / 128 / s_y
    g = (h · 2^(e_g − 1), saturated ⊗ m_g) · 2       x / 3 in Q0.15, saturated, m_g · 2^e_g = s_x / 128 / (3 / 2¹⁵)
    y = (((g + 2¹⁵) >> 1) · v / 2¹⁵, truncated) >> −e_y, half away, + z_y

a ⊗ b = ⌊(a · b + 2¹⁴) / 2¹⁵⌋; multipliers are Q31 of float32 ratios, brought to 15 bits half up. Source: TFLite
reference/hard_swish.h, as formulas.
"""

import numpy as np

from qbench.errors import InputError
from qbench.numerics.multiplier import fixed_multiplier
from qbench.numerics.qparams import QParams
from qbench.numerics.rounding import Ints, Rounding, shift_right
from qbench.numerics.scaling import MultiplierForm, Scaling

_Q31 = Scaling(form=MultiplierForm.FIXED, bits=31)
_LOWEST, _HIGHEST = -(1 << 15), (1 << 15) - 1
_EXTRA_BITS = 7


def hard_swish_in_16_bits(q: Ints, x: QParams, y: QParams) -> Ints:
    """Hard swish of levels ``q`` (int64, 8 bits) of grid ``x`` on grid ``y``, not yet clamped; both per tensor.

    Raises:
        InputError: an output finer than the input's 128th part, which this scheme cannot hold.
    """
    fine = np.float32(np.float32(1 / (1 << _EXTRA_BITS)) * np.float32(x.scale))
    factor, up = _short(np.float32(fine / np.float32(y.scale)))
    gate_factor, gate_up = _short(np.float32(fine / np.float32(3 / 32768)))
    if up > 0:
        raise InputError(
            "Preparing a hard swish in 16-bit fixed point",
            found=f"an output scale of {float(y.scale):g} for an input scale of {float(x.scale):g}",
            expected="an output scale of at least a 128th of the input's",
            remedy="Choose other scales, or another arithmetic.",
        )
    levels = (q - int(x.zero_point)) << _EXTRA_BITS
    product = _high_product(levels, factor)
    gate = _saturated(levels << (gate_up - 1)) if gate_up > 0 else levels
    gate = _high_product(gate, gate_factor)
    gate = _saturated(gate << 1) if gate_up > 0 else shift_right(gate, -gate_up, Rounding.HALF_AWAY)
    share = (gate + (1 << 15)) >> 1
    whole = shift_right(share * product, 15, Rounding.TRUNCATE)
    return shift_right(whole, -up, Rounding.HALF_AWAY) + int(y.zero_point)


def _short(ratio: np.float32) -> tuple[int, int]:
    """(m, e) with ratio ≈ m · 2^(e − 15), m of 15 bits."""
    fixed = fixed_multiplier(np.asarray(ratio, np.float64), _Q31)
    return min((int(fixed.factor) + (1 << 15)) >> 16, _HIGHEST), 31 - int(fixed.shift)


def _high_product(a: Ints, b: int) -> Ints:
    return np.asarray(np.minimum((a * b + (1 << 14)) >> 15, _HIGHEST), np.int64)


def _saturated(values: Ints) -> Ints:
    return np.asarray(np.clip(values, _LOWEST, _HIGHEST), np.int64)
