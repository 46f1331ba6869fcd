"""A guest backend on another device than the CPU: its results have environment classes of their
own.
"""

import json
import sys

import pytest

GUEST = """
import dataclasses
import os

import numpy as np
from qbench.backends import Closing, get_backend


class Guest:
    # ort-cpu as the engine of a device, whose answers TOY_OTHER changes for some samples.

    name = "toy-engine"
    packages = ("onnxruntime",)
    capabilities = get_backend("ort-cpu").capabilities
    device = os.environ.get("TOY_DEVICE", "cuda")

    def prepare(self, model, *, taps=(), threads=1):
        return Running(get_backend("ort-cpu").prepare(model, taps=taps, threads=threads))


class Running(Closing):
    def __init__(self, executor):
        self.executor = executor

    def run(self, feeds):
        other = feeds["x"][:, :1] > float(os.environ.get("TOY_OTHER", "9"))
        found = self.executor.run(feeds)
        return {name: np.where(other, np.roll(one, 1, axis=1), one) for name, one in found.items()}

    def close(self):
        self.executor.close()


MORE = {"backends": {"toy-engine": Guest}}
"""

SUITE = """
[suite]
tolerance = 0.2
agreement = 0.5
equivalents = [["x64-*"]]
backends = ["ort-cpu", "toy-engine"]
schemas = ["w8a8_asym_pc"]

[[model]]
id = "tiny_a"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1", "agreement"]
"""

SLUG = "toy-engine+w8a8_asym_pc"


@pytest.fixture
def guest(project, monkeypatch):
    project.write_conftest(GUEST)
    project.write_suite(SUITE)
    monkeypatch.delenv("TOY_DEVICE", raising=False)
    monkeypatch.delenv("TOY_OTHER", raising=False)
    return project


def accepted(project):
    """Cell → the classes with an accepted result."""
    path = project.path / "baselines" / "scratch" / "tiny_a.json"
    cells = json.loads(path.read_text())["cells"]
    return {slug: set(cell["accepted"]) for slug, cell in cells.items()}


def cell_line(project):
    """The newest line of the guest's quantized cell."""
    return next(
        one for one in project.lines(kind="cell") if f"{one['backend']}+{one['schema']}" == SLUG
    )


def drift_state(line):
    return next(gate["state"] for gate in line["gates"] if gate["kind"] == "drift")


@pytest.mark.slow
def test_results_of_a_device_are_accepted_and_judged_next_to_those_of_the_cpu(guest, monkeypatch):
    monkeypatch.setenv("TOY_DEVICE", "cpu")
    guest.accept()
    (of_cpu,) = accepted(guest)[SLUG]
    of_device = f"{of_cpu}+device=cuda"
    assert accepted(guest)["ort-cpu+w8a8_asym_pc"] == {of_cpu}

    monkeypatch.setenv("TOY_DEVICE", "cuda")  # no result of the CPU judges its predictions
    monkeypatch.setenv("TOY_OTHER", "2.5")
    assert guest.run().ret == 0
    assert cell_line(guest)["environment_class"] == of_device
    assert drift_state(cell_line(guest)) == "incomparable"

    guest.run("--qbench-accept=new")
    assert accepted(guest)[SLUG] == {of_cpu, of_device}
    assert accepted(guest)["ort-cpu+w8a8_asym_pc"] == {of_cpu}
    guest.run()
    assert drift_state(cell_line(guest)) == "holds"

    monkeypatch.setenv("TOY_OTHER", "2.2")  # both classes judge their own results
    assert guest.run().ret == 1
    assert drift_state(cell_line(guest)) == "broken"
    monkeypatch.setenv("TOY_DEVICE", "cpu")
    assert guest.run().ret == 1
    assert drift_state(cell_line(guest)) == "broken"
    monkeypatch.delenv("TOY_OTHER")
    guest.run()
    assert (cell_line(guest)["environment_class"], drift_state(cell_line(guest))) == (
        of_cpu,
        "holds",
    )


@pytest.mark.parametrize("word", ["CUDA 12", "a+b", "x=y", "", "cuda-", "c" * 33])
def test_a_device_that_is_no_short_word_is_one_sentence(guest, monkeypatch, word):
    monkeypatch.setenv("TOY_DEVICE", word)
    result = guest.run("--qbench-select=backend=toy-engine")
    assert result.ret == 1
    sentence = cell_line(guest)["headline"]
    assert sentence.startswith("Reading on which device the backend 'toy-engine' computes: found")
    assert repr(word) in sentence


def test_a_skip_is_red_only_where_the_device_had_a_result(guest, monkeypatch):
    guest.accept()
    extra = """
def prepare(self, model, *, taps=(), threads=1):
    pytest.skip("no such device")


Guest.prepare = prepare
"""
    guest.write_conftest(GUEST, extra)
    guest.run("--qbench-select=backend=toy-engine")
    assert cell_line(guest)["outcome"] == "drifted"
    monkeypatch.setenv("TOY_DEVICE", "npu")
    guest.run("--qbench-select=backend=toy-engine")
    assert cell_line(guest)["outcome"] == "unsupported"


@pytest.mark.slow
def test_values_of_a_listed_cell_are_of_the_device(guest):
    guest.write_suite(SUITE.replace("agreement = 0.5", "agreement = 0.999"))
    guest.accept()
    guest.run()
    assert cell_line(guest)["outcome"] == "failed"
    words = ("quarantine", f"tiny_a::{SLUG}")
    texts = ("--owner", "o", "--until", "2027-01-31", "--reason", "a test")
    result = guest.pytester.run(sys.executable, "-m", "qbench", *words, *texts)
    assert result.ret == 0, result.stderr.str()
    listed = (guest.path / "suites" / "scratch.quarantine.toml").read_text()
    assert '[cell.values."x64-test+device=cuda"]' in listed


@pytest.mark.slow
def test_doctor_and_list_name_the_device(guest):
    guest.accept()
    result = guest.pytester.run(
        sys.executable, "-m", "qbench", "doctor", "--json", "suites/scratch.qbench.toml"
    )
    (suite,) = json.loads(result.stdout.str())["suites"]
    assert suite["devices"] == {"toy-engine": "cuda"}
    result = guest.pytester.run(
        sys.executable, "-m", "qbench", "doctor", "suites/scratch.qbench.toml"
    )
    result.stdout.fnmatch_lines(["*toy-engine runs on cuda*"])
    result = guest.pytester.run(sys.executable, "-m", "qbench", "list", "backends")
    result.stdout.fnmatch_lines(["toy-engine*on cuda*"])
