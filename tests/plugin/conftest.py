"""A scratch project: two tiny random networks on made-up data,
in a conftest as users write theirs.
"""

import json
import os
import textwrap

import pytest

import qbench.backends
import qbench.host.supervision
import qbench.host.termination
import qbench.metrics
import qbench.passes
import qbench.plugin.python_tests
import qbench.plugin.session_end
import qbench.quantization
import qbench.storage.files_read
import qbench.subjects
import qbench.suite

# pytester forgets the modules that a run in this process has loaded. What is loaded here stays:
# runs take milliseconds, and a name that a lazy door has handed out keeps belonging to the file it
# came from.
for room in (
    qbench.backends,
    qbench.metrics,
    qbench.passes,
    qbench.quantization,
    qbench.suite,
    qbench.subjects,
):
    for name in room.__all__:
        getattr(room, name)

PROJECT = """
import os

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper, TensorProto
from qbench.extension import Extension
from qbench.subjects import Dataset, ReadyArray, ZooModel
from qbench.subjects.tasks import Classification

SAMPLES, FEATURES, CLASSES = 400, 16, 7


def network(seed):
    rng = np.random.default_rng(seed)
    sizes = [FEATURES, 24, 24, CLASSES]
    nodes, constants, value = [], [], "x"
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        weights = rng.normal(0, 1 / np.sqrt(a), (a, b)).astype(np.float32)
        bias = rng.normal(0, 0.1, b).astype(np.float32)
        constants.append(numpy_helper.from_array(weights, f"w{i}"))
        constants.append(numpy_helper.from_array(bias, f"b{i}"))
        operands = [value, f"w{i}", f"b{i}"]
        nodes.append(helper.make_node("Gemm", operands, [f"h{i}"], name=f"gemm{i}"))
        value = f"h{i}"
        if i < 2:
            nodes.append(helper.make_node("Relu", [value], [f"r{i}"], name=f"relu{i}"))
            value = f"r{i}"
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n", CLASSES])],
        constants,
    )
    opsets = [helper.make_opsetid("", 21)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def model(name, seed):
    return lambda: ZooModel(
        id=name,
        graphs={"model": lambda: network(seed)},
        preprocess=ReadyArray(input="x"),
        task=Classification(k=3),
        origin="random numbers",
    )


def data(name, seed, count=SAMPLES):
    def make():
        x = np.random.default_rng(seed).normal(0, 1, (count, FEATURES)).astype(np.float32)
        answers = {m: run(network(s), x) for m, s in (("a", 1),)}
        return Dataset(
            id=name,
            kind="array",
            sample_ids=tuple(f"{name}-{i}" for i in range(count)),
            sources=tuple(f"{name}-{i}" for i in range(count)),
            labels=tuple((int(label),) for label in answers["a"]),
            content=f"{name}-{seed}-{count}",
            load=lambda index: x[index],
        )
    return make


def run(graph, x):
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    session = ort.InferenceSession(
        ir.to_proto(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0].argmax(axis=1)


WEIGHTS = {"tiny_a": 1, "tiny_b": int(os.environ.get("TINY_B_SEED", "2"))}


def pytest_qbench_extension(config):
    return Extension(
        name="scratch conftest",
        models={name: model(name, seed) for name, seed in WEIGHTS.items()},
        datasets={"points": data("points", 10), "spare": data("spare", 11, 64)},
        **MORE,
    )


def pytest_qbench_processor(config):
    return os.environ.get("FAKE_PROCESSOR", "x64-test")
"""

SUITE = """
[suite]
tolerance = 0.2
agreement = 0.5
backends = ["ort-cpu", "ort-cpu-noopt"]
schemas = ["w8a8_asym_pc"]

[[model]]
id = "tiny_a"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1", "agreement"]

[[model]]
id = "tiny_b"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["agreement"]
"""

PLAIN = ("--assert=plain",)
"""For other processes: else pytest rewrites the asserts of every file of a plugin there, which
takes half of a run.
"""

