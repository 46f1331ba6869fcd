"""A detector of one picture a run: its input, its outputs or both have no axis of samples."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.subjects import Detection, WholeOutput, dataset_from_text, model_from_file

AXES = ("--schema", "w8a8_asym_pc", "--calib", "cal.npz")
COUNT, PLACES = 12, 64


@pytest.fixture
def detector(project):
    """Makes net.onnx, boxes (64, 4), labels and scores (64,) of one picture; ``is_flat``:
    of (3, 8, 8).
    """

    def make(*, is_flat):
        random = np.random.default_rng(1)
        node, picture = helper.make_node, "one" if is_flat else "image"
        nodes = [
            node("Conv", [picture, "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            node("Relu", ["c"], ["r"], name="relu"),
            node("Conv", ["r", "v"], ["d"], name="head"),
            node("Reshape", ["d", "shape"], ["e"], name="places"),
            node("Transpose", ["e"], ["rows"], name="rows", perm=[1, 0]),
            node("Slice", ["rows", "s0", "s2", "s1"], ["corner"], name="corner"),
            node("Slice", ["rows", "s2", "s4", "s1"], ["apart"], name="apart"),
            node("Abs", ["apart"], ["size"], name="size"),
            node("Add", ["corner", "size"], ["other"], name="other"),
            node("Concat", ["corner", "other"], ["boxes"], name="boxes", axis=1),
            node("Slice", ["rows", "s4", "s5", "s1"], ["last"], name="last"),
            node("Squeeze", ["last", "s1"], ["logit"], name="logit"),
            node("Sigmoid", ["logit"], ["scores"], name="scores"),
            node("Sub", ["logit", "logit"], ["zeros"], name="zeros"),
            node("Cast", ["zeros"], ["labels"], name="labels", to=TensorProto.INT64),
        ]
        if is_flat:
            nodes.insert(0, node("Unsqueeze", ["image", "s0"], ["one"], name="one"))
        weights = {f"s{place}": np.array([place]) for place in (0, 1, 2, 4, 5)} | {
            "shape": np.array([5, -1])
        }
        weights["w"] = random.normal(size=(8, 3, 3, 3)).astype(np.float32)
        weights["v"] = random.normal(size=(5, 8, 1, 1)).astype(np.float32)
        shape = [3, 8, 8] if is_flat else [1, 3, 8, 8]
        rows = {"boxes": (TensorProto.FLOAT, [PLACES, 4]), "labels": (TensorProto.INT64, [PLACES])}
        rows["scores"] = (TensorProto.FLOAT, [PLACES])
        graph = helper.make_graph(
            nodes,
            "detector",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(name, *one) for name, one in rows.items()],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.checker.check_model(made, full_check=True)
        onnx.save(made, "net.onnx")
        for name in ("val", "cal"):
            np.savez(f"{name}.npz", x=random.normal(size=(COUNT, 3, 8, 8)).astype(np.float32))

    return make


@pytest.mark.slow
@pytest.mark.parametrize("is_flat", [True, False])
@pytest.mark.parametrize("output", [(), ("--output", "scores")])
def test_it_is_evaluated_and_localized_by_the_distance_of_an_output(
    detector, qbench, is_flat, output
):
    detector(is_flat=is_flat)
    code, out, err = qbench("eval", "net.onnx", "--data", "val.npz", *AXES, *output, "--json")
    assert code == 0, err
    assert json.loads(out)["samples"] == COUNT
    arguments = ("net.onnx", "--data", "val.npz", *AXES, "--samples", "8", *output, "--json")
    code, out, err = qbench("localize", *arguments)
    assert code in (0, 1), err
    assert json.loads(out)["finding"]["samples"] == 8


@pytest.mark.parametrize("is_flat", [True, False])
@pytest.mark.parametrize(
    "task",
    [
        Detection(boxes="boxes", scores="scores", classes="labels"),
        WholeOutput(output="scores"),
        None,
    ],
)
def test_a_task_that_says_nothing_of_batches_runs_one_picture_at_a_time(detector, is_flat, task):
    detector(is_flat=is_flat)
    model = model_from_file("net.onnx", task=task, data=dataset_from_text("val.npz")[0])
    assert model.task.batch == 1
