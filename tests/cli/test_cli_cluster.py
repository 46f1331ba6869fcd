"""``qbench run --cluster`` and ``--executor``: jobs elsewhere, with the exit codes of the verb."""

import json
from pathlib import Path

import pytest

from qbench.suite import own_source

SUITE = "suites/tiny.qbench.toml"
CELLS = 6


@pytest.mark.slow
def test_jobs_measure_all_cells_and_the_code_is_that_of_the_run(
    project, qbench, monkeypatch, shapes_package
):
    monkeypatch.setenv("PYTHONPATH", str(shapes_package))
    own_source.cache_clear()
    code, out, err = qbench("run", SUITE, "--cluster", "local:2", "--json")
    facts = json.loads(out)
    assert code == facts["exit_code"] == 1, err
    assert facts["missing"] == []
    assert len(facts["cells"]) == CELLS
    assert {cell["outcome"] for cell in facts["cells"]} == {"missing"}
    (plan,) = Path("reports/plans").glob("*.json")
    assert f"--plan={plan}" not in err
    assert len(list(Path("reports/history").glob(f"{plan.stem}-j*-a01-tiny.jsonl"))) == 2


def test_missing_cells_are_named_and_end_with_4(project, qbench):
    Path("farm.py").write_text(
        "class Full:\n    def submit(self, function, order):\n"
        "        raise RuntimeError('no room')\n"
    )
    code, out, err = qbench("run", SUITE, "--executor", "farm:Full", "--jobs", "2")
    assert code == 4
    assert f"{CELLS} cells missing: tiny::blobs::" in err
    (plan,) = Path("reports/plans").glob("*.json")
    assert f"--plan={plan} measures the rest" in err
    code, out, _ = qbench("run", SUITE, "--executor", "farm:Full", "--plan", plan, "--json")
    assert code == 4
    assert len(json.loads(out)["missing"]) == CELLS


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--cluster", "here"], "Reading --cluster: found 'here'"),
        (["--cluster", "local:1", "--job", "plan.json#1"], "next to --job"),
        (["--cluster", "local:1", "--select", "model=blobs"], "found --select"),
        (["--plan", "plan.json"], "found neither --cluster nor --executor"),
    ],
)
def test_bad_input_is_one_sentence_and_2(project, qbench, arguments, says):
    code, out, err = qbench("run", SUITE, *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1
