"""The form RANGE: how signed codes count with kernels that multiply them as they are (AMX)."""

from dataclasses import replace

import numpy as np
import pytest

from qbench.numerics import Ranges, float_steps, get_arithmetic
from qbench.numerics.multiplier import Onward, twice_inverted

F = np.float32
SCALES = (0.0312, 0.0123, 0.37)
BIAS = np.array([700, -300])


def steps(signed, onward, zero_point):
    name = "openvino-amx" if signed else "openvino-vnni"
    ranges = Ranges(SCALES[0], -128, 127, onward, signed)
    return float_steps(SCALES, get_arithmetic(name).scaling, BIAS, ranges, zero_point)


@pytest.mark.parametrize(
    ("onward", "zero_point", "base", "inverted"),
    [
        (Onward.CODES, 0, 0, True),
        (Onward.CODES, 7, 0, False),
        (Onward.CLIP, 0, 0, False),
        (Onward.REALS, 7, 0, False),
        (Onward.REALS, 0, -128, False),
    ],
)
def test_codes_that_stay_signed_count_from_zero(onward, zero_point, base, inverted):
    found = steps(True, onward, zero_point)
    low, high = (F(F(SCALES[2]) * F(end - zero_point)) for end in (-128, 127))
    factor = np.asarray(F(F(255) / F(high - low)))
    assert found.base == base
    assert found.multiplier == (twice_inverted(factor) if inverted else factor)
    assert found.second == pytest.approx(zero_point - base, abs=1e-4)
    assert (found.second == 0) == (zero_point == base)


@pytest.mark.parametrize(("onward", "base"), [(Onward.CODES, -128), (Onward.CLIP, 0)])
def test_without_such_kernels_a_clip_alone_keeps_them_signed(onward, base):
    assert steps(False, onward, 0).base == base


def test_only_a_range_has_signed_codes():
    with pytest.raises(ValueError, match="'signed' is of the form 'range'"):
        replace(get_arithmetic("ideal").scaling, signed=True)
