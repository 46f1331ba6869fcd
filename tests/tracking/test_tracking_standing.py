"""Whether a run is whole, the newest result of every cell, and the cells that were lost."""

import dataclasses

import pytest
from tracked_results import HERE, line, measured, run, top1

from qbench.errors import IncompleteError
from qbench.judging import Accepted, Cell, Outcome
from qbench.tracking import (
    AcceptedCell,
    absent_cells,
    demand_whole,
    incomplete_words,
    is_whole,
    lost_cells,
    standing_of,
)

SLUGS = ("ort-cpu+w8a8_asym_pc", "ort-cpu+w8a8_sym_pc", "ort-cpu+fp32")


def cell(slug):
    return Cell("smoke", "mobilenet_v2", *slug.split("+"))


def night(slugs=SLUGS, *, number=0, red=(), unsupported=(), predictions="p1", planned=3, **more):
    lines = []
    for slug in slugs:
        outcome = Outcome.DRIFTED if slug in red else Outcome.PASSED
        one = line(measured(top1(758), slug=slug, predictions=predictions), outcome)
        if slug in unsupported:
            one = {
                key: one[key] for key in ("type", "suite", "model", "backend", "schema", "variant")
            }
            one |= {"outcome": "unsupported"}
        lines.append(one)
    return run(*lines, number=number, **{"planned": planned, "selected": planned, **more})


@pytest.mark.parametrize(
    ("made", "absent", "whole"),
    [
        (night(), 0, True),
        (night(SLUGS[:1]), 2, False),
        (night(()), 3, False),
        (night(SLUGS[:1], selected=1), 0, True),  # -k
        (run(line(measured())), 0, True),  # of an older qbench, whose header counts nothing
        (
            night((SLUGS[0], SLUGS[0], SLUGS[1])),
            1,
            False,
        ),  # a cell that a worker lost and another one measured
        (dataclasses.replace(night(), complete=False), 0, False),
        (dataclasses.replace(night(), damaged=1), 0, False),
    ],
)
def test_a_run_is_whole_when_every_cell_that_it_selected_has_a_line(made, absent, whole):
    assert (absent_cells(made), is_whole(made)) == (absent, whole)
    assert bool(list(incomplete_words(made, "it"))) != whole
    assert made.is_green == whole


def test_a_run_that_ended_without_lines_of_its_cells_was_not_interrupted(words):
    short = dataclasses.replace(night(SLUGS[:1]), complete=False)
    ended = dataclasses.replace(short, ended=True)
    words(list(incomplete_words(ended, "it")))
    assert list(incomplete_words(short, "it")) == [
        "it was interrupted",
        *incomplete_words(ended, "it"),
    ]
    with pytest.raises(IncompleteError, match="no line for 2 of the 3 cells"):
        demand_whole(ended)
    with pytest.raises(IncompleteError, match="interrupted"):
        demand_whole(short)


def test_a_cell_is_lost_when_it_was_measured_or_accepted_before():
    new = night(SLUGS[:2], unsupported=SLUGS[1:2])
    lost = lost_cells(new, {cell(slug) for slug in SLUGS})
    assert (lost.gone, lost.unsupported, lost.count) == ((cell(SLUGS[2]),), (cell(SLUGS[1]),), 2)
    assert lost_cells(new, {cell(SLUGS[0])}).count == 0


def test_a_run_of_a_part_replaces_only_its_cells():
    part = night(SLUGS[:1], number=2, red=SLUGS[:1], selected=1)
    standing = standing_of("smoke", [part, night(number=1, red=SLUGS[1:2]), night()], {})
    assert [record.cell for record in standing.red] == [cell(SLUGS[0]), cell(SLUGS[1])]
    assert len(standing.run.cells) == len(SLUGS)
    assert standing.newest.id == part.id
    assert standing.lost.count == 0


def test_a_cell_that_a_baseline_or_the_run_before_has_is_missed():
    smaller = night(SLUGS[:2], number=1, planned=2)
    assert standing_of("smoke", [smaller, night()], {}).lost.gone == (cell(SLUGS[2]),)
    held = AcceptedCell(accepted={str(HERE): Accepted(metrics={}, predictions={})})
    assert standing_of("smoke", [smaller], {cell(SLUGS[2]): held}).lost.gone == (cell(SLUGS[2]),)
    assert standing_of("smoke", [smaller], {cell(SLUGS[2]): held.outdated()}).lost.count == 0
    assert standing_of("smoke", [], {}) is None


def test_an_interrupted_run_of_the_suite_loses_no_cell_that_it_did_not_reach():
    stopped = dataclasses.replace(night(SLUGS[:1], number=2, red=SLUGS[:1]), complete=False)
    standing = standing_of("smoke", [stopped, night(number=1, red=SLUGS[1:2]), night()], {})
    assert [record.cell for record in standing.red] == [cell(SLUGS[0]), cell(SLUGS[1])]
    assert standing.lost.count == 0
    assert standing.newest.id == stopped.id
    ended = dataclasses.replace(
        stopped, ended=True
    )  # it came to its end and has no line of two cells
    assert standing_of("smoke", [ended, night()], {}).lost.count == len(SLUGS) - 1


def test_runs_of_shards_alone_stand_together():
    shards = [night([slug], number=at, red=[slug], selected=1) for at, slug in enumerate(SLUGS)]
    standing = standing_of("smoke", shards[::-1], {})
    assert [record.cell for record in standing.red] == [cell(slug) for slug in SLUGS]
    assert standing.lost.count == 0


@pytest.mark.parametrize(("predictions", "red"), [("p2", 0), ("p3", 1)])
def test_what_was_accepted_since_is_not_red_any_more(predictions, red):
    made = night(red=SLUGS[:1], predictions="p2")
    accepted = Accepted(
        metrics={"top1@photos": 758},
        predictions={n: f"{predictions}-{n}" for n in ("photos", "words")},
    )
    held = {cell(SLUGS[0]): AcceptedCell(accepted={str(HERE): accepted})}
    assert len(standing_of("smoke", [made], held).red) == red


def test_nothing_is_accepted_from_a_run_whose_cells_have_no_line():
    demand_whole(night())
    demand_whole(night(SLUGS[:1], selected=1))
    with pytest.raises(IncompleteError, match="no line for 2 of the 3 cells"):
        demand_whole(night(SLUGS[:1]))
