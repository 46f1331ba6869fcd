"""Batch normalization, folded into a neighbour or turned into a convolution."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import (
    constant_value,
    float_attribute,
    input_at,
    int_attribute,
    is_constant,
    is_pinned,
    only_consumer,
    op_spec,
    weight_channel_axis,
)
from qbench.passes.contract import LOSSY, Effect
from qbench.passes.editing import NameScope, add_constant, set_constant_operand, take_place

# Batch normalization outside training as what it is, one factor and one shift per channel.
#
# BN(y) = s·y + t,    s = γ / √(σ² + ε),    t = β − μ·s

Doubles = npt.NDArray[np.float64]

_EPSILON = 1e-5


def is_constant_normalization(node: ir.Node) -> bool:
    """Whether ``node`` is a BatchNormalization with constant parameters, outside training."""
    if (
        node.domain
        or node.op_type != "BatchNormalization"
        or int_attribute(node, "training_mode", 0)
    ):
        return False
    return len(node.outputs) == 1 and all(is_constant(value) for value in node.inputs[1:5])


def affine_of(norm: ir.Node) -> tuple[Doubles, Doubles]:
    """(s, t) of ``norm``, each of shape [channels], computed in float64."""
    gamma, beta, mean, variance = (
        np.asarray(constant_value(v), np.float64) for v in norm.inputs[1:5]
    )
    scale = gamma / np.sqrt(variance + float_attribute(norm, "epsilon", _EPSILON))
    return scale, beta - mean * scale


# Batch normalization behind a linear operator, folded into its weight and bias.
#
# With s = γ / √(σ² + ε) and t = β - μ·s, one of each a channel:
#
#     BN(y) = s·y + t
#     Conv:           BN(W∗x + b)       = (s·W)∗x + (s·b + t)       s along the output channels of W
#     ConvTranspose:  the same; group g of W holds channels g·C/G … (g+1)·C/G of s
#     Gemm:           BN(α·A·B + β_g·C) = α·A·(B·s) + (s·β_g·C + t) so β_g becomes 1
#
# Computed in float64, rounded to the weight's type once.


@dataclass(frozen=True, slots=True)
class FoldBatchNorm:
    """Requires: constants are initializers. Ensures: no BatchNormalization alone reads a Conv,
    ConvTranspose or Gemm.

    The linear operator keeps its name; its result takes the name of the normalized value, which it
    now is. Left alone: training mode, parameters that are not constant, a product that something
    else reads too.
    """

    name: str = "fold-batchnorm"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Fold them; True when there were any."""
        names = NameScope.of_values(model)
        return (
            sum(
                _folded(node, names)
                for node in list(model.graph)
                if is_constant_normalization(node)
            )
            > 0
        )


def _folded(norm: ir.Node, names: NameScope) -> bool:
    product = norm.inputs[0]
    linear = None if product is None else product.producer()
    graph = norm.graph
    if (
        product is None
        or linear is None
        or not isinstance(graph, ir.Graph)
        or linear.graph is not graph
    ):
        return False
    if linear.domain or op_spec(linear).bias is None or only_consumer(product) is not norm:
        return False
    if is_pinned(product):
        return False  # it has qparams of its own
    bias = input_at(linear, 2)
    weight = None if is_pinned(linear.inputs[1]) else constant_value(linear.inputs[1])
    if weight is None or (bias is not None and (not is_constant(bias) or is_pinned(bias))):
        return False
    scale, shift = affine_of(norm)
    old = _bias(linear, constant_value(bias), scale.size)
    if old is None:
        return False
    scaled = _scaled(linear, weight.astype(np.float64), scale)
    set_constant_operand(linear, 1, scaled.astype(weight.dtype), names)
    set_constant_operand(linear, 2, (scale * old + shift).astype(weight.dtype), names)
    if linear.op_type == "Gemm":
        linear.attributes.pop("beta", None)
    take_place(norm.outputs[0], linear.outputs[0])
    graph.remove(norm, safe=True)
    return True


def _bias(linear: ir.Node, bias: npt.NDArray[Any] | None, channels: int) -> Doubles | None:
    """The bias as it is added, of shape [channels]; None for a Gemm bias that differs from row
    to row.
    """
    if bias is None:
        return np.zeros(channels)
    factor = float_attribute(linear, "beta", 1.0) if linear.op_type == "Gemm" else 1.0
    if bias.size == 1:
        return np.full(channels, factor * float(bias.reshape(())))
    return (
        factor * bias.reshape(-1).astype(np.float64)
        if bias.shape[-1] == bias.size == channels
        else None
    )


def _scaled(linear: ir.Node, weight: Doubles, scale: Doubles) -> Doubles:
    axis = weight_channel_axis(linear, weight.ndim)
    assert axis is not None
    ones = [1] * (weight.ndim - 2)
    if linear.op_type == "ConvTranspose":
        groups = int_attribute(linear, "group", 1)
        by_row = np.repeat(scale.reshape(groups, -1), weight.shape[0] // groups, axis=0)
        return weight * by_row.reshape(weight.shape[0], weight.shape[1], *ones)
    return weight * (scale.reshape(-1, 1, *ones) if axis == 0 else scale.reshape(1, -1))


# A batch normalization that no operator before it can take in becomes a convolution of its own.
#
#     BN(y) = s·y + t    =    Conv(y, W, t),    W of shape [C, 1, 1, …] = s,  group = C
#
# A residual network that normalizes before its convolutions reads each sum twice: the shortcut
# needs it as it is, so that nothing can be folded into what made it. As a convolution it is counted
# in integers like any other, its factor a weight with one scale per channel and its shift a bias.
# Factors and shifts are computed in float64 and rounded once.


@dataclass(frozen=True, slots=True)
class BatchNormToConv:
    """Requires: constants are initializers, shapes are inferred, and what can be folded is folded.

    Ensures: no BatchNormalization of constant parameters reads a float32 value (N, C, …) of three
    to five dimensions. Node and result keep their names. Left alone: other ranks and types,
    training mode, computed parameters.
    """

    name: str = "batchnorm-to-conv"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Replace them; True when there were any."""
        names = NameScope.of_values(model)
        return (
            sum(_replaced(n, names) for n in list(model.graph) if is_constant_normalization(n)) > 0
        )


def _replaced(norm: ir.Node, names: NameScope) -> bool:
    value, graph = norm.inputs[0], norm.graph
    rank = 0 if value is None or value.shape is None else len(value.shape)
    if (
        value is None
        or not isinstance(graph, ir.Graph)
        or value.dtype != ir.DataType.FLOAT
        or not 3 <= rank <= 5
    ):
        return False
    scale, shift = affine_of(norm)
    window = [1] * (rank - 2)
    title = norm.name or norm.outputs[0].name
    weight = add_constant(
        graph, f"{title}.weight", scale.astype("float32").reshape(-1, 1, *window), names
    )
    bias = add_constant(graph, f"{title}.bias", shift.astype("float32"), names)
    attributes: dict[str, int | list[int]] = {"kernel_shape": window, "group": scale.size}
    conv = ir.node("Conv", [value, weight, bias], attributes, name=norm.name, num_outputs=1)
    conv.metadata_props.update(norm.metadata_props)
    graph.insert_after(norm, conv)
    take_place(norm.outputs[0], conv.outputs[0])
    graph.remove(norm, safe=True)
    return True
