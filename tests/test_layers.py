"""Each import contract can break: a copy of the package with one forbidden import per rule, checked in a single run.

That the package itself keeps every contract is what ``make lint`` checks.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# The folders come first on the path, before whatever an editable installation puts there.
LINT = """
import sys
sys.path[:0] = sys.argv[1:]
from importlinter.cli import lint_imports_command
lint_imports_command(["--no-cache", "--no-logo"])
"""

# (contract, file, forbidden import, how the report names it); every file is written before the one run
BREAKS = [
    ("Imports run downwards", "numerics/upward.py", "import qbench.graph", "qbench.numerics.upward -> qbench.graph"),
    ("Imports run downwards", "plugin/sideways.py", "import qbench.cli", "qbench.plugin.sideways -> qbench.cli"),
    ("Imports run downwards", "host/sideways.py", "import qbench.storage", "qbench.host.sideways -> qbench.storage"),
    ("Imports run downwards", "drawer/__init__.py", "", "qbench.drawer"),
    (
        "The record never sees a graph, a machine or a subject",
        "tracking/engine.py",
        "import qbench.backends",
        "qbench.tracking.engine -> qbench.backends",
    ),
    (
        "The record never sees a graph, a machine or a subject",
        "judging/computer.py",
        "import qbench.host",
        "qbench.judging.computer -> qbench.host",
    ),
    (
        "The record never sees a graph, a machine or a subject",
        "reporting/graph.py",
        "import onnx",
        "qbench.reporting.graph -> onnx",
    ),
    (
        "The quantizer never sees verdicts, history or subjects",
        "quantization/past.py",
        "import qbench.tracking",
        "qbench.quantization.past -> qbench.tracking",
    ),
    (
        "The quantizer never sees verdicts, history or subjects",
        "calibration/verdict.py",
        "import qbench.judging",
        "qbench.calibration.verdict -> qbench.judging",
    ),
    ("Numerics know arrays only", "numerics/graph.py", "import onnx_ir", "qbench.numerics.graph -> onnx_ir"),
    ("Only the plugin knows pytest", "suite/items.py", "import pytest", "qbench.suite.items -> pytest"),
    (
        "Only backends and the probe know ONNX Runtime",
        "graph/late.py",
        "def late():\n    import onnxruntime",
        "qbench.graph.late -> onnxruntime",
    ),
    (
        "The worker of another Python needs nothing of ours",
        "backends/venv/worker.py",
        "import qbench.errors",
        "qbench.backends.venv.worker -> qbench.errors",
    ),
    (
        "The package never imports the zoo",
        "suite/session.py",
        "import qbench_zoo",
        "qbench.suite.session -> qbench_zoo",
    ),
    (
        "The zoo is a guest: it sees subjects and what lies below them",
        "zoo/qbench_zoo/words.py",
        "import qbench.faults",
        "qbench_zoo.words -> qbench.faults",
    ),
    ("No circles between packages", "backends/upward.py", "import qbench.calibration", ".backends -> .calibration"),
]


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, str]:
    """Contract → what the report says of it, for a copy of the package with every row of BREAKS in it."""
    folder = tmp_path_factory.mktemp("copied")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in ("qbench", "zoo/qbench_zoo"):
        ignored = shutil.ignore_patterns("__pycache__", "*.onnx", "*.npz")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    for file, text in {(file, text) for _, file, text, _ in BREAKS}:
        path = folder / (file if file.startswith("zoo/") else f"qbench/{file}")
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as added:
            added.write(f"\n{text}\n")
    done = subprocess.run(
        [sys.executable, "-c", LINT, str(folder), str(folder / "zoo")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    _, heading, broken = done.stdout.partition("Broken contracts")
    assert heading, done.stdout + done.stderr
    parts = re.split(r"^(.+)\n-+\n", broken, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize(("contract", "file", "text", "named"), BREAKS)
def test_a_forbidden_import_breaks_its_contract(reports, contract, file, text, named):
    assert named in reports[contract]


def test_every_contract_is_broken_here(reports):
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["name"] for contract in contracts} == {contract for contract, *_ in BREAKS} == set(reports)
