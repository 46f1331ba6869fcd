"""A model under another Python: the same numbers as here, its versions, its errors, and no
process left behind.
"""

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from qbench.backends import Backend, Executor, get_backend, load_python, python_backend, versions_of
from qbench.backends.venv import worker
from qbench.errors import InputError, UnavailableError, UnsupportedError
from qbench.graph import Form

NET = (
    '<ir_version: 10, opset_import: ["" : 21]> net (float[N, 2] x) => (float[N, 2] y) '
    "<float s = {0.5}, int8 z = {0}, int8[2, 2] w = {1, 2, 3, 4}> { q = QuantizeLinear(x, s, z) "
    "d = DequantizeLinear(q, s, z) v = DequantizeLinear(w, s, z) p = MatMul(d, v) "
    "h = QuantizeLinear(p, s, z) y = DequantizeLinear(h, s, z) }"
)
FEEDS = {"x": np.array([[1, 100], [2, 3.3]], np.float32)}
LIKE = ["ort-cpu", "ort-cpu-noopt", "ort-cpu-precise", "ort-cpu-qoperator"]


def net(text=NET):
    return onnx.parser.parse_model(text)


def gone(process: int) -> bool:
    """Whether ``process`` ends; one that was not waited for counts as ended.
    False after ten minutes.
    """
    for _ in range(12_000):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(("like", "taps"), [*((like, ()) for like in LIKE), ("ort-cpu", ("p",))])
def test_it_gives_the_bits_that_the_same_engine_gives_here(like, taps):
    backend = python_backend(sys.executable, like)
    assert isinstance(backend, Backend)
    with (
        backend.prepare(net(), taps=taps) as far,
        get_backend(like).prepare(net(), taps=taps) as near,
    ):
        assert isinstance(far, Executor)
        theirs, ours = far.run(FEEDS), near.run(FEEDS)
        assert list(theirs) == list(ours)
        for name, array in ours.items():
            assert theirs[name].dtype == array.dtype
            assert theirs[name].tobytes() == array.tobytes()


def test_it_says_the_versions_of_the_other_python():
    import onnxruntime

    backend = python_backend(sys.executable)
    assert backend.name == f"ort-cpu-{onnxruntime.__version__}"
    assert dict(backend.versions)["numpy"] == np.__version__
    assert versions_of(backend) == {"onnxruntime": onnxruntime.__version__}
    assert Form.FLOAT in backend.capabilities.forms
    assert hash(backend) == hash(python_backend(sys.executable))


def test_versions_of_the_environment_class_are_theirs_not_ours(small_python):
    folder = small_python("1.0", at_start="import onnxruntime\nonnxruntime.__version__ = '0.0.7'\n")
    assert versions_of(python_backend(folder)) == {"onnxruntime": "0.0.7"}


def test_what_an_engine_prints_is_no_part_of_the_protocol(small_python):
    noise = (
        "import onnxruntime, os, sys\nprint('at start')\nreal = onnxruntime.InferenceSession.run\n"
    )
    noise += (
        "def run(*a):\n    os.write(1, b'C speaks\\n'); print('x' * 100000); sys.stdin.read(1)\n"
        "    return real(*a)\n"
    )
    folder = small_python("1.0", at_start=noise + "onnxruntime.InferenceSession.run = run\n")
    with (
        python_backend(folder).prepare(net()) as far,
        get_backend("ort-cpu").prepare(net()) as near,
    ):
        for _ in range(3):
            assert far.run(FEEDS)["y"].tolist() == near.run(FEEDS)["y"].tolist()


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "double"])
def test_every_dtype_and_shape_goes_there_and_back(dtype):
    written = {"bool": "bool", "float16": "float16", "double": "double"}.get(dtype, dtype)
    text = (
        f'<ir_version: 9, opset_import: ["" : 19]> n ({written}[A, B] x) => ({written}[A, B] y) {{ '
        f"y = Identity(x) }}"
    )
    with python_backend(sys.executable).prepare(net(text)) as far:
        for shape in [(2, 3), (0, 3), (1, 1)]:
            array = (np.arange(np.prod(shape)) % 2).reshape(shape).astype(dtype)
            back = far.run({"x": array.T.copy().T})["y"]
            assert back.dtype == array.dtype
            assert back.tolist() == array.tolist()
            assert back.shape == shape


def test_texts_and_scalars_go_there_and_back():
    texts = (
        '<ir_version: 9, opset_import: ["" : 19]> n (string[N] x) => (string[N] y) { y = '
        "Identity(x) }"
    )
    with python_backend(sys.executable).prepare(net(texts)) as far:
        assert far.run({"x": np.array(["é", "", "b\n"], object)})["y"].tolist() == ["é", "", "b\n"]
    scalar = '<ir_version: 9, opset_import: ["" : 19]> n (float x) => (float y) { y = Neg(x) }'
    with python_backend(sys.executable).prepare(net(scalar)) as far:
        assert far.run({"x": np.float32(2)})["y"].shape == ()


def test_a_model_beyond_one_message_goes_by_file(monkeypatch):
    from qbench.backends.venv import client

    monkeypatch.setattr(client, "MESSAGE_LIMIT", 1)
    with (
        python_backend(sys.executable).prepare(net()) as far,
        get_backend("ort-cpu").prepare(net()) as near,
    ):
        assert far.run(FEEDS)["y"].tolist() == near.run(FEEDS)["y"].tolist()


