"""Cells of engines that end their process or hang: each fails alone, with the reason,
and the run goes on.
"""

import pytest

ENGINE = """
import os
import time
from dataclasses import dataclass, field

from qbench.backends import Closing, get_backend
from qbench.graph import Capabilities


@dataclass(frozen=True)
class Engine:
    name: str
    where: str
    how: str
    hang_s: float = 60.0
    packages: tuple = ()
    capabilities: Capabilities = field(default_factory=Capabilities)

    def prepare(self, model, *, taps=(), threads=1):
        if self.where == "prepare":
            self.fail()
        inner = get_backend("ort-cpu-precise").prepare(model, taps=taps, threads=threads)
        return Prepared(self, inner)

    def fail(self):
        if self.how == "abort":
            print("engine: assertion failed", flush=True)
            os.abort()
        while self.how == "hang":
            time.sleep(60)


class Prepared(Closing):
    def __init__(self, engine, executor):
        self.engine, self.executor, self.batches = engine, executor, 0

    def run(self, feeds):
        self.batches += 1
        if self.engine.where == "second batch" and self.batches == 2:
            self.engine.fail()
        return {**self.executor.run(feeds)}

    def close(self):
        self.executor.close()
"""
CONFTEST = """
from fake_engine import Engine

MORE = {
    "backends": {
        "sound": lambda: Engine("sound", "never", ""),
        "aborts-early": lambda: Engine("aborts-early", "prepare", "abort"),
        "aborts-late": lambda: Engine("aborts-late", "second batch", "abort"),
        "hangs": lambda: Engine("hangs", "second batch", "hang", hang_s=0.5),
    }
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_an_engine_that_dies_or_hangs_fails_its_cells_only(project, workers):
    (project.path / "fake_engine.py").write_text(ENGINE)
    project.pytester.syspathinsert(project.path)
    project.write_conftest(CONFTEST)
    project.write_suite(
        """
        [suite]
        tolerance = 0.2
        agreement = 0.5
        fp32 = false
        backends = ["aborts-early", "aborts-late", "hangs", "sound", "ort-cpu-precise"]
        schemas = ["w8a8_asym_pc"]
        equal_to = { "sound" = "ort-cpu-precise" }

        [[model]]
        id = "tiny_a"
        data = "points"
        calibration = { data = "spare", count = 64 }
        metrics = ["top1"]
        """
    )
    result = project.run("--qbench-accept-fp32", "--qbench-accept=new", workers=workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert {
        name.split("::")[1].split("+")[0]: outcome for name, outcome in project.outcomes().items()
    } == {
        "aborts-early": "error",
        "aborts-late": "error",
        "hangs": "error",
        "sound": "accepted",
        "ort-cpu-precise": "accepted",
    }
    said = {line["backend"]: line["headline"] for line in project.lines(kind="cell")}
    assert "Preparing 'net' on 'aborts-early'" in said["aborts-early"]
    assert "signal SIGABRT (engine: assertion failed)" in said["aborts-early"]
    assert "Running 'net' on 'aborts-late'" in said["aborts-late"]
    assert "signal SIGABRT" in said["aborts-late"]
    assert "no answer in 0.5 s, and its process was killed" in said["hangs"]
    assert project.lines(kind="end")
