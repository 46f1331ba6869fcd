"""lm-eval and Inspect themselves write logs that are imported: their own averages are ours.

Both run without a model and without a network. Where one is not installed (``pip install lm-eval
inspect-ai``), its test is skipped.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.oracle

INSPECT = """
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import includes, match
from inspect_ai.solver import solver

@solver
def fake():
    async def solve(state, generate):
        row = int(str(state.sample_id)[1:])
        answer = str(row + 1) if row % 4 or state.epoch == 2 else "no"
        state.output = ModelOutput.from_content("mockllm/model", answer)
        return state
    return solve

data = [Sample(input=f"What is {row}+1?", target=str(row + 1), id=f"q{row}") for row in range(12)]
task = Task(
    dataset=MemoryDataset(data, name="sums"), solver=fake(), scorer=[match(), includes()],
    epochs=2, name="sums",
)
for form in ("json", "eval"):
    (log,) = eval(task, model="mockllm/model", log_format=form, log_dir=form, display="none")
    assert log.status == "success"
"""

CHOICE = """
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: label
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
"""
TEXT = """
task: gensums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
filter_list:
  - {name: strict, filter: [{function: take_first}]}
  - {name: digits, filter: [{function: regex, regex_pattern: "([a-z]+)"}, {function: take_first}]}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HOME": "cache",
    }
    environment.pop("INSPECT_TELEMETRY", None)
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def imported(path, *more):
    from qbench.cli.program import main

    assert main(["import", str(path), "-o", "answers.jsonl", *more]) == 0
    header, *records = map(json.loads, Path("answers.jsonl").read_text().splitlines())
    return header, records


def means(records):
    names = records[0]["metrics"]
    return {
        name: sum(record["metrics"][name] for record in records) / len(records) for name in names
    }


@pytest.mark.skipif(
    importlib.util.find_spec("inspect_ai") is None, reason="inspect-ai is not installed"
)
def test_inspect(folder):
    (folder / "task.py").write_text(INSPECT)
    run("task.py")
    (plain,) = (folder / "json").glob("*.json")
    (packed,) = (folder / "eval").glob("*.eval")
    log = json.loads(plain.read_text())
    theirs = {one["name"]: one["metrics"]["accuracy"]["value"] for one in log["results"]["scores"]}
    header, records = imported(plain)
    assert means(records) == pytest.approx(theirs)
    assert header["provenance"]["tool"] == f"inspect_ai {log['eval']['packages']['inspect_ai']}"
    assert len({record["source"] for record in records}) == 12
    pytest.importorskip("zstandard")
    assert sorted(imported(packed)[1], key=str) == sorted(records, key=str)


@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="lm-eval is not installed")
def test_lm_eval(folder):
    rows = [
        {
            "question": f"{row}+1=",
            "choices": [str(row), str(row + 1), "x"],
            "label": 1,
            "answer": "lol" * (row % 2),
        }
        for row in range(20)
    ]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "tasks").mkdir()
    (folder / "tasks" / "sums.yaml").write_text(CHOICE)
    (folder / "tasks" / "gensums.yaml").write_text(TEXT)
    words = (
        "--model dummy --include_path tasks --tasks sums,gensums --log_samples --output_path out"
    )
    run("-m", "lm_eval", *words.split())
    (facts,) = (json.loads(path.read_text()) for path in folder.glob("out/*/results_*.json"))
    (choice,) = folder.glob("out/*/samples_sums_*.jsonl")
    header, records = imported(choice)
    results = facts["results"]
    assert means(records) == pytest.approx(
        {name: results["sums"][f"{name},none"] for name in ("acc", "acc_norm")}
    )
    assert header["provenance"]["tool"] == f"lm-eval {facts['lm_eval_version']}"
    assert all((record["answer"] == 1) == bool(record["metrics"]["acc"]) for record in records)
    (text,) = folder.glob("out/*/samples_gensums_*.jsonl")
    for name in ("strict", "digits"):
        ours = means(imported(text, "--filter", name)[1])
        assert ours == pytest.approx({"exact_match": results["gensums"][f"exact_match,{name}"]})
