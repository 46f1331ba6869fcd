"""Skipped, quarantined, broken: each outcome is shown as what it is, and recorded."""

from collections import Counter

import pytest

ENGINES = """
from qbench.backends import get_backend
from qbench.errors import UnsupportedError


class Engine:
    capabilities, packages = get_backend("ort-cpu").capabilities, ("onnxruntime",)

    def __init__(self, name):
        self.name = name

    def prepare(self, model, *, taps=(), threads=1):
        if self.name == "picky":
            raise UnsupportedError(
                "Loading it", found="a Gemm", expected="no Gemm", remedy="Use another.")
        raise RuntimeError("the engine fell over\\nin two lines")


def absent():
    import no_such_engine


MORE = {"backends": {"picky": lambda: Engine("picky"), "broken": lambda: Engine("broken"),
                     "absent": absent}}
"""


def only(project, backend):
    text = project.suite_path.read_text()
    project.write_suite(
        text.replace('backends = ["ort-cpu", "ort-cpu-noopt"]', f'backends = ["{backend}"]')
    )
    project.write_conftest(ENGINES)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("backend", "reason"),
    [("picky", "*found a Gemm; expected no Gemm*"), ("absent", "*provides 'no_such_engine'*")],
)
def test_what_a_backend_cannot_do_is_skipped_with_its_reason(project, backend, reason):
    only(project, backend)
    result = project.run("-rs")
    assert result.ret == 1  # nothing was measured
    assert result.parseoutcomes() == {"skipped": 4}
    result.stdout.fnmatch_lines([f"SKIPPED*suites/scratch.qbench.toml:*{reason}"])
    assert set(project.outcomes().values()) == {"unsupported"}


MISSING = """
import dataclasses
import os

from qbench.errors import NotFetchedError


def unfetched():
    raise NotFetchedError(
        "Downloading the package 'x==1'", found="no index", expected="it", remedy="Look for one.")


plain = model


def model(name, seed):
    made = plain(name, seed)
    if name == "tiny_a" and "OFFLINE" in os.environ:
        return lambda: dataclasses.replace(made(), graphs={"model": unfetched})
    return made


MORE = {}
"""


@pytest.mark.slow
def test_a_model_whose_package_cannot_be_had_is_red_where_it_was_accepted_and_skipped_elsewhere(
    project, monkeypatch
):
    project.write_conftest(MISSING)
    project.accept()
    monkeypatch.setenv("OFFLINE", "1")
    monkeypatch.setenv("FAKE_PROCESSOR", "arm64-test")
    assert project.run("--qbench-missing=skip").parseoutcomes()["skipped"] == 4
    monkeypatch.delenv("FAKE_PROCESSOR")
    result = project.run("-rs")
    assert result.ret == 1
    assert result.parseoutcomes() == {"failed": 4, "passed": 4}
    result.stdout.fnmatch_lines(["*Downloading the package 'x==1': found no index*"])
    assert (
        sum(bool(cell.get("unfetched")) for cell in project.lines() if cell["type"] == "cell") == 4
    )
    assert project.run("-k", "tiny_a").ret == 1  # nothing at all was measured


FICKLE = """
import os

from qbench.backends import get_backend
from qbench.errors import UnsupportedError


class Fickle:
    name, capabilities, packages = "fickle", get_backend("ort-cpu").capabilities, ("onnxruntime",)

    def prepare(self, model, *, taps=(), threads=1):
        if "SULKS" in os.environ:
            raise UnsupportedError(
                "Loading it", found="a Gemm", expected="no Gemm", remedy="Use another.")
        return get_backend("ort-cpu").prepare(model, taps=taps)


MORE = {"backends": {"fickle": Fickle}}
"""


@pytest.mark.slow
def test_what_ran_and_was_accepted_here_is_red_when_it_is_unsupported(project, monkeypatch):
    only(project, "fickle")
    project.write_conftest(FICKLE)
    assert project.accept().ret == 0
    monkeypatch.setenv("SULKS", "1")
    result = project.run()
    assert result.parseoutcomes() == {"failed": 4}
    result.stdout.fnmatch_lines(["*unsupported*: *found a Gemm*", "  cell: *is drifted"])
    assert set(project.outcomes().values()) == {"drifted"}
    monkeypatch.setenv("FAKE_PROCESSOR", "arm64-test")
    assert project.run().parseoutcomes() == {"skipped": 4}
    monkeypatch.delenv("FAKE_PROCESSOR")
    assert project.run("--qbench-limit=9").parseoutcomes() == {"skipped": 4}


