"""The examples work when copied."""

import shutil
from pathlib import Path

import numpy as np

from qbench.zoo import Dataset, get_dataset, get_model

EXAMPLES = Path(__file__).parents[1] / "examples"


def arrays(dataset: Dataset, path: Path) -> None:
    digits = get_model("digits_cnn").preprocess
    prepared = [digits.prepare(dataset.load(i))["x"] for i in range(len(dataset))]
    assert dataset.labels is not None
    np.savez(path, x=digits.finish({"x": np.stack(prepared)})["x"], y=np.array([label[0] for label in dataset.labels]))


def test_an_own_model_is_accepted_and_then_watched(pytester, monkeypatch) -> None:
    from qbench import save_model

    monkeypatch.delenv("CI", raising=False)  # where accepting is refused
    shutil.copytree(EXAMPLES / "own-model", pytester.path, dirs_exist_ok=True)
    save_model(get_model("digits_cnn").graphs["model"](), pytester.path / "net.onnx")
    arrays(get_dataset("digits_test"), pytester.path / "val.npz")
    arrays(get_dataset("digits_train").take(128), pytester.path / "calibration.npz")
    options = ("-p", "no:cacheprovider", "--qbench-cache", str(pytester.path / "cache"), "suites/mine.qbench.toml")
    accepted = pytester.runpytest_subprocess(*options, "--qbench-accept-fp32", "--qbench-accept=new")
    accepted.assert_outcomes()
    assert accepted.parseoutcomes() == {"accepted": 6}
    assert pytester.runpytest_subprocess(*options).parseoutcomes() == {"passed": 6}
    stored = (pytester.path / "baselines/mine/my_net.json").read_text()
    assert '"top1": 35' in stored  # of 360, whatever the backend and the processor
