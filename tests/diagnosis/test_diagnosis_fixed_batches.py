"""Localization of graphs with fixed batches, of several outputs, and of models without classes."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.diagnosis import LocalizeOptions, localize
from qbench.evaluation import build_subject

SIZE = 8


def network(path, batch, form):
    """A backbone with one or two heads; ``form`` says which shapes its outputs declare."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(size=(8, 3, 3, 3)) / 5, "v": rng.normal(size=(4, 8, 1, 1)) / 3}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="c", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], name="r"),
        helper.make_node("Conv", ["r", "v"], ["head"], name="head"),
    ]
    flat = helper.make_node("Flatten", ["head"], ["map"], name="flat")
    shape = {"shape": np.array([batch, 4, -1], np.int64)} if form == "unknown shape" else {}
    more, outputs = {
        "unknown shape": (
            [
                helper.make_node("Reshape", ["head", "shape"], ["boxed"], name="boxed"),
                helper.make_node("Transpose", ["boxed"], ["boxes"], name="turned", perm=[0, 2, 1]),
            ],
            {"boxes": ["a", "b", 4]},
        ),
        "two outputs": (
            [flat, helper.make_node("GlobalAveragePool", ["r"], ["mean"], name="mean")],
            {"map": [batch, 4 * SIZE**2], "mean": [batch, 8, 1, 1]},
        ),
        "one number for all": (
            [flat, helper.make_node("ReduceMean", ["head"], ["mean"], name="mean", keepdims=0)],
            {"map": [batch, 4 * SIZE**2], "mean": []},
        ),
        "samples along the second axis": (
            [
                flat,
                helper.make_node(
                    "Transpose", ["head"], ["turned"], name="turned", perm=[1, 0, 2, 3]
                ),
            ],
            {"map": [batch, 4 * SIZE**2], "turned": [4, batch, SIZE, SIZE]},
        ),
    }[form]
    held = {name: array.astype(np.float32) for name, array in constants.items()} | shape
    graph = helper.make_graph(
        [*nodes, *more],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, SIZE, SIZE])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
            for name, sizes in outputs.items()
        ],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)


def localized(folder, batch, form, count, **more):
    network(folder / "net.onnx", batch, form)
    rng = np.random.default_rng(1)
    for name, samples in (("scored", count), ("calibration", 16)):
        np.savez(
            folder / f"{name}.npz", x=rng.normal(size=(samples, 3, SIZE, SIZE)).astype(np.float32)
        )
    files = [str(folder / name) for name in ("net.onnx", "scored.npz", "calibration.npz")]
    subject = build_subject(*files, [], 16, output=more.get("output"))
    options = LocalizeOptions(output=more.get("output", ""))
    return localize(
        subject, more.get("backend", "integer-ort-x64"), "w8a8_asym_pc", options=options
    )


FORMS = ("unknown shape", "two outputs", "one number for all", "samples along the second axis")


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("batch", "count"),
    [
        pytest.param(1, 8, marks=pytest.mark.slow),
        (4, 6),
        pytest.param(8, 8, marks=pytest.mark.slow),
    ],
)
def test_graphs_of_a_fixed_batch_are_examined_on_any_number_of_samples(
    tmp_path, form, batch, count
):
    found = localized(tmp_path, batch, form, count)
    assert found.samples == count
    assert found.complete
    assert not [note for note in found.notes if "could not" in note]
    assert {"c", "head"} <= {node.node for node in found.nodes}
    assert all(node.cumulative is not None and node.cumulative.sqnr_db > 20 for node in found.nodes)


@pytest.mark.slow
def test_a_remainder_of_a_fixed_batch_is_counted_once(tmp_path):
    whole, part = (localized(tmp_path, 4, "unknown shape", count) for count in (8, 6))
    elements = [{node.node: node.elements for node in one.nodes}["head"] for one in (whole, part)]
    assert elements[0] == 8 * 4 * SIZE**2
    assert elements[1] >= 6 * 4 * SIZE**2


@pytest.mark.slow
def test_gains_are_counted_in_the_output_that_is_named(tmp_path):
    gains = {
        name: {
            node.node: node.gain_db
            for node in localized(tmp_path, 4, "two outputs", 5, output=name).nodes
        }
        for name in ("map", "mean")
    }
    assert gains["map"]["head"] > 0.1
    assert gains["mean"]["head"] == pytest.approx(0.0)
    assert gains["mean"]["mean"] != pytest.approx(0.0)
