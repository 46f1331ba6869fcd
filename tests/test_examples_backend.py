"""The example of a backend from outside: it declares its arithmetic, so localization names the
node and the cause.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "own-backend"
CELL = (
    "digits_cnn --backend toy-npu --schema w8a8_asym_pc --data "
    "digits_test --calib digits_train --calib-count 64"
)
ASK = """
from qbench import get_backend
from qbench.subjects import get_model

with get_backend("toy-npu").prepare(get_model("digits_cnn").graphs["model"]()) as executor:
    print(*sorted({f"{one.precision} {one.device}" for one in executor.executed().values()}))
"""


@pytest.fixture
def run_python(tmp_path):
    """Runs a Python in a copy of the example, which it finds as if it were installed."""
    shutil.copytree(
        EXAMPLE, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    facts = tmp_path / f"own_backend-{project['version']}.dist-info"
    facts.mkdir()
    facts.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n"
    )
    points = "\n".join(
        f"{name} = {place}" for name, place in project["entry-points"]["qbench.extensions"].items()
    )
    facts.joinpath("entry_points.txt").write_text(f"[qbench.extensions]\n{points}\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run(*arguments, code=0):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_its_faulty_node_and_the_cause_are_named(run_python):
    found = json.loads(
        run_python("-m", "qbench", "localize", *CELL.split(), "--samples", "8", "--json", code=1)
    )
    worst = found["finding"]["suspects"][0]
    assert worst["node"] == "conv2"
    assert worst["cause"] == "wrong bias"
    assert "'integer-ideal'" in found["finding"]["matched"]
    assert "toy-npu" in run_python("-m", "qbench", "list", "backends")


@pytest.mark.slow
def test_without_its_bug_no_node_is_suspected(run_python, tmp_path):
    engine = tmp_path / "own_backend" / "engine.py"
    text = engine.read_text()
    engine.write_text(
        text.replace("b = np.where(np.arange(len(b)) < 16, b, np.float32(0))", "pass")
    )
    found = json.loads(
        run_python("-m", "qbench", "localize", *CELL.split(), "--samples", "8", "--json")
    )
    assert engine.read_text() != text
    assert found["finding"]["suspects"] == []
    assert found["finding"]["notes"] == []


def test_it_reports_how_its_nodes_run(run_python):
    assert run_python("-c", ASK).split() == ["float32", "toy"]
