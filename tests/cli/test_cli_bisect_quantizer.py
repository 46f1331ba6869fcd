"""``qbench bisect package by-NAME``: releases of a quantizer, from a folder of wheels."""

import json
import sysconfig
import zipfile
from pathlib import Path

import pytest

SCRIPT = """
import sys
import numpy as np
import onnx
from onnx import helper, numpy_helper
from toytool import SHARE

fp32, calibration, out = sys.argv[1:]
model = onnx.load(fp32)
graph = model.graph
(weight,) = [one for one in graph.initializer if one.name == "w1"]
values = numpy_helper.to_array(weight)
w_s = np.float32(np.abs(values).max() / 127)
codes = np.round(values / w_s).astype(np.int8)
x_s = np.float32(SHARE * np.abs(np.load(calibration)["x"]).max() / 127)
constants = {"w_q": codes, "w_s": w_s, "x_s": x_s, "zero": np.int8(0)}
graph.initializer.remove(weight)
graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items())
pairs = [
    helper.make_node("QuantizeLinear", ["x", "x_s", "zero"], ["x_q"]),
    helper.make_node("DequantizeLinear", ["x_q", "x_s", "zero"], ["x_dq"]),
    helper.make_node("DequantizeLinear", ["w_q", "w_s", "zero"], ["w_dq"]),
]
nodes = list(graph.node)
nodes[0].input[:] = ["x_dq", "w_dq"]
del graph.node[:]
graph.node.extend(pairs + nodes)
onnx.save(model, out)
"""
CLIPS = "SHARE = 0.02"
RAISES = "raise RuntimeError('this release is broken')"
WHOLE = "SHARE = 1"
RELEASES = {"1.0": WHOLE, "1.9": WHOLE, "1.10": CLIPS}
MODEL = ["--model", "net.onnx", "--data", "test.npz", "--calib", "train.npz"]


def write_wheel(folder: Path, name: str, version: str, code: str, needs: str = "") -> None:
    """A wheel whose one module is ``code``."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{module}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{one},,\n" for one in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


@pytest.fixture
def toy(blobs_files, monkeypatch):
    """Three releases of a tool in a folder of wheels: the last one clips its data. The lock pins
    an older release of what all need; pip knows no other index.
    """
    wheels = blobs_files / "wheels"
    wheels.mkdir()
    for version, code in RELEASES.items():
        write_wheel(wheels, "toytool", version, code, "toybase")
    for version in ("1", "2"):
        write_wheel(wheels, "toybase", version, "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    folder = blobs_files / "suites" / "quantizers"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "toy_quantize.py").write_text(SCRIPT)
    hashed = " \\\n    --hash=sha256:" + "0" * 64
    (folder / "toy.txt").write_text(f"toybase==1{hashed}\ntoytool==1.10{hashed}\n")
    (folder / "toy.toml").write_text(
        "[quantizer]\ntitle = 'Toy'\npackage = 'toytool'\nlock = 'toy.txt'\n"
        "command = ['{python}', '{here}/toy_quantize.py', '{fp32}', '{calibration}', '{out}']\n"
        f"environment = {{ PYTHONPATH = '{sysconfig.get_paths()['purelib']}' }}\n[variant.other]\n"
    )
    return folder


def bisect(qbench, *options, name="by-toy"):
    return qbench("bisect", "package", name, "--good", "1.0", "--bad", "1.10", *options)


@pytest.mark.slow
def test_the_release_whose_files_score_worse_is_named_and_a_command_gets_its_environment(
    qbench, toy
):
    code, out, err = bisect(qbench, *MODEL, "--metric", "top1", "--json", name="by-toy.other")
    assert code == 0, err
    facts = json.loads(out)
    assert facts["package"] == "toytool"
    assert facts["line"] == list(RELEASES)  # pip lists what the folder offers
    assert facts["suspects"] == ["1.10"]
    assert facts["tried"] == {"1.0": "good", "1.9": "good", "1.10": "bad"}
    notes = json.loads(Path("reports/bisect/by-toy.other-1.0-1.10.json").read_text())
    assert notes["ended"]

    script = (
        "import sys; from importlib.metadata import version as v; "
        "open('tried', 'a').write(v('toytool') + '+' + v('toybase') + ' '); "
        "sys.exit(v('toytool') == '1.10')"
    )
    ends = ["--versions", "1.0,1.10"]
    code, out, err = bisect(qbench, *ends, "--", "{python}", "-c", script)
    assert code == 0, err
    assert out.startswith("toytool 1.10 is the first bad version\n")
    assert Path("tried").read_text().split() == ["1.0+1", "1.10+1"]


@pytest.mark.slow
def test_environments_that_are_there_are_told_apart_by_the_release_in_them(
    qbench, toy, small_python
):
    there = []
    starts = {"1.0": WHOLE, "1.9": RAISES, "1.10": CLIPS}
    for version, code in starts.items():
        folder = small_python(version, package="toytool")
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "toytool.py").write_text(code)
        there += ["--venv", folder]
    code, out, err = bisect(qbench, *there, *MODEL, "--metric", "top1")
    assert code == 0, err
    first, goes, good, skipped, bad = out.splitlines()
    assert first.startswith("the first bad version of toytool is one of 2 ")
    assert goes.startswith("  top1 goes from 9")
    assert good.split()[:2] == ["1.0", "good:"]
    assert "this release is broken" in skipped
    assert bad.split()[:2] == ["1.10", "bad:"]


@pytest.mark.parametrize(
    ("options", "name", "words"),
    [
        (MODEL, "by-toy", "no --metric"),
        ([*MODEL, "--metric", "top1", "--schema", "w8a8_asym_pc"], "by-toy", "--schema w8a8_"),
        ([*MODEL, "--metric", "top1"], "by-toy.wrong", "unknown variant 'wrong'"),
        ([*MODEL, "--metric", "top1"], "by-no-such", "unknown quantizer 'by-no-such'"),
        (["--versions", "1.0,1.10", "--with", "/a", "--", "true"], "by-toy", "'/a'"),
    ],
)
def test_what_releases_of_a_quantizer_cannot_be_is_a_sentence(qbench, toy, options, name, words):
    code, _, err = bisect(qbench, *options, name=name)
    assert code == 2
    assert words in err
