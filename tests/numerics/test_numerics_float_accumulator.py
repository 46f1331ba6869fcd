"""Sums of floats in declared accumulators, against whole fractions and Python alone."""

import itertools
from math import inf, isinf, isnan

import numpy as np
import pytest
from float_sums_by_fractions import FORMATS, one_sum
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench.numerics import (
    FLOAT_FORMATS,
    FloatSums,
    Register,
    Rounding,
    float_sums,
    get_arithmetic,
    load_arithmetic,
)


@st.composite
def rules_of_sums(draw: st.DrawFn) -> FloatSums:
    register = draw(st.sampled_from(Register))
    kept = draw(st.sampled_from([0, 0, 2, 5, 14, 25, 40]))
    return FloatSums(
        accumulator=register,
        accumulator_bits=draw(st.sampled_from([0, 2, 5, FORMATS[register][0]])),
        rounding=draw(st.sampled_from([Rounding.HALF_EVEN, Rounding.TRUNCATE])),
        group=draw(st.sampled_from([1, 2, 4, 7])) if kept else 1,
        kept_bits=kept,
        joined=bool(kept) and draw(st.booleans()),
    )


def numbers(name: str) -> st.SearchStrategy[float]:
    found = [float(x) for x in FLOAT_FORMATS[name].numbers if np.isfinite(x)]
    return st.sampled_from(found)


@given(
    rules_of_sums(),
    st.sampled_from(["float8e4m3fn", "float8e5m2", "float4e2m1", "float32"]),
    st.sampled_from(["float8e4m3fn", "float8e5m2", "float6e3m2"]),
    st.data(),
)
@settings(max_examples=400)
def test_sums_are_what_fractions_come_to(rules, left, right, data) -> None:
    depth = data.draw(st.integers(1, 18))
    real = st.floats(width=32, allow_nan=False, allow_infinity=False)
    factors = real if left == "float32" else numbers(left)
    x = data.draw(st.lists(factors, min_size=depth, max_size=depth))
    w = data.draw(st.lists(numbers(right), min_size=depth, max_size=depth))
    (found,) = float_sums(np.array([x]), np.array([w]).T, rules).reshape(-1)
    expected = one_sum(x, w, rules)
    assert found == expected, (rules, x, w)


@pytest.mark.parametrize(
    ("products", "rules", "expected"),
    [
        # 2049 has 12 bits: a float16 keeps 11 and takes the even one
        ([2048, 1], {"accumulator": Register.FLOAT16}, 2048),
        ([2048, 3], {"accumulator": Register.FLOAT16}, 2052),
        ([256, 1], {"accumulator": Register.BFLOAT16}, 256),
        ([256, 3], {"accumulator": Register.BFLOAT16, "rounding": Rounding.TRUNCATE}, 258),
        ([2**24, 1], {}, 2**24),
        # four bits from 16 downwards are steps of 2: each 3 becomes 2, and each 1 nothing
        ([16, 3, 3, 1], {"group": 4, "kept_bits": 4}, 20),
        ([16, -3, -3, -1], {"group": 4, "kept_bits": 4}, 12),
        ([3, 3, 1, 16], {"group": 2, "kept_bits": 4}, 22),
        # with the accumulator among those aligned the second group is cut to its steps of 2
        ([16, 0, 3, 3], {"group": 2, "kept_bits": 4}, 22),
        ([16, 0, 3, 3], {"group": 2, "kept_bits": 4, "joined": True}, 20),
    ],
)
def test_sums_that_can_be_followed_by_hand(products, rules, expected) -> None:
    x = np.array([products], float)
    found = float_sums(x, np.ones((len(products), 1)), FloatSums(**rules))
    assert found.tolist() == [[expected]]


@pytest.mark.parametrize("kept", [0, 14])
@pytest.mark.parametrize("register", Register)
def test_infinities_and_nan_go_through(register: Register, kept: int) -> None:
    rules = FloatSums(accumulator=register, kept_bits=kept, group=2 if kept else 1)
    rows = np.array([[inf, 1, 1], [1, inf, -inf], [np.nan, 1, 1], [-inf, 0, 3], [1, 2, 3]])
    found = float_sums(rows, np.ones((3, 1)), rules)[:, 0]
    assert isinf(found[0])
    assert isnan(found[1])
    assert isnan(found[2])
    assert found[3:].tolist() == [-inf, 6]


