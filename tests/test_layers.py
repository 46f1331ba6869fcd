"""Each import contract can break: a copy of the package with one forbidden import per rule,
checked in a single run.

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

CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
}

DOWNWARDS = "Imports run downwards"
RECORD = "The record never sees a graph, a machine or a subject"
QUANTIZER = "The quantizer never sees verdicts, history or subjects"
WORKER = "The worker of another Python needs nothing of ours"
(WORKER_MODULE,) = CONTRACTS[WORKER]["source_modules"]

# (contract, module that gets the forbidden import, what it imports, how the report names it; None:
# "module -> import") A package gets the import in a new module, so that no row depends on the names
# of modules that exist.
BREAKS = [
    (DOWNWARDS, "qbench.numerics", "qbench.graph", None),
    (DOWNWARDS, "qbench.plugin", "qbench.cli", None),
    (DOWNWARDS, "qbench.host", "qbench.storage", None),
    (DOWNWARDS, "qbench.unlisted", "json", "qbench.unlisted"),
    (RECORD, "qbench.tracking", "qbench.backends", None),
    (RECORD, "qbench.judging", "qbench.host", None),
    (RECORD, "qbench.reporting", "onnx", None),
    (QUANTIZER, "qbench.quantization", "qbench.tracking", None),
    (QUANTIZER, "qbench.calibration", "qbench.judging", None),
    ("Numerics know arrays only", "qbench.numerics", "onnx_ir", None),
    ("Only the plugin knows pytest", "qbench.suite", "pytest", None),
    ("Only backends and the probe know ONNX Runtime", "qbench.graph", "onnxruntime", None),
    ("Only the engines know LiteRT, OpenVINO and TVM", "qbench.graph", "openvino", None),
    ("Only the engines know LiteRT, OpenVINO and TVM", "qbench.passes", "ai_edge_litert", None),
    ("Only the engines know LiteRT, OpenVINO and TVM", "qbench.backends", "tvm", None),
    ("Only what runs jobs elsewhere knows Dask", "qbench.plugin", "distributed", None),
    ("Only the engines know PyTorch; the zoo trains with it", "qbench.backends", "torch", None),
    (WORKER, WORKER_MODULE, "qbench.errors", None),
    ("The package never imports its guests", "qbench.suite", "qbench_zoo", None),
    ("The package never imports its guests", "qbench.backends", "qbench_engines", None),
    ("Guests do not know one another", "qbench_zoo", "qbench_engines", None),
    (
        "The engines are guests: they see backends and what lies below them",
        "qbench_engines",
        "qbench.subjects",
        None,
    ),
    (
        "The zoo is a guest: it sees subjects and what lies below them",
        "qbench_zoo",
        "qbench.faults",
        None,
    ),
    (
        "No circles between packages",
        "qbench.backends",
        "qbench.quantization",
        ".backends -> .quantization",
    ),
]


def add_import(folder: Path, module: str, imported: str) -> None:
    """Let a module of the copied packages import another, inside a function."""
    guest = module.startswith("qbench_")
    path = folder.joinpath(
        module.split(".", maxsplit=1)[0].removeprefix("qbench_") if guest else "",
        *module.split("."),
    )
    text = f"\n\ndef late():\n    import {imported}\n"
    if path.with_suffix(".py").exists():
        with path.with_suffix(".py").open("a") as file:
            file.write(text)
        return
    if not path.exists():
        path.mkdir()
        (path / "__init__.py").touch()
    (path / f"imports_{imported.replace('.', '_')}.py").write_text(text)


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, str]:
    """Contract → what the report says of it,
    for a copy of the package with every row of BREAKS in it.
    """
    folder = tmp_path_factory.mktemp("copied")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in ("qbench", "engines/qbench_engines", "zoo/qbench_zoo"):
        ignored = shutil.ignore_patterns("__pycache__", "*.onnx", "*.npz")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    for _, module, imported, _ in BREAKS:
        add_import(folder, module, imported)
    done = subprocess.run(
        [sys.executable, "-c", LINT, str(folder), str(folder / "engines"), str(folder / "zoo")],
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


@pytest.mark.slow_but(9)
@pytest.mark.parametrize(("contract", "module", "imported", "named"), BREAKS)
def test_a_forbidden_import_breaks_its_contract(reports, contract, module, imported, named):
    assert (named or f"{module} -> {imported}") in re.sub(r"\.imports_\w+", "", reports[contract])


def test_every_contract_is_broken_here(reports):
    assert set(CONTRACTS) == {contract for contract, *_ in BREAKS} == set(reports)
