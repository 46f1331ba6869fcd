"""Shares and counts, as people write them."""

import pytest

from qbench.number_text import change_text, counted, rough_percent


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100 %"),
        (0.9999, "100 %"),
        (0.123, "12 %"),
        (0.0456, "4.6 %"),
        (0.00034, "0.034 %"),
        (0.0951, "9.5 %"),
    ],
)
def test_shares(share, text):
    assert rough_percent(share) == text


def test_counts():
    assert [counted(n, "layer") for n in (0, 1, 2)] == ["0 layers", "1 layer", "2 layers"]


@pytest.mark.parametrize(
    ("change", "unit", "text"),
    [
        (-0.0125, "%", "−1.25 pp"),
        (-1e-9, "%", "+0.00 pp"),
        (-2.1, "dB", "−2.1 dB"),
        (-2e-7, "k-steps", "−2e−07 k-steps"),
    ],
)
def test_only_the_number_of_a_change_gets_a_real_minus_sign(change, unit, text):
    assert change_text(change, unit) == text
