"""What the quantizer demands of operators, as a table: which inputs carry data, whose grid the output has.

OWN     the output has a range of its own
SHARED  the output holds elements of the (first) input, hence has its parameters
FIXED   the output's range is the operator's: with b bits, softmax and sigmoid [0, 1 − 2⁻ᵇ], tanh [−1, 1 − 2¹⁻ᵇ],
        so that an asymmetric grid has the scales 2⁻ᵇ and 2¹⁻ᵇ exactly (with 1/(2ᵇ−1) an engine that multiplies by a
        truncated reciprocal never reaches the top level)
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, float_attribute, int_attribute, operator_facts, weight_channel_axis
from qbench.numerics import Interval


class Output(enum.Enum):
    """Whose parameters an output has."""

    OWN = "own"
    SHARED = "shared"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Demand:
    """What one kind of operator demands: ``all_data``, data in every input or in the first alone; whose output."""

    all_data: bool = False
    output: Output = Output.OWN


_ALL = Demand(all_data=True)
_FIRST = Demand()
_FIXED = Demand(output=Output.FIXED)
_MOVES = Demand(output=Output.SHARED)

_DEMANDS: Mapping[str, Demand] = MappingProxyType(
    {
        **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul", "Concat"), _ALL),
        **dict.fromkeys(("Relu", "Clip", "LeakyRelu", "AveragePool", "GlobalAveragePool", "ReduceMean"), _FIRST),
        **dict.fromkeys(("Sigmoid", "Softmax", "Tanh"), _FIXED),
        **dict.fromkeys(("ReduceMax", "ReduceMin"), _MOVES),
    }
)


def demand_of(node: ir.Node) -> Demand | None:
    """What the operator of ``node`` demands; None where it has no integer form and stays float.

    Operators that move values (``graph.operators``) share the grid of what they move.
    """
    facts = operator_facts(node)
    if facts.moved == (0,):
        return _MOVES
    return _DEMANDS.get(node.op_type) if node.domain == "" else None


def fixed_interval(operator: str, bits: int) -> Interval:
    """The range of a FIXED operator on a grid of ``bits`` bits."""
    low, high = (-1.0, 1 - 2.0 ** (1 - bits)) if operator == "Tanh" else (0.0, 1 - 2.0**-bits)
    return Interval(np.asarray(low), np.asarray(high))


def channel_axis(node: ir.Node, weight_rank: int) -> int | None:
    """The axis of the weight along which each element meets its own accumulators, if there is one."""
    if node.op_type == "ConvTranspose" and int_attribute(node, "group", 1) != 1:
        return None  # one slice of the weight serves a channel of every group
    return weight_channel_axis(node, weight_rank)


def float_reason(node: ir.Node) -> str | None:
    """Why this very node has no integer form though its kind may have one; None when it has."""
    if node.domain:
        return f"operators of the domain '{node.domain}' have no integer form here"
    match node.op_type:
        case "Gemm":
            unit = float_attribute(node, "alpha", 1.0) == float_attribute(node, "beta", 1.0) == 1.0
            return None if unit else "Gemm with alpha or beta other than 1"
        case "Pad":
            filler = constant_value(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else 0.0
            plain = filler is not None and not np.any(filler)
            return None if _mode(node) != "constant" or plain else "Pad with a value other than 0"
        case operator:
            return None if demand_of(node) else f"no integer form of {operator} is known"


def _mode(node: ir.Node) -> str:
    attribute = node.attributes.get("mode")
    return "constant" if attribute is None else attribute.as_string()
