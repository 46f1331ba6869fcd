"""Perplexity is counted from likelihoods in whole numbers, and told as its logarithm."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qbench.metrics import AnswerKind, Answers, Direction, Likelihoods, get_metric, score


def answers(*samples):
    """Of probabilities of right tokens, sample by sample."""
    surprise = np.array([round(-1e6 * sum(map(math.log, one))) for one in samples], dtype=np.int64)
    tokens = np.array([len(one) for one in samples], dtype=np.int64)
    ids = np.zeros((len(samples), 1), np.int32)
    return Answers(ids, kind=AnswerKind.SEQUENCE, likelihoods=Likelihoods(surprise, tokens))


def test_it_is_the_mean_over_tokens_and_not_over_samples():
    fp32, now = answers([0.5, 0.5, 0.5], [1.0]), answers([0.5, 0.5, 0.5], [0.5])
    found = score(get_metric("perplexity"), now, labels=((1, 2), ()), reference=fp32)
    assert (found.unit, found.direction, found.n, found.proportion) == (
        "nats",
        Direction.LOWER,
        2,
        False,
    )
    assert math.exp(found.value) == pytest.approx(2, abs=1e-6)
    assert math.exp(found.reference_value) == pytest.approx(2**0.75, abs=1e-6)
    assert (found.losses, found.gains) == (1, 0)


def test_its_interval_is_that_of_resampled_sums():
    fp32 = answers(*[[0.9, 0.8]] * 40)
    now = answers(*[[0.9, 0.8]] * 20, *[[0.9, 0.7]] * 20)
    found = score(get_metric("perplexity"), now, labels=((1,),) * 40, reference=fp32)
    low, high = found.interval
    assert 0 < low < found.value - found.reference_value < high < math.log(0.8 / 0.7) / 2


def test_answers_without_likelihoods_are_refused():
    bare = replace(answers([0.5]), likelihoods=None)
    with pytest.raises(ValueError, match="these answers have none"):
        score(get_metric("perplexity"), bare, labels=((),), reference=bare)


@pytest.mark.parametrize("tokens", [np.ones(2, np.int64), np.ones(1), np.ones((1, 1), np.int64)])
def test_likelihoods_are_whole_and_of_one_length(tokens):
    with pytest.raises(ValueError, match="likelihoods are"):
        Likelihoods(np.ones(1, np.int64), tokens)
