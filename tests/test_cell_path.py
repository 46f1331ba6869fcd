"""The map of docs/architecture.md: the path of a cell is what a cell goes through, the list of
modules is complete.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_path_of_a_cell_is_what_a_cell_goes_through():
    command = [sys.executable, str(ROOT / "benchmarks" / "hops.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_page_with_another_module_or_a_file_that_is_gone_is_stale():
    structure = loaded("structure")
    text = structure.PAGE.read_text(encoding="utf-8")
    assert structure.stale(text) == []
    assert len(structure.stale(text.replace("- `qbench/lazy.py`: ", "- `qbench/idle.py`: "))) == 1
    gone = "| run | `qbench/suite/gone.py` | 1 | `Request` |"
    assert (
        len(structure.stale(text.replace("|---|---|---|---|\n", f"|---|---|---|---|\n{gone}\n")))
        == 1
    )
