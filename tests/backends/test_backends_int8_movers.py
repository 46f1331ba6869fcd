"""int8 levels that are only moved: every optimized session is made,
and answers as the model says.
"""

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.backends.ort import with_int8_pairs

MOVERS = {
    "Transpose": ({"perm": [0, 2, 1]}, []),
    "Reshape": ({}, [np.array([0, 2, 8], np.int64)]),
    "Slice": ({}, [np.array([n], np.int64) for n in (1, 3, 1)]),
    "Squeeze": ({}, [np.array([3], np.int64)]),
    "Unsqueeze": ({}, [np.array([1], np.int64)]),
    "MaxPool": ({"kernel_shape": [2]}, []),
}
BACKENDS = ("ort-cpu", "ort-cpu-noopt", "ort-cpu-precise", "onnx-reference")


def constant(name: str, array: np.ndarray) -> ir.Value:
    tensor = ir.Tensor(array, name=name)
    return ir.val(name, tensor.dtype, tensor.shape, const_value=tensor)


def moved(*movers: str, levels: type = np.int8, behind: str = "") -> ir.Model:
    """x (N, 4, 4) → Q → DQ → ``movers`` → ``behind`` → y."""
    x = ir.val(
        "x", ir.DataType.FLOAT, ir.Shape(["N", 4, 4, 1] if movers == ("Squeeze",) else ["N", 4, 4])
    )
    grid = [constant("scale", np.array(0.1, np.float32)), constant("zero", np.array(3, levels))]
    constants, nodes = list(grid), []
    quantizer = ir.node("QuantizeLinear", [x, *grid], name="q")
    nodes += [quantizer, ir.node("DequantizeLinear", [quantizer.outputs[0], *grid], name="dq")]
    for place, mover in enumerate(movers):
        attributes, arrays = MOVERS[mover]
        more = [constant(f"{mover}{place}.{i}", array) for i, array in enumerate(arrays)]
        constants += more
        nodes.append(
            ir.node(mover, [nodes[-1].outputs[0], *more], attributes, name=f"{mover}{place}")
        )
    if behind:
        nodes.append(ir.node(behind, [nodes[-1].outputs[0]], name=behind))
    y = nodes[-1].outputs[0]
    y.name, y.dtype = "y", ir.DataType.FLOAT
    for index, node in enumerate(nodes[:-1]):
        node.outputs[0].name = f"v{index}"
    quantizer.outputs[0].dtype = grid[1].dtype
    graph = ir.Graph(
        [x], [y], nodes=nodes, initializers=constants, opset_imports={"": 21}, name="moved"
    )
    return ir.Model(graph, ir_version=10)


def answers(model: ir.Model, backend: str) -> np.ndarray:
    shape = (2, *(int(dim) for dim in model.graph.inputs[0].shape[1:]))
    x = np.random.default_rng(0).normal(0, 9, shape).astype(np.float32)
    with get_backend(backend).prepare(model) as executor:
        return executor.run({"x": x})["y"]


@pytest.mark.parametrize("behind", ["", "Erf"])
@pytest.mark.parametrize("mover", MOVERS)
def test_every_mover_ends_alike_everywhere(mover: str, behind: str) -> None:
    first, *others = (answers(moved(mover, behind=behind), backend) for backend in BACKENDS)
    assert first.std() > 0
    for other in others:
        np.testing.assert_allclose(other, first, rtol=0, atol=1e-6)


@pytest.mark.parametrize("movers", [("Reshape", "Transpose"), ("Slice", "Transpose", "Unsqueeze")])
def test_movers_behind_one_another(movers: tuple[str, ...]) -> None:
    model = with_int8_pairs(moved(*movers))
    assert [node.op_type for node in model.graph].count("QuantizeLinear") == 1 + len(movers)
    np.testing.assert_array_equal(
        answers(moved(*movers), "ort-cpu"), answers(moved(*movers), "ort-cpu-noopt")
    )


def test_only_open_int8_grids_get_a_pair() -> None:
    model = moved("Transpose")
    before = [node.name for node in model.graph]
    closed = with_int8_pairs(model)
    assert [node.name for node in model.graph] == before
    assert [node.op_type for node in closed.graph][-2:] == ["QuantizeLinear", "DequantizeLinear"]
    assert [str(value.name) for value in closed.graph.outputs] == ["y"]
    for same in (
        closed,
        moved("Transpose", levels=np.uint8),
        moved("Transpose", levels=np.int16),
        moved(),
    ):
        assert with_int8_pairs(same) is same
