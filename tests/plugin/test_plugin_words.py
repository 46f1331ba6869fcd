"""Words of the terminal, and notes on a run, that need no run of pytest."""

import pytest

from qbench.plugin.items import change_text
from qbench.plugin.recording import OpenRun, Recorder
from qbench.tracking import record_of_line


def line(**more):
    axes = {
        "suite": "s",
        "model": "m",
        "backend": "ort-cpu",
        "schema": "w8a8_asym_pc",
        "variant": "",
    }
    return {"type": "cell", **axes, "outcome": "passed", **more}


@pytest.mark.parametrize(
    ("name", "unit", "text"),
    [
        ("f1-macro", "%", "f1-macro −1.00 pp"),
        ("rouge-l", "dB", "rouge-l −0.01 dB"),
        ("top1", "%", "top1 −1.00 pp"),
    ],
)
def test_the_name_of_a_metric_keeps_its_hyphens(name, unit, text):
    score = {"hits": 98, "reference_hits": 99, "out_of": 100, "unit": unit}
    assert change_text(line(metrics={name: score})) == text


def test_of_several_runs_the_mean_is_shown_that_is_judged():
    score = {"hits": 96, "reference_hits": 99, "out_of": 100, "unit": "%"}
    runs = {"runs": 3, "metrics": {"top1": {"hits": [96, 98, 97], "out_of": [100] * 3, "pairs": 4}}}
    assert change_text(line(metrics={"top1": score}, repeats=runs)) == "top1 −2.00 pp"
    assert (
        change_text(line(metrics={"top1": score}, repeats=runs | {"metrics": {}}))
        == "top1 −3.00 pp"
    )


@pytest.mark.parametrize(
    ("outcomes", "code", "said"),
    [
        ((), 0, []),
        (("passed", "unsupported"), 0, []),
        (("unsupported",), 1, ["not one of the 1 cells of 's' was measured"]),
    ],
)
def test_a_run_without_cells_is_no_run_in_which_none_was_measured(outcomes, code, said):
    recorder = Recorder(None, None, None)
    run = OpenRun({"suite": "s", "selected": len(outcomes)}, {}, {}, None)
    run.cells += [record_of_line(line(outcome=outcome)) for outcome in outcomes]
    assert recorder._note_unmeasured(run) == code
    assert recorder.problems == run.notes == said
