"""Labels and counts that do not fit a model: refused by name, and what a message suggests works."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

CLASSES = 3


def _rows(y):
    return np.eye(CLASSES)[y]


ONE_HOT = {
    "float32": lambda y: _rows(y).astype(np.float32),
    "float64": _rows,
    "int64": lambda y: _rows(y).astype(np.int64),
    "uint8": lambda y: _rows(y).astype(np.uint8),
    "bool": lambda y: _rows(y).astype(bool),
    "smoothed": lambda y: (_rows(y) * 0.9 + 0.1 / CLASSES).astype(np.float16),
}
OTHERS = {
    "classes as floats": (lambda y: y.astype(np.float32), "y.astype('int64')"),
    "a column of classes": (lambda y: y[:, None], "reshape(-1)"),
    "values": (lambda y: y + 0.5, "task="),
    "two values": (lambda y: np.stack([y, y], 1) / 2, "task="),
    "names": (lambda y: np.array([f"class {one}" for one in y]), "return_inverse"),
}


@pytest.fixture
def labelled(blobs_files):
    """Writes ``wrong.npz``: the samples of test.npz with other labels."""
    with np.load("test.npz") as stored:
        x, y = stored["x"], stored["y"]

    def write(change):
        np.savez("wrong.npz", x=x, y=change(y))

    return write


@pytest.mark.parametrize("kind", ONE_HOT)
def test_one_hot_labels_of_a_classifier_are_recognized(labelled, qbench, kind):
    labelled(ONE_HOT[kind])
    code, out, err = qbench("eval", "net.onnx", "--data", "wrong.npz")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "one-hot" in err
    assert "argmax" in err


@pytest.mark.slow
def test_values_that_are_no_one_hot_rows_are_values(labelled, qbench):
    def mixed(y):  # rows that sum to 1, each of other values, as a teacher network gives them
        share = np.linspace(0.6, 0.9, len(y))[:, None]
        return share * _rows(y) + (1 - share) * _rows((y + 1) % CLASSES)

    for change in (lambda y: _rows(y) * 0.9, lambda y: _rows(y) + _rows((y + 1) % CLASSES), mixed):
        labelled(change)
        code, out, _ = qbench("eval", "net.onnx", "--data", "wrong.npz")
        assert (code, "mae" in out) == (0, True)


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_suggested_works(labelled, qbench, kind):
    change, remedy = OTHERS[kind]
    labelled(change)
    code, out, err = qbench("eval", "net.onnx", "--data", "wrong.npz")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert remedy in err
    suggested = re.search(r"Choose (.+) instead", err)
    for metric in suggested[1].split(" or ") if suggested else ():
        words = ("--schema", "w8a8_asym_pc", "--calib", "train.npz", "--metrics", metric)
        assert qbench("eval", "net.onnx", "--data", "wrong.npz", *words)[0] == 0


COUNTS = {
    "eval": (
        "eval",
        "net.onnx",
        "--data",
        "test.npz",
        "--schema",
        "w8a8_asym_pc",
        "--calib",
        "train.npz",
    ),
    "profile": ("profile", "net.onnx", "--data", "train.npz", "-o", "out.json"),
}


@pytest.mark.parametrize("verb", COUNTS)
def test_more_calibration_samples_than_there_are_is_an_error(blobs_files, qbench, verb):
    option = "--calib-count" if verb == "eval" else "--count"
    assert qbench(*COUNTS[verb], option, "48")[0] == 0
    Path("out.json").unlink(missing_ok=True)
    code, out, err = qbench(*COUNTS[verb], option, "49")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "found 48 samples in it" in err
    assert not Path("out.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("key", ["count", "samples"])
def test_a_suite_that_asks_for_more_samples_than_there_are_is_red(
    blobs_files, qbench, monkeypatch, key
):
    """Also right behind ``init``, whose own count is what there is."""
    assert (
        qbench("init", "own", "--model", "net.onnx", "--data", "test.npz", "--calib", "train.npz")[
            0
        ]
        == 0
    )
    monkeypatch.chdir("own")
    monkeypatch.delitem(sys.modules, "conftest", raising=False)
    suite = Path("suites/mine.qbench.toml")
    text = suite.read_text()
    assert "count = 48" in text
    there = 48 if key == "count" else len(np.load("../test.npz")["y"])
    for asked in (there, there + 1, 100 * there):
        changed = text.replace("count = 48", f"count = {asked}")
        if key == "samples":
            changed = text.replace("[[model]]\n", f"[[model]]\nsamples = {asked}\n")
        suite.write_text(changed)
        out = " ".join(qbench("run", str(suite))[1].split())
        assert ("not measurable" in out, f"found {there} in it" in out) == (
            asked > there,
            asked > there,
        )


@pytest.mark.parametrize("verb", ["run", "stability"])
def test_a_missing_suite_is_named_with_one_like_it(blobs_files, qbench, verb):
    Path("suites").mkdir(exist_ok=True)
    Path("suites/mine.qbench.toml").write_text("")
    code, out, err = qbench(verb, "suites/mime.qbench.toml")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "found No such file" in err
    assert "Did you mean 'suites/mine.qbench.toml'?" in err


def test_a_suite_is_also_known_by_its_name_and_others_are_listed(blobs_files, qbench):
    Path("suites").mkdir(exist_ok=True)
    Path("suites/mine.qbench.toml").write_text("[suite]\nbackend = 3\n")
    assert "'mine.qbench.toml'" in qbench("run", "mine")[2]  # it is read
    code, out, err = qbench("run", "zzz")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "Suites here: mine, tiny." in err
    for path in Path("suites").glob("*.toml"):
        path.unlink()
    assert "Write one: qbench init." in qbench("run", "zzz")[2]


@pytest.mark.parametrize("name", ["class", "def", "1st", "None", 'a"b', "two\nlines", "{x}"])
def test_init_writes_python_whatever_a_model_is_called(blobs_files, qbench, name):
    Path("net.onnx").rename(f"{name}.onnx")
    assert (
        qbench(
            "init", "own", "--model", f"{name}.onnx", "--data", "test.npz", "--calib", "train.npz"
        )[0]
        == 0
    )
    compile(Path("own/conftest.py").read_text(), "conftest.py", "exec")
