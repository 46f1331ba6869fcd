"""Writing a network's graph node by node, at one opset, with the same name for a node and the value it gives.

Names are what diagnosis shows and what a profile is keyed by, so each is written by hand.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

OPSET = 21
"""The opset that QDQ graphs are written at, so that these need no upgrade."""

IR_VERSION = 10

BATCH = "N"
"""The name of the batch dimension."""


class GraphWriter:
    """A graph that grows; ``model`` ends it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tape = ir.tape.Tape()
        self._inputs: list[ir.Value] = []

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[int | str]) -> ir.Value:
        """A graph input."""
        value = ir.val(name, dtype, shape)
        self._inputs.append(value)
        return value

    def constant(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        """An initializer."""
        return self._tape.initializer(ir.tensor(np.ascontiguousarray(array), name=name), name)

    def node(
        self, operator: str, name: str, *inputs: ir.Value, attributes: Mapping[str, Any] | None = None
    ) -> ir.Value:
        """A node of the default domain with one output; both are called ``name``."""
        return self._tape.op(operator, inputs, attributes, name=name, output=ir.val(name))

    def model(self, outputs: Mapping[str, tuple[ir.Value, Sequence[int | str]]]) -> ir.Model:
        """The finished model; ``outputs``: name → (the value that is called so from now on, its shape), float32."""
        for name, (value, shape) in outputs.items():
            value.name = name
            value.dtype = ir.DataType.FLOAT
            value.shape = ir.Shape(shape)
        graph = ir.Graph(
            self._inputs,
            [value for value, _ in outputs.values()],
            nodes=self._tape.nodes,
            initializers=self._tape.initializers,
            opset_imports={"": OPSET},
            name=self._name,
        )
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="qbench")
