"""Bounds in words: plain numbers."""

import pytest

from qbench.diagnosis.target import bound_of
from qbench.metrics import Differences


@pytest.mark.parametrize(
    ("relative", "said"),
    [(1.8, "180 %"), (0.44, "44 %"), (0.013, "1.3 %"), (0.000012, "0.0012 %"), (0, "0 %")],
)
def test_no_powers_of_ten(relative, said):
    assert (
        bound_of(Differences(elements=2, differing=1, relative=relative))
        == f"by at most {said} of the largest"
    )
