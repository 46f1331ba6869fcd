"""The example of a pass and a device from outside works when copied and installed."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "own-pass"

NET = """<ir_version: 10, opset_import: ["" : 21]>
net (float[1, 1, 8, 8] x) => (float[1, 1, 8, 8] y)
<float s = {0.1}, float t = {0.03}, float u = {0.003}, uint8 h = {128}, int8 z = {0}, int32 o = {0},
 int8[1, 1, 1, 1] w = {77}, int32[1] b = {1001}>
{
    q = QuantizeLinear(x, s, h)
    d = DequantizeLinear(q, s, h)
    v = DequantizeLinear(w, t, z)
    k = DequantizeLinear(b, u, o)
    [conv] c = Conv(d, v, k)
    r = QuantizeLinear(c, t, h)
    y = DequantizeLinear(r, t, h)
}"""


@pytest.fixture
def installed(tmp_path):
    """The example as it stands, and what an installer would
    have written beside it of its pyproject.toml.
    """
    folder = tmp_path / "own"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    facts = folder / f"own_pass-{project['version']}.dist-info"
    facts.mkdir()
    facts.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n"
    )
    points = "\n".join(
        f"{name} = {place}" for name, place in project["entry-points"]["qbench.extensions"].items()
    )
    facts.joinpath("entry_points.txt").write_text(f"[qbench.extensions]\n{points}\n")
    return folder


def run_in(folder, *command, code=0):
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("CI", "PYTEST_"))
    }
    environment = kept | {"PYTHONPATH": str(folder), "PYTEST_ADDOPTS": "--assert=plain"}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_it_is_short():
    files = [*EXAMPLE.rglob("*.py"), *EXAMPLE.rglob("*.toml")]
    assert len(files) == 5
    assert sum(len(path.read_text().splitlines()) for path in files) <= 90


@pytest.mark.slow
def test_its_pass_runs_and_is_held_to_its_word(tmp_path):
    import onnx_ir as ir

    from qbench import save_model

    folder = tmp_path / "own"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    save_model(ir.from_onnx_text(NET), folder / "int8.onnx")
    passes = (
        "--passes",
        "own-split-bias",
        "--policy",
        "rounding",
        "--extension",
        "own_pass:EXTENSION",
    )
    told = run_in(folder, "qbench", "rewrite", "int8.onnx", "-o", "split.onnx", *passes, "--check")
    assert "rounding(1)" in told
    assert [node.op_type for node in ir.load(folder / "split.onnx").graph].count("Add") == 1


@pytest.mark.slow
def test_its_device_takes_the_convolution(installed):
    import onnx_ir as ir

    from qbench import save_model

    save_model(ir.from_onnx_text(NET), installed / "int8.onnx")
    assert "1 island" in run_in(
        installed, "qbench", "partition", "int8.onnx", "--device", "own_pass/edge.toml"
    )


@pytest.mark.slow
def test_its_cells_are_accepted_and_then_watched(installed):
    suite = (
        "pytest",
        "-p",
        "no:cacheprovider",
        "suites/own.qbench.toml",
        "--qbench-cache",
        str(installed / "cache"),
    )
    assert "own-split-bias" in run_in(installed, "qbench", "list", "passes")
    assert "partitioned-edge" in run_in(installed, "qbench", "list", "backends")
    accepted = run_in(installed, *suite, "--qbench-accept-fp32", "--qbench-accept=new")
    assert " 6 accepted " in accepted.splitlines()[-1]
    assert " 6 passed " in run_in(installed, *suite).splitlines()[-1]
    (lines,) = [
        text
        for path in (installed / "baselines").rglob("digits_cnn.json")
        for text in [path.read_text()]
    ]
    assert '"partitioned-edge+w8a8_asym_pc+passes=rounding"' in lines
