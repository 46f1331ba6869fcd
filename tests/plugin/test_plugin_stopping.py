"""``stop = "decided"`` from outside: cells that end early, what they still check, and those
that run to the end.
"""

import pytest

from qbench.errors import IncomparableError
from qbench.tracking import compare_runs, read_run

ENGINE = """
from qbench.backends import get_backend


class Moved:
    def __init__(self, executor):
        self.executor = executor

    def run(self, feeds):
        return {name: one + 0.0 for name, one in self.executor.run(feeds).items()}

    def close(self):
        self.executor.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class Engine:
    capabilities, packages, name = get_backend("ort-cpu").capabilities, ("onnxruntime",), "own"

    def prepare(self, model, *, taps=(), threads=1):
        return Moved(get_backend("ort-cpu").prepare(model, taps=taps, threads=threads))
"""

SUITE = """
[suite]
tolerance = {tolerance}
agreement = 0.3
backends = ["ort-cpu"]
schemas = ["{schema}"]
fp32 = {fp32}
stop = "decided"
decision = "{decision}"
{settings}

[[model]]
id = "{model}"
data = "points"
calibration = {{ data = "spare", count = 64 }}
metrics = [{metrics}]
"""


@pytest.fixture
def write(project):
    def write(
        decision="ci",
        tolerance=0.2,
        schema="w8a8_asym_pc",
        settings="",
        model="tiny_a",
        fp32="false",
        metrics='"top1"',
    ):
        given = {
            "decision": decision,
            "tolerance": tolerance,
            "schema": schema,
            "settings": settings,
        }
        project.write_suite(SUITE.format(model=model, fp32=fp32, metrics=metrics, **given))
        return project

    return write


def cells(project):
    return {cell["schema"]: cell for cell in project.lines(kind="cell")}


@pytest.mark.slow
def test_a_good_cell_ends_when_its_loss_is_proven_and_is_compared_with_what_was_accepted(write):
    project = write()
    project.accept()
    whole = cells(project)["w8a8_asym_pc"]
    assert "stopped" not in whole  # what is accepted is all samples
    assert whole["n"] == 400
    result = project.run("-v")
    result.assert_outcomes(passed=1)
    cell = cells(project)["w8a8_asym_pc"]
    said = f"stopped after {cell['n']} of 400 samples: decided"
    shown = [line for line in result.outlines if said in line]
    assert any("PASSED" in line for line in shown)
    assert f"tiny_a::ort-cpu+w8a8_asym_pc {said}" in shown
    assert cell["n"] == cell["stopped"]["samples"]["points"] < 400
    assert cell["stopped"]["of"] == {"points": 400}
    assert cell["stopped"]["decided"] == {"top1": "holds"}
    assert cell["stopped"]["proven"] == ["top1"]
    assert f"stopped after {cell['n']} of 400 samples: decided" in cell["headline"]
    assert "predictions:points" not in cell["digests"]
    (drift,) = (gate for gate in cell["gates"] if gate["metric"] == "predictions")
    assert (drift["state"], "are answered as accepted" in drift["detail"]) == ("holds", True)
    first = cell["stopped"]
    project.run().assert_outcomes(passed=1)
    assert (
        cells(project)["w8a8_asym_pc"]["stopped"] == first
    )  # the order is that of the data's digest


@pytest.mark.slow
def test_a_changed_answer_among_those_that_ran_is_drift(write):
    project = write()
    project.write_conftest(f"{ENGINE}\nMORE = dict(backends=dict(own=Engine))")
    path = project.suite_path
    path.write_text(path.read_text().replace('"ort-cpu"', '"own"'))
    project.accept()
    project.run().assert_outcomes(passed=1)
    project.write_conftest(
        f"{ENGINE}\nMORE = dict(backends=dict(own=Engine))".replace(
            "+ 0.0", "+ 0.1 * np.sin(30 * one)"
        )
    )
    project.run()
    cell = cells(project)["w8a8_asym_pc"]
    assert cell["outcome"] == "drifted"
    assert "stopped" in cell
    (drift,) = (gate for gate in cell["gates"] if gate["metric"] == "predictions")
    assert f"in the {cell['n']} of 400 samples that were run" in drift["detail"]
    whole, *_, last = (read_run(path) for path in project.run_files)
    with pytest.raises(IncomparableError, match="one of them stopped after"):
        compare_runs(whole, last)


@pytest.mark.slow
def test_a_cell_whose_accepted_answers_were_not_kept_is_run_whole_and_compared(write):
    project = write()
    path = project.suite_path
    text = path.read_text()
    path.write_text(text.replace('stop = "decided"', ""))
    project.accept()
    path.write_text(text)
    project.run().assert_outcomes(passed=1)
    cell = cells(project)["w8a8_asym_pc"]
    assert "stopped" not in cell
    (drift,) = (gate for gate in cell["gates"] if gate["metric"] == "predictions")
    assert drift["state"] == "holds"
    project.run("--qbench-accept=new")  # the same result, now with its answers
    project.run().assert_outcomes(passed=1)
    assert "stopped" in cells(project)["w8a8_asym_pc"]


