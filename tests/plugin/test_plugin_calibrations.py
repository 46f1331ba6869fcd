"""Another calibration, from a suite to the terminal: told on every machine, accepted once,
never by the way.
"""

import json
import re
import shlex
import subprocess
import sys

import pytest

SUITE = """
[suite]
backends = ["ort-cpu"]
schemas = ["w8a8_asym_pc", "w8a8_sym_pc"]
fp32 = false
agreement = 0.5
tolerance = 0.5

[[model]]
id = "tiny_a"
data = "points"
calibration = {{ data = "spare", count = {count} }}
metrics = ["top1", "agreement"]
"""
CHANGED = ("--qbench-accept=changed", "--qbench-reason", "fewer samples suffice")


def known(project):
    path = project.path / "baselines" / "scratch" / "tiny_a.json"
    return json.loads(path.read_text())["calibrations"]


@pytest.fixture
def recalibrated(project):
    project.write_suite(SUITE.format(count=64))
    assert project.accept().parseoutcomes() == {"accepted": 2}
    assert project.run().parseoutcomes() == {"passed": 2}
    project.write_suite(SUITE.format(count=16))
    return project


@pytest.mark.slow
def test_it_is_told_where_nothing_was_ever_accepted(recalibrated, monkeypatch):
    before = known(recalibrated)
    assert set(before) == {"default"}
    assert set(before["default"]) >= {"x", "h2"}
    monkeypatch.setenv("FAKE_PROCESSOR", "other-test")
    result = recalibrated.run()
    assert result.parseoutcomes() == {"failed": 2}
    result.stdout.fnmatch_lines(["*calibration changed: *'x', −* … * → −* … *"])
    result.stdout.fnmatch_lines(["≠ * (2 cells)"])
    assert set(recalibrated.outcomes().values()) == {"drifted"}

    result = recalibrated.run(*CHANGED)
    assert result.parseoutcomes() == {"accepted": 2}
    result.stdout.fnmatch_lines(
        ["*tiny_a::calibration:default  ranges (* moved)  * values → * values*"]
    )
    assert known(recalibrated) != before
    assert recalibrated.run().parseoutcomes() == {"passed": 2}


@pytest.mark.slow
def test_the_command_that_looks_for_the_cause_names_the_range_and_what_to_do(recalibrated):
    """It compared with fp32 alone: the cell passed, and no range was named."""
    result = recalibrated.run()
    result.stdout.fnmatch_lines(["*if it is intended; else restore the accepted calibration data"])
    (command, *_) = (line for line in result.outlines if "cause: qbench localize" in line)
    words = shlex.split(command.partition("cause: qbench ")[2])
    assert words[-2:] == ["--baseline", "baselines/scratch/tiny_a.json"]

    def run(*more):
        command = [sys.executable, "-m", "qbench", *words, *more]
        return subprocess.run(
            command, cwd=recalibrated.path, capture_output=True, text=True, check=False
        )

    found = run("--samples", "8")
    assert found.returncode == 1, found.stderr
    text = found.stdout
    assert "calibration changed: " in text
    assert re.search(r"^  x +−.* … .* → −.* … ", text, re.MULTILINE)
    assert "next: restore the accepted calibration data (64 samples of 'spare'; now 16" in text
    assert '--qbench-accept=changed --qbench-reason "…"' in text
    assert run("--variant", "other").returncode == 2


@pytest.mark.slow
def test_it_is_why_predictions_drift_and_new_does_not_take_it(recalibrated):
    result = recalibrated.run()
    result.stdout.fnmatch_lines(["*calibration changed: *"])
    before = known(recalibrated)
    assert recalibrated.run("--qbench-accept=new").parseoutcomes() == {"failed": 2}
    assert known(recalibrated) == before
    assert recalibrated.run(*CHANGED).parseoutcomes() == {"accepted": 2}
    assert recalibrated.run().parseoutcomes() == {"passed": 2}


@pytest.mark.slow
def test_a_cell_that_is_new_here_stays_red_until_its_calibration_is_accepted(
    recalibrated, monkeypatch
):
    monkeypatch.setenv("FAKE_PROCESSOR", "other-test")
    assert recalibrated.run("--qbench-accept=new").parseoutcomes() == {"failed": 2}
    assert recalibrated.run().parseoutcomes() == {"failed": 2}


def test_a_suite_may_admit_it(recalibrated, monkeypatch):
    monkeypatch.setenv("FAKE_PROCESSOR", "other-test")
    recalibrated.write_suite(
        SUITE.format(count=16).replace("fp32 = false", "fp32 = false\nranges = 1.0")
    )
    assert recalibrated.run().parseoutcomes() == {"passed": 2}


@pytest.mark.slow
def test_a_run_made_elsewhere_brings_its_calibration(recalibrated):
    from qbench.cli.program import main

    recalibrated.run()
    assert (
        main(["accept", str(recalibrated.run_files[-1]), "--what", "changed", "--reason", "fewer"])
        == 0
    )
    assert recalibrated.run().parseoutcomes() == {"passed": 2}
