"""Times and sizes that an accepted result keeps: when they are replaced, with which row and
reason.
"""

import dataclasses

import pytest
from tracked_results import HERE, baseline, measured, top1

from qbench.errors import InputError
from qbench.judging import (
    Calibrated,
    Gate,
    GateKind,
    GateState,
    MovedRange,
    Outcome,
    Rules,
    Verdict,
)
from qbench.tracking import (
    Acceptance,
    AcceptedRow,
    Accepting,
    CellRecord,
    Scope,
    accept_measurements,
    accepted_lines,
    is_taken,
    joined_baselines,
    record_of_line,
)

SLUG = "ort-cpu+w8a8_asym_pc"


def costly(ratio=None, size=None, *scores, **more):
    """A measurement with a latency ratio, which differs from ratios beyond 20 %, and a size."""
    numbers = {"latency": ratio, "file_size": size}
    remembered = {kind: number for kind, number in numbers.items() if number is not None}
    ranges = {kind: (number, number) for kind, number in remembered.items()}
    if ratio is not None:
        ranges["latency"] = (ratio / 1.2, ratio * 1.2)
    return measured(*scores, remembered=remembered, remembered_range=ranges, **more)


def accept(base, measurement, scope=Scope.ALL, reason="a new kernel"):
    return accept_measurements(
        base, [measurement], accepting=Accepting(scope=scope, reason=reason), rules=Rules()
    )


def kept(acceptance):
    return acceptance.baseline.cells[SLUG].accepted[str(HERE)].remembered


@pytest.fixture
def known():
    return accept(baseline(), costly(0.7, 30_000), Scope.NEW, "").baseline


def test_a_ratio_within_the_margin_stays_and_is_no_change(known):
    found = accept(known, costly(0.75, 30_000))
    assert found.baseline is known
    assert not found.rows
    assert accept(known, costly(0.75, 30_000), Scope.NEW).left_changed == 0


def test_two_branches_that_accept_other_answers_do_not_differ_in_the_ratio(known):
    """Each acceptance replaced the median by its own, so that any two branches had a conflict."""
    ours = accept(known, costly(0.66, 30_000, top1(755), predictions="p2")).baseline
    theirs = accept(known, costly(0.78, 30_000, top1(755), predictions="p2")).baseline
    assert ours.cells == theirs.cells
    assert joined_baselines(known, ours, theirs, "merging").cells == ours.cells


@pytest.mark.parametrize("ratio", [0.9, 0.5])
def test_a_ratio_beyond_the_margin_is_replaced_with_a_row_and_for_a_reason(known, ratio):
    with pytest.raises(InputError, match="qbench-reason"):
        accept(known, costly(ratio, 30_000), reason="")
    found = accept(known, costly(ratio, 30_000))
    assert kept(found) == {"latency": ratio, "file_size": 30_000}
    (row,) = [row for row in found.rows if row.unit == "× fp32"]
    assert (row.cell, row.metric, row.old, row.new) == (SLUG, "latency", 0.7, ratio)


def test_another_size_is_replaced_with_a_row_and_for_a_reason(known):
    with pytest.raises(InputError, match="qbench-reason"):
        accept(known, costly(0.7, 29_000), reason="")
    found = accept(known, costly(0.7, 29_000))
    assert any(
        line.split("  ")[-1] == "30,000 bytes → 29,000 bytes" and "file_bytes" in line
        for line in accepted_lines("mobilenet_v2", found.rows, most=5)
    )
    assert accept(known, costly(0.7, 29_000), Scope.NEW).left_changed == 1


def test_a_first_number_is_a_row_without_a_reason():
    found = accept(
        accept(baseline(), measured(), Scope.NEW, "").baseline, costly(0.7), Scope.NEW, ""
    )
    (row,) = [row for row in found.rows if row.metric == "latency"]
    assert (row.old, row.new) == (None, 0.7)


def test_another_model_keeps_no_number_of_the_former(known):
    former = known.cells[SLUG].outdated()
    base = dataclasses.replace(known, cells={SLUG: former})
    assert kept(accept(base, costly(0.75, 30_000)))["latency"] == 0.75


@pytest.mark.parametrize(
    "kind",
    [GateKind.DRIFT, GateKind.EXECUTED_DRIFT, GateKind.FILE_SIZE_DRIFT, GateKind.LATENCY_DRIFT],
)
def test_an_accepted_calibration_does_not_excuse_another_drift(kind):
    """Only a drift of answers was looked for: a larger file was green with the calibration."""
    ranges = Calibrated(key="default", ranges={"x": (0.0, 1.0)})
    gate = Gate(kind=kind, metric="m", state=GateState.BROKEN, detail="d", rule="r")
    moved = MovedRange(value="x", before=(0.0, 1.0), after=(0.0, 2.0), apart=0.5)
    verdict = Verdict(
        outcome=Outcome.DRIFTED, headline="h", rule="r", gates=(gate,), moved=(moved,)
    )
    row = AcceptedRow(
        cell="calibration:default", environment_class="any", metric="ranges", old=1, new=1, out_of=1
    )
    found = Acceptance(baseline=baseline(), rows=(row,))
    assert not is_taken(found, measured(calibrated=ranges), verdict)
    assert is_taken(found, measured(calibrated=ranges), dataclasses.replace(verdict, gates=()))


def test_a_record_keeps_the_range():
    record = CellRecord.of(
        measured().cell, Verdict(outcome=Outcome.PASSED, headline="h", rule="r"), costly(0.7, 10)
    )
    again = record_of_line(record.line()).measurement()
    assert again.remembered_range == {
        "latency": pytest.approx((0.7 / 1.2, 0.7 * 1.2)),
        "file_size": (10, 10),
    }
    assert (
        "remembered_range"
        not in CellRecord.of(
            measured().cell, Verdict(outcome=Outcome.PASSED, headline="h", rule="r"), measured()
        ).line()
    )