LISTED = """[[cell]]
cell = "tiny_a::*"
measured = "m"
reason = "r"
owner = "o"
expires = "2999-12-31"
"""


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("added", "is_whole"),
    [
        ("", False),  # nothing to compare a part of the samples with
        ('[cell.values.x64]\n"tiny_a::ort-cpu+w8a8_asym_pc" = { top1 = 0.1 }\n', True),
        (
            '[cell.values]\n"tiny_a::ort-cpu+w8a8_asym_pc" = { top1 = 0.1 }\n',
            True,
        ),  # version 2 of the file
        (
            'when = "riscv64"\n[cell.values.riscv64]\n'
            '"tiny_a::ort-cpu+w8a8_asym_pc" = { top1 = 0.1 }\n',
            False,
        ),
    ],
)
def test_a_cell_that_is_listed_with_values_is_run_whole(write, added, is_whole):
    project = write()
    project.accept()
    path = project.suite_path
    path.with_name(path.name.replace(".qbench.", ".quarantine.")).write_text(LISTED + added)
    project.run()
    cell = cells(project)["w8a8_asym_pc"]
    assert ("stopped" not in cell, cell["n"] == 400) == (is_whole, is_whole)


def test_a_bad_cell_fails_early_by_its_counts_alone(write):
    project = write(
        decision="point", tolerance=0.02, schema="w4a8_sym_pt", settings="integer_macs = 0"
    )
    project.accept()
    project.run()
    cell = cells(project)["w4a8_sym_pt"]
    assert cell["outcome"] == "failed"
    assert (
        cell["stopped"]["proven"] == []
    )  # fp32 answers all of them right, so that nothing is left to gain
    assert cell["stopped"]["decided"] == {"top1": "broken"}
    score = cell["metrics"]["top1"]
    assert score["losses"] - score["gains"] > 8  # the margin, 2 % of 400
    assert cell["n"] < 200


@pytest.mark.slow
def test_an_agreement_floor_is_decided_too(write):
    project = write(metrics='"top1", "agreement"')
    project.run()  # nothing is accepted: the floor is that of the suite, 0.3
    cell = cells(project)["w8a8_asym_pc"]
    assert cell["stopped"]["decided"] == {"top1": "holds", "agreement": "holds"}
    project.accept()
    project.run()
    found = cells(project)[
        "w8a8_asym_pc"
    ]  # the accepted floor is 2 % under what was measured: closer, so later
    assert found["n"] > cell["n"]
    (floor,) = (gate for gate in found["gates"] if gate["kind"] == "floor")
    assert floor["state"] == "holds"


@pytest.mark.slow
def test_a_good_cell_ends_by_its_counts_where_these_decide(write):
    project = write(decision="point", tolerance=0.05)
    project.accept()
    project.run().assert_outcomes(passed=1)
    cell = cells(project)["w8a8_asym_pc"]
    assert cell["stopped"]["decided"] == {"top1": "holds"}
    assert cell["n"] < 400


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "settings",
    [
        {"metrics": '"top1", "sqnr"'},  # a distance is of outputs
        {"settings": "repeats = 2"},
        {"settings": 'equal_to = "ort-cpu-noopt"', "tolerance": 0.5},
    ],
)
def test_what_needs_every_sample_runs_to_the_end(write, settings):
    project = write(**settings)
    project.accept()
    project.run()
    cell = cells(project)["w8a8_asym_pc"]
    assert "stopped" not in cell
    assert cell["n"] == 400
    assert cell["digests"]["predictions:points"]


@pytest.mark.slow
def test_float_cells_reproduce_their_reference_whole(write):
    project = write(fp32="true")
    project.accept()
    project.run()
    found = cells(project)
    assert "stopped" not in found["fp32"]
    assert "stopped" in found["w8a8_asym_pc"]


@pytest.mark.slow
def test_an_early_end_has_no_point_in_a_series_and_is_not_accepted(write):
    from qbench.tracking import record_of_line

    project = write()
    project.accept()
    project.run()
    record = record_of_line(project.lines(kind="cell")[0])
    assert not list(record.counted())
    assert record.measurement().stopped == record.stopped
    from qbench.judging import Rules
    from qbench.tracking import Accepting, Scope, accept_measurements, load_baseline

    baseline = load_baseline(project.path / "baselines" / "scratch" / "tiny_a.json")
    taken = accept_measurements(
        baseline,
        [record.measurement()],
        accepting=Accepting(scope=Scope.ALL, reason="try"),
        rules=Rules(),
    )
    assert not taken.rows
    assert "stopped after" in taken.refusals[0].reason


@pytest.mark.parametrize("word", ['"soon"', "3", '{ "ort-cpu" = "later" }'])
def test_another_word_is_one_sentence(write, word):
    project = write(settings="")
    path = project.suite_path
    path.write_text(path.read_text().replace('stop = "decided"', f"stop = {word}"))
    result = project.run()
    text = "\n".join(line for line in result.outlines if "expected" in line)
    assert "stop" in text
    assert "Traceback" not in str(result.stdout)
