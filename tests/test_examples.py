"""The examples work when copied."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench import save_model
from qbench.cli import main
from qbench.errors import InputError
from qbench.metrics import AnswerKind, get_metric
from qbench.storage import Cache, read_archive
from qbench.subjects import Dataset, ReadyArray, get_dataset, get_model, prepare_samples

EXAMPLES = Path(__file__).parents[1] / "examples"
OWN = EXAMPLES / "own-model"
PAGE = Path(__file__).parents[1] / "docs" / "own-models.md"


def arrays(dataset: Dataset, path: Path) -> None:
    digits = get_model("digits_cnn").preprocess
    prepared = [digits.prepare(dataset.load(i))["x"] for i in range(len(dataset))]
    assert dataset.labels is not None
    np.savez(
        path,
        x=digits.finish({"x": np.stack(prepared)})["x"],
        y=np.array([label[0] for label in dataset.labels]),
    )


def pytest_in(folder: Path, *options: str) -> str:
    """The last line that pytest prints in a process of its own, which is how a user runs it."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "suites/mine.qbench.toml",
        *options,
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("CI", "PYTEST_"))
    }
    environment["PYTEST_ADDOPTS"] = "--assert=plain"
    done = subprocess.run(
        [*command, "--qbench-cache", str(folder / "cache")],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()[-1]


def test_runs_of_an_own_model_stay_out_of_git(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    shutil.copytree(OWN, folder)
    for name in ("reports/history/run.jsonl", "reports/index.html", "baselines/mine/my_net.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    command = ["git", "ls-files", "--others", "--exclude-standard"]
    listed = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "baselines/mine/my_net.json" in listed
    assert not [name for name in listed if name.startswith("reports/")]


@pytest.mark.slow
def test_an_own_model_is_accepted_and_then_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example is what 'qbench init' writes, but for the workflows."""
    folder = tmp_path / "own"
    folder.mkdir()
    save_model(get_model("digits_cnn").graphs["model"](), folder / "my_net.onnx")
    arrays(get_dataset("digits_test"), folder / "val.npz")
    arrays(get_dataset("digits_train").take(128), folder / "calibration.npz")
    given = {path.name for path in folder.iterdir()}
    monkeypatch.chdir(folder)
    assert (
        main(["init", "--model", "my_net.onnx", "--data", "val.npz", "--calib", "calibration.npz"])
        == 0
    )
    written = {
        path.relative_to(folder): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in given
    }
    example = {
        path.relative_to(OWN): path.read_text()
        for path in OWN.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert example.pop(Path("README.md"))
    assert {path: text for path, text in written.items() if path.parts[0] != ".github"} == example
    assert " 6 accepted " in pytest_in(folder, "--qbench-accept-fp32", "--qbench-accept=new")
    assert " 6 passed " in pytest_in(folder)
    stored = (folder / "baselines/mine/my_net.json").read_text()
    assert '"top1": 35' in stored  # of 360, whatever the backend and the processor


@pytest.mark.slow
def test_a_task_with_answers_of_its_own_form_is_accepted_and_then_watched(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    shutil.copytree(EXAMPLES / "own-task", folder)
    assert " 4 accepted " in pytest_in(folder, "--qbench-accept-fp32", "--qbench-accept=new")
    assert " 4 passed " in pytest_in(folder)
    baseline = folder / "baselines/mine/onset_finder"
    stored = json.loads(baseline.with_suffix(".json").read_text())
    assert stored["data"]["signals"]["kind"] == "onsets"
    assert stored["fp32"]["metrics"] == {"onset_errors": 19}
    reference = read_archive(baseline.with_suffix(".fp32.npz").read_bytes(), most=1 << 20)
    assert {name: array.shape for name, array in reference.items()} == {"times-signals": (200, 4)}
    kept = read_archive(baseline.with_suffix(".accepted.npz").read_bytes(), most=1 << 20)
    assert {name.rpartition(" ")[2] for name in kept} == {"times"}
    lines = [
        json.loads(line)
        for path in (folder / "reports/history").iterdir()
        for line in path.read_text().splitlines()
    ]
    metrics = [
        line["metrics"] for line in lines if line["type"] == "cell" and line["schema"] != "fp32"
    ]
    assert len(metrics) == 4  # two cells of two runs
    assert all(490 < one["agreement"]["hits"] < one["agreement"]["out_of"] < 510 for one in metrics)
    assert all(0 < one["onset_errors"]["hits"] < 30 for one in metrics)


def shown(language: str) -> list[str]:
    """The blocks of docs/own-models.md in a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL
    )


def by_hand() -> str:
    """The conftest of a subject from scratch."""
    (code,) = (one for one in shown("python") if "class Sixteenths" in one)
    return code


def raw_digits(name: str, path: Path) -> None:
    data = get_dataset(name)
    assert data.labels is not None
    pictures = np.stack([data.load(i) for i in range(len(data))])
    np.savez(path, pictures=pictures, labels=np.array([label[0] for label in data.labels]))


@pytest.mark.slow
def test_a_subject_from_scratch_is_accepted_and_then_watched(tmp_path: Path) -> None:
    code = by_hand()
    (suite,) = (one for one in shown("toml") if one.startswith("# suites/mine.qbench.toml"))
    (tmp_path / "suites").mkdir()
    (tmp_path / "conftest.py").write_text(code)
    (tmp_path / "suites/mine.qbench.toml").write_text(suite)
    save_model(get_model("digits_cnn").graphs["model"](), tmp_path / "net.onnx")
    raw_digits("digits_test", tmp_path / "scored.npz")
    raw_digits("digits_train", tmp_path / "calibration.npz")
    assert " 8 accepted " in pytest_in(tmp_path, "--qbench-accept-fp32", "--qbench-accept=new")
    assert " 8 passed " in pytest_in(tmp_path)
    assert (
        '"top1": 357' in (tmp_path / "baselines/mine/my_net.json").read_text()
    )  # of 360, as digits_cnn


def test_data_of_the_page_is_refused_where_labels_are_too_few_and_a_copy_shares_its_sources(
    tmp_path: Path,
) -> None:
    made: dict[str, Any] = {"__file__": str(tmp_path / "conftest.py")}
    exec(by_hand(), made)
    pictures = np.arange(10, dtype=np.uint8).reshape(5, 2)
    np.savez(tmp_path / "scored.npz", pictures=pictures, labels=np.arange(5))
    np.savez(tmp_path / "calibration.npz", pictures=pictures[2:], labels=np.arange(3))
    np.savez(tmp_path / "short.npz", pictures=pictures, labels=np.arange(4))
    scored, calibration = made["data"]("scored"), made["data"]("calibration")
    assert scored.sources[2:] == calibration.sources
    assert len(set(scored.sources)) == 5
    with pytest.raises(InputError, match="'short': found 4 labels for 5 samples"):
        made["data"]("short")
    with pytest.raises(InputError, match="absent"):
        made["data"]("absent")


def test_a_task_from_scratch_answers(tmp_path: Path) -> None:
    made: dict[str, Any] = {}
    (code,) = (one for one in shown("python") if "class Counting" in one)
    exec(code, made)

    class Adding:
        def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
            return {"count": feeds["x"].sum(axis=1, keepdims=True)}

    rows = np.random.default_rng(0).uniform(0, 9, (20, 3)).astype(np.float32)
    ids = tuple(map(str, range(20)))
    right = tuple((round(float(row.sum())),) for row in rows)
    data = Dataset(
        id="d",
        kind="array",
        sample_ids=ids,
        sources=ids,
        labels=right,
        content="d",
        load=rows.__getitem__,
    )
    answers = made["Counting"]().answer(
        {"model": Adding()}, prepare_samples(data, ReadyArray(), Cache(tmp_path))
    )
    assert answers.kind is AnswerKind.SEQUENCE
    assert get_metric("exact").count(answers, right, None).hits.tolist() == [1] * 20
