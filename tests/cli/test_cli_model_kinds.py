"""Every verb, and a suite, on the kinds of models that people bring:
one row of the table at a time.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from own_models import CAME_QUANTIZED, KINDS, make_model

SCHEMA = "w8a8_asym_pc"
CALIBRATED = ("--calib", "{kind}-cal.npz", "--schema", SCHEMA)
DATA = ("--data", "{kind}-val.npz")

FLOAT_VERBS = {
    "eval": ("{kind}.onnx", *DATA, *CALIBRATED),
    "profile": ("{kind}.onnx", "--data", "{kind}-cal.npz", "-o", "p.json"),
    "quantize": ("{kind}.onnx", "--profile", "p.json", "--schema", SCHEMA, "-o", "q.onnx"),
    "lint": ("{kind}.onnx", *DATA, "--schema", SCHEMA),
    "localize": ("{kind}.onnx", *DATA, *CALIBRATED, "--samples", "16"),
    "rewrite": ("q.onnx", "--policy", "rounding", "-o", "r.onnx", "--check", *DATA),
    "diff": ("{kind}.onnx", *DATA, "--calib", "{kind}-cal.npz", "--right", f"schema={SCHEMA}"),
}
QUANTIZED_VERBS = {
    "eval": ("{kind}.onnx", *DATA, "--fp32", "cnn.onnx"),
    "quantize": ("{kind}.onnx", "--read"),
    "lint": ("{kind}.onnx",),
    "localize": ("{kind}.onnx", *DATA, "--fp32", "cnn.onnx", "--samples", "16"),
    "rewrite": ("{kind}.onnx", "--policy", "rounding", "-o", "r.onnx", "--check", *DATA),
    "diff": ("{kind}.onnx", *DATA, "--right", "backend=ort-cpu-noopt"),
}
"""Those of a file that came quantized: it has no float values to profile."""
REFUSED = {
    "quantize": ("{kind}.onnx", "--profile", "p.json", "--schema", SCHEMA, "-o", "q.onnx"),
    "localize": ("{kind}.onnx", *DATA, *CALIBRATED),
}
ANSWERS = {"diff": (0, 1), "localize": (0, 1)}
"""Exit codes of a verb that found an answer; of the others it is 0. 1:
there are differences, or a suspect.
"""


def filled(arguments, kind):
    return [one.format(kind=kind) for one in arguments]


@pytest.fixture
def own(project):
    """Makes models in the project by their kinds."""

    def make(*kinds: str) -> None:
        for kind in kinds:
            make_model(kind, project)

    return make


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in CAME_QUANTIZED])
def test_every_verb_takes_a_float_model_of_any_kind(own, qbench, kind):
    own(kind)
    for verb, arguments in FLOAT_VERBS.items():
        code, _, err = qbench(verb, *filled(arguments, kind))
        assert code in ANSWERS.get(verb, (0,)), (verb, err)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CAME_QUANTIZED)
def test_every_verb_takes_a_file_that_came_quantized_or_says_what_to_give(own, qbench, kind):
    own(kind)
    for verb, arguments in QUANTIZED_VERBS.items():
        code, _, err = qbench(verb, *filled(arguments, kind))
        assert code in ANSWERS.get(verb, (0,)), (verb, err)
    assert qbench("profile", "cnn.onnx", "--data", f"{kind}-cal.npz", "-o", "p.json")[0] == 0
    for verb, arguments in REFUSED.items():
        code, out, err = qbench(verb, *filled(arguments, kind))
        assert (code, out) == (2, ""), verb
        assert "quantized already" in err


CONFTEST = """
from dataclasses import replace
from qbench import Extension
from qbench.subjects import dataset_from_text, model_from_file

def data(name):
    return lambda: replace(dataset_from_text(f"{name}.npz")[0], id=name)

def model(name):
    return lambda: model_from_file(f"{name}.onnx", name=name)

def pytest_qbench_extension(config):
    return Extension(
        name="own",
        models={kind: model(kind) for kind in KINDS},
        datasets={
            f"{kind}-{part}": data(f"{kind}-{part}") for kind in KINDS for part in ("val", "cal")
        },
    )
