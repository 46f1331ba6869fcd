"""The table of a proof as text, Markdown and a page: the same facts in each."""

import re

import pytest
from test_reporting_pages import Page

from qbench.reporting import proof_facts, proof_markdown, proof_notes, proof_page, proof_table
from qbench.reporting.proof_rows import PROOF_COLUMNS, caught_text, interval_text, share_sentence
from qbench.tracking import (
    Caught,
    ProofCell,
    ProofRemedy,
    ProofStart,
    ProofTrial,
    TrialState,
    join_proof,
)

MADE = {"suite": "a"}
WHAT = {"slow": "It is <b>slow</b>.", "odd": "It is odd."}
GATE = ProofRemedy(name="an equality gate", setting='equal_to = { "b+w" = "c" }, model m')


def trial(fault, place, state, **more):
    return ProofTrial(
        made=MADE, cell="m::b+w", fault=fault, stage="engine", sites=("conv",), place=place,
        state=state, **more,
    )  # fmt: skip


def table(**more):
    start = ProofStart(
        made=MADE, suite="s", cells=("m::b+w", "m::c+w"), kinds=("slow", "odd", "late", "never"),
        unfit=("kernels",),
    )  # fmt: skip
    cells = [
        ProofCell(made=MADE, cell="m::b+w", applies=("slow", "odd", "late"), is_green=True),
        ProofCell(made=MADE, cell="m::c+w", is_green=False, outcome="failed", headline="lost <i>"),
    ]
    trials = [
        trial("slow", 0, TrialState.LET_THROUGH, remedies=(GATE,)),
        trial("slow", 1, TrialState.CAUGHT, gates=("drift",)),
        trial("odd", 0, TrialState.CAUGHT, gates=("loss", "drift")),
        trial("odd", 1, TrialState.NO_EFFECT),
    ]
    proof = join_proof([start, *cells, *trials])
    return proof_table(proof, WHAT, untried=proof.pending, **more)


def test_the_facts():
    facts = proof_facts(table(floor=0.9))
    assert facts["caught"] | {"interval": None} == {
        "caught": 2, "of": 3, "share": 2 / 3, "interval": None,
    }  # fmt: skip
    assert (facts["let_through"], facts["no_effect"], facts["caught_by_class_alone"]) == (1, 1, 1)
    assert (facts["cells"], facts["green"]) == (2, 1)
    assert facts["untried"] == ["late"]
    assert facts["not_applicable"] == ["never", "kernels"]
    assert [one["cell"] for one in facts["left_out"]] == ["m::c+w"]
    assert facts["by_gate"] == {"drift": 2, "loss": 1}
    assert [one["fault"] for one in facts["faults"]] == ["slow", "odd"]  # the weakest first
    assert facts["faults"][0]["remedies"][0]["catches"] == 1


@pytest.mark.parametrize(("floor", "is_below"), [(None, False), (0.5, False), (0.9, True)])
def test_the_floor(floor, is_below):
    assert table(floor=floor).is_below is is_below
    assert ("below" in share_sentence(table(floor=floor))) is is_below


def test_nothing_that_changed_anything_is_no_share():
    nothing = proof_table(join_proof([]), {}, floor=0.9)
    assert not nothing.is_below
    assert caught_text(nothing.caught) == "–"
    assert interval_text(nothing.caught) == ""
    assert proof_notes(nothing) == ()
    assert nothing.proves_nothing
    assert "nothing was proven" in share_sentence(nothing)
    assert '<p class="headline red">' in proof_page(nothing)
    assert Caught(count=0, n=0).share is None


def test_the_page_has_the_rows_and_no_markup_of_others():
    page = proof_page(table(floor=0.9))
    found = Page(page)
    assert found
    assert "It is &lt;b&gt;slow" in page
    assert "lost &lt;i&gt;" in page
    assert "Not complete." in page
    assert "below the floor of 90.0 %" in page
    assert len(re.findall(r'<tr class="weak">', page)) == 1
    assert page.index(">slow<") < page.index(">odd<")
    complete = proof_page(proof_table(join_proof([]), {}))
    assert "Not complete." not in complete


def test_markdown_has_the_same_rows():
    text = proof_markdown(table())
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows[0].startswith("| `slow` | engine | 1 of 2 | 9 to 91 % |")
    assert rows[1].startswith("| `odd` | engine | 1 of 1 |")
    assert "an equality gate (1 of 1)" in rows[0]
    assert "missing: late" in text
    assert len(PROOF_COLUMNS) == rows[0].count(" | ") + 1


def test_what_is_lacking_and_what_could_not_be_put_is_named():
    start = ProofStart(made=MADE, suite="s", cells=("m::b+w",), kinds=("slow",))
    place = trial("slow", 0, TrialState.NOT_PUT, headline="ValueError: too wide")
    found = proof_table(join_proof([start, place]), WHAT, lacking=("no end of share 1/2",))
    assert not found.trials
    for text in (proof_markdown(found), proof_page(found)):
        assert "no end of share 1/2" in text
        assert "slow could not be put at 1 place: ValueError: too wide" in text


def test_a_kind_that_another_share_has_is_not_without_a_place():
    start = ProofStart(made=MADE, suite="s", cells=("m::b+w",), kinds=("slow", "odd", "late"))
    cell = ProofCell(made=MADE, cell="m::b+w", applies=("slow", "odd"), is_green=True)
    proof = join_proof([start, cell, trial("slow", 0, TrialState.CAUGHT)])
    assert proof_table(proof, WHAT).unfit == ("late",)


def test_cells_that_are_left_out_are_named_with_their_outcome():
    cells = tuple(f"m::b{number}+w" for number in range(5))
    start = ProofStart(made=MADE, suite="s", cells=cells, kinds=("slow",))
    lines = [
        ProofCell(made=MADE, cell=cell, is_green=False, outcome="quarantined", headline="lost")
        for cell in cells
    ]
    found = proof_table(join_proof([start, *lines]), WHAT)
    note = next(one for one in proof_notes(found) if "left out" in one)
    assert note.startswith("5 cells left out, quarantined without a fault: ")
    for text in (note, proof_markdown(found), proof_page(found)):
        assert all(cell in text for cell in cells)
