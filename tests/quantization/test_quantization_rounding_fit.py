"""Fitted codes of one weight: against all codes there are, and never worse than the nearest."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.quantization.rounding_fit import RoundingProblem, damped

ENDS = (-2, 1)


def problem(
    seed: int, *, groups: int = 1, rows: int = 2, columns: int = 3, samples: int = 12
) -> RoundingProblem:
    """Correlated inputs, as neighbouring pixels are, and weights within and beyond their codes."""
    random = np.random.default_rng(seed)
    mix = np.eye(columns) + random.normal(size=(groups, columns, columns)) * 0.7
    inputs = random.normal(size=(groups, samples, columns)) @ mix
    shape = (groups, rows, columns)
    weight = random.normal(size=shape)
    scale = np.broadcast_to(random.uniform(0.4, 0.9, size=(groups, rows, 1)), shape).copy()
    point = np.zeros(shape)
    return RoundingProblem(weight, scale, point, ENDS, np.swapaxes(inputs, 1, 2) @ inputs / samples)


def least_cost(one: RoundingProblem, columns: int) -> np.ndarray:
    """By trying every code of every column."""
    codes = range(ENDS[0], ENDS[1] + 1)
    tried = [
        one.cost(np.broadcast_to(np.array(row, np.float64), one.nearest().shape))
        for row in itertools.product(codes, repeat=columns)
    ]
    return np.min(tried, axis=0)


@given(seed=st.integers(0, 10_000), groups=st.integers(1, 3), columns=st.integers(1, 9))
def test_no_row_costs_more_than_rounded_to_the_nearest(
    seed: int, groups: int, columns: int
) -> None:
    one = problem(seed, groups=groups, columns=columns)
    fitted = one.fitted()
    assert (one.cost(fitted) <= one.cost(one.nearest()) * (1 + 1e-12) + 1e-15).all()
    assert (np.rint(fitted) == fitted).all()
    assert fitted.min() >= ENDS[0]
    assert fitted.max() <= ENDS[1]


def test_most_of_what_could_be_won_is_won() -> None:
    costs = np.array(
        [
            [float(one.cost(codes).sum()) for codes in (one.nearest(), one.fitted())]
            + [float(least_cost(one, 5).sum())]
            for one in (problem(seed, columns=5) for seed in range(12))
        ]
    )
    nearest, fitted, least = costs.sum(axis=0)
    assert least <= fitted < nearest
    assert (nearest - fitted) / (nearest - least) > 0.8


def test_one_column_at_a_time_cannot_be_better() -> None:
    one = problem(3, rows=3, columns=6)
    codes = one.fitted()
    found = one.cost(codes)
    for column, step in itertools.product(range(6), (-1, 1)):
        other = codes.copy()
        other[:, :, column] = np.clip(other[:, :, column] + step, *ENDS)
        assert (one.cost(other) >= found - 1e-12).all()


@pytest.mark.parametrize("columns", [1, 127, 128, 300])
def test_inputs_without_correlation_leave_the_nearest_codes(columns: int) -> None:
    random = np.random.default_rng(columns)
    shape = (1, 4, columns)
    moments = np.diag(random.uniform(0.5, 2.0, size=columns))[None]
    one = RoundingProblem(
        random.normal(size=shape), np.full(shape, 0.5), np.zeros(shape), ENDS, moments
    )
    np.testing.assert_array_equal(one.fitted(), one.nearest())


def test_inputs_that_were_always_zero_leave_the_nearest_codes() -> None:
    shape = (2, 3, 4)
    weight = np.random.default_rng(0).normal(size=shape)
    one = RoundingProblem(weight, np.full(shape, 0.5), np.zeros(shape), ENDS, np.zeros((2, 4, 4)))
    np.testing.assert_array_equal(one.fitted(), one.nearest())
    np.testing.assert_array_equal(damped(np.zeros((1, 2, 2))), np.eye(2)[None])


def test_many_columns_are_as_few_whatever_is_brought_up_to_date_together() -> None:
    one = problem(5, rows=4, columns=300, samples=400)
    assert (one.cost(one.fitted()) < 0.8 * one.cost(one.nearest())).all()
