"""A small installed package adds a model, data, a backend,
a schema and a metric by its entry point alone.
"""

import subprocess
import sys
import zipfile

import pytest

PACKAGE = '''
"""Adds one of everything."""

from dataclasses import replace

import numpy as np

from qbench.extension import Extension


def network():
    import onnx_ir as ir
    from onnx import TensorProto, helper, numpy_helper

    numbers = np.random.default_rng(3).normal(size=(8, 5)).astype(np.float32)
    weights = numpy_helper.from_array(numbers, "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="matmul")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])],
        [weights],
    )
    opsets = [helper.make_opsetid("", 21)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def subject():
    from qbench.subjects import ReadyArray, ZooModel
    from qbench.subjects.tasks import Classification

    return ZooModel(
        id="plus_net", graphs={"model": network}, preprocess=ReadyArray(),
        task=Classification(k=2), origin="made up",
    )


def points(name, seed):
    def make():
        from qbench.subjects import Dataset

        x = np.random.default_rng(seed).normal(size=(50, 8)).astype(np.float32)
        ids = tuple(f"{name}{i}" for i in range(50))
        return Dataset(
            id=name, kind="array", sample_ids=ids, sources=ids, labels=None, content=name,
            load=lambda i: x[i],
        )

    return make


def engine():
    from qbench.backends import OrtBackend, get_backend

    return replace(get_backend("ort-cpu"), name="plus-engine")


def schema():
    from qbench.quantization import get_schema

    return replace(get_schema("w8a8_asym_pc"), name="plus_schema")


def metric():
    from qbench.metrics import get_metric

    return replace(get_metric("agreement"), name="plus_metric")


EXTENSION = Extension(
    name="qbench-plus",
    models={"plus_net": subject},
    datasets={"plus_points": points("plus_points", 1), "plus_spare": points("plus_spare", 2)},
    backends={"plus-engine": engine},
    schemas={"plus_schema": schema},
    metrics={"plus_metric": metric},
)
'''

SUITE = """
[suite]
backends = ["plus-engine"]
schemas = ["plus_schema"]

[[model]]
id = "plus_net"
data = "plus_points"
calibration = { data = "plus_spare", count = 50 }
metrics = ["plus_metric"]
"""

DIST_INFO = {
    "METADATA": "Metadata-Version: 2.1\nName: qbench-plus\nVersion: 1.0\n",
    "entry_points.txt": "[qbench.extensions]\nplus = qbench_plus:EXTENSION\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "qbench_plus.py,,\n",
}


def install(site, folder):
    """Install the package into ``site`` by pip, from a wheel made here: no index,
    no build backend.
    """
    wheel = folder / "qbench_plus-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("qbench_plus.py", PACKAGE)
        for name, text in DIST_INFO.items():
            archive.writestr(f"qbench_plus-1.0.dist-info/{name}", text)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
    ]
    subprocess.run([*pip, "--target", site, wheel], check=True)


@pytest.fixture
def site(project, monkeypatch):
    folder = project.path / "site"
    install(folder, project.path)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


@pytest.mark.slow
def test_an_installed_package_adds_one_of_everything(project, site):
    project.write_suite(SUITE)
    (project.path / "conftest.py").unlink()
    result = project.accept("-v", process=True)
    assert result.parseoutcomes() == {"accepted": 2}
    assert set(project.outcomes()) == {
        "plus_net::plus-engine+fp32",
        "plus_net::plus-engine+plus_schema",
    }
    assert project.lines(kind="cell")[1]["metrics"]["plus_metric"]["n"] == 50


@pytest.mark.slow
def test_an_entry_point_that_names_something_else_is_one_sentence(project, site):
    (site / "qbench_plus.py").write_text("EXTENSION = 3\n")
    result = project.run(process=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        ["Loading the qbench extension 'plus' (qbench_plus:EXTENSION): found a int; *"]
    )
