"""The frame that executors of engines share: feeds are checked, a closed one runs nothing, and
a refusal is named.
"""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from qbench.backends import EngineExecutor, FeedCheck, get_backend
from qbench.errors import InputError

FEEDS = {"x": np.array([[-1.0, 2.0]], np.float32)}


def relu():
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [x], [y])
    return ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


class Doubling(EngineExecutor[float]):
    """Multiplies by what it holds, and refuses zeros."""

    def _answer(self, held, arrays):
        if not arrays["x"].any():
            raise self._refusal("only zeros")
        return {"y": held * arrays["x"]}


@pytest.fixture
def doubling():
    return Doubling(2.0, FeedCheck.of(relu(), "mine"))


def test_an_engine_gets_checked_feeds_and_what_it_holds(doubling):
    assert doubling.run(FEEDS)["y"].tolist() == [[-2.0, 4.0]]
    with pytest.raises(InputError, match="'mine'"):
        doubling.run({"z": FEEDS["x"]})


def test_a_refusal_names_the_graph_and_the_backend(doubling):
    with pytest.raises(InputError, match=r"Running 'net' on 'mine'.*only zeros"):
        doubling.run({"x": np.zeros((1, 2), np.float32)})


def test_a_closed_executor_runs_nothing_and_may_be_closed_again(doubling):
    with doubling:
        doubling.run(FEEDS)
    doubling.close()
    with pytest.raises(RuntimeError, match="this executor of 'mine' was closed"):
        doubling.run(FEEDS)


@pytest.mark.parametrize("name", ["ort-cpu", "ort-cpu-noopt", "onnx-reference"])
def test_the_engines_of_the_core_end_with_close(name):
    with get_backend(name).prepare(relu()) as executor:
        assert executor.run(FEEDS)["y"].tolist() == [[0.0, 2.0]]
    with pytest.raises(RuntimeError, match="was closed"):
        executor.run(FEEDS)
