"""A folder of TOML is read without starting a program that it names;
a run starts the one that its suite names.
"""

import json
from pathlib import Path

import pytest

SUITE = """
[suite]
backends = [{backends}]
schemas = ["w8a8_asym_pc"]

[[model]]
id = "blobs"
data = "blobs_test"
calibration = {{ data = "blobs_train", count = 32 }}
metrics = ["top1"]
"""


@pytest.fixture
def started(project) -> Path:
    """A file that is there once the program of ``pythons/far.toml``, or pip, was started."""
    mark = project / "started"
    program = project / "suites" / "pythons" / "evil.sh"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    program.chmod(0o755)
    (program.parent / "far.toml").write_text('python = "evil.sh"\n')
    (program.parent / "made.toml").write_text('requirements = ["onnxruntime==0.0.1"]\n')
    return mark


def write_suite(*backends: str) -> None:
    text = SUITE.format(backends=", ".join(f'"{name}"' for name in backends))
    Path("suites/tiny.qbench.toml").write_text(text)


READING = (
    ("list", "backends"),
    ("list", "backends", "--json"),
    ("doctor",),
    ("doctor", "suites/tiny.qbench.toml", "--json"),
    ("run", "--help"),
    ("report",),
    ("history", "check"),
)


@pytest.mark.parametrize("named", [("ort-cpu",), ("ort-cpu", "far", "made")])
def test_reading_starts_nothing(started, qbench, monkeypatch, named):
    from qbench.backends import EnvironmentMaker

    monkeypatch.setattr(EnvironmentMaker, "make", lambda *_: pytest.fail("an environment is made"))
    write_suite(*named)
    for words in READING:
        qbench(*words)
        assert not started.exists(), words
    listed = qbench("list", "backends")[1]
    assert "far  " in listed
    assert "made  " in listed


@pytest.mark.slow
def test_a_run_starts_what_its_suite_names_and_nothing_else(started, qbench):
    write_suite("ort-cpu")
    qbench("run", "suites/tiny.qbench.toml")
    assert not started.exists()
    write_suite("ort-cpu", "far")
    code, out, err = qbench("run", "suites/tiny.qbench.toml")
    assert started.exists()
    assert code == 1
    assert "its worker ended with exit code 0" in out + err


def test_doctor_knows_no_class_of_what_it_does_not_start(started, qbench):
    """An excuse for a version over there may hold, whichever it is;
    one for another processor cannot.
    """
    from qbench.host import processor_class

    entry = (
        '[[cell]]\ncell = "{}"\nwhen = "{}"\nmeasured = "bad"\nreason = "r"\nowner = "me"\n'
        'expires = "2099-01-01"\n'
    )
    entries = (
        ("blobs::far+w8a8_asym_pc", f"{processor_class()}+onnxruntime-0.0.7"),
        ("blobs::made+w8a8_asym_pc", "riscv64-rvv+onnxruntime-0.0.7"),
        ("blobs::ort-cpu+w8a8_asym_pc", f"{processor_class()}+onnxruntime-0.0.7"),
    )
    Path("suites/tiny.quarantine.toml").write_text("".join(entry.format(*one) for one in entries))
    write_suite("ort-cpu", "far", "made")
    (facts,) = json.loads(qbench("doctor", "suites/tiny.qbench.toml", "--json")[1])["suites"]
    assert facts["unknown_until_started"] == ["far", "made"]
    assert (facts["excused"], facts["gated"]) == (1, 3)
    assert not started.exists()
