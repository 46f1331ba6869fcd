"""Operators on trial from outside: a backend of a conftest in a suite, an arithmetic of its
own, kernels in tests.
"""

import re
from pathlib import Path

import pytest

import qbench.diagnosis
from qbench.diagnosis import check_operator  # noqa: F401 - loaded once, before pytester can forget it

DOCS = Path(__file__).parents[2] / "docs" / "kernels.md"

BACKEND = """
from dataclasses import dataclass, replace

from qbench.backends import IntegerBackend
from qbench.errors import UnsupportedError
from qbench.extension import Extension
from qbench.graph import Capabilities
from qbench.numerics import Accumulator, Rounding, Stage, get_arithmetic

MACHINE = get_arithmetic("ort-x64")


@dataclass(frozen=True)
class Mine:
    '''An engine from outside: it answers by machinery of its own and says nothing of how it
    counts.
    '''

    name: str
    machine: object
    capabilities: Capabilities = Capabilities()
    packages: tuple = ()

    def prepare(self, model, *, taps=(), threads=1):
        if any(node.op_type == "Softmax" for node in model.graph):
            raise UnsupportedError(
                "Preparing a graph on 'mine'", found="a Softmax", expected="what mine has",
                remedy="Leave it out.",
            )
        return IntegerBackend(arithmetic=self.machine).prepare(model, taps=taps)


def half_up():
    return replace(MACHINE, scaling=replace(MACHINE.scaling, stages=(Stage(Rounding.HALF_UP),)))


def pytest_qbench_extension(config):
    return Extension(
        name="house",
        backends={
            "mine": lambda: Mine("mine", MACHINE),
            "mine-half-up": lambda: Mine("mine-half-up", half_up()),
            "mine-pairs": lambda: Mine(
                "mine-pairs", replace(MACHINE, accumulator=Accumulator(pair_bits=16))),
        },
    )
"""

SUITE = """
[suite]
backends = ["{backend}"]
equal_to = "integer-{machine}"

[[model]]
id = "op.conv.grouped.*"

[[model]]
id = "op.softmax.u8.ties"
"""

OWN = """
name = "house"
source = "a data sheet"
scaling = { form = "float32", precision = "single", stages = [{ rounding = "half_up" }] }
"""


@pytest.fixture
def trial(project):
    (project.path / "conftest.py").write_text(BACKEND)
    (project.suite_path.parent / "arithmetics").mkdir()
    (project.suite_path.parent / "arithmetics" / "house.toml").write_text(OWN)

    def run(backend, machine, *args):
        project.write_suite(SUITE.format(backend=backend, machine=machine))
        return project.run(*args)

    run.project = project
    return run


def test_a_right_backend_passes_and_nothing_is_stored(trial):
    assert trial("mine", "ort-x64").parseoutcomes() == {"passed": 3, "skipped": 1}
    project = trial.project
    assert not (project.path / "baselines").exists()
    (skipped,) = (cell for cell in project.lines(kind="cell") if cell["outcome"] == "unsupported")
    assert "a Softmax" in skipped["headline"]
    line = next(
        cell for cell in project.lines(kind="cell") if cell["model"] == "op.conv.grouped.u8s8.ties"
    )
    assert line["compared"]["elements"] == 2160
    assert line["compared"]["differing"] == 0
    assert line["notices"] == []
    assert project.run("--qbench-accept-fp32", "--qbench-accept=new").parseoutcomes() == {
        "passed": 3,
        "skipped": 1,
    }
    assert not (project.path / "baselines").exists()


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("backend", "machine", "wrong"),
    [
        ("mine-half-up", "ort-x64", {"u8s8.ties", "u8s8.pc", "s8s8.pc"}),
        ("mine-pairs", "ort-x64", {"u8s8.ties", "u8s8.pc"}),
        ("mine-half-up", "house", set()),
        ("mine", "house", {"u8s8.ties", "u8s8.pc", "s8s8.pc"}),
    ],
)
def test_a_wrong_backend_is_caught_where_it_counts_otherwise(trial, backend, machine, wrong):
    result = trial(backend, machine)
    outcomes = trial.project.outcomes()
    failed = {name for name, outcome in outcomes.items() if outcome == "failed"}
    assert failed == {f"op.conv.grouped.{kind}::{backend}+given" for kind in wrong}
    assert len(outcomes) == 4
    if wrong:
        result.stdout.fnmatch_lines([f"*elements differ from integer-{machine}*"])
        result.stdout.re_match_lines([rf".*equal_to integer-{machine} \(suite scratch\)"])


@pytest.mark.slow
def test_close_is_enough_where_a_suite_says_so(trial):
    project = trial.project
    close = SUITE.format(backend="mine-half-up", machine="ort-x64")
    project.write_suite(
        close.replace(
            'equal_to = "integer-ort-x64"', 'close_to = { backend = "integer-ort-x64", steps = 1 }'
        )
    )
    assert project.run().parseoutcomes() == {"passed": 3, "skipped": 1}
    project.write_suite(close.replace("equal_to", "# equal_to"))
    project.run().stdout.fnmatch_lines(["*no float model and no 'equal_to' or 'close_to'*"])


@pytest.fixture
def kernels(pytester, monkeypatch):
    (code,) = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), flags=re.MULTILINE | re.DOTALL)

    def run(old="", new=""):
        assert old in code
        (pytester.path / "test_kernels.py").write_text(code.replace(old, new) if old else code)
        return pytester.runpytest_inprocess("-p", "no:hypothesispytest", "-p", "no:xdist", "-q")

    return run


@pytest.mark.slow
def test_the_kernel_in_the_docs_is_right(kernels):
    from qbench.subjects import list_operators

    assert kernels().parseoutcomes() == {"passed": len(list_operators("op.gemm.*"))}


@pytest.mark.slow
def test_the_message_in_the_docs_is_what_is_said(kernels):
    result = kernels("np.rint(sums.astype(np.float32) * multiplier)", HALF_UP)
    assert result.parseoutcomes()["failed"] >= 3
    shown = (
        DOCS.read_text()
        .partition("np.floor(… + 0.5)`:\n\n```\n")[2]
        .partition("```")[0]
        .splitlines()
    )
    assert len(shown) == 4
    said = result.stdout.str()
    for line in shown:
        assert line in said


HALF_UP = "np.floor(sums.astype(np.float32) * multiplier + np.float32(0.5))"


def test_the_names_in_the_docs_are_there():
    text = DOCS.read_text()
    from qbench.subjects import list_operators

    assert f"{len(list_operators())} names" in text
    table = text.partition("## The subjects")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    written = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert written == {name.split(".")[1] for name in list_operators()}
    assert "check_operator" in qbench.diagnosis.__all__
