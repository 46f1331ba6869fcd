"""The job that a process runs: by the option, or by the variable of its scheduler, from 1 whatever
that counts from.
"""

from pathlib import Path

import pytest

from qbench.errors import InputError
from qbench.suite import (
    PlannedCode,
    PlannedSuite,
    choose_job,
    choose_share,
    make_job_plan,
    save_job_plan,
)


@pytest.fixture
def folder(tmp_path):
    suite = PlannedSuite(path="suites/a.qbench.toml", name="a", digest="d", cells=1)
    code = PlannedCode(commit="", dirty=False, qbench="0")
    save_job_plan(make_job_plan([suite], code, None, [[]] * 20), tmp_path / "plan.json")
    return tmp_path


def _index(folder, text="plan.json", **environment):
    return choose_job(text, folder, environment).job.index


def test_a_share_has_its_number_or_that_of_a_scheduler():
    assert choose_share("", {}) == ""
    assert choose_share("3/20", {"CI_NODE_INDEX": "4"}) == "3/20"
    assert choose_share("20", {"JOB_COMPLETION_INDEX": "4"}) == "5/20"
    with pytest.raises(InputError) as error:
        choose_share("20", {})
    assert "no number" in error.value.found


def test_the_number_after_the_mark_wins(folder):
    assert _index(folder, "plan.json#7", CI_NODE_INDEX="3") == 7


@pytest.mark.parametrize(
    ("environment", "index"),
    [
        ({"SLURM_ARRAY_TASK_ID": "5"}, 5),
        ({"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_MIN": "1"}, 5),
        ({"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_MIN": "0"}, 6),
        ({"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_MIN": "0"}, 1),
        # some jobs of an array again
        ({"SLURM_ARRAY_TASK_ID": "9", "SLURM_ARRAY_TASK_MIN": "5"}, 9),
        ({"JOB_COMPLETION_INDEX": "0"}, 1),
        ({"JOB_COMPLETION_INDEX": "19"}, 20),
        ({"CI_NODE_INDEX": "1"}, 1),
        ({"CI_NODE_INDEX": "20"}, 20),
        ({"BUILDKITE_PARALLEL_JOB": "0"}, 1),
        ({"BUILDKITE_PARALLEL_JOB": "3", "CI_NODE_INDEX": "4"}, 4),
        ({"BUILDKITE_PARALLEL_JOB": "", "CI_NODE_INDEX": "4"}, 4),
    ],
)
def test_the_number_of_a_scheduler(folder, environment, index):
    assert _index(folder, **environment) == index


@pytest.mark.parametrize(
    ("text", "environment", "found"),
    [
        ("plan.json", {}, "no number"),
        ("plan.json", {"CI_NODE_INDEX": "3", "JOB_COMPLETION_INDEX": "3"}, "do not agree"),
        ("plan.json", {"CI_NODE_INDEX": "three"}, "'three'"),
        ("plan.json", {"SLURM_ARRAY_TASK_ID": "0"}, "a plan of 20 jobs"),
        ("plan.json", {"CI_NODE_INDEX": "21"}, "a plan of 20 jobs"),
        ("plan.json#21", {}, "a plan of 20 jobs"),
        ("plan.json#0", {}, "a plan of 20 jobs"),
        ("plan.json#", {}, "'' after '#'"),
        ("plan.json#a", {}, "'a' after '#'"),
        ("plan.json#-1", {}, "'-1' after '#'"),
        ("nothing.json#1", {}, "No such file"),
    ],
)
def test_what_names_no_job(folder, text, environment, found):
    with pytest.raises(InputError) as error:
        _index(folder, text, **environment)
    assert found in error.value.found


def test_a_file_whose_name_has_the_mark(folder):
    (folder / "plan.json").rename(folder / "plan#2")
    assert _index(folder, "plan#2#3") == 3
    assert _index(folder, "plan#2", CI_NODE_INDEX="4") == 4


def test_suites_that_are_not_there(folder):
    with pytest.raises(InputError, match=r"suites/a\.qbench\.toml"):
        choose_job("plan.json#1", folder, {}).suites(Path("elsewhere"))
