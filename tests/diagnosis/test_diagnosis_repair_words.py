"""What an override file says of the cell that it repairs: whole clauses."""

import pytest

from qbench.diagnosis.repairing.repair_of_cell import _whole


@pytest.mark.parametrize(
    ("headline", "said"),
    [
        ("top1 99.17 → 56.94 %: drop 42.22 pp", "top1 99.17 → 56.94 %: drop 42.22 pp"),
        ("never accepted; top1 99.17 → 99.17 %, agree…", "top1 99.17 → 99.17 %"),
        ("top1 99.17 → 56.94 %: drop 42.22 pp, marg…", "top1 99.17 → 56.94 %: drop 42.22 pp"),
        ("nothing…", "nothing…"),
    ],
)
def test_headlines_that_were_cut_end_with_a_whole_clause(headline, said):
    assert _whole(headline) == said
