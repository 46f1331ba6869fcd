"""Shares and counts, as people write them."""

import pytest

from qbench.number_text import counted, rough_percent


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100 %"), (0.9999, "100 %"), (0.123, "12 %"), (0.0456, "4.6 %"), (0.00034, "0.034 %"), (0.0951, "9.5 %")],
)
def test_shares(share, text):
    assert rough_percent(share) == text


def test_counts():
    assert [counted(n, "layer") for n in (0, 1, 2)] == ["0 layers", "1 layer", "2 layers"]
