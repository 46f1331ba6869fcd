"""Which of the four forms a graph has, by the operators in it."""

import onnx_ir as ir

from qbench.graph.capabilities import Form
from qbench.graph.float_levels import is_float_levels

INTEGER_DOMAIN = "qbench.integer"
"""The domain of our own integer operators."""

QDQ_OPERATORS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_INTEGER_OPERATORS = frozenset({"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"})
_ENGINE_DOMAIN = "com.microsoft"
_ENGINE_OPERATORS = frozenset(
    {"QGemm", "QAttention", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulNBits"}
)


def form_of(model: ir.Model) -> Form:
    """The form of ``model``, subgraphs included: the lowest that any node of it has.

    Our integer operators make it integer; integer operators of ONNX or ONNX Runtime, qoperator; QuantizeLinear and its
    kin, or a grid in floats, qdq; without any of these it is float.
    """
    nodes = [node for graph in model.graphs() for node in graph]
    if any(node.domain == INTEGER_DOMAIN for node in nodes):
        return Form.INTEGER
    if any(_is_qoperator(node) for node in nodes):
        return Form.QOPERATOR
    if any(is_qdq(node) or is_float_levels(node) for node in nodes):
        return Form.QDQ
    return Form.FLOAT


def is_qdq(node: ir.Node) -> bool:
    """Whether ``node`` is a QuantizeLinear, a DequantizeLinear or a DynamicQuantizeLinear (the engine's own too)."""
    return node.op_type in QDQ_OPERATORS and node.domain in ("", _ENGINE_DOMAIN)


def _is_qoperator(node: ir.Node) -> bool:
    if node.domain == "":
        return node.op_type in _INTEGER_OPERATORS
    return node.domain == _ENGINE_DOMAIN and (node.op_type.startswith("QLinear") or node.op_type in _ENGINE_OPERATORS)
