"""Batch normalization behind a linear operator, folded into its weight and bias.

With s = γ / √(σ² + ε) and t = β - μ·s, one of each a channel:

    BN(y) = s·y + t
    Conv:           BN(W∗x + b)         = (s·W)∗x + (s·b + t)          s along the output channels of W
    ConvTranspose:  the same; group g of W holds channels g·C/G … (g+1)·C/G of s
    Gemm:           BN(α·A·B + β_g·C)   = α·A·(B·s) + (s·β_g·C + t)    so β_g becomes 1

Computed in float64, rounded to the weight's type once.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import (
    constant_value,
    float_attribute,
    int_attribute,
    is_constant,
    only_consumer,
    weight_channel_axis,
)
from qbench.passes.constants import add_constant
from qbench.passes.naming import NameScope

_FOLDED_INTO = frozenset({"Conv", "ConvTranspose", "Gemm"})
_EPSILON = 1e-5

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FoldBatchNorm:
    """Requires: constants are initializers. Ensures: no BatchNormalization alone reads a Conv, ConvTranspose or Gemm.

    The linear operator keeps its name; its result takes the name of the normalized value, which it now is. Left alone:
    training mode, parameters that are not constant, a product that something else reads too.
    """

    name: str = "fold-batchnorm"

    def run(self, model: ir.Model) -> bool:
        """Fold them; True when there were any."""
        names = NameScope.of_values(model)
        return sum(_folded(node, names) for node in list(model.graph) if _is_normalization(node)) > 0


def _is_normalization(node: ir.Node) -> bool:
    if node.domain or node.op_type != "BatchNormalization" or int_attribute(node, "training_mode", 0):
        return False
    return len(node.outputs) == 1 and all(is_constant(value) for value in node.inputs[1:5])


def _folded(norm: ir.Node, names: NameScope) -> bool:
    product = norm.inputs[0]
    linear = None if product is None else product.producer()
    graph = norm.graph
    if product is None or linear is None or not isinstance(graph, ir.Graph) or linear.graph is not graph:
        return False
    if linear.domain or linear.op_type not in _FOLDED_INTO or only_consumer(product) is not norm:
        return False
    bias = linear.inputs[2] if len(linear.inputs) > 2 else None
    weight = constant_value(linear.inputs[1])
    if weight is None or (bias is not None and not is_constant(bias)):
        return False
    scale, shift = _affine(norm)
    old = _bias(linear, constant_value(bias), scale.size)
    if old is None:
        return False
    scaled = _scaled(linear, weight.astype(np.float64), scale)
    _set_operand(linear, 1, scaled.astype(weight.dtype), names)
    _set_operand(linear, 2, (scale * old + shift).astype(weight.dtype), names)
    if linear.op_type == "Gemm":
        linear.attributes.pop("beta", None)
    _take_place(linear, norm)
    graph.remove(norm, safe=True)
    return True


def _affine(norm: ir.Node) -> tuple[Doubles, Doubles]:
    """(s, t) of BN(y) = s·y + t, each of shape [channels]."""
    gamma, beta, mean, variance = (np.asarray(constant_value(v), np.float64) for v in norm.inputs[1:5])
    scale = gamma / np.sqrt(variance + float_attribute(norm, "epsilon", _EPSILON))
    return scale, beta - mean * scale


def _bias(linear: ir.Node, bias: npt.NDArray[Any] | None, channels: int) -> Doubles | None:
    """The bias as it is added, of shape [channels]; None for a Gemm bias that differs from row to row."""
    if bias is None:
        return np.zeros(channels)
    factor = float_attribute(linear, "beta", 1.0) if linear.op_type == "Gemm" else 1.0
    if bias.size == 1:
        return np.full(channels, factor * float(bias.reshape(())))
    return factor * bias.reshape(-1).astype(np.float64) if bias.shape[-1] == bias.size == channels else None


def _scaled(linear: ir.Node, weight: Doubles, scale: Doubles) -> Doubles:
    axis = weight_channel_axis(linear, weight.ndim)
    assert axis is not None
    ones = [1] * (weight.ndim - 2)
    if linear.op_type == "ConvTranspose":
        groups = int_attribute(linear, "group", 1)
        by_row = np.repeat(scale.reshape(groups, -1), weight.shape[0] // groups, axis=0)
        return weight * by_row.reshape(weight.shape[0], weight.shape[1], *ones)
    return weight * (scale.reshape(-1, 1, *ones) if axis == 0 else scale.reshape(1, -1))


def _set_operand(linear: ir.Node, index: int, array: npt.NDArray[Any], names: NameScope) -> None:
    """A new constant instead of operand ``index``; named after it, or after the node when there was none."""
    graph = linear.graph
    assert isinstance(graph, ir.Graph)
    old = linear.inputs[index] if index < len(linear.inputs) else None
    wanted = str(old.name) if old is not None else f"{linear.name or linear.outputs[0].name}.bias"
    if index >= len(linear.inputs):
        linear.resize_inputs(index + 1)
    alone = old is not None and len(old.uses()) == 1 and not old.is_graph_output() and old.is_initializer()
    linear.replace_input_with(index, None)
    if alone and old is not None:
        graph.initializers.pop(wanted)
        names.release(wanted)
    linear.replace_input_with(index, add_constant(graph, wanted, array, names))


def _take_place(linear: ir.Node, norm: ir.Node) -> None:
    """The result of ``linear`` stands where the result of ``norm`` stood, under its name."""
    product, result = linear.outputs[0], norm.outputs[0]
    name = result.name
    result.replace_all_uses_with(product, replace_graph_outputs=True)
    result.name = None
    product.name = name
    product.type = product.type or result.type
    product.shape = product.shape or result.shape
