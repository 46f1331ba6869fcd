"""Can a run be green that should be red? One row per change after acceptance, each a pytest process of its own.

    python benchmarks/green_scenarios.py RESULTS.jsonl [--rows 'loader:*']

A project of two small networks is accepted once; every row copies it, makes one change and runs pytest in a fork of
this process, which has loaded the modules, so that a row takes a second. A row that
should be red and ends with 0 is *green wrongly*. RESULTS holds a line per finished row, and those are skipped when the
command is repeated. The exit code is 1 if a row is green wrongly, or red wrongly.

To add a scenario, add a place to ``PLACES``, an end to ``ENDS``, or a row to ``OTHERS``.
"""

import argparse
import contextlib
import fnmatch
import importlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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

def at(place, name="two"):
    if place == PLACE and "two" in name:
        ENDS[END]()

def network(seed):
    rng = np.random.default_rng(seed)
    constants = [numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
                 for name, shape in (("w", (8, 12)), ("v", (12, 5)))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="first"), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("MatMul", ["r", "v"], ["y"], name="second")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 8), ("y", 5))]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))

class Answering(Classification):
    def answer(self, executors, samples):
        at("task")
        return super().answer(executors, samples)

def model(name, seed):
    def graph():
        at("graph", name)
        return network(seed + (PLACE == "other weights" and name == "two"))
    def make():
        at("loader", name)
        task = Answering(k=2) if name == "two" else Classification(k=2)
        return ZooModel(id=name, graphs={"model": graph}, preprocess=ReadyArray(input="x"), task=task, origin="made up")
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
        return Dataset(id=name, kind="array", sample_ids=ids, sources=ids, labels=labels, content=f"{name}-1",
                       load=load)
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
        changes = {"name": lambda: {"z": y}, "more": lambda: {name: y, "z": y}, "nothing": lambda: {},
                   "none": lambda: None, "list": lambda: [y], "text": lambda: {name: y.astype("<U32")},
                   "objects": lambda: {name: y.astype(object)}, "complex": lambda: {name: y.astype(complex)},
                   "integers": lambda: {name: (y * 99).astype(np.int64)}, "rank": lambda: {name: y[None]},
                   "rows": lambda: {name: y[1:]}, "columns": lambda: {name: y[:, :3]}, "zeros": lambda: {name: y * 0},
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
                     datasets={"points": data("points", 5, 120), "two_points": data("two_points", 6, 120),
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
    marks = {"skip": pytest.mark.skip, "skipif": pytest.mark.skipif(True, reason="here"), "xfail": pytest.mark.xfail,
             "xfail not run": pytest.mark.xfail(run=False)}
    for item in items:
        if "two" in item.nodeid and PLACE in ("mark", "other weights") and END in marks:
            item.add_marker(marks[END])
def pytest_sessionfinish(session):
    at("session finish")
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
LOADED, OUTPUT = "loaded.json", "output.txt"
HANG_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One scenario: what happens where, and whether the run has to be red."""

    name: str
    red: bool = True
    why: str = "a result was accepted, and now the cell has none"
    arguments: tuple[str, ...] = (SUITE_FILE,)
    variables: dict[str, str] = field(default_factory=dict)


ENDS = (
    *("skip", "importorskip", "xfail", "SkipTest", "not fetched", "unsupported", "no module", "fail", "exception"),
    *("SystemExit", "GeneratorExit", "KeyboardInterrupt", "pytest.exit", "os._exit", "exit of C"),
)
PLACES = (
    *("loader", "graph", "data", "sample", "task", "backend", "run", "setup hook", "call hook", "record hook"),
    *("extension", "collection"),
)
CACHED = ("sample",)
"""Places whose result is in the cache: the row clears it."""
OUTPUTS = (
    *("name", "more", "nothing", "none", "list", "text", "objects", "complex", "integers", "rank", "rows", "columns"),
    *("zeros", "nan", "negated"),
)
SEVERAL = ("skip", "not fetched", "SystemExit", "pytest.exit", "os._exit")

OTHERS = (
    Row(name="nothing", red=False, why="nothing changed"),
    Row(name="nothing, Python test", red=False, why="nothing changed", arguments=(TEST_FILE,)),
    Row(name="-k one", red=False, why="the command selects these cells", arguments=(SUITE_FILE, "-k", "one")),
    Row(name="loader:skip, other class", red=False, why="nothing was accepted on this processor",
        variables={"FAKE_PROCESSOR": "arm64-test"}, arguments=(SUITE_FILE, "--qbench-missing=skip")),
    Row(name="loader:skip of all", why="nothing was measured",
        variables={"SCENARIO": "loader:skip", "FAKE_PROCESSOR": "arm64-test"},
        arguments=(SUITE_FILE, "-k", "two", "--qbench-missing=skip")),
    *(Row(name=f"mark:{mark}") for mark in ("skip", "skipif", "xfail not run")),
    Row(name="mark:xfail", why="the mark does not hide a cell that passes", red=False),
    Row(name="other weights:xfail", why="the cell is red, whatever a mark expects"),
    Row(name="other weights:exit status 0", why="a hook cannot make red cells green"),
    Row(name="protocol:none", why="a selected cell was not run"),
    *(Row(name=f"session start:{end}", why="no cell was run") for end in SEVERAL),
    *(Row(name=f"configure:{end}", why="no cell was run") for end in SEVERAL if end != "os._exit"),
    *(Row(name=f"conftest:{end}", why="no cell was run") for end in ("skip", "SystemExit", "exception")),
    *(Row(name=f"start hook:{end}", why="a selected cell was not run") for end in SEVERAL),
)  # fmt: skip


def rows() -> Iterator[Row]:
    """Every scenario, under a name of its own."""
    yield from OTHERS
    for place in PLACES:
        yield from (Row(name=f"{place}:{end}") for end in ENDS)
    yield from (Row(name=f"output:{kind}", why="the answers are others, or none") for kind in OUTPUTS)
    for end in SEVERAL:
        for place in ("loader", "fixture", "setup hook"):
            yield Row(name=f"{place}:{end}, Python test", arguments=(TEST_FILE,))
    for end in SEVERAL:  # the slowest last
        for place in ("loader", "setup hook"):
            yield Row(name=f"{place}:{end}, workers", arguments=(SUITE_FILE, "-n2"))


def make_project(folder: Path) -> None:
    """Write the project, accept its results, and load the modules that this takes: each row is then a fork."""
    (folder / "suites").mkdir(parents=True)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / SUITE_FILE).write_text(SUITE)
    (folder / TEST_FILE).write_text(TEST)
    (folder / "pytest.ini").write_text("[pytest]\nqbench_cache = cache\nqbench_localize = 0\n")
    (folder / LOADED).write_text("[]")
    if _forked(folder, (SUITE_FILE, "--qbench-accept-fp32", "--qbench-accept=new"), {}, keeps_names=True):
        raise SystemExit(f"the project could not be accepted: see {folder / OUTPUT}")
    for name in json.loads((folder / LOADED).read_text()):
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def exit_code(row: Row, project: Path, folder: Path) -> int:
    """The exit code of pytest for ``row`` in a copy of ``project`` at ``folder``."""
    shutil.copytree(project, folder)
    scenario = row.variables.get("SCENARIO", row.name.partition(",")[0])
    if scenario.partition(":")[0] in CACHED:
        shutil.rmtree(folder / "cache")
    return _forked(folder, row.arguments, {**row.variables, "SCENARIO": scenario})


def _waited(child: int) -> int:
    """The exit code of ``child``; one that hangs is killed: 137."""
    until = time.monotonic() + HANG_S
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            ended = os.waitstatus_to_exitcode(status)
            return ended if ended >= 0 else 128 - ended
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            until = math.inf
        time.sleep(0.05)


def _forked(folder: Path, arguments: tuple[str, ...], variables: dict[str, str], *, keeps_names: bool = False) -> int:
    """The exit code of pytest in a fork of this process, which has loaded its modules; 128 + a signal."""
    child = os.fork()
    if child:
        return _waited(child)
    code = 70
    try:
        for name in ("CI", "PYTEST_ADDOPTS"):
            os.environ.pop(name, None)
        os.environ.update(variables)
        os.chdir(folder)
        output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = int(pytest.main(["-q", "--assert=plain", "-p", "no:cacheprovider", *arguments]))
        if keeps_names:
            own = [name for name in sys.modules if name.partition(".")[0] not in ("conftest", "__main__", "test_cells")]
            Path(LOADED).write_text(json.dumps(own))
    except SystemExit as end:  # as the interpreter would
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        os._exit(code)


def main() -> int:
    """Run the rows that RESULTS lacks, print the table of what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, metavar="RESULTS.jsonl")
    parser.add_argument("--rows", nargs="+", default=["*"], metavar="PATTERN", help="the rows whose names match one")
    arguments = parser.parse_args()
    chosen = [row for row in rows() if any(fnmatch.fnmatchcase(row.name, one) for one in arguments.rows)]
    known = {}
    if arguments.results.exists():
        known = {one["name"]: one for one in map(json.loads, arguments.results.read_text().splitlines())}
    with tempfile.TemporaryDirectory(prefix="qbench-green-") as text, arguments.results.open("a") as results:
        folder = Path(text)
        if any(row.name not in known for row in chosen):
            make_project(folder / "project")
        for number, row in enumerate(chosen):
            if row.name in known:
                continue
            code = exit_code(row, folder / "project", folder / str(number))
            shutil.rmtree(folder / str(number))
            known[row.name] = {"name": row.name, "red": row.red, "code": code, "why": row.why}
            results.write(json.dumps(known[row.name]) + "\n")
            results.flush()
    tried = [known[row.name] for row in chosen]
    green = [one for one in tried if one["red"] and one["code"] == 0]
    red = [one for one in tried if not one["red"] and one["code"] != 0]
    for title, wrong in (("green wrongly", green), ("red wrongly", red)):
        for one in wrong:
            print(f"{title}: {one['name']} (exit code {one['code']}; {one['why']})")
    codes = ", ".join(f"{count} × {code}" for code, count in sorted(Counter(one["code"] for one in tried).items()))
    print(f"tried {len(tried)}, green wrongly {len(green)}, red wrongly {len(red)}; exit codes: {codes}")
    return int(bool(green or red))


if __name__ == "__main__":
    sys.exit(main())
