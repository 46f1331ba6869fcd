"""Formats of 4 to 8 bits against ml_dtypes: every code, and roundings by the million."""

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.numerics.float_format import FLOAT_FORMATS, FloatFormat, float_format

JUDGES = (
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
    "float8_e8m0fnu",
)


def format_of(judge: str) -> FloatFormat:
    found = float_format(judge)
    assert found is not None
    return found


def cast(values: npt.NDArray[np.float32], judge: str) -> npt.NDArray[np.uint8]:
    with np.errstate(all="ignore"):
        return values.astype(getattr(ml_dtypes, judge)).view(np.uint8)


def test_each_format_has_a_judge_and_both_spellings() -> None:
    assert {format_of(judge).name for judge in JUDGES} == set(FLOAT_FORMATS)
    assert all(float_format(name) is one for name, one in FLOAT_FORMATS.items())
    assert float_format("float8e8m0fnu") is FLOAT_FORMATS["float8e8m0"]
    assert float_format("float16") is None


@pytest.mark.parametrize("judge", JUDGES)
def test_every_code_is_the_number_that_ml_dtypes_has(judge: str) -> None:
    form, info = format_of(judge), ml_dtypes.finfo(getattr(ml_dtypes, judge))
    codes = np.arange(1 << form.bits, dtype=np.uint8)
    numbers = codes.view(getattr(ml_dtypes, judge)).astype(np.float32)
    np.testing.assert_array_equal(form.decode(codes), numbers)
    there = ~np.isnan(numbers)
    np.testing.assert_array_equal(np.signbit(form.decode(codes))[there], np.signbit(numbers)[there])
    assert (form.largest, form.smallest) == (float(info.max), float(info.smallest_subnormal))
    assert 2.0**form.largest_exponent <= form.largest < 2.0 ** (form.largest_exponent + 1)
    finite = codes[np.isfinite(numbers)]
    np.testing.assert_array_equal(form.encode(numbers[finite]), finite)


@pytest.mark.parametrize("judge", JUDGES)
def test_a_million_roundings_are_those_of_ml_dtypes(judge: str) -> None:
    form, rng = format_of(judge), np.random.default_rng(28)
    every = rng.integers(0, 1 << 32, 700_000, np.uint32).view(np.float32)
    spread = np.ldexp(rng.standard_normal(300_000), rng.integers(-12, 18, 300_000))
    numbers = form.numbers[np.isfinite(form.numbers)].astype(np.float64)
    ties = ((np.sort(numbers)[1:] + np.sort(numbers)[:-1]) / 2).astype(np.float32)
    around = [np.nextafter(ties, np.float32(end)) for end in (-np.inf, np.inf)]
    ends = np.float32(form.largest) * np.linspace(0.9, 1.3, 401, dtype=np.float32)
    odd = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45], np.float32)
    x = np.concatenate([every, spread.astype(np.float32), ties, *around, ends, -ends, odd])
    np.testing.assert_array_equal(form.encode(x, saturate=False), cast(x, judge))


@pytest.mark.parametrize("judge", JUDGES)
@given(st.floats(width=32))
def test_saturation_changes_only_what_is_beyond_the_largest(judge: str, x: float) -> None:
    form = format_of(judge)
    saturated, as_cast = (int(form.encode(x, saturate=rule)) for rule in (True, False))
    if abs(x) <= form.largest or np.isnan(x):
        assert saturated == as_cast
    elif form.signed or x > 0:
        assert float(form.decode(saturated)) == float(np.copysign(form.largest, x))


def test_a_scalar_stays_a_scalar_and_codes_beyond_the_bits_are_refused() -> None:
    form = format_of("float4_e2m1fn")
    assert form.encode(2.5).shape == ()
    assert form.decode(np.int64(7)) == 6.0
    with pytest.raises(ValueError, match="0 … 15"):
        form.decode([16])


def test_nan_has_a_code_where_the_format_has_one() -> None:
    found = {name: one.nan for name, one in FLOAT_FORMATS.items() if one.nan is not None}
    assert found == {
        "float8e4m3fn": 0x7F,
        "float8e5m2": 0x7E,
        "float8e4m3fnuz": 0x80,
        "float8e5m2fnuz": 0x80,
        "float8e8m0": 0xFF,
    }
