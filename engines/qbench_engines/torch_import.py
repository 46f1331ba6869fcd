"""A float ONNX graph as a module of PyTorch: a ``torch.fx.GraphModule`` that can be traced,
exported and trained.

Products, functions and pools become PyTorch's own layers, under the names of their nodes, so that
quantizers of PyTorch find what they look for. ``torch_operators`` has one function per operator.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from torch import fx, nn

from qbench.errors import UnsupportedError
from qbench.graph import AnyModel, as_model, constant_value, input_at, node_key
from qbench.passes import canonicalize

Array = npt.NDArray[Any]
Module = Any
"""A ``torch.nn.Module``."""
Made = Any
"""A ``torch.fx.Node``."""
Maker = Callable[["Translation", ir.Node], Made]
"""Node → what computes its first result, or a tuple for all of them."""


def torch_module(model: AnyModel) -> Module:
    """The float ``model`` (a model, or the path of its file) as a ``torch.fx.GraphModule`` for
    inference.

    The model is canonicalized first: batch normalizations are folded into the convolutions before
    them, and constants are computed. Arguments and results have the order of the graph's inputs
    and outputs; of several results it gives a tuple. Weights are parameters, other constants
    buffers.

    Raises:
        UnsupportedError: an operator, or a form of one, that has no translation; the sentence
            names the first.
        What ``canonicalize`` raises.
    """
    return Translation(canonicalize(as_model(model))).module()


class Translation:
    """One graph on its way; a subclass changes what is read and what is made.

    Args:
        model: canonical, float.
        layers: whether an operator with a layer in PyTorch becomes that; else a function of its
            operands, weights among them.
    """

    def __init__(self, model: ir.Model, *, layers: bool = True) -> None:
        self.model, self.layers = model, layers
        self.root: Module = nn.Module()
        self.graph: Any = fx.Graph()
        self._made: dict[str, Made] = {}
        self._doing = f"Turning '{model.graph.name or 'a graph'}' into a torch module"

    def module(self) -> Module:
        """The whole graph, in evaluation mode.

        Raises:
            UnsupportedError: as ``torch_module``.
        """
        graph = self.model.graph
        for value in graph.inputs:
            name = value.name or ""
            self._made[name] = self.settle(name, self.graph.placeholder(_word(name)))
        for node in graph:
            self._translate(node)
        results = tuple(self.leave(value.name or "") for value in graph.outputs)
        self.graph.output(results[0] if len(results) == 1 else results)
        return fx.GraphModule(self.root, self.graph).eval()

    def settle(self, name: str, made: Made) -> Made:  # noqa: ARG002 - for subclasses
        """What readers of the value ``name`` get, where ``made`` computes it."""
        return made

    def leave(self, name: str) -> Made:
        """What leaves the graph as the output ``name``."""
        return self._made[name]

    def read(self, node: ir.Node, index: int) -> Made:
        """The operand ``index`` of ``node``, computed or constant; None where it is left out."""
        value = input_at(node, index)
        if value is None:
            return None
        array = constant_value(value)
        return self._made[value.name or ""] if array is None else self.held(value.name or "", array)

    def held(self, name: str, array: Array) -> Made:
        """The constant ``name`` as a buffer of the module."""
        key = f"constant_{_word(name)}"
        if not hasattr(self.root, key):
            self.root.register_buffer(key, torch.from_numpy(np.array(array)))
        return self.graph.get_attr(key)

    def constant(self, node: ir.Node, index: int) -> Array | None:
        """The array of the operand ``index``; None: it is left out.

        Raises:
            UnsupportedError: it is computed.
        """
        value = input_at(node, index)
        array = constant_value(value)
        if array is None and value is not None:
            raise self.refused(node, f"whose operand {index} is computed", "a constant one")
        return array

    def integers(self, node: ir.Node, index: int) -> tuple[int, ...] | None:
        """The whole numbers of a constant operand; None: it is left out.

        Raises:
            UnsupportedError: it is computed.
        """
        array = self.constant(node, index)
        return None if array is None else tuple(int(one) for one in array.reshape(-1))

    def rank(self, node: ir.Node, index: int = 0) -> int:
        """How many dimensions the operand ``index`` has.

        Raises:
            UnsupportedError: that is not known.
        """
        return len(self.sizes(node, index))

    def sizes(self, node: ir.Node, index: int = 0) -> tuple[int | None, ...]:
        """The sizes of the operand ``index``; None for a dimension that a run decides.

        Raises:
            UnsupportedError: not even their number is known.
        """
        value = input_at(node, index)
        if value is None or value.shape is None:
            raise self.refused(node, f"whose operand {index} has an unknown rank", "a known one")
        return tuple(size if isinstance(size, int) else None for size in value.shape)

    def call(self, function: Callable[..., Any], *operands: Any, **settings: Any) -> Made:  # noqa: ANN401 - as fx has them
        """``function`` of ``operands``."""
        return self.graph.call_function(function, operands, settings)

    def layer(self, node: ir.Node, module: Module, *operands: Made) -> Made:
        """``module`` under the name of ``node``, of ``operands``."""
        name = _word(node_key(node))
        while hasattr(self.root, name):
            name += "_"
        self.root.add_module(name, module)
        return self.graph.call_module(name, operands)

    def refused(self, node: ir.Node, found: str, expected: str) -> UnsupportedError:
        """The error for ``node``, which has no translation because of ``found``."""
        return UnsupportedError(
            self._doing,
            found=f"{node.op_type} '{node_key(node)}' {found}",
            expected=expected,
            remedy="Rewrite this node, or leave the part of the model with it out.",
        )

    def _translate(self, node: ir.Node) -> None:
        from qbench_engines.torch_operators import OPERATORS

        maker: Maker | None = None if node.domain else OPERATORS.get(node.op_type)
        if maker is None:
            kind = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            raise UnsupportedError(
                self._doing,
                found=f"the operator {kind} of the node '{node_key(node)}'",
                expected=f"one of {len(OPERATORS)} operators, such as {', '.join(_USUAL)}",
                remedy="Rewrite this node, or leave the part of the model with it out.",
            )
        made = maker(self, node)
        each: Sequence[Made] = made if isinstance(made, tuple) else (made,)
        for value, one in zip(node.outputs, each, strict=False):
            self._made[value.name or ""] = self.settle(value.name or "", one)
        self._refuse_more_results(node, len(each))

    def _refuse_more_results(self, node: ir.Node, count: int) -> None:
        more = [v for v in node.outputs[count:] if v.uses() or v.is_graph_output()]
        if more:
            found = f"with the result '{more[0].name}'"
            raise self.refused(node, found, f"{count} of its results to be in use")


_USUAL = ("Conv", "Gemm", "Add", "Relu", "MaxPool", "Reshape")


def _word(name: str) -> str:
    """``name`` as a name of Python."""
    word = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)
    return word if word and not word[0].isdigit() else f"n_{word}"
