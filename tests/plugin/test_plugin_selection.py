"""Suites are ordinary pytest items: whatever selects, repeats,
stops or reports tests does so with cells.
"""

import xml.etree.ElementTree

import pytest

NODE = "suites/scratch.qbench.toml::"
CELLS = [
    f"{NODE}{model}::{backend}+{schema}"
    for model in ("tiny_a", "tiny_b")
    for backend in ("ort-cpu", "ort-cpu-noopt")
    for schema in ("fp32", "w8a8_asym_pc")
]


def collected(result):
    return [line for line in result.outlines if line.startswith(NODE)]


def test_node_ids_in_the_order_of_the_file(project):
    assert collected(project.run("--collect-only", "-q")) == CELLS


def test_the_tree_is_file_model_cell(project):
    result = project.run("--collect-only")
    result.stdout.fnmatch_lines(
        ["*<SuiteFile scratch.qbench.toml>", "*<ModelNode tiny_a>", "*<CellItem ort-cpu+fp32>"]
    )


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        (("-k", "tiny_b and noopt"), CELLS[6:]),
        (("-m", 'qbench(backend="ort-cpu")'), [*CELLS[:2], *CELLS[4:6]]),
        (("-m", 'qbench(backend="ort-cpu", schema="fp32", model="tiny_a")'), CELLS[:1]),
        (("--qbench-select", "model=tiny_b backend=ort-cpu"), CELLS[4:6]),
        (("--qbench-select", "backend=*-noopt,none schema=w8*"), [CELLS[3], CELLS[7]]),
        (("--deselect", CELLS[0]), CELLS[1:]),
    ],
)
def test_selecting(project, options, chosen):
    assert collected(project.run("--collect-only", "-q", *options)) == chosen


def test_node_ids_on_the_command_line(project):
    assert collected(
        project.run("--collect-only", "-q", CELLS[3], f"{NODE}tiny_b", suite=False)
    ) == [
        CELLS[3],
        *CELLS[4:],
    ]


def test_selection_that_cannot_be_read_is_a_usage_error(project):
    result = project.run("--qbench-select", "modle=tiny_a")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*found 'modle=tiny_a'; expected axis=pattern*Did you mean 'model'?"]
    )


@pytest.mark.slow
def test_last_failed_runs_only_the_red_cells(project):
    project.accept("-k", "not tiny_b or not noopt")  # two cells nobody accepted
    assert project.run().parseoutcomes() == {"passed": 6, "failed": 2}
    result = project.run("--lf")
    assert result.parseoutcomes() == {"failed": 2, "deselected": 6}
    assert set(project.outcomes()) == {
        "tiny_b::ort-cpu-noopt+fp32",
        "tiny_b::ort-cpu-noopt+w8a8_asym_pc",
    }
    assert project.lines(kind="run")[0]["complete_selection"] is False


def test_exitfirst_stops_and_marks_the_run_incomplete(project):
    result = project.run("-x")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len(project.outcomes()) == 1
    assert not project.lines(kind="end")
    assert any("7 of 8 selected cells" in note["text"] for note in project.lines(kind="note"))


@pytest.mark.slow
def test_junit_xml_holds_every_cell_with_its_message(project):
    project.accept("-k", "tiny_a")
    project.run("--junitxml=junit.xml", "-k", "tiny_a or (tiny_b and not noopt)")
    cases = xml.etree.ElementTree.parse(project.path / "junit.xml").findall(".//testcase")
    assert len(cases) == 6
    failed = [case for case in cases if case.find("failure") is not None]
    assert {case.get("name") for case in failed} == {"ort-cpu+fp32", "ort-cpu+w8a8_asym_pc"}
    assert all("is missing" in case.find("failure").text for case in failed)
    assert {case.get("classname") for case in failed} == {"suites.scratch.qbench.toml.tiny_b"}


@pytest.mark.slow
def test_the_same_under_two_workers_one_model_each(project):
    project.accept()
    result = project.run("--dist", "loadscope", "-v", workers=2)
    assert result.parseoutcomes() == {"passed": 8}
    workers = {}
    for line in result.outlines:
        if line.startswith("[gw") and "PASSED" in line:
            workers.setdefault(line.split("::")[1], set()).add(line[:5])
    assert {model: len(seen) for model, seen in workers.items()} == {"tiny_a": 1, "tiny_b": 1}
    assert len(project.run_files) == 2
    assert len(project.outcomes()) == 8
    assert project.lines(kind="end")[0] == {"type": "end", "cells": 8, "exit_code": 0}
    assert project.lines(kind="run")[0]["complete_selection"] is True


def test_verbose_shows_how_far_the_score_moved(project):
    project.run("-v", "-k", "tiny_a and w8a8").stdout.fnmatch_lines(
        ["*::ort-cpu+w8a8_asym_pc MISSING top1 *pp*"]
    )