OWN_VARIABLES = {"PYTEST_CURRENT_TEST", "HOME", "USERPROFILE", "PYTEST_DEBUG_TEMPROOT", "TMPDIR"}
"""What pytest sets anew for each test; every other variable may change what a run measures."""


class Project:
    """The scratch project and short ways to run pytest in it."""

    def __init__(self, pytester, monkeypatch, cache, done):
        self.pytester = pytester
        self.monkeypatch = monkeypatch
        self.done = done
        self.path = pytester.path
        self.suite_path = self.path / "suites" / "scratch.qbench.toml"
        self.suite_path.parent.mkdir()
        self.write_suite(SUITE)
        self.write_conftest()
        self.write_ini(
            f"qbench_cache = {cache}", "qbench_localize = 0"
        )  # looked for only where tests are about it
        self.cache = cache

    def write_ini(self, *settings):
        self.pytester.makeini("\n".join(["[pytest]", *settings, ""]))

    def write_suite(self, text):
        self.suite_path.write_text(textwrap.dedent(text))

    def write_conftest(self, more="MORE = {}", extra=""):
        pytest_text = PROJECT.replace("WEIGHTS = {", f"{more}\nWEIGHTS = {{")
        (self.path / "conftest.py").write_text(pytest_text + "\n" + extra)

    def run(self, *args, suite=True, process=False, workers=0):
        """pytest on the suite, in this process or one of its own (``process``); ``workers``: so
        many that measure.
        """
        arguments = [*(["suites/scratch.qbench.toml"] if suite else []), *args]
        start = self.pytester.runpytest_subprocess if process else self.pytester.runpytest_inprocess
        spread = (f"-n{workers}",) if workers else ("-p", "no:xdist")
        return start(
            "-p", "no:hypothesispytest", *(PLAIN if process or workers else ()), *spread, *arguments
        )

    def accept(self, *args, **how):
        """Accept what is new."""

        def accepting():
            return self.run("--qbench-accept-fp32", "--qbench-accept=new", *args, **how)

        return accepting() if args or how else self.once("accepted", accepting)

    def once(self, name, action):
        """What ``action`` answers. Of equal projects only the first does it; all others get a copy
        of the files that it wrote.
        """
        if self.monkeypatch._setattr:
            return action()
        before = self.files()
        environment = {name: text for name, text in os.environ.items() if name not in OWN_VARIABLES}
        key = repr((name, before, sorted(environment.items())))
        if key not in self.done:
            result = action()
            after = self.files()
            changed = [name for name in after if after[name] != before.get(name)]
            times = {name: (self.path / name).stat().st_mtime_ns for name in changed}
            self.done[key] = result, {name: (after[name], times[name]) for name in changed}
            return result
        result, files = self.done[key]
        for name, (data, time) in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, ns=(time, time))
        return result

    def files(self):
        """Relative path → content of every file of the project that is not compiled."""
        return {
            str(path.relative_to(self.path)): path.read_bytes()
            for path in sorted(self.path.rglob("*"))
            if path.is_file() and path.suffix != ".pyc"
        }

    @property
    def run_files(self):
        return sorted(
            (self.path / "reports" / "history").rglob("*.jsonl"), key=lambda p: p.stat().st_mtime_ns
        )

    def lines(self, index=-1, kind=None):
        lines = [json.loads(line) for line in self.run_files[index].read_text().splitlines()]
        return [line for line in lines if kind is None or line["type"] == kind]

    def outcomes(self, index=-1):
        return {
            f"{c['model']}::{c['backend']}+{c['schema']}": c["outcome"]
            for c in self.lines(index, "cell")
        }


@pytest.fixture(scope="session")
def projects_done():
    """Action, project and environment → what the action answered, and the files that it wrote."""
    return {}


@pytest.fixture
def project(pytester, monkeypatch, tmp_path_factory, projects_done):
    for name in ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    # what code of earlier tests read in this process would be in the seals of this one
    qbench.storage.files_read._read.clear()
    cache = (
        tmp_path_factory.getbasetemp() / "qbench-cache"
    )  # content-addressed: all tests may share it
    return Project(pytester, monkeypatch, cache, projects_done)


