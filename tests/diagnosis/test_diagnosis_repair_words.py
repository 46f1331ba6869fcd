"""What is said of a repair: whole clauses, and how far a budget reached."""

import pytest

from qbench.diagnosis.repair.cell import _notes, _whole
from qbench.diagnosis.repair.search import RepairSet


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


@pytest.mark.parametrize(("probes", "tried"), [(1, "1 set"), (3, "3 sets")])
def test_a_budget_that_ran_out_says_how_far_it_reached(probes, tried):
    found = RepairSet(nodes=(), restores=False, smallest=False, finished=False, probes=probes)
    (note,) = _notes(found, "", resumable=False)
    assert note == f"the budget ran out after {tried} of nodes: no set restored the verdict yet"
