"""How long a cell is expected to take: the median of its last runs, else an estimate, and which of
them it was.
"""

import pytest

from qbench.judging import Cell
from qbench.suite import Durations, Source
from qbench.suite.suite_file import CalibrationChoice, ModelTable
from qbench.tracking import Carried, CellRecord, record_of_line

AVX2 = "x64-avx2+onnxruntime-1.31.1"


def _table(samples=None):
    return ModelTable(
        id="m",
        data="d",
        calibration=CalibrationChoice(data="c", count=1),
        metrics=("top1",),
        samples=samples,
    )


def _record(seconds, *, model="m", backend="x", schema="s", macs=0, n=None, **more):
    return CellRecord(
        suite="smoke",
        model=model,
        backend=backend,
        schema=schema,
        seconds={"run": seconds} if seconds is not None else {},
        environment_class=more.pop("environment_class", AVX2),
        macs=macs,
        n=n,
        outcome=more.pop("outcome", "passed"),
        **more,
    )


def _of(records, cell=("m", "x", "s"), *, samples=None, processor=None):
    durations = Durations(processor)
    for record in records:
        durations.add(record)
    durations.settle()
    return durations.of(Cell("smoke", *cell), _table(samples))


def test_the_median_of_the_last_three_runs():
    assert _of(map(_record, [4, 1, 2, 900])) == (2, Source.HISTORY)


@pytest.mark.parametrize("seconds", [-5.0, 1e308, float("inf"), float("nan"), 4e7])
def test_seconds_that_no_cell_takes_do_not_count(seconds):
    damaged = _record(None).line() | {"seconds": {"prepare": seconds, "run": 1e308}}
    records = [record_of_line(damaged), _record(seconds), _record(2)]
    assert _of(records) == (2, Source.HISTORY)
    assert _of(records[:2]) == (1, Source.MEDIAN)


def test_only_runs_on_the_wanted_processor_count():
    records = [_record(8, environment_class="x64-vnni"), _record(2)]
    assert _of(records, processor="x64-avx2") == (2, Source.HISTORY)
    assert _of(records, processor="x64-vnni") == (8, Source.HISTORY)
    assert _of(records, processor="arm64") == (1, Source.MEDIAN)


def test_a_carried_time_counts_only_where_no_run_has_measured_the_cell():
    carried = Carried(run="r", measured="2026-11-01T00:00:00+00:00", commit="c")
    assert _of([_record(9, carried=carried), _record(2)]) == (2, Source.HISTORY)
    other = _record(2, schema="t")
    assert _of([_record(9, carried=carried), other]) == (9, Source.HISTORY)


def test_a_cell_that_was_not_run_says_nothing():
    assert _of([_record(None, outcome="error"), _record(2)]) == (2, Source.HISTORY)


def test_an_unsupported_cell_takes_no_time_unless_its_packages_were_not_there():
    records = [_record(None, outcome="unsupported"), _record(3, schema="t")]
    assert _of(records) == (0, Source.HISTORY)
    unfetched = [_record(None, outcome="unsupported", unfetched=True), _record(3, schema="t")]
    assert _of(unfetched) == (3, Source.MEDIAN)


def test_an_unknown_cell_of_a_known_model_is_estimated_by_its_work():
    """On backend y: 10 s for 1000 samples of 100; of m 200 of 50, hence 1 s."""
    records = [_record(10, model="o", backend="y", macs=100, n=1000)]
    records += [_record(7, backend="x", macs=50, n=200)]
    assert _of(records, ("m", "y", "s")) == (pytest.approx(1), Source.MACS)
    seconds, source = _of(records, ("m", "y", "s"), samples=400)
    assert (seconds, source) == (pytest.approx(2), Source.MACS)


def test_an_unknown_model_takes_the_median_of_the_known():
    records = [_record(seconds, schema=f"s{seconds}") for seconds in (1, 5, 40)]
    assert _of(records, ("new", "x", "s")) == (5, Source.MEDIAN)


def test_without_any_run_all_cells_are_equal():
    assert _of([]) == (1, Source.MEDIAN)
