"""The paired bootstrap against scipy's and the spread that theory gives, and where there is
nothing to draw from.
"""

import numpy as np
import pytest
import scipy.stats

from qbench.judging import paired_interval
from qbench.metrics import (
    Against,
    AnswerKind,
    Answers,
    Counts,
    Direction,
    Metric,
    catalogue,
    resampling,
    score,
)


def counts(hits, out_of):
    return Counts(np.asarray(hits, dtype=np.int64), np.asarray(out_of, dtype=np.int64))


def change_interval(now, before):
    return resampling.change_interval(
        np.stack([now.hits, now.out_of, before.hits, before.out_of], axis=1)
    )


def some_counts(n, seed=3):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 12, n)
    before = rng.binomial(lengths, 0.1)
    now = np.minimum(lengths, before + rng.binomial(2, 0.1, n))
    return counts(now, lengths), counts(before, lengths)


def test_the_ends_are_those_of_scipy():
    now, before = some_counts(300)

    def change(hits, out_of, earlier, axis=-1):
        return (hits.sum(axis=axis) - earlier.sum(axis=axis)) / out_of.sum(axis=axis)

    theirs = scipy.stats.bootstrap(
        (now.hits, now.out_of, before.hits),
        change,
        paired=True,
        confidence_level=0.9,
        n_resamples=4000,
        method="percentile",
        rng=np.random.default_rng(1),
    )
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert change_interval(now, before) == pytest.approx(
        tuple(theirs.confidence_interval), abs=0.05 * width
    )


def test_pairing_is_kept():
    """What is hard in both runs cancels: the interval is that of the differences,
    not of two separate runs.
    """
    now, before = some_counts(400)
    low, high = change_interval(now, before)
    spread = np.std(now.hits - before.hits) / np.mean(now.out_of) / np.sqrt(400)
    assert high - low == pytest.approx(2 * 1.645 * spread, rel=0.1)


def test_equal_counts_give_equal_ends_and_their_order_does_not_matter():
    now, before = some_counts(200)
    turned = [counts(c.hits[::-1], c.out_of[::-1]) for c in (now, before)]
    assert change_interval(now, before) == change_interval(*turned)


def test_no_change_has_no_width():
    now, _ = some_counts(50)
    assert change_interval(now, now) == (0.0, 0.0)
    alike = counts([1] * 9, [4] * 9)
    assert change_interval(alike, counts([0] * 9, [4] * 9)) == (0.25, 0.25)


def test_nothing_to_draw_from():
    rare = counts(
        [0, 1, 0, 0], [0, 3, 0, 0]
    )  # a resample may miss the only sample that counts out of anything
    assert change_interval(rare, counts([0, 0, 0, 0], [0, 3, 0, 0])) is None
    found, none = counts([1] * 5, [1] * 5), counts([0] * 5, [0] * 5)
    assert change_interval(none, found) is None
    assert change_interval(found, none) is None


def found(name, ids, labels, before):
    answers, reference = (Answers(np.array(one, dtype=np.int32)) for one in (ids, before))
    return score(catalogue().get(name), answers, labels=tuple(labels), reference=reference)


@pytest.mark.parametrize("n", [5, 9, 300])
def test_nothing_changed_is_no_proof_that_nothing_will(n):
    """As far as Tango's statistic goes for top5,
    which shows a margin m from z² (1 − m)/m samples on.
    """
    rows = np.tile(np.arange(10), (n, 1))
    same = found("recall5", rows, [(2,)] * n, rows)
    unmet = 1.6448536**2 / (n + 1.6448536**2)
    assert same.interval == pytest.approx((-unmet, unmet), rel=1e-6)
    assert paired_interval(0, 0, n, confidence=0.9) == pytest.approx(same.interval, rel=1e-6)


@pytest.mark.parametrize(("losses", "gains"), [(1, 0), (3, 0), (9, 0), (4, 1), (2, 2)])
def test_few_changes_show_no_more_than_their_counts_do(losses, gains):
    n = 400
    now, before = np.ones(n, dtype=int), np.ones(n, dtype=int)
    now[:losses], before[losses : losses + gains] = 0, 0
    rows = np.stack([now, np.ones(n, dtype=int), before, np.ones(n, dtype=int)], axis=1)
    drawn = resampling.change_interval(rows)
    wide, tango = (
        resampling.with_unmet(drawn, (gains - losses) / n, rows, (0.0, 1.0)),
        paired_interval(losses, gains, n, confidence=0.9),
    )
    assert wide[0] <= min(drawn[0], tango[0] + 1e-4)
    assert wide[1] >= drawn[1]


