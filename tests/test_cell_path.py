"""The map of docs/architecture.md: the list of modules is complete, and files of the path exist.

That the path is what a cell goes through is checked by ``make lint``, which follows one.
"""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