REPLACED = """
def foreign():
    graph = network(1)
    node = next(node for node in graph.graph if node.op_type == "Relu")
    node.domain, node.op_type = "com.x", "Odd"
    graph.opset_imports["com.x"] = 1
    return graph


if "REPLACED" in os.environ:
    network_a, model_of = foreign, model

    def model(name, seed):
        from dataclasses import replace

        return lambda: replace(model_of(name, seed)(), graphs={"model": network_a})
"""


@pytest.mark.slow
def test_an_accepted_model_replaced_by_one_that_no_engine_knows_is_red(project, monkeypatch):
    project.write_conftest(extra=REPLACED)
    assert project.accept().ret == 0
    monkeypatch.setenv("REPLACED", "1")
    for workers in (0, 1):
        result = project.run(workers=workers)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert set(project.outcomes().values()) == {"drifted"}
        assert result.parseoutcomes() == {"failed": 8}


def test_the_short_summary_says_the_news_not_the_cell_again(project):
    project.accept()
    project.write_suite(
        project.suite_path.read_text().replace("tolerance = 0.2", "tolerance = 0.003")
    )
    result = project.run("-k", "tiny_a and not noopt")
    result.stdout.fnmatch_lines(
        ["FAILED suites/scratch.qbench.toml::tiny_a::ort-cpu+w8a8_asym_pc - top1 100.00*"]
    )


@pytest.mark.slow
def test_a_crash_of_an_engine_keeps_its_traceback_and_is_recorded(project):
    only(project, "broken")
    result = project.run()
    assert result.parseoutcomes() == {"failed": 4}
    result.stdout.fnmatch_lines(["*in prepare*", "E*RuntimeError: the engine fell over"])
    assert {line["headline"] for line in project.lines(kind="cell")} == {
        "RuntimeError: the engine fell over"
    }
    assert set(project.outcomes().values()) == {"error"}
    assert project.lines(kind="end")[0]["exit_code"] == 1


def quarantine(project, cell="tiny_a::ort-cpu+w8a8*", expires="2999-01-01"):
    (project.suite_path.parent / "scratch.quarantine.toml").write_text(
        f'[[cell]]\ncell = "{cell}"\nmeasured = "97 %"\nreason = "no headroom"\nowner = "ann"\n'
        f'expires = "{expires}"\n'
    )


def test_a_known_bad_cell_is_its_own_category(project):
    project.write_suite(
        project.suite_path.read_text().replace("tolerance = 0.2", "tolerance = 0.003")
    )
    project.accept()
    quarantine(project)
    result = project.run()
    assert result.parseoutcomes() == {
        "passed": 6,
        "quarantined": 1,
        "failed": 1,
    }  # noopt is not listed
    assert any(line.startswith("suites/scratch.qbench.toml .q.F....") for line in result.outlines)
    assert project.run("-k", "not noopt", "-v").ret == 0


