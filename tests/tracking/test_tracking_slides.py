"""Slow slides are seen; steps, noise and what gets better are none."""

import random

import pytest

from qbench.tracking import slide_of
from qbench.tracking.slides import FEWEST, mann_kendall

LEAST = 0.002


@pytest.mark.parametrize(
    ("values", "loss"),
    [
        ([0.76 - 0.0003 * night for night in range(30)], 0.006),
        ([0.76] * 7 + [0.757] * 8 + [0.754] * 8 + [0.751] * 7, 0.009),
        ([0.76] * 15 + [0.75] * 15, 0.0),  # one step
        ([0.76] * 25 + [0.75] * 5, 0.0),
        ([0.70 + 0.0003 * night for night in range(30)], 0.0),  # better
        ([0.76] * 30, 0.0),
        ([0.76 - 0.00001 * night for night in range(30)], 0.0),  # less than counts
        ([0.76 - 0.01 * night for night in range(FEWEST - 1)], 0.0),  # too few
    ],
)
def test_a_slide_is_what_no_one_night_made(values, loss):
    assert slide_of(values, least=LEAST) == pytest.approx(loss)
    turned = [1 - value for value in values]
    assert slide_of(turned, least=LEAST, lower_is_better=True) == pytest.approx(loss)


def test_noise_is_hardly_ever_a_slide_and_a_noisy_slide_mostly_is():
    draw = random.Random(1)
    noise = [[draw.gauss(0.76, 0.002) for _ in range(30)] for _ in range(200)]
    slides = [[draw.gauss(0.76 - 0.0003 * n, 0.001) for n in range(30)] for _ in range(50)]
    assert not any(slide_of(values, least=LEAST) for values in noise)
    assert sum(slide_of(values, least=LEAST) > 0 for values in slides) > 40


def test_mann_kendall_is_that_of_the_book():
    """S = 13 of 15 pairs, variance 6 · 5 · 17 / 18; with the ties 1 1 it is 24 / 18 less."""
    assert mann_kendall([1, 2, 3, 5, 4, 6]) == pytest.approx((13 - 1) / (510 / 18) ** 0.5)
    assert mann_kendall([1, 1, 3, 5, 4, 6]) == pytest.approx((12 - 1) / ((510 - 18) / 18) ** 0.5)
    assert mann_kendall([2, 2, 2]) == 0.0
    assert mann_kendall([3, 2, 1]) < 0