"""
MODEL = """
[[model]]
id = "{kind}"
data = "{kind}-val"
calibration = {{ data = "{kind}-cal", count = 24 }}
metrics = [{metrics}]
"""


@pytest.mark.slow
def test_a_suite_takes_models_of_all_kinds(own, project):
    """Float models in the precise mode: without VNNI ONNX Runtime saturates pairs of products,
    and two lose more.
    """
    own(*KINDS)
    head = "[suite]\ntolerance = 0.05\n"  # two of 48 samples: at 0.5 % no count could decide
    text = f'{head}backends = ["ort-cpu-precise"]\nschemas = ["{SCHEMA}"]\n'
    for kind in KINDS:
        if kind in CAME_QUANTIZED:
            text += (
                f'[[model]]\nid = "{kind}"\nfp32 = "{CAME_QUANTIZED[kind]}"\n'
                'backends = ["ort-cpu"]\n'
            )
        else:
            text += MODEL.format(
                kind=kind, metrics='"sqnr"' if kind == "det" else '"top1", "agreement"'
            )
    (project / "suites" / "own.qbench.toml").write_text(text)
    (project / "conftest.py").write_text(f"KINDS = {KINDS!r}\n{CONFTEST}")
    (project / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "suites/own.qbench.toml"]
    first = subprocess.run(
        [*command, "--qbench-accept-fp32", "--qbench-accept=new"], check=False, capture_output=True
    )
    assert first.returncode == 0, first.stdout.decode()
    again = subprocess.run(command, check=False, capture_output=True)
    assert again.returncode == 0, again.stdout.decode()
    newest = max(Path("reports/history").glob("*.jsonl"))
    cells = [
        line for line in map(json.loads, newest.read_text().splitlines()) if line["type"] == "cell"
    ]
    assert {cell["model"] for cell in cells} == set(KINDS)
    assert {cell["outcome"] for cell in cells} == {"passed"}


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("kind", CAME_QUANTIZED)
def test_no_node_is_suspected_of_a_relu_that_a_tool_folded_into_a_range(own, qbench, kind):
    """ONNX Runtime's quantizer removes Relu where the range begins at 0: fp32 has it,
    and the values agree.
    """
    own(kind)
    code, out, err = qbench("localize", *filled(QUANTIZED_VERBS["localize"], kind), "--json")
    assert code == 0, err
    finding = json.loads(out)["finding"]
    assert finding["suspects"] == []
    assert sum("Conv" in node["operators"] for node in finding["nodes"]) == 3
    assert all(node["cumulative"]["sqnr_db"] > 30 for node in finding["nodes"])


@pytest.mark.parametrize("more", ["--calib", "--overrides", "--replay"])
def test_a_file_that_came_quantized_has_no_schema_to_change(own, qbench, more):
    own("ort-qdq")
    arguments = filled(QUANTIZED_VERBS["localize"], "ort-qdq")
    code, out, err = qbench(
        "localize", *arguments, more, "cnn-cal.npz" if more == "--calib" else "new.toml"
    )
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"found --fp32 with {more}" in err
    assert not Path("new.toml").exists()


@pytest.mark.slow
def test_outputs_whose_size_depends_on_numbers_are_not_compared_one_by_one(own, qbench):
    """Non-maximum suppression keeps another number of boxes
    of the quantized network than of the float one.
    """
    own("det")
    code, out, err = qbench("localize", *filled(FLOAT_VERBS["localize"], "det"), "--json")
    assert code == 0, err
    finding = json.loads(out)["finding"]
    assert [one["value"] for one in finding["unaligned"]] == ["kept"]
    assert {node["node"] for node in finding["nodes"]} >= {"c0.conv", "cb.conv", "cs.conv"}
    code, out, err = qbench("diff", *filled(FLOAT_VERBS["diff"], "det"), "--json")
    assert (code, err) == (1, "")
    assert json.loads(out)["equal"] is False
