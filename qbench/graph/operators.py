"""Facts of ONNX operators that hold everywhere: which input is what, which axis is a channel, what a result can be.

What one engine demands or a quantizer wants is not here. Sources: the operator definitions of ONNX opset 21.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import onnx_ir as ir

from qbench.graph.facts import OperatorFacts
from qbench.graph.outside_operators import outside_operator

_WEIGHTED = OperatorFacts(weight=1, bias=2)
_MOVES = OperatorFacts(moved=(0,), real=(0,))
_NOT_NEGATIVE = OperatorFacts(low=0.0)
_FRACTION = OperatorFacts(low=0.0, high=1.0)

OPERATORS: Mapping[str, OperatorFacts] = MappingProxyType(
    {
        "Conv": _WEIGHTED,
        "ConvTranspose": _WEIGHTED,
        "Gemm": _WEIGHTED,
        "MatMul": OperatorFacts(weight=1),
        **dict.fromkeys(
            (
                "DepthToSpace",
                "Expand",
                "Flatten",
                "Gather",
                "GatherElements",
                "GatherND",
                "Identity",
                "MaxPool",
                "Reshape",
                "Slice",
                "SpaceToDepth",
                "Split",
                "Squeeze",
                "Tile",
                "Transpose",
                "Unsqueeze",
                "GlobalMaxPool",
            ),
            _MOVES,
        ),
        "Pad": OperatorFacts(moved=(0,), real=(0, 2)),
        "Resize": OperatorFacts(real=(0,)),
        "Relu": _NOT_NEGATIVE,
        "Exp": _NOT_NEGATIVE,
        "Sqrt": _NOT_NEGATIVE,
        "Abs": _NOT_NEGATIVE,
        "Softplus": _NOT_NEGATIVE,
        "Sigmoid": _FRACTION,
        "HardSigmoid": _FRACTION,
        "Softmax": _FRACTION,
        "Tanh": OperatorFacts(low=-1.0, high=1.0),
        "Sin": OperatorFacts(low=-1.0, high=1.0),
        "Cos": OperatorFacts(low=-1.0, high=1.0),
        "Erf": OperatorFacts(low=-1.0, high=1.0),
    }
)
"""Operators of which anything is known; the rest have no weight, move nothing and are unbounded."""

POINTWISE = frozenset(
    {
        *("Abs", "Neg", "Sign", "Relu", "LeakyRelu", "PRelu", "ThresholdedRelu", "Clip", "Shrink"),
        *("Elu", "Selu", "Celu", "Gelu", "Mish", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh"),
        *("Add", "Sub", "Mul", "Div", "Pow", "Reciprocal", "Sqrt", "Exp", "Log", "Erf"),
        *("Floor", "Ceil", "Round", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan"),
        *("Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
    }
)
"""Operators that treat every element alike and read no other: functions of one value, or of one of each operand."""

_UNKNOWN = OperatorFacts()


def operator_facts(node: ir.Node) -> OperatorFacts:
    """What is known of the operator of ``node``; of one outside the default domain, what an extension says."""
    if node.domain == "":
        return OPERATORS.get(node.op_type, _UNKNOWN)
    outside = outside_operator(node)
    return _UNKNOWN if outside is None else outside.facts


def is_pointwise(node: ir.Node) -> bool:
    """Whether ``node`` treats every element alike and reads no other."""
    if node.domain == "":
        return node.op_type in POINTWISE
    outside = outside_operator(node)
    return outside is not None and outside.pointwise


def weight_channel_axis(node: ir.Node, rank: int) -> int | None:
    """The axis of the weight of ``node`` that runs over output channels.

    Conv 0; ConvTranspose 1 (channels within one group); Gemm 0 when transB, else 1; MatMul the last of ``rank``
    (none for a vector); LSTM, GRU and RNN 1, of W and R alike: one gate of one unit, in every direction.
    """
    match node.op_type if node.domain == "" else "":
        case "Conv":
            return 0
        case "ConvTranspose":
            return 1
        case "Gemm":
            return 0 if int_attribute(node, "transB", 0) else 1
        case "MatMul":
            return rank - 1 if rank > 1 else None
        case "LSTM" | "GRU" | "RNN":
            return 1
        case _:
            return None


def weight_summed_axis(node: ir.Node, rank: int) -> int | None:
    """The axis of the weight of ``node`` that its products are summed over, before any axis of a window.

    Conv 1 (channels within one group); ConvTranspose 0; Gemm 1 when transB, else 0; MatMul the one before the last of
    ``rank`` (the only one of a vector); LSTM, GRU and RNN 2.
    """
    match node.op_type if node.domain == "" else "":
        case "Conv":
            return 1
        case "ConvTranspose":
            return 0
        case "Gemm":
            return 1 if int_attribute(node, "transB", 0) else 0
        case "MatMul":
            return max(rank - 2, 0) if rank else None
        case "LSTM" | "GRU" | "RNN":
            return 2
        case _:
            return None


def int_attribute(node: ir.Node, name: str, default: int) -> int:
    """The integer attribute ``name``, or ``default`` where it is left out."""
    attribute = node.attributes.get(name)
    return default if attribute is None else int(attribute.as_int())


def float_attribute(node: ir.Node, name: str, default: float) -> float:
    """The float attribute ``name``, or ``default`` where it is left out."""
    attribute = node.attributes.get(name)
    return default if attribute is None else float(attribute.as_float())


def word_attribute(node: ir.Node, name: str, default: str) -> str:
    """The string attribute ``name``, or ``default`` where it is left out."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()


def ints_attribute(node: ir.Node, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
    """The attribute ``name`` of several integers, or ``default`` where it is left out."""
    attribute = node.attributes.get(name)
    return tuple(default) if attribute is None else tuple(int(value) for value in attribute.as_ints())
