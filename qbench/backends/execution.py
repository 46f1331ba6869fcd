"""The frame that executors of engines share, and how nodes run on an engine that runs a graph
unchanged.
"""

from typing import Generic, TypeVar

import numpy as np
import onnx_ir as ir

from qbench.backends.feeds import FeedCheck
from qbench.backends.protocol import Array, Closing, Executed, Feeds
from qbench.backends.refusals import batch_refusal
from qbench.errors import QbenchError
from qbench.graph import node_key, origin_of, with_shapes

_Held = TypeVar("_Held")


class EngineExecutor(Closing, Generic[_Held]):
    """The frame of an executor: checks the feeds of each batch, runs nothing once it is closed.

    A subclass defines ``_answer`` and ``executed``, and ``close`` where releasing what is held
    takes more than forgetting it.

    Args:
        held: what runs a batch, such as a session, a program or a process.
        check: of the feeds of its graph.
    """

    def __init__(self, held: _Held, check: FeedCheck) -> None:
        self._held: _Held | None = held
        self._check = check

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            InputError: an input does not fit the graph, or the batch as a whole does not.
            RuntimeError: the executor was closed.
        """
        if self._held is None:
            raise RuntimeError(f"this executor of '{self._check.backend}' was closed")
        return self._answer(self._held, self._check.checked(feeds))

    def _answer(self, held: _Held, arrays: dict[str, Array]) -> dict[str, Array]:
        """The outputs and taps for checked ``arrays``."""
        raise NotImplementedError

    def _refusal(self, message: str) -> QbenchError:
        """The error for a batch that the engine refuses with ``message``."""
        return batch_refusal(message, graph=self._check.graph, backend=self._check.backend)

    def close(self) -> None:
        """Release what is held."""
        self._held = None


def executed_as_written(model: ir.Model, device: str) -> dict[str, Executed]:
    """How ``device`` runs every node of the main graph of ``model``, if it runs the graph
    unchanged.
    """
    is_typed = all(
        value.dtype is not None
        for node in model.graph
        for value in node.inputs
        if value is not None
    )
    typed = model if is_typed else with_shapes(model)
    found = {node_key(node): Executed(_precision(node), device) for node in typed.graph}
    products = {
        origin_of(node): found[node_key(node)]
        for node in typed.graph
        if node.op_type in INTEGER_PRODUCTS
    }
    return found | products


INTEGER_PRODUCTS = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    }
)
"""Operators that compute the product of another node, which is their origin, in integers."""


def _precision(node: ir.Node) -> str:
    given = [value for value in node.inputs if value is not None]
    first = next(
        (value for value in given if value.dtype is not ir.DataType.BOOL), next(iter(given), None)
    )
    return "" if first is None or first.dtype is None else np.dtype(first.dtype.numpy()).name
