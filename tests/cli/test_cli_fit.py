"""What ``qbench fit`` refuses before it fits, in one sentence; fitting itself needs torch
(``tests/oracles/test_oracles_torch_fit.py``).
"""

from pathlib import Path

import numpy as np
import pytest

import qbench.extension
from qbench.cli import main

WORDS = ["fit", "digits_cnn", "--calib", "digits_train", "--samples", "4"]
SCHEMA = ["--schema", "w8a8_sym_pt_pow2", "--method"]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_nothing_to_write_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, *SCHEMA, "tqt"]) == 2
    assert "found no file to write" in said(capsys)


def test_an_unknown_method_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, *SCHEMA, "tqtt", "-o", str(tmp_path / "q.onnx")]) == 2
    assert "unknown fitter 'tqtt'" in said(capsys)


def test_the_extra_is_named_where_no_extension_has_a_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qbench.extension, "known_extensions", tuple)
    assert main([*WORDS, *SCHEMA, "tqt", "-o", str(tmp_path / "q.onnx")]) == 2
    words = said(capsys)
    assert "expected the extra 'train' to be installed" in words
    assert "[train]" in words


@pytest.mark.parametrize("others", [["no_such_data"], ["digits_test", "--samples", "999999"]])
def test_other_input_is_looked_at_before_what_fits(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    others: list[str],
) -> None:
    monkeypatch.setattr(qbench.extension, "known_extensions", tuple)
    words = ["fit", "digits_cnn", "--calib", *others]
    assert main([*words, *SCHEMA, "tqt", "-o", str(tmp_path / "q.onnx")]) == 2
    found = said(capsys)
    assert "extra 'train'" not in found
    assert ("no_such_data" if len(others) == 1 else "999999") in found


def test_a_rate_is_a_number_above_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, *SCHEMA, "tqt", "--rate", "0", "-o", str(tmp_path / "q.onnx")]) == 2
    assert "expected a number above 0" in said(capsys)


PAIRS = """
from qbench.extension import Extension
from qbench.graph import load_model
from qbench.subjects import ReadyArray, Verification, ZooModel


def network():
    return ZooModel(id="pairnet", graphs={"model": lambda: load_model("net.onnx")},
                    preprocess=ReadyArray(), task=Verification(input="x"), origin="x")


EXTENSION = Extension(name="pairs", models={"pairnet": network})
"""


def test_labels_are_refused_where_a_task_makes_other_rows_in_the_same_number(
    blobs_files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three pairs of three sounds: the graph is fed the sounds, and labels are of the pairs."""
    Path("fit_pairs.py").write_text(PAIRS)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    sounds = np.load("train.npz")["x"][:3]
    np.savez("pairs.npz", first=sounds, second=sounds[[1, 2, 0]], y=[0, 1, 1])
    words = ["fit", "pairnet", "--calib", "pairs.npz", *SCHEMA, "tqt", "-o", "q.onnx"]
    assert main([*words, "--labels", "--extension", "fit_pairs:EXTENSION"]) == 2
    found = said(capsys)
    assert "by labels: found samples that the task" in found
    assert "Leave --labels out" in found


def test_an_input_without_samples_names_what_else_can_be_done_with_the_model(
    blobs_files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [{"x": np.ones((3, 8), np.float32), "size": np.float32(2)}]
    monkeypatch.setattr("qbench.evaluation.feeding.fed_batches", lambda *_: batches)
    words = ["fit", "net.onnx", "--calib", "train.npz", *SCHEMA, "tqt", "-o", "q.onnx"]
    assert main(words) == 2
    found = said(capsys)
    assert "expected samples along axis 0 of every input. Give every input that axis" in found
    assert "'qbench quantize'" in found
