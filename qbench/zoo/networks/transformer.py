"""The parts of a transformer as nodes: linear layers, layer normalization, attention, and the wide middle of blocks.

    attention(q, k, v) = softmax(q · kᵀ / √d) · v        per head, d numbers each    (Vaswani et al. 2017, section 3.2)
    feed forward(x)    = W₂ · gelu(W₁ · x + b₁) + b₂     gelu with the error function, not its tangent approximation

Values are (N, T, numbers). Weights lie as they are multiplied, (inputs, outputs).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.zoo.networks.building import GraphBuilder
from qbench.zoo.networks.parameters import TrainedArrays


@dataclass(frozen=True, slots=True)
class Linear:
    """One linear layer of a checkpoint, whose weight is (outputs, inputs).

    Args:
        name: of its nodes. weight, bias: names of its arrays; no bias: None.
        part, parts: which of how many layers that lie in the arrays one after the other.
    """

    name: str
    weight: str
    bias: str | None
    inputs: int
    outputs: int
    part: int = 0
    parts: int = 1


class TransformerParts:
    """Writes parts into one graph from one checkpoint.

    Args:
        heads: of attention. width: numbers of a value. epsilon: layer normalization's ε.
    """

    def __init__(
        self, graph: GraphBuilder, parameters: TrainedArrays, *, heads: int, width: int, epsilon: float
    ) -> None:
        self._graph, self._take = graph, parameters.take
        self._heads, self._width, self._epsilon = heads, width, epsilon
        self._apart = graph.constant("heads.apart", np.array([0, 0, heads, width // heads], np.int64))
        self._together = graph.constant("heads.together", np.array([0, 0, width], np.int64))
        self._root = graph.constant("heads.root", np.array((width // heads) ** -0.5, np.float32))

    def linear(self, x: ir.Value, layer: Linear) -> ir.Value:
        """``x`` (N, T, inputs) through ``layer``."""
        every, ours = layer.parts * layer.outputs, slice(layer.part * layer.outputs, (layer.part + 1) * layer.outputs)
        weight = self._take(layer.weight, (every, layer.inputs))[ours]
        y = self._graph.node(
            "MatMul",
            [x, self._graph.constant(f"{layer.name}.weight", np.ascontiguousarray(weight.T))],
            f"{layer.name}.product" if layer.bias else layer.name,
        )
        if layer.bias is None:
            return y
        bias = self._graph.constant(f"{layer.name}.bias", self._take(layer.bias, (every,))[ours])
        return self._graph.node("Add", [y, bias], layer.name)

    def normalize(self, x: ir.Value, name: str, scale: str, shift: str) -> ir.Value:
        """Layer normalization of the last axis."""
        parts = [
            self._graph.constant(f"{name}.{role}", self._take(key, (self._width,)))
            for role, key in (("scale", scale), ("shift", shift))
        ]
        return self._graph.node("LayerNormalization", [x, *parts], name, {"axis": -1, "epsilon": self._epsilon})

    def attention(self, name: str, q: ir.Value, k: ir.Value, v: ir.Value) -> ir.Value:
        """``q`` (N, T, width) attends to ``k`` and ``v`` (N, S, width): (N, T, width)."""
        return self.attend(name, self.queries(name, q), self.keys(name, k), self.values(name, v))

    def queries(self, name: str, q: ir.Value) -> ir.Value:
        """``q`` (N, T, width) / √d, heads apart: (N, heads, T, d)."""
        q = self._graph.node("Mul", [q, self._root], f"{name}.query.scaled")
        return self._split(q, f"{name}.query.heads", (0, 2, 1, 3))

    def keys(self, name: str, k: ir.Value) -> ir.Value:
        """``k`` (N, S, width), heads apart, as queries are multiplied with it: (N, heads, d, S)."""
        return self._split(k, f"{name}.key.heads", (0, 2, 3, 1))

    def values(self, name: str, v: ir.Value) -> ir.Value:
        """``v`` (N, S, width), heads apart: (N, heads, S, d)."""
        return self._split(v, f"{name}.value.heads", (0, 2, 1, 3))

    def attend(self, name: str, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        """What ``queries`` take of ``values`` by ``keys``: (N, T, width)."""
        graph = self._graph
        scores = graph.node("MatMul", [query, key], f"{name}.scores")
        weights = graph.node("Softmax", [scores], f"{name}.weights", {"axis": -1})
        mixed = graph.node("MatMul", [weights, value], f"{name}.mixed")
        turned = graph.node("Transpose", [mixed], f"{name}.mixed.turned", {"perm": (0, 2, 1, 3)})
        return graph.node("Reshape", [turned, self._together], f"{name}.together")

    def feed_forward(self, x: ir.Value, first: Linear, second: Linear) -> ir.Value:
        """``x`` through two layers with gelu between them."""
        wide = self._graph.node("Gelu", [self.linear(x, first)], f"{first.name}.gelu")
        return self.linear(wide, second)

    def _split(self, x: ir.Value, name: str, order: Sequence[int]) -> ir.Value:
        apart = self._graph.node("Reshape", [x, self._apart], f"{name}.apart")
        return self._graph.node("Transpose", [apart], name, {"perm": tuple(order)})
