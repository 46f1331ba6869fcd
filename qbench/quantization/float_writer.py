"""Writing a grid of 32 bits, which QuantizeLinear does not have, in floats (``graph.float_levels``)."""

import numpy as np
import onnx_ir as ir

from qbench.errors import UnsupportedError
from qbench.graph import mark_float_levels, node_key, origin_of, set_origin
from qbench.numerics import QParams
from qbench.quantization.node_writer import NodeWriter


def write_float_levels(nodes: NodeWriter, value: ir.Value, qparams: QParams) -> None:
    """Put ``value`` on its grid for everything that reads it inside the graph.

    Raises:
        UnsupportedError: channels with zero points of their own.
    """
    points = {int(point) for point in qparams.zero_point.reshape(-1)}
    if len(points) != 1:
        raise UnsupportedError(
            f"Writing '{value.name}' on a grid of {qparams.qtype}",
            found=f"{len(points)} zero points",
            expected="one, as the levels are clipped in one step",
            remedy="Ask for a symmetric grid.",
        )
    uses, name, (point,) = tuple(value.uses()), qparams.qtype.name, points
    scale = nodes.initializer(f"{value.name}_scale", ir.tensor(_spread(value, qparams)))
    ends = [
        nodes.initializer(f"{value.name}_{word}", ir.tensor(np.float32(level - point)))
        for word, level in (("low", qparams.qmin), ("high", qparams.qmax))
    ]
    last, after = value, value.producer()
    for operator, operands, word in (("Div", [scale], "levels"), ("Round", [], "rounded"), ("Clip", ends, "clipped")):
        node = nodes.made(operator, [last, *operands], [], f"{value.name}_{word}", ir.DataType.FLOAT)
        node.outputs[0].shape = value.shape
        mark_float_levels(node, name)
        nodes.behind(after, node)
        last, after = node.outputs[0], node
    for use in uses:
        wanted = f"{value.name}_for_{node_key(use.node)}"
        node = nodes.made("Mul", [last, scale], [], wanted, ir.DataType.FLOAT)
        node.outputs[0].shape = value.shape
        mark_float_levels(node, name)
        set_origin(node, origin_of(use.node))
        nodes.before(use.node, use.idx, node)


def _spread(value: ir.Value, qparams: QParams) -> "np.typing.NDArray[np.float32]":
    """The scale in a form that broadcasts against ``value``."""
    if qparams.axis is None or value.shape is None:
        return np.asarray(qparams.scale)
    rank = len(value.shape)
    return qparams.scale.reshape([-1 if i == qparams.axis % rank else 1 for i in range(rank)])
