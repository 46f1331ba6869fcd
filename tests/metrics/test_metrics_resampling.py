"""The paired bootstrap against scipy's and the spread that theory gives, and where there is nothing to draw from."""

import numpy as np
import pytest
import scipy.stats

from qbench.metrics import Against, Answers, Counts, Direction, Metric, resampling, score


def counts(hits, out_of):
    return Counts(np.asarray(hits, dtype=np.int64), np.asarray(out_of, dtype=np.int64))


def change_interval(now, before):
    return resampling.change_interval(np.stack([now.hits, now.out_of, before.hits, before.out_of], axis=1))


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
    assert change_interval(now, before) == pytest.approx(tuple(theirs.confidence_interval), abs=0.05 * width)


def test_pairing_is_kept():
    """What is hard in both runs cancels: the interval is that of the differences, not of two separate runs."""
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
    assert change_interval(counts([1], [4]), counts([0], [4])) is None
    rare = counts([0, 1, 0, 0], [0, 3, 0, 0])  # a resample may miss the only sample that counts out of anything
    assert change_interval(rare, counts([0, 0, 0, 0], [0, 3, 0, 0])) is None


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
    found = score(metric, answers, labels=((0,),) * 30, reference=Answers(np.ones((30, 1), dtype=np.int32)))
    assert (found.interval is None) == proportion
    if not proportion:
        assert found.interval[0] <= found.value - found.reference_value <= found.interval[1]
