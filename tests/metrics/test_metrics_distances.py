"""Distances to fp32 against scipy and plain loops, and what they refuse."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import cosine
from scipy.special import softmax
from scipy.stats import entropy

from qbench.metrics import Answers, Direction, OutputKind, Outputs, get_metric, held_outputs, score
from qbench.metrics.answers import HELD_NUMBERS, HELD_SAMPLES

rows = hnp.arrays(np.float32, (3, 5), elements=st.floats(-30, 30, width=32))
shares = hnp.arrays(np.float32, (3, 4), elements=st.floats(0, 1, width=32))


def answers(values, kind=OutputKind.CLASSES, n=None):
    held = Outputs(np.array(values, dtype=np.float32), kind)
    return Answers(np.zeros((n or len(held), 1), np.int32), outputs=held)


def counted(name, fp32, now, kind=OutputKind.CLASSES):
    """The values of every sample, in the metric's unit."""
    counts = get_metric(name).count(answers(now, kind), None, answers(fp32, kind))
    return (counts.hits / counts.out_of).tolist()


def one_sqnr(x, y):
    signal, noise = (
        sum(float(a) ** 2 for a in x),
        sum((float(a) - float(b)) ** 2 for a, b in zip(x, y, strict=True)),
    )
    if noise == 0:
        return 150.0
    return -150.0 if signal == 0 else min(150.0, max(-150.0, 10 * math.log10(signal / noise)))


def one_smape(x, y):
    parts = [
        (abs(float(a) - float(b)), abs(float(a)) + abs(float(b))) for a, b in zip(x, y, strict=True)
    ]
    return sum(2 * gap / size if size else 0.0 for gap, size in parts) / len(parts)


@given(rows, rows)
def test_sqnr_and_smape_are_their_formulas(x, y):
    assert counted("sqnr", x, y) == pytest.approx(
        [one_sqnr(*pair) for pair in zip(x, y, strict=True)], abs=6e-4
    )
    assert counted("smape", x, y) == pytest.approx(
        [one_smape(*pair) for pair in zip(x, y, strict=True)], abs=6e-7
    )


@given(rows, rows)
def test_cosine_is_that_of_scipy(x, y):
    x, y = np.where(np.abs(x) < 1e-3, 1, x), np.where(np.abs(y) < 1e-3, -1, y)
    expected = [1 - cosine(a.astype(float), b.astype(float)) for a, b in zip(x, y, strict=True)]
    assert counted("cosine", x, y) == pytest.approx(expected, abs=6e-7)


@given(rows, rows)
def test_divergence_of_logits_is_the_entropy_of_scipy(x, y):
    x[0, 0] = -1  # no probability, so that these are logits
    p, q = (softmax(z.astype(np.float64), axis=1) for z in (x, y))
    assert counted("kl", x, y) == pytest.approx(entropy(p, q, axis=1).tolist(), abs=6e-7)


@given(shares, shares)
def test_divergence_of_probabilities_takes_them_as_they_are_and_none_for_zero(x, y):
    p, q = (np.maximum(z.astype(np.float64), 1e-7) for z in (x, y))
    assert counted("kl", x, y) == pytest.approx(entropy(p, q, axis=1).tolist(), abs=6e-7)


def test_what_equals_fp32_has_no_distance():
    x = [[0.5, 0.25, 0.25], [0, 1, 0]]
    assert [counted(name, x, x) for name in ("sqnr", "cosine", "kl", "smape")] == [
        [150] * 2,
        [1] * 2,
        [0] * 2,
        [0] * 2,
    ]


def test_outputs_of_nothing():
    nothing, something = [[0, 0]], [[1, 2]]
    assert counted("sqnr", nothing, something) == [-150]
    assert counted("sqnr", something, nothing) == [0]
    assert [counted("cosine", *pair) for pair in ((nothing, nothing), (nothing, something))] == [
        [1],
        [0],
    ]
    assert [counted("smape", *pair) for pair in ((nothing, nothing), (something, nothing))] == [
        [0],
        [2],
    ]


def test_a_score_is_the_mean_over_held_samples_in_its_unit():
    now, fp32 = answers([[1, 0], [0, 0.9]], n=5), answers([[1, 0], [0, 1]], n=5)
    found = score(get_metric("sqnr"), now, labels=None, reference=fp32)
    assert (found.unit, found.direction, found.proportion, found.has_floor) == (
        "dB",
        Direction.HIGHER,
        False,
        False,
    )
    assert (found.n, found.hits, found.out_of, found.reference_hits) == (
        2,
        150_000 + 20_000,
        2000,
        300_000,
    )
    assert (found.value, found.losses, found.gains, found.interval) == (85, 1, 0, None)
    lower = score(get_metric("kl"), now, labels=None, reference=fp32)
    assert (lower.unit, lower.direction, lower.reference_value, lower.losses) == (
        "nats",
        Direction.LOWER,
        0,
        0,
    )


def test_outputs_that_cannot_be_compared_are_refused():
    bare = Answers(np.zeros((1, 1), np.int32))
    with pytest.raises(
        ValueError, match="sqnr compares outputs, and the task of these answers hands none over"
    ):
        get_metric("sqnr").count(bare, None, bare)
    with pytest.raises(ValueError, match=r"cosine compares outputs \(1, 2\) with \(1, 3\) of fp32"):
        counted("cosine", [[1, 2, 3]], [[1, 2]])
    with pytest.raises(ValueError, match="kl is of scores of classes"):
        counted("kl", [[1, 2]], [[1, 2]], OutputKind.VALUES)
    with pytest.raises(ValueError, match=r"outputs are \(m, d\) float32"):
        Outputs(np.zeros(3, np.float32), OutputKind.VALUES)


@pytest.mark.parametrize(
    ("width", "held"), [(10, HELD_SAMPLES), (1 << 17, 8), (2 * HELD_NUMBERS, 1)]
)
def test_no_more_is_held_than_is_said(width, held):
    rows = np.zeros((200 if width == 10 else 9, width), np.float16)
    found = held_outputs(rows, OutputKind.VALUES)
    assert (len(found), found.values.dtype) == (held, np.float32)
