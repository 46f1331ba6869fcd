"""Integer weights and their zero points, one initializer a use, for ONNX Runtime's precise mode.

Where 8-bit pairs could saturate, that mode rewrites int8 weights as uint8 ones, each with its zero point, under names
derived from the old ones; met twice, the name clashes and the session is not made ("Attempt to replace the existing
tensor", onnxruntime 1.31.1). The numbers are the same either way.
"""

import onnx_ir as ir

from qbench.graph import own_copy
from qbench.passes import NameScope

_WEIGHT, _ZERO_POINT = 0, 2


def unshared(model: ir.Model) -> ir.Model:
    """``model`` itself, or a copy in which no dequantized constant shares its integers or its zero point."""
    if not any(_shared(node, index) for node in model.graph for index in (_WEIGHT, _ZERO_POINT)):
        return model
    copy = own_copy(model)
    names = NameScope.of_values(copy)
    for node in copy.graph:
        for index in (_WEIGHT, _ZERO_POINT):
            if _shared(node, index):
                _give_own(copy.graph, node, index, names)
    return copy


def _shared(node: ir.Node, index: int) -> bool:
    if node.op_type != "DequantizeLinear" or node.domain or index >= len(node.inputs):
        return False
    weight, value = node.inputs[_WEIGHT], node.inputs[index]
    return (
        weight is not None
        and weight.is_initializer()
        and weight.dtype is ir.DataType.INT8
        and value is not None
        and value.is_initializer()
        and len(value.uses()) > 1
    )


def _give_own(graph: ir.Graph, node: ir.Node, index: int, names: NameScope) -> None:
    value = node.inputs[index]
    assert value is not None
    own = ir.val(names.fresh(str(value.name)), value.dtype, value.shape, const_value=value.const_value)
    graph.register_initializer(own)
    node.replace_input_with(index, own)
