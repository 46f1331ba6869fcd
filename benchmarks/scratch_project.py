"""A project of two small networks on two backends, for benchmarks that change or kill its runs.

Its conftest.py ends or changes the run at a place that the variable SCENARIO names
(``loader:skip``); without it, nothing happens. 120 samples of each network are measured in less
than a second.
"""

from pathlib import Path

CONFTEST = """
import ctypes, dataclasses, importlib, os, sys, unittest
import numpy as np, onnx_ir as ir, pytest
from onnx import TensorProto, helper, numpy_helper
from qbench.backends import get_backend
from qbench.errors import NotFetchedError, UnsupportedError
from qbench.extension import Extension
from qbench.subjects import Dataset, ReadyArray, ZooModel
from qbench.subjects.tasks import Classification

PLACE, _, END = os.environ.get("SCENARIO", "").partition(":")
PARTS = {"found": "none", "expected": "one", "remedy": "Look for it."}

def error(kind):
    raise kind

ENDS = {
    "skip": lambda: pytest.skip("not here"),
    "importorskip": lambda: pytest.importorskip("no_such_package"),
    "xfail": lambda: pytest.xfail("known"),
    "SkipTest": lambda: error(unittest.SkipTest("not here")),
    "not fetched": lambda: error(NotFetchedError("Downloading it", **PARTS)),
    "unsupported": lambda: error(UnsupportedError("Running it", **PARTS)),
    "no module": lambda: importlib.import_module("no_such_package"),
    "fail": lambda: pytest.fail("no"),
    "exception": lambda: error(ValueError("no")),
    "SystemExit": lambda: sys.exit(0),
    "GeneratorExit": lambda: error(GeneratorExit()),
    "KeyboardInterrupt": lambda: error(KeyboardInterrupt()),
    "pytest.exit": lambda: pytest.exit("enough", returncode=0),
    "os._exit": lambda: os._exit(0),
    "exit of C": lambda: ctypes.CDLL(None).exit(0),
}

RED = ("other weights", "summary", "unconfigure", "session end")  # with other weights of two

def at(place, name="two"):
    if place == PLACE and "two" in name:
        ENDS[END]()

def network(seed):
    rng = np.random.default_rng(seed)
    constants = [numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
                 for name, shape in (("w", (8, 12)), ("v", (12, 5)))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
             helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("MatMul", ["r", "v"], ["y"], name="second")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
            for name, size in (("x", 8), ("y", 5))]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 21)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))

class Answering(Classification):
    def answer(self, executors, samples):
        at("task")
        return super().answer(executors, samples)

def model(name, seed):
    def graph():
        at("graph", name)
        return network(seed + (PLACE in RED and name == "two"))
    def make():
        at("loader", name)
        task = Answering(k=2) if name == "two" else Classification(k=2)
        return ZooModel(id=name, graphs={"model": graph}, preprocess=ReadyArray(input="x"),
                        task=task, origin="made up")
    return make

def data(name, seed, count):
    def make():
        at("data", name)
        x = np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)
        labels = tuple((int(np.argmax(one[:5])),) for one in x)
        ids = tuple(f"{name}-{i}" for i in range(count))
        def load(index):
            at("sample", name)
            return x[index]
        return Dataset(id=name, kind="array", sample_ids=ids, sources=ids, labels=labels,
                       content=f"{name}-1", load=load)
    return make

class Run:
    def __init__(self, inner, name):
        self.inner, self.name = inner, name
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.inner.close()
    def close(self):
        self.inner.close()
    def run(self, feeds):
        at("run", self.name)
        (name, y), = self.inner.run(feeds).items()
        changes = {"name": lambda: {"z": y}, "more": lambda: {name: y, "z": y},
                   "nothing": lambda: {}, "none": lambda: None, "list": lambda: [y],
                   "text": lambda: {name: y.astype("<U32")},
                   "objects": lambda: {name: y.astype(object)},
                   "complex": lambda: {name: y.astype(complex)},
                   "integers": lambda: {name: (y * 99).astype(np.int64)},
                   "rank": lambda: {name: y[None]}, "rows": lambda: {name: y[1:]},
                   "columns": lambda: {name: y[:, :3]}, "zeros": lambda: {name: y * 0},
                   "nan": lambda: {name: y * np.nan}, "negated": lambda: {name: -y}}
        return changes[END]() if PLACE == "output" and self.name == "mine" else {name: y}

class Engine:
    packages = ("onnxruntime",)
    def __init__(self, name):
        self.name = name
    capabilities = property(lambda self: get_backend("ort-cpu").capabilities)
    def prepare(self, graph, *, taps=(), threads=1):
        if self.name == "mine":
            at("backend")
        inner = get_backend("ort-cpu").prepare(graph, taps=taps, threads=threads)
        return Run(inner, "two" if self.name == "mine" and PLACE == "run" else self.name)

def pytest_qbench_extension(config):
    at("extension")
    return Extension(name="scenarios", models={"one": model("one", 1), "two": model("two", 2)},
                     datasets={"points": data("points", 5, 120),
                               "two_points": data("two_points", 6, 120),
                               "spare": data("spare", 7, 32)},
                     backends={"plain": lambda: Engine("plain"), "mine": lambda: Engine("mine")})

def pytest_qbench_processor(config):
    return os.environ.get("FAKE_PROCESSOR", "x64-test")

def pytest_configure(config): at("configure")
def pytest_sessionstart(session): at("session start")
def pytest_runtest_setup(item): at("setup hook", item.nodeid)
def pytest_runtest_call(item): at("call hook", item.nodeid)
def pytest_runtest_logstart(nodeid): at("start hook", nodeid)
def pytest_qbench_update_record(config, record): at("record hook", record["model"])
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    return True if PLACE == "protocol" and "two" in item.nodeid else None
@pytest.fixture
def needs():
    at("fixture")
def pytest_collection_modifyitems(items):
    at("collection")
    if PLACE == "removed":
        items[:] = [item for item in items if "two" not in item.nodeid]
    marks = {"skip": pytest.mark.skip, "skipif": pytest.mark.skipif(True, reason="here"),
             "xfail": pytest.mark.xfail, "xfail not run": pytest.mark.xfail(run=False)}
    for item in items:
        if "two" in item.nodeid and PLACE in ("mark", "other weights") and END in marks:
            item.add_marker(marks[END])
def pytest_terminal_summary(): at("summary")
def pytest_unconfigure(): at("unconfigure")
@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    at("session end")
    if END == "exit status 0":
        session.exitstatus = 0
if PLACE == "conftest":
    ENDS[END]()
"""

SUITE = """
[suite]
tolerance = 0.2
agreement = 0.5
backends = ["plain", "mine"]
schemas = ["w8a8_asym_pc"]
[[model]]
id = "one"
data = "points"
calibration = { data = "spare", count = 32 }
metrics = ["agreement"]
[[model]]
id = "two"
data = "two_points"
calibration = { data = "spare", count = 32 }
metrics = ["agreement"]
"""

TEST = """
import pytest
@pytest.mark.qbench(models=["two"], suite="suites/nets.qbench.toml")
def test_cell(qbench_cell, needs):
    assert qbench_cell.judge().outcome.value == "passed"
"""

SUITE_FILE, TEST_FILE = "suites/nets.qbench.toml", "test_cells.py"


def write_project(folder: Path) -> None:
    """Write the files of the project below ``folder``; nothing is run."""
    (folder / "suites").mkdir(parents=True)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / SUITE_FILE).write_text(SUITE)
    (folder / TEST_FILE).write_text(TEST)
    (folder / "pytest.ini").write_text("[pytest]\nqbench_cache = cache\nqbench_localize = 0\n")
