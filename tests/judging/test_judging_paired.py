"""Paired statistics against scipy, statsmodels, enumeration, and the tables of the papers."""

import itertools
import math
from fractions import Fraction

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from qbench.judging import mcnemar_midp, paired_interval
from qbench.metrics import tango_statistic

counts = st.integers(1, 400).flatmap(
    lambda n: st.integers(0, n).flatmap(
        lambda b: st.tuples(st.just(b), st.integers(0, n - b), st.just(n))
    )
)

# Rows: both, first only, second only, neither; the difference is first − second, so first only are
# gains.
NEWCOMBE_TABLES = [
    ((36, 12, 2, 0), (0.0569, 0.3404), (0.0611, 0.3447), (0.0509, 0.3337)),
    ((1, 1, 7, 12), (-0.5069, -0.0256), (-0.5172, -0.0260), (-0.5084, -0.0134)),
    ((59, 23, 3, 37), (0.0847, 0.2392), (0.0900, 0.2471), (0.0826, 0.2400)),
    ((100, 40, 20, 0), (0.0306, 0.2167), (0.0309, 0.2181), (0.0301, 0.2168)),
]


@pytest.mark.parametrize(("table", "newcombe", "tango", "bonett_price"), NEWCOMBE_TABLES)
def test_intervals_of_the_published_tables(table, newcombe, tango, bonett_price):
    both, gains, losses, neither = table
    n = both + gains + losses + neither
    assert paired_interval(losses, gains, n, method="newcombe", both_right=both) == pytest.approx(
        newcombe, abs=6e-5
    )
    assert paired_interval(losses, gains, n, method="tango") == pytest.approx(tango, abs=6e-5)
    assert paired_interval(losses, gains, n, method="bonett-price") == pytest.approx(
        bonett_price, abs=6e-5
    )


def test_bonett_price_as_documented_by_the_statpsych_package():
    assert paired_interval(4, 26, 48, method="bonett-price") == pytest.approx(
        (0.2548, 0.6252), abs=6e-5
    )


@pytest.mark.parametrize(
    ("n", "losses", "gains", "bonett_price", "tango"),
    [
        (1000, 0, 0, (-0.28, 0.28), (-0.38, 0.38)),
        (1000, 5, 3, (-0.82, 0.42), (-0.90, 0.44)),
        (1000, 20, 10, (-2.10, 0.11), (-2.18, 0.08)),
        (10_000, 150, 100, (-0.81, -0.19), (-0.82, -0.19)),
        (50_000, 600, 400, (-0.52, -0.28), (-0.53, -0.28)),
    ],
)
def test_intervals_in_percentage_points(n, losses, gains, bonett_price, tango):
    found = paired_interval(losses, gains, n, method="bonett-price")
    assert [100 * x for x in found] == pytest.approx(bonett_price, abs=0.0101)
    assert [100 * x for x in paired_interval(losses, gains, n)] == pytest.approx(tango, abs=0.0101)


@pytest.mark.parametrize("n", [1, 200, 1000, 50_000])
def test_without_discordant_samples_tango_has_a_closed_form(n):
    z = scipy.stats.norm.ppf(0.975)
    assert paired_interval(0, 0, n) == pytest.approx(
        (-z * z / (n + z * z), z * z / (n + z * z)), rel=1e-9
    )


@pytest.mark.parametrize("method", ["tango", "bonett-price", "newcombe"])
@given(counts)
def test_intervals_mirror_and_contain_the_change(method, numbers):
    losses, gains, n = numbers
    low, high = paired_interval(losses, gains, n, method=method)
    mirrored = paired_interval(gains, losses, n, method=method)
    assert (low, high) == pytest.approx((-mirrored[1], -mirrored[0]), abs=1e-9)
    assert -1 <= low <= high <= 1
    if method != "bonett-price":  # which shrinks the change towards 0 when everything flipped
        assert low - 1e-12 <= (gains - losses) / n <= high + 1e-12


@pytest.mark.parametrize("method", ["tango", "newcombe", "bonett-price"])
@given(counts)
def test_more_losses_lower_both_limits(method, numbers):
    losses, gains, n = numbers
    if losses + gains < n:
        before, after = (paired_interval(b, gains, n, method=method) for b in (losses, losses + 1))
        assert after[0] <= before[0] + 1e-9
        assert after[1] <= before[1] + (1e-9 if method == "tango" else 0.02)


