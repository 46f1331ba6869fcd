"""Models of several inputs and of other outputs than classes: every verb feeds arrays by the names of the inputs."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

AXES = ("--backend", "ort-cpu", "--schema", "w8a8_asym_pc", "--calib")


def saved(path, nodes, inputs, output, weights):
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *shape]) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(output[0], TensorProto.FLOAT, ["n", *output[1]])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


@pytest.fixture
def two_inputs(project):
    """two.onnx with inputs image (n, 8) and meta (n, 3), and its labelled data: the class is the fp32 answer."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in {"a": (8, 16), "b": (3, 16), "c": (16, 4)}.items()
    }
    nodes = [
        helper.make_node("MatMul", ["image", "a"], ["u"], name="first"),
        helper.make_node("MatMul", ["meta", "b"], ["v"], name="second"),
        helper.make_node("Add", ["u", "v"], ["w"], name="add"),
        helper.make_node("Relu", ["w"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "c"], ["scores"], name="last"),
    ]
    saved("two.onnx", nodes, {"image": [8], "meta": [3]}, ("scores", [4]), weights)
    for name, count in (("val", 100), ("cal", 32)):
        image, meta = rng.normal(size=(count, 8)), rng.normal(size=(count, 3))
        y = (np.maximum(image @ weights["a"] + meta @ weights["b"], 0) @ weights["c"]).argmax(1)
        np.savez(f"{name}.npz", image=image, meta=meta, y=y)
        np.savez(f"bare_{name}.npz", image=image, meta=meta)
    return rng


@pytest.fixture
def maps(project):
    """maps.onnx, whose output is (n, 6, 8, 8) and no scores of classes, and data without labels."""
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Conv", ["img", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["boxes"], name="relu"),
    ]
    weights = {"w": rng.normal(size=(6, 3, 3, 3)).astype(np.float32)}
    saved("maps.onnx", nodes, {"img": [3, 8, 8]}, ("boxes", [6, 8, 8]), weights)
    for name in ("val", "cal"):
        np.savez(f"{name}.npz", x=rng.normal(size=(24, 3, 8, 8)))


def test_two_inputs_are_scored_against_their_labels(two_inputs, qbench):
    code, out, err = qbench("eval", "two.onnx", "--data", "val.npz", *AXES, "cal.npz", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["samples"] == 100
    top1 = {score["metric"]: score for score in found["fp32"]["scores"]}["top1"]
    assert (top1["hits"], top1["out_of"]) == (100, 100)


@pytest.mark.parametrize("data", ["val", "bare_val"])
def test_every_verb_takes_two_inputs_with_and_without_labels(two_inputs, qbench, data):
    assert qbench("profile", "two.onnx", "--data", "bare_cal.npz", "-o", "p.json")[0] == 0
    code, _, err = qbench("quantize", "two.onnx", "--profile", "p.json", "--schema", "w8a8_asym_pc", "-o", "q.onnx")
    assert code == 0, err
    given = ("--data", f"{data}.npz")
    assert qbench("lint", "two.onnx", *given, "--schema", "w8a8_asym_pc")[0] == 0
    assert qbench("localize", "two.onnx", *given, *AXES, "cal.npz")[0] == 0
    assert qbench("diff", "two.onnx", *given, "--right", "backend=ort-cpu-noopt")[0] in (0, 1)
    assert qbench("rewrite", "q.onnx", "--policy", "exact", "-o", "r.onnx", "--check", *given)[0] == 0


def test_outputs_that_are_no_classes_are_compared_as_numbers(maps, qbench):
    code, out, err = qbench("eval", "maps.onnx", "--data", "val.npz", *AXES, "cal.npz", "--output", "boxes", "--json")
    assert code == 0, err
    scores = {score["metric"]: score["value"] for score in json.loads(out)["quantized"]["scores"]}
    assert scores.keys() == {"sqnr", "cosine", "max_error"}
    assert scores["sqnr"] > 30
    assert scores["cosine"] > 0.999
    assert 0 < scores["max_error"] < 1
    assert qbench("localize", "maps.onnx", "--data", "val.npz", *AXES, "cal.npz")[0] == 0
    assert (
        qbench("diff", "maps.onnx", "--data", "val.npz", "--right", "schema=w8a8_asym_pc", "--calib", "cal.npz")[0] == 1
    )


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"image": (9, 8), "other": (9, 3)}, "image, other; expected one for each input of the graph: image, meta"),
        ({"x": (9, 8)}, "found the arrays x; expected one for each input of the graph: image, meta"),
        ({"image": (9, 8), "meta": (8, 3)}, "9 rows in 'image', 8 rows in 'meta'"),
    ],
)
def test_arrays_that_do_not_fit_are_one_sentence(two_inputs, qbench, arrays, says):
    np.savez("bad.npz", **{name: np.zeros(shape, np.float32) for name, shape in arrays.items()})
    code, out, err = qbench("eval", "two.onnx", "--data", "bad.npz")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert says in err


def test_an_output_that_the_graph_lacks_is_named(maps, qbench):
    code, _, err = qbench("eval", "maps.onnx", "--data", "val.npz", "--output", "scores")
    assert code == 2
    assert "no output 'scores'; expected one of: boxes" in err


def test_arrays_in_memory_and_a_file_make_a_model_of_a_suite(two_inputs, tmp_path):
    from qbench.subjects import Classification, Dataset, WholeOutput, model_from_file

    data = Dataset.from_arrays("mine", {"image": np.zeros((4, 8)), "meta": np.ones((4, 3), np.float32)}, [0, 1, 2, 3])
    assert (len(data), data.kind, data.labels) == (4, "array", ((0,), (1,), (2,), (3,)))
    assert {name: (one.shape, one.dtype) for name, one in data.load(2).items()} == {
        "image": ((8,), np.float32),
        "meta": ((3,), np.float32),
    }
    assert len(set(data.sources)) == 1  # equal rows are one source
    model = model_from_file("two.onnx", name="mine", data=data)
    assert (model.id, model.task) == ("mine", Classification())
    assert model_from_file("two.onnx", task=WholeOutput()).task == WholeOutput()
