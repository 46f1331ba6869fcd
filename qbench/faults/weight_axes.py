"""Which way a weight lies: its levels, and the axis of its output channels."""

import onnx_ir as ir

from qbench.faults.operators import Array, has_weight, stored
from qbench.graph import weight_channel_axis


def weight_levels(node: ir.Node) -> Array:
    """The constant levels of its weight, as ONNX stores them."""
    levels = stored(node, 1)
    assert levels is not None
    return levels


def channel_axis(node: ir.Node) -> int:
    """The axis of the weight that runs over output channels; 0 where none does."""
    return weight_channel_axis(node, weight_levels(node).ndim) or 0


def has_channels(node: ir.Node) -> bool:
    """Whether it has a weight of several output channels."""
    return has_weight(node) and weight_levels(node).ndim > 1 and weight_levels(node).shape[channel_axis(node)] > 1