def test_a_wrong_batch_is_refused_and_the_worker_goes_on():
    text = (
        '<ir_version: 9, opset_import: ["" : 19]> n (float[A, B] x, float[C, D] z) => (float[A, D] '
        "y) "
        "{ y = MatMul(x, z) }"
    )
    good, bad = np.eye(2, dtype=np.float32), np.eye(3, dtype=np.float32)
    with python_backend(sys.executable).prepare(net(text)) as far:
        with pytest.raises(InputError, match="no input 'z'"):
            far.run({"x": good})
        with pytest.raises(InputError, match="a batch that the graph can compute"):
            far.run({"x": good, "z": bad})
        assert far.run({"x": good, "z": good})["y"].tolist() == good.tolist()


def test_an_operator_that_the_engine_lacks_is_unsupported():
    text = (
        '<ir_version: 9, opset_import: ["" : 19, "nowhere" : 1]> n (float[N] x) => (float[N] y) { '
        "y = nowhere.Op(x) }"
    )
    with pytest.raises(UnsupportedError, match=r"operators and an opset that onnxruntime \d"):
        python_backend(sys.executable).prepare(net(text))


def test_a_worker_that_dies_is_named_with_its_signal():
    executor = python_backend(sys.executable).prepare(net())
    os.kill(executor._held._child._process.pid, signal.SIGSEGV)
    with pytest.raises(UnavailableError, match="ended with signal SIGSEGV"):
        executor.run(FEEDS)
    executor.close()


def test_last_words_are_quoted(small_python):
    code = (
        "import onnxruntime, os, sys\ndef die(*a):\n"
        "    os.write(2, b'out of cheese\\n'); os._exit(3)\n"
    )
    folder = small_python("1.0", at_start=code + "onnxruntime.InferenceSession.run = die\n")
    said = "ended with exit code 3; its last words: out of cheese"
    with python_backend(folder).prepare(net()) as far, pytest.raises(UnavailableError, match=said):
        far.run(FEEDS)


def test_a_closed_one_has_no_process_and_runs_nothing():
    executor = python_backend(sys.executable).prepare(net())
    process = executor._held._child._process.pid
    with executor:
        executor.run(FEEDS)
    assert gone(process)
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        executor.run(FEEDS)


def test_one_that_nobody_holds_ends_its_process():
    executor = python_backend(sys.executable).prepare(net())
    process = executor._held._child._process.pid
    del executor
    assert gone(process)


def test_no_worker_outlives_a_killed_parent_in_the_middle_of_a_run(small_python):
    code = (
        "import onnxruntime, time\nonnxruntime.InferenceSession.run = lambda *a: time.sleep(600)\n"
    )
    folder = small_python("1.0", at_start=code)
    parent = (
        "import sys, threading, numpy as np, onnx.parser; from qbench.backends import "
        "python_backend\n"
        f"far = python_backend({str(folder)!r}).prepare(onnx.parser.parse_model({NET!r}))\n"
        "print(far._held._child._process.pid, flush=True)\n"
        "far.run({'x': np.zeros((1, 2), np.float32)})\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True
    ) as process:
        child = int(process.stdout.readline())
        time.sleep(0.3)
        process.kill()
    assert gone(child)


def test_an_environment_without_the_engine_is_a_sentence(small_python):
    with pytest.raises(UnavailableError, match=r"No module named 'numpy'.*pip install onnxruntime"):
        python_backend(small_python("1.0", engine=False))


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("nowhere/python", InputError, "No such file"),
        (".", InputError, "a folder without bin/python"),
        ("/bin/true", UnavailableError, "ended with exit code 0"),
        ("/bin/cat", UnavailableError, "is it a Python"),
    ],
)
def test_what_is_no_python_is_a_sentence(tmp_path, monkeypatch, path, error, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words):
        python_backend(path)


def test_a_backend_that_counts_here_is_refused():
    with pytest.raises(
        InputError,
        match="a backend that does not run ONNX Runtime; expected one that does: ort-cpu",
    ):
        python_backend(sys.executable, "integer-gemmlowp")


def test_a_file_names_one(tmp_path, small_python):
    small_python("1.0")
    (tmp_path / "mine.toml").write_text('python = "toy-1.0"\nlike = "ort-cpu-noopt"\n')
    backend = load_python(tmp_path / "mine.toml")
    assert (backend.name, backend.like.name) == ("mine", "ort-cpu-noopt")
    for text in ("", 'python = "toy-1.0"\nrequirements = ["toy==1.0"]\n'):
        (tmp_path / "mine.toml").write_text(text)
        with pytest.raises(InputError, match="one of them"):
            load_python(tmp_path / "mine.toml")


def test_suites_know_the_files_beside_them(tmp_path):
    from qbench.suite import gather

    (tmp_path / "pythons").mkdir()
    (tmp_path / "pythons/ort-old.toml").write_text('python = "nowhere"\n')
    backends = gather(suites=tmp_path).backends
    backend = backends.get("ort-old")
    assert isinstance(backend, Backend)
    # nothing is started before a cell runs
    for use in (lambda: versions_of(backend), lambda: backend.prepare(net())):
        with pytest.raises(InputError, match="No such file"):
            use()
    (tmp_path / "pythons/ort-old.toml").write_text('requirements = ["--log=there"]\n')
    with pytest.raises(InputError, match="name of a package"):
        backends.get("ort-old")


def test_the_worker_can_be_read_by_old_pythons_and_needs_nothing_of_ours():
    tree = ast.parse(Path(worker.__file__).read_text(), feature_version=(3, 8))
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(node.module.partition(".")[0])
    assert roots - sys.stdlib_module_names == {"numpy", "onnxruntime"}