def test_all_changed_alike_has_a_width_too():
    rows = np.tile([1, 4, 0, 4], (400, 1))
    low, high = resampling.with_unmet((0.25, 0.25), 0.25, rows, (0.0, 1.0))
    assert low < 0.25 < high


def test_many_changes_are_left_to_the_bootstrap():
    now, before = some_counts(300)
    rows = np.stack([now.hits, now.out_of, before.hits, before.out_of], axis=1)
    kept = resampling.with_unmet((-0.01, 0.02), 0.01, rows, (0.0, 1.0))
    assert kept == (-0.01, 0.02)


@pytest.mark.parametrize(
    ("before", "after", "bounds", "reach"),
    [
        ([5, 5, 5, 5, 5], [5, 5, 5, 5, 4], (0.0, 1.0), 1.0),  # of 10: the bounds of a share
        ([5, 5, 5, 5, 25], [5, 5, 5, 5, 25], (0.0, 1.0), 2.5),  # an error rate may exceed 1
        ([50, 60, 70, 80, 90], [50, 60, 70, 80, 89], (-np.inf, np.inf), 4.0),
        ([50, 60, 70, 80, 90], [50, 60, 70, 80, 89], (0.0, np.inf), 9.0),
    ],
)
def test_a_change_that_was_not_met_is_bounded_by_the_metric(before, after, bounds, reach):
    whole = np.full(5, 10)
    rows = np.stack([np.array(after), whole, np.array(before), whole], axis=1)
    change = (sum(after) - sum(before)) / 50
    low, _ = resampling.with_unmet((change, change), change, rows, bounds)
    moved = (before[-1] - after[-1]) / 10
    z, n, seen = 1.6448536, 5, (moved / reach) ** 2
    middle = (seen + z * z / 2) / (n + z * z)
    wilson = middle + z / (n + z * z) * np.sqrt(seen * (n - seen) / n + z * z / 4)
    assert change - low == pytest.approx(reach * (wilson - seen / n), rel=1e-6)


def test_one_large_change_among_many_small_ones_is_no_large_sample():
    """Fifty changes, of which one makes the variance."""
    whole, moved = np.full(50, 1000), np.ones(50, dtype=int)
    moved[0] = 800
    before = np.full(50, 900)
    rows = np.stack([before - moved, whole, before, whole], axis=1)
    drawn = resampling.change_interval(rows)
    wide = resampling.with_unmet(drawn, -moved.sum() / 50_000, rows, (0.0, 1.0))
    assert wide[0] < drawn[0] - 0.025


@pytest.mark.slow
def test_an_own_way_to_resample_is_widened_too():
    ids = np.array([[9], [8], [7], [1], [2], [3]], dtype=np.int32)
    likeness = Answers(ids, kind=AnswerKind.LIKENESS)
    labels = ((1,),) * 3 + ((0,),) * 3
    same = score(catalogue().get("eer"), likeness, labels=labels, reference=likeness)
    assert same.interval[0] < -0.3
    assert same.interval[1] > 0.3


@pytest.mark.parametrize("proportion", [True, False])
def test_scores_carry_it_where_they_are_no_shares(proportion):
    now, before = some_counts(30)
    answers = Answers(np.zeros((30, 1), dtype=np.int32))
    given = {id(answers): now}
    metric = Metric(
        name="per",
        title="",
        direction=Direction.LOWER,
        against=Against.LABELS,
        count=lambda answered, labels, _: given.get(id(answered), before),
        proportion=proportion,
    )
    found = score(
        metric, answers, labels=((0,),) * 30, reference=Answers(np.ones((30, 1), dtype=np.int32))
    )
    assert (found.interval is None) == proportion
    if not proportion:
        assert found.interval[0] <= found.value - found.reference_value <= found.interval[1]
