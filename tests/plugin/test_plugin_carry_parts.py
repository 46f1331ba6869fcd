"""Each part of the key of a cell, from outside: what changes it, and that the cell is then measured
with the part as the reason.
"""

import json

import pytest

import qbench.evaluation
import qbench.host.computer
import qbench.suite.cell_parts

MORE = """
from qbench.backends import get_backend


class MyTask(Classification):
    def answer(self, runners, samples):
        return super().answer(runners, samples)  # task 1


class MyReady(ReadyArray):
    def finish(self, batch):
        return super().finish(batch)  # preprocessing 1


class Engine:
    # engine 1
    capabilities, packages, name = get_backend("ort-cpu").capabilities, ("onnxruntime",), "mine"

    def __init__(self, option):
        self.option = option

    def prepare(self, model, *, taps=(), threads=1):
        return get_backend("ort-cpu").prepare(model, taps=taps, threads=threads)


MORE = dict(backends={"mine": lambda: Engine(1), "other": lambda: Other(1)})


class Other(Engine):
    # the other engine 1
    name = "other"
"""

SUITE = """
[suite]
tolerance = 0.2
agreement = 0.5
backends = ["mine"]
schemas = ["written"]
fp32 = false
equal_to = "other"

[[model]]
id = "tiny_a"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1", "agreement"]
ranges_file = "tiny.ranges.toml"
passes = ["exact"]
"""

SCHEMA = """
[[rules]]
activation = { qtype = "uint8", symmetry = "asymmetric" }
weight = { qtype = "int8", symmetry = "symmetric", granularity = "channel", narrow_range = true }
"""


class Project:
    """The scratch project with everything of its own that a key follows."""

    def __init__(self, project):
        self.project = project
        self.suites = project.suite_path.parent
        project.write_suite(SUITE)
        (self.suites / "schemas").mkdir()
        (self.suites / "schemas" / "written.toml").write_text(SCHEMA)
        (self.suites / "tiny.ranges.toml").write_text("[values.r1]\nlow = 0.0\nhigh = 9.0\n")
        project.write_conftest(MORE)
        self.conftest = project.path / "conftest.py"
        text = self.conftest.read_text()
        text = text.replace("task=Classification(k=3)", "task=MyTask(k=3)")
        text = text.replace("preprocess=ReadyArray(", "preprocess=MyReady(")
        self.conftest.write_text(text)

    def edit(self, name, before, after):
        path = self.project.path / name
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))

    def run(self, *options):
        self.project.run("--qbench-carry=7d:0%", *options)
        (cell,) = self.project.lines(kind="cell")
        return cell


def edited(name, before, after):
    return lambda project, _: project.edit(name, before, after)


def suite(before, after):
    return edited("suites/scratch.qbench.toml", before, after)


def conftest(before, after):
    return edited("conftest.py", before, after)


def option(*words):
    def change(_project, _monkeypatch):
        return words

    return change


def patched(module, name, value):
    def change(_project, monkeypatch):
        is_property = isinstance(value, property)
        monkeypatch.setattr(module, name, value if is_property else lambda *_: value)

    return change


def version(package, other):
    def change(_project, monkeypatch):
        found = qbench.host.computer.version
        monkeypatch.setattr(
            qbench.host.computer, "version", lambda name: other if name == package else found(name)
        )

    return change


def variable(name, value):
    def change(_project, monkeypatch):
        monkeypatch.setenv(name, value)

    return change


def baseline(edit):
    def change(project, _monkeypatch):
        (path,) = (project.project.path / "baselines").rglob("tiny_a.json")
        table = json.loads(path.read_text())
        edit(table)
        path.write_text(json.dumps(table))

    return change


def reference(table):
    table["fp32"]["environment_class"] = "x64-elsewhere"


def result(table):
    (cell,) = table["cells"].values()
    (one,) = cell["accepted"].values()
    one["reason"] = "again"


def ranges(table):
    (values,) = table["calibrations"].values()
    values["r1"] = values["r1"] + "1"  # within what may differ


PARTS = {
    "model": conftest('{"tiny_a": 1', '{"tiny_a": 3'),
    "data points": conftest('data("points", 10)', 'data("points", 12)'),
    "data points by its preprocessing": conftest("# preprocessing 1", "# preprocessing 2"),
    "task": conftest("# task 1", "# task 2"),
    "metrics": suite('["top1", "agreement"]', '["top1"]'),
    "calibration": suite("count = 64", "count = 63"),
    "calibration data": conftest('data("spare", 11, 64)', 'data("spare", 13, 64)'),
    "schema": edited("suites/schemas/written.toml", "narrow_range = true", "narrow_range = false"),
    "ranges file": edited("suites/tiny.ranges.toml", "high = 9.0", "high = 8.0"),
    "passes": patched(qbench.evaluation.Rewriting, "digest", property(lambda _: "other")),
    "backend": conftest("Engine(1)", "Engine(2)"),
    "backend by its code": conftest("    # engine 1", "    # engine 2"),
    "backend other": conftest("Other(1)", "Other(2)"),
    "package onnxruntime": version("onnxruntime", "1.99.0"),
    "fp32 backend": suite("fp32 = false", 'fp32 = false\nreference = "ort-cpu-noopt"'),
    **{
        f"package {name}": version(name, "99.9")
        for name in ("numpy", "onnx", "onnx-ir", "ml-dtypes")
    },
    "environment": variable("FAKE_PROCESSOR", "x64-other"),
    "qbench": patched(qbench.suite.cell_parts, "own_sources", "#1"),
    "python": patched(qbench.suite.cell_parts.platform, "python_version", "3.99.0"),
    "kernels of numpy": patched(qbench.suite.cell_parts, "blas_kernels", "openblas-Other"),
    "tolerance": suite("tolerance = 0.2", "tolerance = 0.3"),
    "tolerance by an option": option("--qbench-tolerance=0.3"),
    "rules": suite("agreement = 0.5", "agreement = 0.4"),
    "samples": option("--qbench-limit=200"),
    "repeats": option("--qbench-repeats=2"),
    "threads": option("--qbench-threads=2"),
    "fp32 reference": baseline(reference),
    "accepted result": baseline(result),
    "accepted ranges": baseline(ranges),
}


@pytest.fixture
def own(project):
    made = Project(project)
    assert project.accept().ret == 0
    cell = project.once("measured", made.run)
    assert "carried" not in cell
    assert cell["outcome"] == "passed", cell["headline"]
    made.key = cell["key"]
    return made


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("part", PARTS)
def test_a_cell_whose_key_changed_is_measured_and_says_what(own, monkeypatch, part):
    before = own.key
    options = PARTS[part](own, monkeypatch) or ()
    cell = own.run(*options)
    name, now = part.partition(" by ")[0], cell["key"]
    assert "carried" not in cell
    assert now["parts"].get(name) != before["parts"][name]
    changed = [one for one in now["parts"] if now["parts"][one] != before["parts"].get(one)]
    assert any(f"{one} changed" in now["why"] for one in changed) or f"{name} is" in now["why"]


def test_every_part_of_a_key_has_a_row_above(own):
    cell = own.run()
    assert "carried" in cell
    known = {part.partition(" by ")[0] for part in PARTS}
    without = {
        *("environment of other", "package onnxruntime of other"),  # as those of the cell itself
    }
    assert set(cell["key"]["parts"]) == known | without
