"""A pair behind every operator that only moves int8 levels, for sessions that ONNX Runtime optimizes.

Behind such an operator (Transpose, Reshape, …) an optimized session writes the Q/DQ pair that it lacks. It names the
type of an int8 pair in an attribute, as opset 21 allows, and later makes uint8 of the zero point but not of the
attribute: no session ("output_dtype INT8 does not match y_zero_point type UINT8", onnxruntime 1.31.1; uint8 and int16
grids, and models before opset 21, pass). A pair of the grid that numbers lie on leaves them as they are, so it is
written here.
"""

import onnx_ir as ir

from qbench.graph import own_copy
from qbench.passes import NameScope

_MOVERS = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})


def with_int8_pairs(model: ir.Model) -> ir.Model:
    """``model`` itself, or a copy in which no operator that moves int8 levels ends in a float value."""
    if not any(_is_open(node) for node in model.graph):
        return model
    copy = own_copy(model)
    names, nodes = NameScope.of_values(copy), NameScope.of_nodes(copy)
    for node in list(copy.graph):  # in order: what is written behind one mover is in front of the next
        if _is_open(node):
            _close(copy.graph, node, names, nodes)
    return copy


def _is_open(node: ir.Node) -> bool:
    """Whether ``node`` moves the levels of an int8 grid, and nothing puts its result on a grid."""
    if node.op_type not in _MOVERS or node.domain or node.inputs[0] is None:
        return False
    maker = node.inputs[0].producer()
    if maker is None or maker.op_type != "DequantizeLinear" or maker.domain:
        return False
    levels, scale = maker.inputs[0], maker.inputs[1]
    of_int8 = levels is not None and (levels.dtype is ir.DataType.INT8 or _zero_point_is_int8(maker))
    whole = scale is not None and scale.shape is not None and scale.shape.dims in ((), (1,))
    return of_int8 and whole and not any(use.op_type == "QuantizeLinear" for use, _ in node.outputs[0].uses())


def _zero_point_is_int8(node: ir.Node) -> bool:
    zero_point = node.inputs[2] if len(node.inputs) > 2 else None
    return zero_point is not None and zero_point.dtype is ir.DataType.INT8


def _close(graph: ir.Graph, node: ir.Node, names: NameScope, nodes: NameScope) -> None:
    source, moved = node.inputs[0], node.outputs[0]
    maker = source.producer() if source is not None else None
    assert maker is not None
    name = str(moved.name)
    grid = maker.inputs[1:]
    quantizer = ir.node(
        "QuantizeLinear",
        [moved, *grid],
        name=nodes.fresh(f"{node.name}_levels"),
        outputs=[ir.val(names.fresh(f"{name}_levels"), ir.DataType.INT8, moved.shape)],
    )
    closed = ir.val(name, moved.dtype, moved.shape)
    dequantizer = ir.node(
        "DequantizeLinear", [quantizer.outputs[0], *grid], name=nodes.fresh(f"{node.name}_closed"), outputs=[closed]
    )
    moved.replace_all_uses_with(closed, replace_graph_outputs=True)
    quantizer.replace_input_with(0, moved)
    moved.name = names.fresh(f"{name}_moved")
    graph.insert_after(node, [quantizer, dequantizer])
