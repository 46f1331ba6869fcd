"""Distances to fp32 and a metric of a user's own, in units, from a suite to the terminal."""

import pytest

METRIC = """
import numpy as np
from qbench.metrics import Against, Counts, Direction, Metric


def count_gaps(answers, labels, reference):
    ours, theirs = answers.held("gap").values, reference.held("gap").values
    gaps = np.abs(ours - theirs).max(axis=1)
    return Counts(np.rint(1000 * gaps).astype(np.int64), np.full(len(gaps), 1000))


GAP = Metric(
    name="gap", title="Largest gap", direction=Direction.LOWER, against=Against.REFERENCE,
    count=count_gaps, unit="mV", proportion=False, of_run=True,
)
"""

SUITE = """
[suite]
backends = ["ort-cpu"]
schemas = ["w8a8_asym_pc"]
agreement = 0.5
tolerance = 0.5

[[model]]
id = "tiny_a"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1", "agreement"]
"""
MORE = '["top1", "agreement", "gap", "sqnr", "kl", "negative_flips", "ties"]'


@pytest.mark.slow
def test_a_suite_asks_for_more_than_was_accepted(project):
    project.write_conftest('MORE = {"metrics": {"gap": lambda: GAP}}', extra=METRIC)
    project.write_suite(SUITE)
    assert project.accept().parseoutcomes() == {"accepted": 2}
    asked = SUITE.replace('["top1", "agreement"]', MORE)
    project.write_suite(asked)
    result = project.run("-v")
    assert result.parseoutcomes() == {"passed": 2}
    fp32, quantized = (line["metrics"] for line in project.lines(kind="cell"))
    assert (fp32["sqnr"]["value"], fp32["gap"]["value"], fp32["kl"]["hits"]) == (150, 0, 0)
    assert {
        (name, quantized[name]["unit"], quantized[name]["n"]) for name in ("gap", "sqnr", "ties")
    } == {
        ("gap", "mV", 128),
        ("sqnr", "dB", 128),
        ("ties", "%", 400),
    }
    assert 10 < quantized["sqnr"]["value"] < 60
    gates = {gate["metric"]: gate for gate in project.lines(kind="cell")[1]["gates"]}
    assert {gates[name]["state"] for name in ("gap", "sqnr", "kl", "negative_flips", "ties")} == {
        "shown"
    }

    project.write_suite(asked + "limits = { gap = 0.0001, sqnr = 5.0 }\n")
    result = project.run()
    assert result.parseoutcomes() == {"passed": 1, "failed": 1}
    result.stdout.fnmatch_lines(
        [
            "*limit: gap * mV over 128 samples, at most 0.0001 mV",
            "*gap * mV, limit 0.0001 mV*",
            "*1 beyond its limit*",
        ]
    )

    assert project.accept("--qbench-accept=new").parseoutcomes() == {"passed": 1, "failed": 1}


def test_a_limit_of_something_else_is_one_sentence(project):
    for limits, sentence in (
        ("{ agreement = 0.9 }", "*'agreement', which is not a distance to fp32*"),
        ("{ sqnr = 9.0 }", "*unknown metric 'sqnr'*"),
        ("{ top1 = nan }", "*limits.top1 = nan*"),
    ):
        project.write_suite(SUITE + f"limits = {limits}\n")
        result = project.run("--collect-only")
        assert result.ret != 0
        result.stdout.fnmatch_lines([sentence])
