"""Folded constants and batch normalizations of every opset
from 7 to 25 are what ONNX Runtime computes.
"""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from operator_cases.float_sweep import by_engine

from qbench.passes import canonicalize
from qbench.passes.canonical.constants import FoldConstants


def _model(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], opset: int
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4, 3, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("opset", range(7, 26))
def test_constants_of_operators_that_changed_are_folded_as_the_engine_computes_them(
    opset: int,
) -> None:
    statistics = [_random(4), _random(4) + 1, _random(4) - 1, np.abs(_random(4)) + 1]
    nodes = [
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], epsilon=1e-3),
        helper.make_node("Softmax", ["n"], ["p"]),
        helper.make_node("LRN", ["p"], ["l"], size=3, alpha=0.5),
        helper.make_node("GlobalMaxPool", ["l"], ["g"]),
        helper.make_node("Add", ["x", "l"], ["a"]),
        helper.make_node("Mul", ["a", "g"], ["y"]),
    ]
    constants = {"c": _random(2, 4, 3, 3)} | dict(zip("sbmv", statistics, strict=True))
    model, feeds = _model(nodes, constants, opset), {"x": _random(2, 4, 3, 3)}
    expected = by_engine(model, feeds)
    assert expected is not None
    folded = ir.from_proto(model)
    assert FoldConstants().run(folded)
    assert [node.op_type for node in folded.graph] == ["Add", "Mul"]
    found = by_engine(ir.to_proto(folded), feeds)
    assert found is not None
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", range(7, 26))
def test_a_batch_normalization_is_folded_as_the_engine_computes_it(opset: int) -> None:
    constants = {
        "w": _random(4, 4, 1, 1),
        "s": _random(4),
        "b": _random(4) + 1,
        "m": _random(4) - 1,
    }
    constants["v"] = np.abs(_random(4)) + 1
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], epsilon=1e-3),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("BatchNormalization", ["r", "s", "b", "m", "v"], ["y"]),
    ]
    model, feeds = _model(nodes, constants, opset), {"x": _random(2, 4, 3, 3)}
    expected = by_engine(model, feeds)
    assert expected is not None
    canonical = canonicalize(ir.from_proto(model))
    assert "BatchNormalization" not in {node.op_type for node in canonical.graph}
    found = by_engine(ir.to_proto(canonical), feeds)
    assert found is not None
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
