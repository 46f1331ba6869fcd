"""What an engine returns has the names, kinds and shapes that the graph declares."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from qbench.backends import CheckedExecutor, OutputCheck, get_backend
from qbench.errors import InputError


def graph(first="n", kind=TensorProto.FLOAT, out=("n", 3), more=()):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, 3])
    outputs = [helper.make_tensor_value_info("y", kind, None if out is None else list(out)), *more]
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    proto = helper.make_model(
        helper.make_graph(nodes, "net", [x], outputs),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    return ir.from_proto(proto)


def check(results, rows=4, **how):
    return OutputCheck.of(graph(**how), "mine").checked(
        {"x": np.zeros((rows, 3), np.float32)}, results
    )


RIGHT = np.zeros((4, 3), np.float32)


@pytest.mark.parametrize(
    ("results", "how"),
    [
        ({"y": RIGHT}, {}),
        ({"y": RIGHT.astype(np.float64)}, {}),
        ({"y": RIGHT.tolist()}, {}),
        ({"y": np.zeros((4, 9), np.float32)}, {"out": ("n", "k")}),
        ({"y": np.zeros((9, 9), np.float32)}, {"out": ("m", "k")}),  # not the axis over samples
        ({"y": RIGHT}, {"out": (1, 3)}),  # what an export of one sample leaves behind
        ({"y": RIGHT}, {"out": None}),
        ({"y": RIGHT.astype(np.uint8)}, {"kind": TensorProto.INT64}),
    ],
)
def test_what_the_graph_declares_or_leaves_free_is_admitted(results, how):
    assert np.asarray(check(results, **how)["y"]).shape == np.shape(results["y"])


@pytest.mark.parametrize(
    ("results", "how", "found"),
    [
        ({"z": RIGHT}, {}, "an output 'z' that the graph does not have"),
        ({"y": RIGHT, "z": RIGHT}, {}, "an output 'z' that the graph does not have"),
        ({}, {}, "no output 'y'"),
        ([RIGHT], {}, "a list"),
        (None, {}, "a NoneType"),
        ({"y": RIGHT.astype("<U32")}, {}, "text where the graph has floats"),
        ({"y": RIGHT.astype(object)}, {}, "Python objects where the graph has floats"),
        ({"y": None}, {}, "Python objects where the graph has floats"),
        ({"y": RIGHT.astype(complex)}, {}, "complex numbers where the graph has floats"),
        ({"y": RIGHT.astype(np.int64)}, {}, "integers where the graph has floats"),
        ({"y": RIGHT.astype(bool)}, {}, "booleans where the graph has floats"),
        ({"y": RIGHT}, {"kind": TensorProto.INT64}, "floats where the graph has integers"),
        ({"y": RIGHT[:, 0]}, {}, "shape 4 where the graph has 4×3"),
        ({"y": RIGHT[None]}, {}, "shape 1×4×3 where the graph has 4×3"),
        ({"y": RIGHT[:3]}, {}, "shape 3×3 where the graph has 4×3"),
        ({"y": RIGHT[:, :2]}, {}, "shape 4×2 where the graph has 4×3"),
        ({"y": RIGHT[:3]}, {"first": 4, "out": (4, 3)}, "shape 3×3 where the graph has 4×3"),
    ],
)
def test_anything_else_is_an_error_of_one_sentence(results, how, found):
    with pytest.raises(InputError) as caught:
        check(results, **how)
    assert found in caught.value.found
    assert "\n" not in str(caught.value)


def test_outputs_come_in_the_order_of_the_graph():
    more = (helper.make_tensor_value_info("x2", TensorProto.FLOAT, None),)
    assert list(check({"x2": RIGHT, "y": RIGHT}, more=more)) == ["y", "x2"]


def test_a_real_engine_passes_with_any_number_of_samples():
    model = graph()
    with get_backend("ort-cpu").prepare(model) as run:
        checked = CheckedExecutor(run, OutputCheck.of(model, "ort-cpu"))
        for rows in (1, 4, 7):
            assert checked.run({"x": np.ones((rows, 3), np.float32)})["y"].shape == (rows, 3)
