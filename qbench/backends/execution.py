"""How the nodes of a graph run on an engine that runs it unchanged: each in the type of its data."""

import numpy as np
import onnx_ir as ir

from qbench.backends.protocol import Executed
from qbench.graph import node_key, origin_of, with_shapes


def executed_as_written(model: ir.Model, device: str) -> dict[str, Executed]:
    """How ``device`` runs every node of the main graph of ``model``, if it runs the graph unchanged."""
    is_typed = all(value.dtype is not None for node in model.graph for value in node.inputs if value is not None)
    typed = model if is_typed else with_shapes(model)
    found = {node_key(node): Executed(_precision(node), device) for node in typed.graph}
    products = {origin_of(node): found[node_key(node)] for node in typed.graph if node.op_type in INTEGER_PRODUCTS}
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
    first = next((value for value in given if value.dtype is not ir.DataType.BOOL), next(iter(given), None))
    return "" if first is None or first.dtype is None else np.dtype(first.dtype.numpy()).name
