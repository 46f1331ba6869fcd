"""A constant bias leaves its operator and becomes an Add behind it."""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.graph import (
    constant_value,
    float_attribute,
    is_constant,
    node_key,
    only_consumer,
    op_spec,
    origin_of,
    set_origin,
)
from qbench.passes.contract import LOSSY, Effect
from qbench.passes.editing import NameScope, add_constant

SPLIT = "qbench.split"
"""Metadata key of operators whose bias is added behind them (``product``) and of the Adds that
hold it (``bias``).
"""


@dataclass(frozen=True, slots=True)
class SplitBias:
    """Requires: constants are initializers, nodes are named. Ensures: no Conv, ConvTranspose or
    Gemm adds a constant.

    The operator keeps its name, the sum the name of the result it is; the product takes that name
    with ``.correlation``. Left alone: a bias that is computed, and a Gemm with α or β other than 1.
    Operators with weights whose result is a product alone are marked, so that a quantizer knows.
    """

    name: str = "split-bias"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Split and mark; True when anything was not yet."""
        values, nodes = NameScope.of_values(model), NameScope.of_nodes(model)
        modified = False
        for node in list(model.graph):
            if op_spec(node).weight is None or SPLIT in node.metadata_props:
                continue
            if _bias(node) is not None:
                if not _splits(node):
                    continue
                _split(node, values, nodes)
            node.metadata_props[SPLIT] = "product"
            modified = True
        return modified


def is_product(node: ir.Node) -> bool:
    """Whether the result of ``node`` is a product before its bias, by this pass."""
    return node.metadata_props.get(SPLIT) == "product"


def bias_split_from(node: ir.Node) -> ir.Node | None:
    """The Add that this pass put behind ``node``, while nothing else reads the product."""
    follower = only_consumer(node.outputs[0]) if is_product(node) else None
    return (
        follower if follower is not None and follower.metadata_props.get(SPLIT) == "bias" else None
    )


def _bias(node: ir.Node) -> ir.Value | None:
    index = op_spec(node).bias
    return None if index is None or index >= len(node.inputs) else node.inputs[index]


def _splits(node: ir.Node) -> bool:
    if op_spec(node).bias is None or not is_constant(_bias(node)):
        return False
    if node.op_type == "Gemm":
        return float_attribute(node, "alpha", 1.0) == float_attribute(node, "beta", 1.0) == 1.0
    return _rank(node) is not None


def _rank(node: ir.Node) -> int | None:
    """Dimensions of a Conv's data, which are those of its weight."""
    weight = node.inputs[1]
    return None if weight is None or weight.shape is None else len(weight.shape)


def _split(node: ir.Node, values: NameScope, nodes: NameScope) -> None:
    graph, bias, product = node.graph, _bias(node), node.outputs[0]
    array = constant_value(bias)
    assert isinstance(graph, ir.Graph)
    assert bias is not None
    assert array is not None
    if node.op_type != "Gemm":
        array = array.reshape(-1, *[1] * ((_rank(node) or 2) - 2))
    node.resize_inputs(2)
    name = str(bias.name)
    if bias.is_initializer() and not bias.uses() and not bias.is_graph_output():
        graph.initializers.pop(name)
        values.release(name)
    operands = [None, add_constant(graph, name, array, values)]
    shifted = ir.Node(
        "", "Add", operands, num_outputs=1, name=nodes.fresh(f"{node_key(node)}.bias")
    )
    shifted.metadata_props[SPLIT] = "bias"
    set_origin(shifted, origin_of(node))
    result = shifted.outputs[0]
    result.type, result.shape = product.type, product.shape
    product.replace_all_uses_with(result, replace_graph_outputs=True)
    shifted.replace_input_with(0, product)
    result_name = product.name
    product.name = values.fresh(f"{result_name or node_key(node)}.correlation")
    result.name = result_name
    graph.insert_after(node, shifted)
