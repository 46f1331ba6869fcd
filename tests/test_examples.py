"""The examples work when copied."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from qbench import save_model
from qbench.zoo import Dataset, get_dataset, get_model

EXAMPLES = Path(__file__).parents[1] / "examples"


def arrays(dataset: Dataset, path: Path) -> None:
    digits = get_model("digits_cnn").preprocess
    prepared = [digits.prepare(dataset.load(i))["x"] for i in range(len(dataset))]
    assert dataset.labels is not None
    np.savez(path, x=digits.finish({"x": np.stack(prepared)})["x"], y=np.array([label[0] for label in dataset.labels]))


def pytest_in(folder: Path, *options: str) -> str:
    """The last line that pytest prints in a process of its own, which is how a user runs it."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "suites/mine.qbench.toml", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CI", "PYTEST_"))}
    done = subprocess.run(
        [*command, "--qbench-cache", str(folder / "cache")],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()[-1]


def test_an_own_model_is_accepted_and_then_watched(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    shutil.copytree(EXAMPLES / "own-model", folder)
    save_model(get_model("digits_cnn").graphs["model"](), folder / "net.onnx")
    arrays(get_dataset("digits_test"), folder / "val.npz")
    arrays(get_dataset("digits_train").take(128), folder / "calibration.npz")
    assert " 6 accepted " in pytest_in(folder, "--qbench-accept-fp32", "--qbench-accept=new")
    assert " 6 passed " in pytest_in(folder)
    stored = (folder / "baselines/mine/my_net.json").read_text()
    assert '"top1": 35' in stored  # of 360, whatever the backend and the processor
