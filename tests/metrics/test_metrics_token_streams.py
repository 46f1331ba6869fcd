"""Token streams: bounds of the divergence hold the full one, and become it."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qbench.metrics import score
from qbench.metrics.token_streams import (
    ABSENT,
    ROUNDING,
    TOKEN_KL,
    TOKEN_KL_MOST,
    TOKEN_PERPLEXITY,
    TOKEN_TOP1,
    TokenStreams,
    kl_bounds,
)


def scalar_kl(p, q):
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def truncated(rows, k, *, floor=True, realised=0, lengths=None, pad=0):
    """The ``k`` best tokens of each row of probabilities."""
    rows = np.asarray(rows, np.float64)
    top = np.argsort(-rows, axis=1, kind="stable")[:, :k].astype(np.int64)
    with np.errstate(divide="ignore"):
        logs = np.log(np.take_along_axis(rows, top, axis=1))
        least = np.log(rows.min(axis=1)) if floor else np.full(len(rows), -np.inf)
        came = np.log(rows[:, realised])
    filler = ((0, 0), (0, pad))
    return TokenStreams(
        lengths=np.array([len(rows)] if lengths is None else lengths, np.int64),
        realised=came,
        top=np.pad(top, filler, constant_values=ABSENT),
        logprobs=np.pad(logs, filler, constant_values=-np.inf),
        floor=least,
    )


def shares(logits):
    heights = np.exp(np.asarray(logits, np.float64) - max(logits))
    return heights / heights.sum()


LOGIT = st.floats(-12, 12)
PAIRS = st.integers(2, 24).flatmap(
    lambda size: st.tuples(
        st.lists(LOGIT, min_size=size, max_size=size), st.lists(LOGIT, min_size=size, max_size=size)
    )
)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(PAIRS, st.integers(1, 24), st.integers(1, 24))
@example(([0.0, 5.0], [5.0, 0.0]), 1, 1)
@example(([12.0, -12.0, -12.0], [-12.0, 12.0, 12.0]), 1, 2)
@example(([0.0] * 20, [0.0] * 20), 3, 5)
def test_the_bounds_hold_the_full_divergence(pair, k, m):
    p, q = map(shares, pair)
    (low,), (high,) = kl_bounds(truncated([p], k), truncated([q], m))
    exact = scalar_kl(p, q)
    assert low <= exact * (1 + 1e-9) + 1e-12
    assert exact <= high * (1 + 1e-9) + 1e-12
    assert low >= 0


@settings(deadline=None, max_examples=100)
@given(PAIRS)
def test_whole_distributions_leave_nothing_open(pair):
    p, q = map(shares, pair)
    size = len(p)
    (low,), (high,) = kl_bounds(truncated([p], size), truncated([q], size, floor=False))
    exact = scalar_kl(p, q)
    assert abs(high - exact) <= 1e-9 * (1 + exact)
    assert exact - 70 * ROUNDING <= low <= exact + 1e-9


@settings(deadline=None, max_examples=100)
@given(PAIRS, st.integers(1, 20), st.floats(0.001, 0.5), st.floats(0.001, 0.5))
@example(([0.0] * 2, [0.0] * 2), 1, 0.5, 2**-9)
def test_the_lower_bound_is_reached_by_equal_tails(pair, tail, rest_p, rest_q):
    """Both list the same tokens, and their tails of many tokens are alike but for their mass."""
    head_p, head_q = map(shares, pair)
    p = np.concatenate([head_p * (1 - rest_p), np.full(64 * tail, rest_p / (64 * tail))])
    q = np.concatenate([head_q * (1 - rest_q), np.full(64 * tail, rest_q / (64 * tail))])
    size = len(head_p)
    if p[:size].min() <= p[size] or q[:size].min() <= q[size]:
        return  # then the k best are others
    (low,), _ = kl_bounds(truncated([p], size), truncated([q], size))
    # D(α) = −α (r_q + ε) + (1 + ln α) r_p + Σ_A at α = r_p / (r_q + ε), less ε |1 + ln α| as r_p is
    # not known better, and the divergence is r_p ln(r_p / r_q) + Σ_A
    widened = rest_q + ROUNDING
    less = rest_p * math.log(widened / rest_q) + ROUNDING * abs(1 + math.log(rest_p / widened))
    assert low == pytest.approx(max(scalar_kl(p, q) - less, 0), abs=1e-9)


def test_caps_raise_the_lower_bound():
    """P's first token is outside Q's list, so it has at most the least listed probability:
    0.9 ln(0.9 / 0.05).
    """
    p = np.array([0.9, *[0.1 / 40] * 40])
    q = np.array([0.01, *[0.99 / 40] * 40])
    (low,), _ = kl_bounds(truncated([p], 1), truncated([q], 3))
    coarse = 0.9 * math.log(0.9 / (1 - 3 * 0.99 / 40)) + 0.1 * math.log(0.1 / (3 * 0.99 / 40))
    assert low > 0.9 * math.log(0.9 / (0.99 / 40)) - 0.5 > max(coarse, 2)
    assert low <= scalar_kl(p, q)


def test_no_floor_is_no_upper_bound():
    p, q = shares([1.0, 0.5, 0.0]), shares([0.0, 0.5, 1.0])
    _, (high,) = kl_bounds(truncated([p], 2), truncated([q], 2, floor=False))
    assert high == math.inf
    ours = truncated([q], 2, floor=False)
    with pytest.raises(ValueError, match="floor"):
        score(TOKEN_KL_MOST, ours, labels=None, reference=truncated([p], 2))


def test_blocks_and_padding_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    p, q = (np.array([shares(row) for row in rng.normal(0, 3, (50, 12))]) for _ in range(2))
    whole = kl_bounds(truncated(p, 4), truncated(q, 6))
    monkeypatch.setattr("qbench.metrics.token_streams._BLOCK", 100)
    for one, other in zip(
        whole, kl_bounds(truncated(p, 4, pad=3), truncated(q, 6, pad=1)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_metrics_are_sums_over_tokens():
    rng = np.random.default_rng(2)
    p, q = (np.array([shares(row) for row in rng.normal(0, 2, (9, 7))]) for _ in range(2))
    lengths = [4, 0, 5]
    ours, theirs = (truncated(one, 7, lengths=lengths, realised=3) for one in (q, p))
    kl = score(TOKEN_KL_MOST, ours, labels=None, reference=theirs)
    assert kl.value == pytest.approx(
        np.mean([scalar_kl(a, b) for a, b in zip(p, q, strict=True)]), abs=1e-5
    )
    assert score(TOKEN_KL, ours, labels=None, reference=theirs).value <= kl.value + 1e-9
    first = score(TOKEN_TOP1, ours, labels=None, reference=theirs)
    assert (first.hits, first.out_of) == (int((p.argmax(1) == q.argmax(1)).sum()), 9)
    surprise = score(TOKEN_PERPLEXITY, ours, labels=((),) * 3, reference=theirs)
    assert surprise.value == pytest.approx(-np.log(q[:, 3]).mean(), abs=1e-5)
    assert surprise.reference_value == pytest.approx(-np.log(p[:, 3]).mean(), abs=1e-5)


def test_ties_take_the_lowest_token_and_rows_have_samples():
    rows = [[0.25, 0.25, 0.25, 0.25], [0.1, 0.4, 0.4, 0.1]]
    streams = truncated(rows, 4, lengths=[1, 1])
    assert streams.first.tolist() == [0, 1]
    assert {name: len(array) for name, array in streams.arrays().items()} == dict.fromkeys(
        streams.arrays(), 2
    )


def test_what_is_no_distribution_is_refused():
    good = truncated([[0.5, 0.5]], 2)
    with pytest.raises(ValueError, match="add up"):
        TokenStreams(good.lengths, good.realised, good.top, good.logprobs + 1, good.floor)
    with pytest.raises(ValueError, match="above 0"):
        TokenStreams(good.lengths, good.realised + 1, good.top, good.logprobs, good.floor)
    with pytest.raises(ValueError, match="rows"):
        TokenStreams(good.lengths + 1, good.realised, good.top, good.logprobs, good.floor)
    with pytest.raises(ValueError, match="compares the same tokens"):
        score(TOKEN_TOP1, good, labels=None, reference=truncated([[0.5, 0.5]] * 2, 2))
