"""A builder of float ONNX graphs: node by node, with names after the place in the network.

Each node has one output, with the node's name; a constant is named after the node and its role
(``stem.conv.weight``). The opset is that of QDQ graphs.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import QDQ_IR_VERSION, QDQ_OPSET, declare_dims, infer_shapes

AttributeValue = int | float | str | Sequence[int]
_NONE: Mapping[str, AttributeValue] = MappingProxyType({})
_NO_DIMS: Mapping[str, int] = MappingProxyType({})


class GraphBuilder:
    """Collects the nodes and constants of one graph, in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._inputs: list[ir.Value] = []
        self._nodes: list[ir.Node] = []
        self._constants: dict[str, ir.Value] = {}

    def input(self, name: str, shape: Sequence[int | str], dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
        """A graph input; a name in ``shape`` is a dimension that is free (``"N"``, the batch)."""
        value = ir.val(name, dtype, ir.Shape(shape))
        self._inputs.append(value)
        return value

    def constant(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        """The initializer ``name`` holding ``array``; the same value when called again.

        Raises:
            ValueError: the name is that of another array.
        """
        known = self._constants.get(name)
        if known is None:
            tensor = ir.Tensor(array, name=name)
            known = ir.val(name, tensor.dtype, tensor.shape, const_value=tensor)
            self._constants[name] = known
        elif known.const_value is None or not np.array_equal(known.const_value.numpy(), array):
            raise ValueError(f"the graph '{self._name}' has two constants '{name}'")
        return known

    def node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        name: str,
        attributes: Mapping[str, AttributeValue] = _NONE,
    ) -> ir.Value:
        """Append a node of the standard operators; its output."""
        node = ir.node(op_type, inputs, dict(attributes), name=name, outputs=[ir.val(name)])
        self._nodes.append(node)
        return node.outputs[0]

    def model(self, outputs: Mapping[str, ir.Value], *, dims: Mapping[str, int] = _NO_DIMS) -> ir.Model:
        """The finished model with shapes inferred.

        Args:
            outputs: gives the outputs their names. dims: the usual sizes of free dimensions other than the batch.
        """
        for name, value in outputs.items():
            value.name = name
        graph = ir.Graph(
            self._inputs,
            list(outputs.values()),
            nodes=self._nodes,
            initializers=list(self._constants.values()),
            opset_imports={"": QDQ_OPSET},
            name=self._name,
        )
        model = ir.Model(graph, ir_version=QDQ_IR_VERSION, producer_name="qbench")
        if dims:
            declare_dims(model, dims)
        infer_shapes(model)
        return model
