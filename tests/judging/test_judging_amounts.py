"""Shares and steps as people write them: never as a power of ten,
however large or small they are.
"""

import pytest

from qbench.judging import PassNote
from qbench.number_text import rough_percent


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.996, "100 %"),
        (17.34, "1700 %"),
        (0.123, "12 %"),
        (0.0456, "4.6 %"),
        (0.02, "2 %"),
        (0.097, "9.7 %"),
        (0.00000097, "0.000097 %"),
        (3.4e-8, "0.0000034 %"),
        (-1.0, "-100 %"),
    ],
)
def test_a_rough_share_has_two_digits(share, text):
    assert rough_percent(share) == text


@pytest.mark.parametrize(
    ("steps", "relative", "far"),
    [
        (None, 1.0, "100 % of the largest"),
        (None, 0.0042, "0.42 % of the largest"),
        (4321.0, 1.0, "4321 steps"),
    ],
)
def test_what_a_pass_moved_reads_without_powers_of_ten(steps, relative, far):
    note = PassNote(
        name="p",
        effect="rounding(1)",
        removed=1,
        elements=10,
        differing=3,
        steps=steps,
        relative=relative,
    )
    assert str(note) == f"p (rounding(1)): 1 node fewer, moves 3 of 10 outputs by up to {far}"
