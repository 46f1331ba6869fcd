"""Tolerances of the error, recovery and slices, from the outside."""

import pytest

SUITE = """
[suite]
backends = ["ort-cpu"]
schemas = ["w8a8_asym_pc"]
fp32 = false
integer_macs = 0.0
{asked}

[[model]]
id = "{model}"
data = "points"
calibration = {{ data = "spare", count = 64 }}
metrics = ["top1"]
"""


def gates(project, kind):
    (line,) = project.lines(kind="cell")
    return line, [gate for gate in line["gates"] if gate["kind"] == kind]


def test_a_cell_is_judged_by_the_error_of_fp32_what_it_recovers_and_every_class(project):
    project.write_suite(
        SUITE.format(
            model="tiny_b",
            asked=(
                'tolerance = { rel = 0.5 }\nrelative_to = "error"\nrecovery = 0.5\nslices = "class"'
            ),
        )
    )
    assert project.accept().ret == 0
    assert project.run().ret == 0
    line, (loss,) = gates(project, "loss")
    top1 = line["metrics"]["top1"]
    wrong = top1["n"] - top1["reference_hits"]
    assert "of the error (suite" in loss["rule"]
    margin = max(wrong / 2, 0)
    assert loss["limit"] is None or loss["limit"] * top1["n"] == pytest.approx(
        top1["reference_hits"] - margin
    )
    _, (recovery,) = gates(project, "recovery")
    assert recovery["state"] == "holds"
    assert f"% recovered: top1 {top1['hits']}/{top1['n']}" in recovery["detail"]
    assert "against today's fp32" in recovery["detail"]
    _, (slices,) = gates(project, "slice")
    assert slices["state"] == "holds"
    assert slices["detail"].startswith("worst slice 'class ")
    assert slices["rule"].startswith("slices by class (suite")


def test_a_recovery_that_is_not_reached_is_red(project):
    project.write_suite(SUITE.format(model="tiny_a", asked="tolerance = 0.9\nrecovery = 1.0"))
    result = project.run("--qbench-missing=warn")
    line, (recovery,) = gates(project, "recovery")
    top1 = line["metrics"]["top1"]
    assert (recovery["state"] == "broken") == (top1["hits"] < top1["reference_hits"])
    assert (result.ret == pytest.ExitCode.TESTS_FAILED) == (recovery["state"] == "broken")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ('slices = "devise"', "unknown column 'devise'"),
        ('relative_to = "eror"', "relative_to"),
    ],
)
def test_a_rule_that_cannot_be_is_one_sentence(project, asked, words):
    project.write_suite(SUITE.format(model="tiny_a", asked=asked))
    result = project.run("--qbench-missing=warn")
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"*{words}*"])
    result.stdout.no_fnmatch_line("*Traceback*")
