"""Given ONNX files as subjects."""

import onnx_ir as ir
import pytest

from qbench.errors import InputError
from qbench.graph import model_bytes
from qbench.subjects import model_from_file


def test_a_file_without_an_output_is_refused(tmp_path):
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["N", 3]))
    node = ir.Node("", "Relu", [x])
    graph = ir.Graph([x], [], nodes=[node], opset_imports={"": 21}, name="net")
    path = tmp_path / "net.onnx"
    path.write_bytes(model_bytes(ir.Model(graph, ir_version=10)))
    with pytest.raises(InputError, match="a graph without an output"):
        model_from_file(path)
