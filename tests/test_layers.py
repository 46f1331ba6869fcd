"""Each import contract can break: one forbidden import a contract, added to a copy of the package, turns it red."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# (contract, file, forbidden import)
BREAKS = [
    ("Imports run downwards", "numerics/added.py", "import qbench.graph"),
    ("Imports run downwards", "plugin/added.py", "import qbench.cli"),
    ("Imports run downwards", "host/added.py", "import qbench.storage"),
    ("Imports run downwards", "drawer/__init__.py", "import qbench.errors"),
    ("The record never sees a graph, a machine or a subject", "tracking/added.py", "import qbench.backends"),
    ("The record never sees a graph, a machine or a subject", "judging/added.py", "import qbench.host"),
    ("The record never sees a graph, a machine or a subject", "reporting/added.py", "import onnx"),
    ("The quantizer never sees verdicts, history or subjects", "quantization/added.py", "import qbench.tracking"),
    ("The quantizer never sees verdicts, history or subjects", "calibration/added.py", "import qbench.judging"),
    ("Numerics know arrays only", "numerics/added.py", "import onnx_ir"),
    ("Only the plugin knows pytest", "suite/added.py", "import pytest"),
    ("Only backends and the probe know ONNX Runtime", "graph/added.py", "def late():\n    import onnxruntime"),
    ("The worker of another Python needs nothing of ours", "backends/venv/worker.py", "import qbench.errors"),
    ("No circles between packages", "numerics/added.py", "import qbench.graph"),
]


def lint(folder: Path) -> tuple[dict[str, bool], str]:
    """Contract → kept, and everything that was printed."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    lines = done.stdout.splitlines()
    states = {line.rpartition(" ")[0]: line.endswith(" KEPT") for line in lines if line.endswith((" KEPT", " BROKEN"))}
    return states, done.stdout + done.stderr


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> Path:
    """The package and its contracts in a folder of their own."""
    folder = tmp_path_factory.mktemp("copied")
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / "qbench", folder / "qbench", ignore=shutil.ignore_patterns("__pycache__", "*.onnx", "*.npz"))
    return folder


def test_every_contract_is_kept(copied):
    states, printed = lint(copied)
    assert all(states.values()), printed
    assert set(states) == {contract for contract, _, _ in BREAKS}, "a contract that nothing here breaks"


@pytest.mark.parametrize(("contract", "file", "text"), BREAKS)
def test_a_forbidden_import_breaks_its_contract(copied, contract, file, text):
    path = copied / "qbench" / file
    before = path.read_text() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{before or ''}\n{text}\n")
    try:
        states, printed = lint(copied)
    finally:
        if before is not None:
            path.write_text(before)
        elif path.name == "__init__.py":
            shutil.rmtree(path.parent)
        else:
            path.unlink()
    assert states[contract] is False, printed