def test_what_is_too_large_is_infinite_or_the_largest() -> None:
    rows = np.array([[60000.0, 60000.0, -60000.0]])
    ones, register = np.ones((3, 1)), Register.FLOAT16
    assert float_sums(rows, ones, FloatSums(accumulator=register)).tolist() == [[inf]]
    truncated = FloatSums(accumulator=register, rounding=Rounding.TRUNCATE)
    assert float_sums(rows[:, :2], ones[:2], truncated).tolist() == [[65504]]


def test_rows_in_parts_are_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    x, w = random.normal(size=(7, 40)).astype(np.float32), random.normal(size=(40, 3))
    rules = FloatSums(group=8, kept_bits=9)
    whole = float_sums(x.astype(float), np.float32(w).astype(float), rules)
    monkeypatch.setattr("qbench.numerics.float_accumulator._AT_ONCE", 1)
    assert np.array_equal(float_sums(x.astype(float), np.float32(w).astype(float), rules), whole)


def test_the_compiled_loop_gives_the_same_bits() -> None:
    pytest.importorskip("numba", reason="numba is not installed")
    from qbench.interpreter.gemm import float_gemm
    from qbench.interpreter.kernel import Means
    from qbench.interpreter.summed_columns import sums_by

    random = np.random.default_rng(2)
    x = FLOAT_FORMATS["float8e5m2"].numbers[random.integers(0, 256, (6, 70))].astype(float)
    w = FLOAT_FORMATS["float8e4m3fn"].numbers[random.integers(0, 256, (70, 5))].astype(float)
    x[3:], w[:, 2:] = np.nan_to_num(x[3:], posinf=1, neginf=-1), np.nan_to_num(w[:, 2:])
    ways = itertools.product(
        Register,
        (0, 7),
        (Rounding.HALF_EVEN, Rounding.TRUNCATE),
        ((1, 0, False), (4, 8, False), (32, 14, False), (16, 25, True), (1, 24, True)),
    )
    for register, bits, rounding, (group, kept, joined) in ways:
        rules = FloatSums(
            accumulator=register, accumulator_bits=bits, rounding=rounding, group=group,
            kept_bits=kept, joined=joined,
        )  # fmt: skip
        found = sums_by(rules, Means(float_gemm, compiled=True))(x, w)
        assert np.array_equal(found, float_sums(x, w, rules), equal_nan=True), rules


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('accumulator = "float33"', "expected one of 'float32', 'float16', 'bfloat16'"),
        ("kept_bits = 1", "'kept_bits' is 0 or 2 to 40, not 1"),
        ("kept_bits = 41", "'kept_bits' is 0 or 2 to 40, not 41"),
        ("group = 0", "a group has 1 to 1024 products, not 0"),
        ("group = 2000\nkept_bits = 8", "a group has 1 to 1024 products, not 2000"),
        ("group = 4", "keep a stated number of bits: 'kept_bits'"),
        ("joined = true", "keep a stated number of bits: 'kept_bits'"),
        (
            'accumulator = "float16"\naccumulator_bits = 12',
            "'accumulator_bits' of float16 is 0 or 2 to 11, not 12",
        ),
        ('rounding = "floor"', "sums of floats are rounded half_even, or truncate"),
        ('kept_bits = "many"', "expected an integer"),
    ],
)
def test_settings_that_no_arithmetic_has(tmp_path, line: str, words: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'source = "x"\nscaling = {{ form = "exact" }}\n[floats]\n{line}\n')
    with pytest.raises(InputError, match=words):
        load_arithmetic(file)


def test_arithmetics_without_floats_keep_their_digest(tmp_path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('source = "x"\nscaling = { form = "exact" }\naccumulator = { bits = 64 }\n')
    assert load_arithmetic(file).digest == get_arithmetic("ideal").digest
    file.write_text(f"{file.read_text()}[floats]\n")
    assert load_arithmetic(file).digest != get_arithmetic("ideal").digest