class Checks:
    """An empty folder with a float network, quantized forms of it, and data for both."""

    def __init__(self, pytester, files, cache):
        self.pytester = pytester
        self.path = pytester.path
        for name, content in files.items():
            (self.path / name).write_bytes(content)
        self.write_ini(f"qbench_cache = {cache}", "qbench_localize = 0")

    def write_ini(self, *settings):
        self.settings = settings
        self.pytester.makeini("\n".join(["[pytest]", *settings, ""]))

    def write(self, body, name="test_net"):
        """The file ``name``.py with ``body``, after the arguments of a check that passes."""
        text = "import pytest\n\nGOOD = dict(fp32='net.onnx', data='val.npz', tolerance=0.5)\n"
        path = self.path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + textwrap.dedent(body))

    def run(self, *args, process=False, workers=0):
        """pytest here, in this process or one of its own; ``workers``: so many that measure."""
        start = self.pytester.runpytest_inprocess
        if process or workers:
            start = self.pytester.runpytest_subprocess
        spread = (f"-n{workers}",) if workers else ("-p", "no:xdist")
        plain = PLAIN if process or workers else ()
        return start("-p", "no:hypothesispytest", *plain, *spread, *args)

    def quantize(self, name):
        """Let ``int8.onnx`` be the quantized form ``name``."""
        (self.path / "int8.onnx").write_bytes((self.path / name).read_bytes())

    @property
    def baselines(self):
        return sorted(path.name for path in (self.path / "baselines").glob("checks/*.json"))

    def lines(self, kind="cell", index=-1):
        """The lines of a kind in one run file, the newest by default."""
        folder = self.path / "reports" / "history"
        files = sorted(folder.rglob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        lines = [json.loads(line) for line in files[index].read_text().splitlines()]
        return [line for line in lines if line["type"] == kind]


@pytest.fixture(scope="session")
def check_files():
    """Name → content: a float network, two quantized forms of it, scored and calibration data."""
    import io

    import numpy as np
    import onnx_ir as ir

    made = {}
    exec(PROJECT.split("def model(", maxsplit=1)[0], made)
    exec("def run(" + PROJECT.split("def run(")[1].split("WEIGHTS", maxsplit=1)[0], made)
    net = made["network"](1)
    rng = np.random.default_rng(3)
    scored, learned = (rng.normal(0, 1, (count, 16)).astype(np.float32) for count in (200, 64))
    labels = made["run"](net, scored)
    profile = qbench.calibrate(net, [{"x": learned}])
    files = {"net.onnx": ir.to_proto(net).SerializeToString()}
    for name, schema in (("int8.onnx", "w8a8_asym_pc"), ("other.onnx", "w4a8_asym_pt")):
        plan = qbench.make_plan(net, profile, schema)
        files[name] = ir.to_proto(qbench.quantize_model(net, plan)).SerializeToString()
    files["same.onnx"] = files["int8.onnx"]
    files["again.onnx"] = ir.to_proto(made["network"](2)).SerializeToString()
    narrow = qbench.calibrate(net, [{"x": 0.9 * learned}])
    plan = qbench.make_plan(net, narrow, "w8a8_asym_pc")
    files["close.onnx"] = ir.to_proto(qbench.quantize_model(net, plan)).SerializeToString()
    wrong = labels.copy()
    wrong[3] = 12
    archives = {
        "val.npz": {"x": scored, "y": labels},
        "wrong.npz": {"x": scored, "y": wrong},
        "calibration.npz": {"x": learned},
    }
    for name, arrays in archives.items():
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        files[name] = buffer.getvalue()
    return files


@pytest.fixture
def checks(pytester, monkeypatch, tmp_path_factory, check_files):
    for name in ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    return Checks(pytester, check_files, tmp_path_factory.getbasetemp() / "qbench-cache")
