"""Graphs of a fixed batch answer batches of any size as their free twins do."""

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import Executor, get_backend, in_slices
from qbench.errors import InputError


class Doubling:
    """Takes 4 rows of x; gives them doubled, their sum, all heads of all rows,
    and what belongs to no row.
    """

    def __init__(self, ragged=False):
        self.seen, self.closed, self.ragged = [], False, ragged

    def run(self, feeds):
        x = np.asarray(feeds["x"])
        self.seen.append({name: np.array(feed) for name, feed in feeds.items()})
        table = np.ones((3, len(self.seen) if self.ragged else 2))
        return {"y": 2 * x, "sum": x.sum(), "heads": np.repeat(x, 2, axis=0), "table": table}

    def close(self):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def model(*inputs):
    values = [ir.val(name, ir.DataType.FLOAT, ir.Shape(shape)) for name, shape in inputs]
    node = ir.node("Relu", [values[0]])
    return ir.Model(
        ir.Graph(values, [node.outputs[0]], nodes=[node], opset_imports={"": 21}), ir_version=10
    )


def rows(n):
    return np.arange(n * 2, dtype=np.float32).reshape(n, 2)


def test_a_free_batch_keeps_its_executor():
    inner = Doubling()
    assert in_slices(inner, model(("x", ["N", 2]))) is inner
    assert isinstance(in_slices(inner, model(("x", [4, 2]))), Executor)


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 11])
def test_every_row_comes_back_once_and_in_order(n):
    inner = Doubling()
    results = in_slices(inner, model(("x", [4, 2]))).run({"x": rows(n)})
    np.testing.assert_array_equal(results["y"], 2 * rows(n))
    assert [len(feeds["x"]) for feeds in inner.seen] == [4] * -(-n // 4)
    filled = np.concatenate([feeds["x"] for feeds in inner.seen])
    np.testing.assert_array_equal(
        filled, np.concatenate([rows(n), np.repeat(rows(n)[-1:], -n % 4, axis=0)])
    )


def test_results_without_a_row_a_sample_are_kept_whole():
    results = in_slices(Doubling(), model(("x", [4, 2]))).run({"x": rows(5)})
    assert results["sum"].tolist() == [rows(4).sum(), 4 * rows(5)[4].sum()]
    assert {name: result.shape for name, result in results.items() if name != "y"} == {
        "sum": (2,),
        "heads": (16, 2),
        "table": (6, 2),
    }


def test_a_batch_that_fits_is_handed_on_untouched():
    inner = Doubling()
    x = rows(4)
    assert in_slices(inner, model(("x", [4, 2]))).run({"x": x})["sum"].shape == ()


def test_other_inputs_are_sliced_when_they_run_over_samples_too():
    inner = Doubling()
    graph = model(("x", [4, 2]), ("mask", [4]), ("table", [8, 2]), ("length", ["N"]))
    feeds = {"x": rows(8), "mask": np.arange(8), "table": np.ones((8, 2)), "length": np.arange(8)}
    in_slices(inner, graph).run(feeds)
    assert [feeds["mask"].tolist() for feeds in inner.seen] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [feeds["length"].tolist() for feeds in inner.seen] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert {feeds["table"].shape for feeds in inner.seen} == {(8, 2)}


def test_slices_that_do_not_fit_together_are_refused():
    with pytest.raises(InputError, match="in slices of 4"):
        in_slices(Doubling(ragged=True), model(("x", [4, 2]))).run({"x": rows(8)})


def test_closing_closes_the_engine():
    inner = Doubling()
    with in_slices(inner, model(("x", [4, 2]))):
        assert not inner.closed
    assert inner.closed


@pytest.mark.parametrize("name", ["ort-cpu", "onnx-reference"])
@pytest.mark.parametrize(
    ("feeds", "says"),
    [
        ({}, "no input 'x'"),
        ({"x": np.float32(1)}, "of a scalar"),
        ({"x": np.ones((8, 1, 2), np.float32)}, "8×1×2 where the graph takes 4×2"),
        ({"x": np.ones((8, 3), np.float32)}, "4×3 where the graph takes 4×2"),
        ({"x": rows(8), "z": rows(8)}, "unknown input 'z'"),
    ],
)
def test_what_does_not_fit_is_still_refused_in_a_sentence(name, feeds, says):
    graph = model(("x", [4, 2]))
    graph.graph.outputs[0].name, graph.graph.outputs[0].dtype = "y", ir.DataType.FLOAT
    with (
        in_slices(get_backend(name).prepare(graph), graph) as executor,
        pytest.raises(InputError, match=says),
    ):
        executor.run(feeds)
