"""A small project to run commands in: an installed extension with a network of our own, and a
suite that names it.
"""

import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

EXTENSION = '''
import numpy as np
import onnx_ir as ir

from qbench.extension import Extension

CENTRES = np.random.default_rng(5).normal(size=(3, 8)).astype(np.float32) * 2


def network():
    """Distance to three centres as one Gemm, behind a Relu layer that changes nothing much."""
    weight = np.concatenate([CENTRES.T, -CENTRES.T], axis=1)
    second = np.concatenate([np.eye(3), -np.eye(3)]).astype(np.float32)
    bias = (-(CENTRES**2).sum(1) / 2).astype(np.float32)
    x = ir.Value(name="x", shape=ir.Shape(["n", 8]), type=ir.TensorType(ir.DataType.FLOAT))
    constants = {"w1": weight, "w2": second, "b2": bias}
    values = {n: ir.Value(name=n, const_value=ir.tensor(v, name=n)) for n, v in constants.items()}
    for name, value in values.items():
        value.shape, value.type = ir.Shape(constants[name].shape), ir.TensorType(ir.DataType.FLOAT)
    hidden = ir.node("MatMul", [x, values["w1"]], name="first")
    rectified = ir.node("Relu", [hidden.outputs[0]], name="relu")
    scores = ir.node("Gemm", [rectified.outputs[0], values["w2"], values["b2"]], name="second")
    names = [("h", "n 6"), ("r", "n 6"), ("scores", "n 3")]
    for node, (name, shape) in zip((hidden, rectified, scores), names):
        node.outputs[0].name = name
        node.outputs[0].shape = ir.Shape(["n", int(shape.split()[1])])
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph([x], [scores.outputs[0]], nodes=[hidden, rectified, scores],
                     opset_imports={"": 21}, initializers=list(values.values()), name="blobs")
    return ir.Model(graph, ir_version=10)


def points(seed, n):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return (CENTRES[y] + rng.normal(size=(n, 8)) * 1.8).astype(np.float32), y


def dataset(name, seed, n):
    from qbench.storage import digest_arrays
    from qbench.subjects import Dataset

    x, y = points(seed, n)
    return Dataset(id=name, kind="array", sample_ids=tuple(f"{name}{i}" for i in range(n)),
                   sources=tuple(f"{name}{i}" for i in range(n)),
                   labels=tuple((int(c),) for c in y), content=digest_arrays({"x": x}),
                   load=lambda i: x[i])


def blobs():
    from qbench.subjects import Classification, ReadyArray, ZooModel

    return ZooModel(id="blobs", graphs={"model": network}, preprocess=ReadyArray(),
                    task=Classification(), origin="here")


EXTENSION = Extension(
    name="shapes",
    models={"blobs": blobs},
    datasets={"blobs_test": lambda: dataset("blobs_test", 1, 400),
              "blobs_train": lambda: dataset("blobs_train", 2, 64)},
)
'''

SUITE = """
[suite]
tolerance = 0.02
backends = ["ort-cpu", "ort-cpu-noopt"]
schemas = ["w8a8_asym_pt", "w8a8_asym_pc"]

[[model]]
id = "blobs"
data = "blobs_test"
calibration = { data = "blobs_train", count = 32 }
metrics = ["top1", "agreement"]
"""


@pytest.fixture(scope="session")
def shapes_package(tmp_path_factory) -> Path:
    """A folder that holds an installed distribution with an entry point, as pip would leave it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "qbench_shapes.py").write_text(EXTENSION)
    info = folder / "qbench_shapes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: qbench-shapes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[qbench.extensions]\nshapes = qbench_shapes:EXTENSION\n"
    )
    return folder


@pytest.fixture(scope="session")
def fill_once(tmp_path_factory) -> Callable[[Path, Callable[[], None]], None]:
    """Fills a folder by a function the first time that the function is given, with copies of
    those files later.
    """
    kept: dict[Callable[[], None], Path] = {}

    def fill(folder: Path, make: Callable[[], None]) -> None:
        if make in kept:
            shutil.copytree(kept[make], folder, symlinks=True, dirs_exist_ok=True)
        else:
            make()
            kept[make] = tmp_path_factory.mktemp("kept") / "folder"
            shutil.copytree(folder, kept[make], symlinks=True)

    return fill


@pytest.fixture
def project(tmp_path, monkeypatch, shapes_package) -> Path:
    """The working folder of a user who has the package and one suite."""
    from qbench.extension import read_entry_points

    monkeypatch.syspath_prepend(str(shapes_package))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "tiny.qbench.toml").write_text(textwrap.dedent(SUITE))
    read_entry_points.cache_clear()
    yield tmp_path
    read_entry_points.cache_clear()


@pytest.fixture
def qbench(capsys, monkeypatch):
    """Run a command in this process: (exit code, standard output, standard error). On a busy
    computer, too, it does not say after half a minute what takes long.
    """
    from qbench.cli import main

    monkeypatch.setattr("qbench.working.INTERVAL", 24 * 3600.0)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(code), captured.out, captured.err

    return run


@pytest.fixture
def blobs_files(project):
    """``net.onnx``, ``test.npz`` and ``train.npz`` in the project, for commands that take files."""
    import numpy as np
    from qbench_shapes import network, points

    from qbench import save_model

    save_model(network(), project / "net.onnx")
    for name, seed, n in (("test", 1, 300), ("train", 2, 48)):
        x, y = points(seed, n)
        np.savez(project / f"{name}.npz", x=x, y=y)
    return project
