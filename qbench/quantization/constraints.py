"""What the quantizer demands of operators, as a table: which inputs carry data, whose grid the output has.

OWN     the output has a range of its own
SHARED  the output holds elements of the (first) input, or lies between them, hence has its parameters
FIXED   the output's range is the operator's, on every grid of b bits so that the asymmetric scale is a power of two:
        softmax, sigmoid and hard sigmoid [0, 1 − 2⁻ᵇ], tanh and Lₚ normalization [−1, 1 − 2¹⁻ᵇ]
        (with 1/(2ᵇ−1) an engine that multiplies by a truncated reciprocal never reaches the top level)

ONE GRID  inputs and output hold elements of one another, hence are one group where their ranges are alike
          (``value_grids``): the larger or smaller of two, a choice
TABLE     a function of one value: an integer engine reads the result from a table, or cannot compute it

Sources: the operators that ONNX Runtime's static quantizer takes, TFLite's int8 specification, Glow's quantized nodes.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from qbench.graph import (
    constant_value,
    float_attribute,
    int_attribute,
    operator_facts,
    outside_operator,
    weight_channel_axis,
)
from qbench.numerics import Interval


class Output(enum.Enum):
    """Whose parameters an output has."""

    OWN = "own"
    SHARED = "shared"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Demand:
    """What one kind of operator demands.

    Args:
        data: indices of the inputs that carry data; None: all but the bias.
        output: whose parameters the output has.
        one_grid: computed inputs and output share one grid.
        table: a function of one value.
    """

    data: tuple[int, ...] | None = (0,)
    output: Output = Output.OWN
    one_grid: bool = False
    table: bool = False


_ALL = Demand(data=None)
_FIRST = Demand()
_MOVES = Demand(output=Output.SHARED)
_TABLE = Demand(table=True)

_DEMANDS: Mapping[str, Demand] = MappingProxyType(
    {
        **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul", "Concat", "PRelu"), _ALL),
        **dict.fromkeys(("Sum", "Mean"), _ALL),
        **dict.fromkeys(("Relu", "Clip", "LeakyRelu", "AveragePool", "GlobalAveragePool", "ReduceMean"), _FIRST),
        **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _FIRST),
        **dict.fromkeys(("Elu", "Gelu", "HardSwish", "Mish", "Selu", "Softplus", "ThresholdedRelu"), _TABLE),
        **dict.fromkeys(("HardSigmoid", "Sigmoid", "Tanh"), Demand(output=Output.FIXED, table=True)),
        **dict.fromkeys(("LpNormalization", "Softmax"), Demand(output=Output.FIXED)),
        # TFLite fixes log-softmax to [−16, 0], which saturates; its results have no lower end.
        "LogSoftmax": _FIRST,
        **dict.fromkeys(("ReduceMax", "ReduceMin", "Resize", "ReverseSequence", "TopK"), _MOVES),
        **dict.fromkeys(("Max", "Min"), Demand(data=None, one_grid=True)),
        "Where": Demand(data=(1, 2), one_grid=True),
    }
)
"""Kinds that are not here, and move nothing (``graph.operators``), stay float."""


def demand_of(node: ir.Node) -> Demand | None:
    """What the operator of ``node`` demands; None where it has no integer form and stays float.

    Operators that move values (``graph.operators``) share the grid of what they move.
    """
    facts = operator_facts(node)
    if facts.moved == (0,):
        return _MOVES
    if node.domain == "":
        return _DEMANDS.get(node.op_type)
    outside = outside_operator(node)
    return Demand(outside.data, table=outside.pointwise) if outside is not None and outside.data else None


def fixed_interval(operator: str, bits: int) -> Interval:
    """The range of a FIXED operator on a grid of ``bits`` bits."""
    match operator:
        case "Tanh" | "LpNormalization":
            low, high = -1.0, 1 - 2.0 ** (1 - bits)
        case _:
            low, high = 0.0, 1 - 2.0**-bits
    return Interval(np.asarray(low), np.asarray(high))


def channel_axis(node: ir.Node, weight_rank: int) -> int | None:
    """The axis of the weight along which each element meets its own accumulators, if there is one."""
    if node.op_type == "ConvTranspose" and int_attribute(node, "group", 1) != 1:
        return None  # one slice of the weight serves a channel of every group
    return weight_channel_axis(node, weight_rank)


def float_reason(node: ir.Node) -> str | None:
    """Why this very node has no integer form though its kind may have one; None when it has."""
    if node.domain and demand_of(node):
        return None
    if node.domain:
        return f"operators of the domain '{node.domain}' have no integer form here"
    match node.op_type:
        case "Gemm":
            unit = float_attribute(node, "alpha", 1.0) == float_attribute(node, "beta", 1.0) == 1.0
            return None if unit else "Gemm with alpha or beta other than 1 before computed operands"
        case "Pad":
            filler = constant_value(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else 0.0
            plain = filler is not None and not np.any(filler)
            return None if _mode(node, "constant") != "constant" or plain else "Pad with a value other than 0"
        case "Resize":
            return _why_resize_is_float(node)
        case operator:
            return None if demand_of(node) else f"no integer form of {operator} is known"


def _why_resize_is_float(node: ir.Node) -> str | None:
    """Cubic curves leave the range of what they pass through, and a crop may be filled with any number."""
    if _mode(node, "nearest") == "cubic":
        return "Resize by cubic curves, which leave the range of their input"
    crop = node.attributes.get("coordinate_transformation_mode")
    if crop is None or crop.as_string() != "tf_crop_and_resize":
        return None
    return "Resize that fills with a value other than 0" if float_attribute(node, "extrapolation_value", 0.0) else None


def _mode(node: ir.Node, default: str) -> str:
    attribute = node.attributes.get("mode")
    return default if attribute is None else attribute.as_string()