@given(counts)
def test_more_confidence_is_a_wider_interval(numbers):
    losses, gains, n = numbers
    wide, narrow = (paired_interval(losses, gains, n, confidence=c) for c in (0.99, 0.9))
    assert wide[0] <= narrow[0] + 1e-12
    assert wide[1] >= narrow[1] - 1e-12


def test_tango_limits_are_where_its_statistic_is_z():
    z = scipy.stats.norm.ppf(0.975)
    for losses, gains, n in [(9, 2, 200), (0, 5, 50), (30, 30, 100)]:
        low, high = paired_interval(losses, gains, n)
        assert tango_statistic(losses, gains, n, low) == pytest.approx(z, abs=1e-6)
        assert tango_statistic(losses, gains, n, high) == pytest.approx(-z, abs=1e-6)


def test_wilson_inside_newcombe_is_the_known_one():
    from qbench.metrics.paired import _wilson

    z = scipy.stats.norm.ppf(0.975)
    for right, n in [(0, 10), (7, 10), (760, 1000), (50, 50)]:
        assert _wilson(right, n, z) == pytest.approx(
            proportion_confint(right, n, method="wilson"), abs=1e-12
        )


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("n", [10, 20, 30])
def test_coverage_by_enumeration(n):
    """Each interval holds the true change in nearly 95 of 100 experiments,
    counted over every possible one.
    """
    for losing, gaining in [(0.05, 0.05), (0.1, 0.3), (0.25, 0.25)]:
        covered = dict.fromkeys(("tango", "bonett-price"), 0.0)
        for losses, gains in itertools.product(range(n + 1), repeat=2):
            if losses + gains > n:
                continue
            weight = (
                math.comb(n, losses)
                * math.comb(n - losses, gains)
                * losing**losses
                * gaining**gains
                * (1 - losing - gaining) ** (n - losses - gains)
            )
            for method in covered:
                low, high = paired_interval(losses, gains, n, method=method)
                covered[method] += weight * (low <= gaining - losing <= high)
        assert 0.92 <= covered["tango"] <= 1
        assert 0.94 <= covered["bonett-price"] <= 1


@pytest.mark.parametrize(
    ("losses", "gains", "p"),
    [
        (4, 0, 0.0625),
        (5, 0, 0.031),
        (6, 0, 0.016),
        (9, 2, 0.039),
        (15, 5, 0.027),
        (30, 20, 0.161),
        (60, 40, 0.046),
        (150, 100, 0.0015),
    ],
)
def test_midp_of_the_reference_table(losses, gains, p):
    assert mcnemar_midp(losses, gains) == pytest.approx(p, abs=6e-4)


@given(st.integers(0, 60), st.integers(0, 60))
def test_midp_against_fractions_scipy_and_statsmodels(losses, gains):
    flips, fewer = losses + gains, min(losses, gains)
    point = Fraction(math.comb(flips, fewer), 2**flips)
    below = sum((Fraction(math.comb(flips, k), 2**flips) for k in range(fewer)), Fraction(0))
    assert mcnemar_midp(losses, gains) == float(2 * below + point)
    assert mcnemar_midp(losses, gains) == mcnemar_midp(gains, losses)
    if losses != gains:
        exact = mcnemar([[0, losses], [gains, 0]], exact=True).pvalue
        assert exact == pytest.approx(scipy.stats.binomtest(losses, flips).pvalue)
        assert mcnemar_midp(losses, gains) == pytest.approx(exact - float(point))
    else:
        assert mcnemar_midp(losses, gains) == 1.0


def test_midp_of_large_counts_does_not_overflow():
    assert mcnemar_midp(5200, 5000) == pytest.approx(
        2 * scipy.stats.norm.sf(200 / math.sqrt(10_200)), rel=1e-2
    )
    assert mcnemar_midp(3000, 0) == 0.0  # 2⁻³⁰⁰⁰ is under the least float


@pytest.mark.parametrize(
    "arguments",
    [(-1, 0, 5), (3, 3, 5), (0, 0, 0), (0, -1, 5)],
)
def test_impossible_counts_are_refused(arguments):
    with pytest.raises(ValueError, match="impossible"):
        paired_interval(*arguments)


def test_other_impossible_arguments():
    with pytest.raises(ValueError, match="not negative"):
        mcnemar_midp(-1, 0)
    with pytest.raises(ValueError, match="confidence"):
        paired_interval(1, 1, 5, confidence=1.0)
    with pytest.raises(ValueError, match="unknown method"):
        paired_interval(1, 1, 5, method="wald")
    with pytest.raises(ValueError, match="both times"):
        paired_interval(1, 1, 5, method="newcombe", both_right=4)
