"""Multiply-accumulates per operator for one sample."""

import math
from collections.abc import Sequence

import onnx_ir as ir

from qbench.graph.attention_operators import ATTENTIONS, attention_macs
from qbench.graph.ops import OPERATORS, PRODUCTS, Kind
from qbench.graph.query import node_key
from qbench.graph.shapes import fixed_batch, shapes_alone


def node_macs(model: ir.Model) -> dict[str, int]:
    """Node name → multiply-accumulates of one sample, for every node that has any.

    ``model`` itself is not touched.

    A node whose shapes cannot be inferred counts as if its unknown dimensions were 1.
    """
    shaped = shapes_alone(model, free_dims=1)
    samples = fixed_batch(model) or 1
    counts = {}
    for node in ir.traversal.RecursiveGraphIterator(shaped.graph):
        if (node.domain == "" and node.op_type in _COUNTED) or _named(node) in _OF_THE_ENGINE:
            counts[node_key(node)] = -(-_macs(node) // samples)
    return counts


_RECURRENCES = frozenset(row.name for row in OPERATORS.values() if row.kind is Kind.RECURRENCE)
_RECURRENT = _RECURRENCES | {"DynamicQuantizeLSTM"}
_COUNTED = PRODUCTS | _RECURRENCES | {row.dynamic for row in OPERATORS.values() if row.dynamic}
_OF_THE_ENGINE = ATTENTIONS | {
    ("com.microsoft", "DynamicQuantizeLSTM"),
    ("com.microsoft", "MatMulNBits"),
}


def _named(node: ir.Node) -> tuple[str, str]:
    return node.domain, node.op_type


def _macs(node: ir.Node) -> int:
    if _named(node) in ATTENTIONS:
        return attention_macs(node)
    first, second, output = _dims(node.inputs[0]), _dims(node.inputs[1]), _dims(node.outputs[0])
    match node.op_type:
        case "Conv" | "ConvInteger":
            return math.prod(output) * math.prod(second[1:])
        case "ConvTranspose":
            return math.prod(first) * math.prod(second[1:])
        case recurrent if recurrent in _RECURRENT:
            return math.prod(first[:2]) * (math.prod(second) + math.prod(_dims(node.inputs[2])))
        case "MatMulNBits":
            return math.prod(first) * node.attributes["N"].as_int()
        case "Gemm":
            transposed = node.attributes.get("transA")
            return math.prod(output) * _at(first, 0 if transposed and transposed.as_int() else -1)
        case _:
            return math.prod(output) * _at(first, -1)


def _at(dims: Sequence[int], index: int) -> int:
    return dims[index] if dims else 1


def _dims(value: ir.Value | None) -> tuple[int, ...]:
    if value is None or value.shape is None:
        return ()
    return tuple(dim if isinstance(dim, int) else 1 for dim in value.shape)
