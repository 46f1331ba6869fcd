"""``qbench quantize``: forms, plans in files, sizes of free dimensions, and nothing
half-written.
"""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from qbench import load_model
from qbench.graph import Form, form_of, graph_digest
from qbench.passes import lower_to_qoperator

PICTURES = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 3, H, W] x) => (float[N, 4] y)
<float[4, 3, 3, 3] w, float[4, 4] v> {
  [conv] c = Conv <pads = [1, 1, 1, 1]> (x, w)
  [relu] r = Relu (c)
  [mean] m = GlobalAveragePool (r)
  [flat] f = Flatten (m)
  [head] y = Gemm (f, v)
}
"""


@pytest.fixture
def profiled(blobs_files, qbench):
    assert qbench("profile", "net.onnx", "--data", "train.npz", "-o", "p.json")[0] == 0
    return blobs_files


@pytest.fixture
def pictures(blobs_files, qbench):
    """A net over pictures of any size, profiled on pictures of 8 × 8."""
    rng = np.random.default_rng(0)
    net = onnx.parser.parse_model(PICTURES)
    del net.graph.initializer[:]
    for name, shape in (("w", (4, 3, 3, 3)), ("v", (4, 4))):
        array = rng.normal(size=shape).astype(np.float32)
        net.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(net, "pictures.onnx")
    np.savez(
        "pictures.npz", x=rng.normal(size=(6, 3, 8, 8)).astype(np.float32), y=np.zeros(6, np.int64)
    )
    assert (
        qbench("profile", "pictures.onnx", "--data", "pictures.npz", "-o", "pictures.json")[0] == 0
    )
    return blobs_files


def quantize(qbench, *more, model="net", output="q.onnx"):
    profile = "p.json" if model == "net" else "pictures.json"
    return qbench(
        "quantize",
        f"{model}.onnx",
        "--profile",
        profile,
        "--schema",
        "w8a8_asym_pc",
        "-o",
        output,
        *more,
    )


@pytest.mark.slow
def test_both_forms_are_one_model(profiled, qbench):
    assert quantize(qbench)[0] == 0
    code, out, _ = quantize(qbench, "--form", "qoperator", output="o.onnx")
    assert code == 0, out
    pairs, lowered = load_model("q.onnx"), load_model("o.onnx")
    assert form_of(pairs) is Form.QDQ
    assert form_of(lowered) is Form.QOPERATOR
    onnx.checker.check_model("o.onnx", full_check=True)
    assert graph_digest(lower_to_qoperator(pairs)) == graph_digest(lowered)
    code, out, _ = quantize(qbench, "--form", "qoperator", "--json", output="o.onnx")
    assert json.loads(out)["form"] == "qoperator"
    assert json.loads(out)["left_in_float"] == {}
    results = [
        qbench("eval", name, "--data", "test.npz", "--fp32", "net.onnx", "--json")
        for name in ("q.onnx", "o.onnx")
    ]
    assert [result[0] for result in results] == [0, 0], results
    digests = [
        json.loads(out)["quantized"]["digests"]["predictions:test.npz"] for _, out, _ in results
    ]
    assert digests[0] == digests[1]


def test_what_stays_between_pairs_is_said(pictures, qbench):
    model = onnx.load("pictures.onnx")
    model.graph.node[1].op_type = "Tanh"
    onnx.save(model, "pictures.onnx")
    assert (
        qbench("profile", "pictures.onnx", "--data", "pictures.npz", "-o", "pictures.json")[0] == 0
    )
    code, out, _ = quantize(qbench, "--form", "qoperator", model="pictures")
    assert code == 0
    assert "relu stays between Q and DQ: there is no integer operator for Tanh" in out


def test_a_saved_plan_writes_the_very_model(profiled, qbench):
    assert quantize(qbench, "--save-plan", "plan.json")[0] == 0
    code, out, err = qbench(
        "quantize", "net.onnx", "--plan", "plan.json", "-o", "again.onnx", "--why"
    )
    assert code == 0, err
    assert "w8a8_asym_pc" in out.splitlines()[0]
    assert Path("again.onnx").read_bytes() == Path("q.onnx").read_bytes()


def test_a_plan_alone_can_be_saved(profiled, qbench):
    arguments = (
        "quantize",
        "net.onnx",
        "--profile",
        "p.json",
        "--schema",
        "w8a8_asym_pc",
        "--save-plan",
        "only.json",
    )
    assert qbench(*arguments)[0] == 0
    assert Path("only.json").exists()
    assert not list(Path().glob("*q.onnx"))


@pytest.mark.parametrize(
    "more", [("--schema", "w8a8_asym_pc"), ("--profile", "p.json"), ("--read",)]
)
def test_a_plan_says_everything(profiled, qbench, more):
    quantize(qbench, "--save-plan", "plan.json")
    code, _, err = qbench("quantize", "net.onnx", "--plan", "plan.json", "-o", "new.onnx", *more)
    assert code == 2
    assert f"{more[0]} with --plan" in err
    assert not Path("new.onnx").exists()


def test_a_plan_of_another_graph_or_none_is_refused(profiled, pictures, qbench):
    quantize(qbench, "--save-plan", "plan.json")
    code, _, err = qbench("quantize", "pictures.onnx", "--plan", "plan.json", "-o", "new.onnx")
    assert code == 2
    assert "a plan of another graph" in err
    code, _, err = qbench("quantize", "net.onnx", "--plan", "p.json", "-o", "new.onnx")
    assert code == 2
    assert "expected a qbench-plan of version 2" in err
    assert not Path("new.onnx").exists()


def test_sizes_that_nobody_said_are_named(words, pictures, qbench):
    code, out, _ = quantize(qbench, model="pictures")
    assert code == 0
    words(out)
    facts = json.loads(quantize(qbench, "--json", model="pictures")[1])
    assert facts["unknown_sizes"] == ["H", "W"]
    assert facts["macs"] == 4 * 27 + 16
    sized = json.loads(
        quantize(qbench, "--size", "H=8", "--size", "W=6", "--json", model="pictures")[1]
    )
    assert sized["unknown_sizes"] == []
    assert sized["macs"] == 48 * 4 * 27 + 16
    assert graph_digest(load_model("q.onnx")) == sized_digest(qbench)


def sized_digest(qbench):
    quantize(qbench, model="pictures", output="unsized.onnx")
    return graph_digest(load_model("unsized.onnx"))


def test_a_size_of_no_dimension_is_refused(words, pictures, qbench):
    code, _, err = quantize(qbench, "--size", "h=8", model="pictures")
    assert code == 2
    words(err)
    assert not Path("q.onnx").exists()
    code, _, err = quantize(qbench, "--size", "H", model="pictures")
    assert code == 2


def test_nothing_is_left_where_nothing_can_be_written(profiled, qbench):
    Path("file").write_text("not a folder")
    before = sorted(path.name for path in Path().iterdir())
    code, _, err = quantize(qbench, "--save-plan", "plan.json", output="file/q.onnx")
    assert code == 2
    assert "Writing 'file/q.onnx'" in err
    assert sorted(path.name for path in Path().iterdir()) == before
