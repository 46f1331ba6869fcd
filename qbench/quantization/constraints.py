"""What operators demand of their slots, as a table: inputs that carry data, their weight, whose grid the output has.

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

from qbench.graph import constant_value
from qbench.numerics import Interval


class Output(enum.Enum):
    """Whose parameters an output has."""

    OWN = "own"
    SHARED = "shared"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The demands of one kind of operator.

    Args:
        data: indices of inputs that carry data; None: all of them.
        weight: index of the input that, when constant, is the weight.
        bias: index of the input that is added in the accumulator.
        output: whose parameters the outputs have.
    """

    data: tuple[int, ...] | None = (0,)
    weight: int | None = None
    bias: int | None = None
    output: Output = Output.OWN


_MOVES = Demand(output=Output.SHARED)
_FIXED = Demand(output=Output.FIXED)
_ALL = Demand(data=None)
_ALONE = Demand()

DEMANDS: Mapping[str, Demand] = MappingProxyType(
    {
        "Conv": Demand(data=(0, 1), weight=1, bias=2),
        "ConvTranspose": Demand(data=(0, 1), weight=1, bias=2),
        "Gemm": Demand(data=(0, 1), weight=1, bias=2),
        "MatMul": Demand(data=(0, 1), weight=1),
        "Add": _ALL,
        "Sub": _ALL,
        "Mul": _ALL,
        "Concat": _ALL,
        "Relu": _ALONE,
        "Clip": _ALONE,
        "LeakyRelu": _ALONE,
        "AveragePool": _ALONE,
        "GlobalAveragePool": _ALONE,
        "ReduceMean": _ALONE,
        "Sigmoid": _FIXED,
        "Softmax": _FIXED,
        "Tanh": _FIXED,
        "DepthToSpace": _MOVES,
        "Expand": _MOVES,
        "Flatten": _MOVES,
        "Gather": _MOVES,
        "GlobalMaxPool": _MOVES,
        "Identity": _MOVES,
        "MaxPool": _MOVES,
        "Pad": _MOVES,
        "ReduceMax": _MOVES,
        "ReduceMin": _MOVES,
        "Reshape": _MOVES,
        "Slice": _MOVES,
        "SpaceToDepth": _MOVES,
        "Split": _MOVES,
        "Squeeze": _MOVES,
        "Transpose": _MOVES,
        "Unsqueeze": _MOVES,
    }
)
"""Kinds of the default ONNX domain with an integer form; the others stay float."""


def fixed_interval(operator: str, bits: int) -> Interval:
    """The range of a FIXED operator on a grid of ``bits`` bits."""
    low, high = (-1.0, 1 - 2.0 ** (1 - bits)) if operator == "Tanh" else (0.0, 1 - 2.0**-bits)
    return Interval(np.asarray(low), np.asarray(high))


def channel_axis(node: ir.Node, weight_rank: int) -> int | None:
    """The axis of a weight along which each element meets its own accumulator (output channels), if there is one."""
    if weight_rank < 2:
        return None
    match node.op_type:
        case "Conv":
            return 0
        case "ConvTranspose":
            return 1 if _int(node, "group", 1) == 1 else None
        case "Gemm":
            return 0 if _int(node, "transB", 0) else 1
        case "MatMul":
            return weight_rank - 1
        case _:
            return None


def float_reason(node: ir.Node) -> str | None:
    """Why this very node has no integer form though its kind may have one; None when it has."""
    if node.domain:
        return f"operators of the domain '{node.domain}' have no integer form here"
    match node.op_type:
        case "Gemm":
            unit = all(_float(node, name) == 1.0 for name in ("alpha", "beta"))
            return None if unit else "Gemm with alpha or beta other than 1"
        case "Pad":
            filler = constant_value(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else 0.0
            plain = filler is not None and not np.any(filler)
            return None if _mode(node) != "constant" or plain else "Pad with a value other than 0"
        case operator:
            return None if operator in DEMANDS else f"no integer form of {operator} is known"


def _int(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def _float(node: ir.Node, name: str) -> float:
    attribute = node.attributes.get(name)
    return 1.0 if attribute is None else attribute.as_float()


def _mode(node: ir.Node) -> str:
    attribute = node.attributes.get("mode")
    return "constant" if attribute is None else attribute.as_string()
