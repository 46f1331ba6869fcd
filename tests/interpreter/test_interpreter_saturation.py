"""Pairs that saturate: which can, and what they take from exact sums, by numba,
by numpy and by plain integers.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.interpreter import risky_pairs
from qbench.interpreter.accumulate import pair_correction

Array = np.ndarray[Any, Any]


def saturated(x: Array, weight: Array, bits: int) -> tuple[Array, int]:
    """Sums of pairs that are clamped one by one,
    and how many of them are others than the exact ones.
    """
    half, lost = 1 << (bits - 1), 0
    sums = np.zeros((len(x), weight.shape[1]), np.int32)
    for m, n in np.ndindex(sums.shape):
        for k in range(0, len(weight), 2):
            exact = sum(int(x[m, i]) * int(weight[i, n]) for i in range(k, min(k + 2, len(weight))))
            kept = max(-half, min(exact, half - 1)) if k + 1 < len(weight) else exact
            sums[m, n] += kept
            lost += kept != exact
    return sums, lost


@settings(max_examples=40)
@given(
    rows=st.sampled_from([1, 5, 64, 67]), depth=st.integers(1, 9), columns=st.integers(1, 5),
    bits=st.sampled_from([12, 16]), spread=st.sampled_from([40, 90, 300]),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_corrected_sums_are_those_of_pairs_that_saturate(
    rows: int, depth: int, columns: int, bits: int, spread: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    weight = np.clip(random.normal(0, spread, (depth, columns)), -128, 127).astype(np.int8)
    x = np.clip(random.normal(180, 90, (rows, depth)), 0, 255).astype(np.uint8)
    exact, (expected, lost) = (
        x.astype(np.int32) @ weight.astype(np.int32),
        saturated(x, weight, bits),
    )
    for compiled in (False, True):
        sums, correct = exact.copy(), pair_correction(weight, bits, compiled=compiled)
        assert (0 if correct is None else correct(sums, x)) == lost
        np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize("bits", [10, 16, 17])
def test_a_pair_is_risky_where_some_levels_saturate_it(bits: int) -> None:
    ends = np.array([-128, -127, -65, -64, -1, 0, 1, 63, 64, 65, 127], np.int8)
    weight = np.stack(np.meshgrid(ends, ends)).reshape(2, -1)
    half, levels = 1 << (bits - 1), np.array([[a, b] for a in (0, 255) for b in (0, 255)], np.int32)
    products = levels @ weight.astype(np.int32)
    expected = np.flatnonzero(((products >= half) | (products < -half)).any(axis=0))
    for compiled in (False, True):
        pair, column = risky_pairs(weight, bits, compiled=compiled)
        assert not pair.any()
        np.testing.assert_array_equal(column, expected)
    assert (bits == 17) == (not expected.size)