@pytest.mark.parametrize(
    ("tolerance", "expires", "sentence", "word"),
    [
        ("0.003", "2020-01-01", "*the quarantine ended on 2020-01-01*", "is expired"),
        ("0.2", "2999-01-01", "*no longer fails*", "no longer fails"),
    ],
)
def test_an_entry_that_ran_out_or_is_not_needed_is_red(project, tolerance, expires, sentence, word):
    project.write_suite(
        project.suite_path.read_text().replace("tolerance = 0.2", f"tolerance = {tolerance}")
    )
    project.accept()
    quarantine(project, "tiny_a::ort-cpu+w8a8_asym_pc", expires)
    result = project.run("-k", "tiny_a and not noopt", "-v")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines([sentence, f"  cell: tiny_a::ort-cpu+w8a8_asym_pc {word}"])
    result.stdout.fnmatch_lines([f"*::ort-cpu+w8a8_asym_pc {word.removeprefix('is ').upper()}*"])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_pattern_is_not_needed_when_none_of_its_cells_fails(project, workers):
    project.accept()
    quarantine(project, "tiny_*::*+w8a8*")
    result = project.run(workers=workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert set(project.outcomes().values()) == {"passed"}
    result.stdout.fnmatch_lines(
        ["qbench: Reading the quarantine entry 'tiny_[*]::[*]+w8a8[*]': all 4 of its cells here*"]
    )
    (end,) = project.lines(kind="end")
    assert end["exit_code"] == 1


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("part", [("-k", "ort-cpu and not noopt"), ("--qbench-limit=40",)])
def test_a_part_of_its_cells_or_samples_does_not_tell_that_a_pattern_is_not_needed(project, part):
    project.accept()
    quarantine(project, "tiny_*::*+w8a8*")
    assert project.run(*part).ret == pytest.ExitCode.OK


@pytest.mark.slow
def test_a_pattern_of_which_some_cells_fail_is_needed(project):
    project.write_suite(
        project.suite_path.read_text().replace("tolerance = 0.2", "tolerance = 0.003")
    )
    project.accept()
    quarantine(project, "tiny_*::*+w8a8*")
    result = project.run()
    assert result.ret == pytest.ExitCode.OK
    # How many answers a processor loses depends on how it multiplies bytes: what must fail follows
    # from its counts.
    labelled = [cell for cell in project.lines(kind="cell") if cell["model"] == "tiny_a"]
    failing = [cell for cell in labelled if cell["fp32_correct"] * 0.997 > cell["correct"]]
    assert [cell["outcome"] for cell in failing] == ["quarantined"] * len(failing)
    assert Counter(project.outcomes().values()) == {
        "passed": 8 - len(failing),
        "quarantined": len(failing),
    }
    bad = len(failing)
    assert 1 <= bad < 4
    note = (
        "note: does not fail, though 'tiny_[*]::[*]+w8a8[*]' lists "
        f"it as known bad ({4 - bad} cell*)"
    )
    result.stdout.fnmatch_lines([note])


def test_hooks_change_the_record(project):
    hook = 'def pytest_qbench_update_record(config, record):\n    record["board"] = "devkit 3"\n'
    project.write_conftest(extra=hook)
    project.run("-k", "tiny_a and fp32 and not noopt")
    assert project.lines(kind="cell")[0]["board"] == "devkit 3"


@pytest.mark.slow
@pytest.mark.parametrize("where", ["command line", "ini"])
def test_an_option_wins_over_every_table_of_a_suite(project, where):
    """A model's own tolerance, a cell's and a metric's: all three won in silence."""
    text = project.suite_path.read_text()
    own = 'tolerance = { "w8a8_asym_pc" = { value = 0.9, metrics = { top1 = 0.9 } } }'
    project.write_suite(text.replace('id = "tiny_a"', f'id = "tiny_a"\n{own}'))
    project.accept()
    option = "--qbench-tolerance=0.003"
    if where == "ini":
        with (project.path / "tox.ini").open("a") as ini:
            ini.write("\nqbench_tolerance = 0.003\n")
        option = "-v"
    result = project.run(option)
    name = "qbench_tolerance" if where == "ini" else "--qbench-tolerance"
    notes = [line["text"] for line in project.lines(kind="note")]
    assert notes == [
        f"{name}=0.003 sets the tolerance of all 8 cells of suite scratch, "
        "in 2 of them (tiny_a) in place of a table of their own."
    ]
    result.stdout.fnmatch_lines([f"note: {name}=0.003 sets the tolerance of all 8 cells*"])
    cells = project.lines(kind="cell")
    losses = {g["rule"] for line in cells for g in line["gates"] if g["kind"] == "loss"}
    assert losses == {f"tolerance 0.3 % (option {name})"}


@pytest.mark.slow
def test_tolerance_and_threads_by_option_and_ini(project):
    project.accept()
    given = project.run("--qbench-tolerance=0.003")
    assert given.parseoutcomes() == {"passed": 6, "failed": 2}
    given.stdout.fnmatch_lines(
        [
            "  rule: tolerance 0.3 % (option --qbench-tolerance)",
            "        set on the command line: --qbench-tolerance",
        ]
    )
    with (project.path / "tox.ini").open("a") as ini:
        ini.write("\nqbench_tolerance = 0.003\nqbench_baselines = elsewhere\n")
    result = project.run("--qbench-baselines=baselines")
    assert result.parseoutcomes() == {"passed": 6, "failed": 2}
    result.stdout.fnmatch_lines(["        set in the ini file of pytest: qbench_tolerance"])
    assert set(project.outcomes().values()) == {"passed", "failed"}


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--qbench-tolerance=1.5", "*found '1.5'; expected a number from 0 to below 1*"),
        ("--qbench-threads=none", "*found 'none'; expected a whole number from 1*"),
        (
            "--qbench-report=pdf",
            "*found 'pdf'; expected one of html, md, png, badge, comment, github*",
        ),
        ("--qbench-missing=ignore", "*found 'ignore'; expected one of fail, warn, skip*"),
        ("--qbench-limit=0", "*found '0'; expected a whole number from 1*"),
    ],
)
def test_options_without_sense_are_usage_errors(project, option, sentence):
    result = project.run(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([sentence])
