"""``decision = "ci"`` is two one-sided tests at the margin, equivalence both ways."""

import math
from statistics import NormalDist

import pytest
from judged_numbers import top1

from qbench.judging import Evidence
from qbench.judging.statistics import shown_by

Z = NormalDist().inv_cdf(0.95)
COUNTS = [(0, 0), (1, 0), (0, 1), (4, 0), (6, 3), (12, 12), (30, 2), (2, 30), (60, 55), (90, 10)]
CASES = [
    (n, losses, gains, margin)
    for n, margin in ((200, 0.02), (200, 0.08), (1_000, 0.005), (1_000, 0.02), (10_000, 0.005))
    for losses, gains in COUNTS
]


def score_statistic(losses, gains, n, change, *, less=0.0):
    """The score test of one constrained change: the share of losses of greatest likelihood is
    searched, not solved for.
    """

    def likelihood(share):
        pairs = (
            (losses, share),
            (gains, share + change),
            (n - losses - gains, 1 - 2 * share - change),
        )
        if any(count and p <= 0 for count, p in pairs):
            return -math.inf
        return sum(count * math.log(p) for count, p in pairs if count)

    low, high = max(0.0, -change), (1 - change) / 2
    for _ in range(200):  # the likelihood is concave
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (a, high) if likelihood(a) < likelihood(b) else (low, b)
    share = (low + high) / 2
    distance = gains - losses - n * change
    distance = math.copysign(max(abs(distance) - less, 0.0), distance)
    return distance / math.sqrt(n * (2 * share + change - change**2))


def evidence(losses, gains, n, margin):
    return shown_by(top1(n // 2 - losses + gains, n, n // 2, losses=losses, gains=gains), margin)


@pytest.mark.parametrize("case", CASES)
def test_ci_is_two_one_sided_tests(case):
    n, losses, gains, margin = case
    is_not_worse = score_statistic(losses, gains, n, -margin) > Z
    is_worse = score_statistic(losses, gains, n, -margin, less=0.5) < -Z
    expected = {
        (True, False): Evidence.PASS,
        (False, True): Evidence.FAIL,
        (False, False): Evidence.INCONCLUSIVE,
    }[is_not_worse, is_worse]
    assert evidence(losses, gains, n, margin).evidence is expected


@pytest.mark.parametrize("case", CASES)
def test_equivalence_is_pass_in_both_directions(case):
    """Schuirmann's two one-sided tests: neither worse nor better by the margin, 5 % each."""
    n, losses, gains, margin = case
    below = score_statistic(losses, gains, n, -margin) > Z
    above = score_statistic(losses, gains, n, margin) < -Z
    there, back = evidence(losses, gains, n, margin), evidence(gains, losses, n, margin)
    is_equivalent = there.evidence is back.evidence is Evidence.PASS
    assert is_equivalent is (below and above)
