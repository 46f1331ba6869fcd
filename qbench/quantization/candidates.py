"""Which units can be quantized under a schema on a backend, and a reason for each that cannot."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from qbench.calibration import Unit, units_of
from qbench.graph import (
    QDQ_OPSET,
    Capabilities,
    Form,
    constant_value,
    float_attribute,
    int_attribute,
    is_constant,
    is_pinned,
    operator_facts,
    outside_operator,
    weight_channel_axis,
)
from qbench.numerics import Interval, QParams, clip_levels
from qbench.quantization.internal_qparams import Ranges, inner_problem
from qbench.quantization.schema import Schema, SlotOptions
from qbench.quantization.spec import Spec, activation_dtype, beyond_activations, beyond_weights, clips_levels

# What the quantizer demands of operators, as a table: which inputs carry data, whose grid the output has.
#
# OWN     the output has a range of its own
# SHARED  the output holds elements of the (first) input, or lies between them, hence has its parameters
# FIXED   the output's range is the operator's, on every grid of b bits so that the asymmetric scale is a power of two:
#         softmax, sigmoid and hard sigmoid [0, 1 − 2⁻ᵇ], tanh and Lₚ normalization [−1, 1 − 2¹⁻ᵇ]
#         (with 1/(2ᵇ−1) an engine that multiplies by a truncated reciprocal never reaches the top level)
#
# ONE GRID  inputs and output hold elements of one another, hence are one group where their ranges are alike
#           (``value_grids``): the larger or smaller of two, a choice
# TABLE     a function of one value: an integer engine reads the result from a table, or cannot compute it
#
# Sources: the operators that ONNX Runtime's static quantizer takes, TFLite's int8 specification, Glow's quantized
# nodes.


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


# Which units can be quantized under a schema on a backend, and a reason for each that cannot.
#
# Reasons are of two kinds: the schema wants the unit in float, or something it asked for is refused; the second is
# never silent.

_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A unit, what its operator demands, and what the schema asks of its slots.

    ``float_input``: why its operand is float although the schema asks for integers.
    """

    unit: Unit
    demand: Demand
    wishes: SlotOptions
    float_input: str = ""

    @property
    def weight_index(self) -> int | None:
        """The input of the head that is its weight, constant or not."""
        return operator_facts(self.unit.head).weight

    @property
    def data_inputs(self) -> tuple[tuple[int, ir.Value], ...]:
        """Inputs of the head that carry computed or fed float data, with their index."""
        return tuple((i, v) for i, v in _operands(self.unit.head, self.demand) if not is_constant(v))

    @property
    def constant_inputs(self) -> tuple[tuple[int, ir.Value], ...]:
        """Constants among the operands of the head, with their index."""
        return tuple((i, v) for i, v in _operands(self.unit.head, self.demand) if is_constant(v))

    @property
    def outputs(self) -> tuple[ir.Value, ...]:
        """The float results."""
        return tuple(v for v in self.unit.last.outputs if v.dtype == ir.DataType.FLOAT)

    @property
    def input(self) -> Spec | None:
        """What is asked of its data inputs, where parameters are known beforehand."""
        return _beforehand(self.wishes.input)

    @property
    def output(self) -> Spec | None:
        """What is asked of its results, where parameters are known beforehand."""
        return _beforehand(self.wishes.output)

    @property
    def dynamic(self) -> bool:
        """Whether parameters of its data are computed at run time."""
        return self.wishes.input is not None and self.wishes.input.dynamic

    @property
    def moves(self) -> bool:
        """Whether its result has the parameters of what it moves."""
        return self.demand.output is Output.SHARED


@dataclass(frozen=True, slots=True)
class Float:
    """A unit that stays float; ``refused`` when the schema had asked for more."""

    reason: str
    refused: bool


def candidates_of(
    wished: Iterable[tuple[Unit, SlotOptions]], ranges: Ranges, capabilities: Capabilities, masked: Mapping[str, str]
) -> tuple[list[Candidate], dict[str, Float]]:
    """Those of ``wished`` units that can be quantized, in graph order, and why others are not.

    ``masked``: values that hold an attention mask, and how that shows.
    """
    candidates, floats = [], {}
    for unit, wish in wished:
        candidate = _unmasked(Candidate(unit, demand_of(unit.head) or Demand(), wish), masked)
        found = _kept(candidate) or _masked(candidate, masked) or _refused(candidate, ranges, capabilities)
        if found is None:
            candidates.append(candidate)
        else:
            floats[unit.name] = found
    return candidates, floats


def wished_units(model: ir.Model, schema: Schema) -> list[tuple[Unit, SlotOptions]]:
    """The units of a canonical ``model`` (with shapes) and what ``schema`` asks of each.

    Units without a float result, such as arithmetic on shapes, are left out.
    """
    units = [u for u in units_of(model.graph) if any(v.dtype == ir.DataType.FLOAT for v in u.last.outputs)]
    return list(zip(units, schema.wishes_of([(u.head.op_type, u.name) for u in units]), strict=True))


def is_recurrent(node: ir.Node) -> bool:
    """Whether ``node`` is a whole recurrence, whose inside no Q/DQ pair reaches."""
    return node.domain == "" and node.op_type in _RECURRENT


def _beforehand(spec: Spec | None) -> Spec | None:
    return None if spec is None or spec.dynamic else spec


def _operands(node: ir.Node, demand: Demand) -> list[tuple[int, ir.Value]]:
    bias = operator_facts(node).bias
    found = [(i, value) for i, value in enumerate(node.inputs) if value is not None and i != bias]
    return found if demand.data is None else [(i, value) for i, value in found if i in demand.data]


def _masked(candidate: Candidate, masked: Mapping[str, str]) -> Float | None:
    """Why a unit that makes a value with an attention mask stays float."""
    spec = candidate.output
    results = [] if spec is None or spec.fixed is not None else candidate.outputs
    reason = next((masked[v.name or ""] for v in results if v.name in masked and not is_pinned(v)), None)
    return None if reason is None else Float(reason, refused=True)


def _unmasked(candidate: Candidate, masked: Mapping[str, str]) -> Candidate:
    """``candidate``, which takes its operands in float where one of them holds an attention mask."""
    spec = candidate.input
    if spec is None or spec.fixed is not None or candidate.weight_index is not None:
        return candidate
    operands = [value for _, value in candidate.data_inputs if not is_pinned(value)]
    reason = next((masked[value.name or ""] for value in operands if value.name in masked), "")
    return replace(candidate, wishes=replace(candidate.wishes, input=None), float_input=reason) if reason else candidate


def _kept(candidate: Candidate) -> Float | None:
    """Why the schema asks for nothing here, where it does not."""
    wishes, head = candidate.wishes, candidate.unit.head
    if wishes.silent:
        words = "the schema keeps it in float" if wishes.rules else "no rule of the schema matches it"
        return Float(wishes.reason or words, refused=False)
    if candidate.input is not None or candidate.output is not None:
        return None
    if candidate.dynamic and candidate.weight_index is None and not is_recurrent(head):
        return Float("the schema computes parameters at run time, for products with constant weights", refused=False)
    if not candidate.dynamic and candidate.weight_index is None and not is_recurrent(head):
        return Float("it has no weight, and the schema asks for nothing else", refused=False)
    return None


def _refused(candidate: Candidate, ranges: Ranges, capabilities: Capabilities) -> Float | None:
    """Why what the schema asks for cannot be had, where it cannot."""
    problem = (
        _no_form(candidate)
        or _missing(candidate, ranges)
        or _beyond(candidate, capabilities)
        or inner_problem(candidate.unit, candidate.wishes, ranges)
    )
    return None if problem is None else Float(problem, refused=True)


def _no_form(candidate: Candidate) -> str | None:
    head = candidate.unit.head
    if not is_recurrent(head):
        return float_reason(head)
    if candidate.wishes.input is not None or candidate.wishes.output is not None:
        return (
            f"{head.op_type} keeps its products inside, where no Q/DQ pair reaches; its weights alone can be integers"
        )
    return None


def _missing(candidate: Candidate, ranges: Ranges) -> str | None:
    """What of the data this unit needs and the profile lacks."""
    if not candidate.data_inputs:
        return "it reads constants only"
    if any(value.dtype != ir.DataType.FLOAT for _, value in (*candidate.data_inputs, *candidate.constant_inputs)):
        return "an operand is no float32 tensor"
    if candidate.dynamic and not any(i == candidate.weight_index for i, _ in candidate.constant_inputs):
        return "parameters at run time are for products with constant weights, and its weight is computed"
    inputs = [v for _, v in candidate.data_inputs] if _calibrated(candidate.input) else []
    outputs = candidate.outputs if _calibrated(candidate.output) and not candidate.moves else ()
    for value in (*inputs, *outputs):
        if is_pinned(value):
            continue  # it came with its grid
        if (problem := ranges.problem(value.name or "")) is not None:
            return problem
    return None


def _calibrated(spec: Spec | None) -> bool:
    return spec is not None and spec.fixed is None


def _beyond(candidate: Candidate, capabilities: Capabilities) -> str | None:
    """What of the wishes the backend cannot do."""
    if not capabilities.forms - {Form.FLOAT}:
        return "the backend runs float graphs only"
    if capabilities.max_opset < QDQ_OPSET:
        return f"the backend ends at opset {capabilities.max_opset}, QDQ is written at {QDQ_OPSET}"
    wishes, head = candidate.wishes, candidate.unit.head
    if candidate.demand.table and not capabilities.tables:
        return f"the backend has no tables, hence computes {head.op_type} in float"
    for spec in dict.fromkeys((wishes.input, candidate.output)):
        if spec is not None and (problem := beyond_activations(spec, capabilities, moved=candidate.moves)):
            return problem
    if wishes.weight is None or not (is_recurrent(head) or _has_weight(candidate)):
        return None
    return beyond_weights(wishes.weight, capabilities)


def _has_weight(candidate: Candidate) -> bool:
    return any(i == candidate.weight_index for i, _ in candidate.constant_inputs)


# What becomes of the Relu or Clip that a unit carries when its result goes on a grid.
#
# A clip before a Q equals a clip of levels behind it (``numerics.grid``), so three ways of writing it give the same
# numbers: the grid (of every channel) saturates exactly where the clip does, and the clip goes; the levels are clipped,
# behind the Q, so that an engine sees the operator and its Q side by side; or, where ONNX has no Clip for such levels
# or every channel has its own, it stays in float.


class ClipForm(enum.Enum):
    """Where the clip of a unit is done."""

    ABSORBED = "absorbed"
    INTEGER = "integer"
    FLOAT = "float"


def clip_form(clip: ir.Node, qparams: QParams) -> ClipForm:
    """How the Relu or Clip ``clip`` is written when its result is on the grid ``qparams``."""
    if clip.outputs[0].is_graph_output():
        return ClipForm.FLOAT
    grids = [qparams] if qparams.axis is None else _one_by_one(qparams)
    if all(levels_of(clip, grid) == (grid.qmin, grid.qmax) for grid in grids):
        return ClipForm.ABSORBED
    as_integers = qparams.axis is None and clips_levels(activation_dtype(qparams.qtype))
    return ClipForm.INTEGER if as_integers else ClipForm.FLOAT


def _one_by_one(qparams: QParams) -> list[QParams]:
    """The grids of single channels."""
    pairs = zip(qparams.scale, qparams.zero_point, strict=True)
    return [QParams(s, z, qparams.qtype, narrow_range=qparams.narrow_range) for s, z in pairs]


def levels_of(clip: ir.Node, qparams: QParams) -> tuple[int, int]:
    """The levels that ``clip`` (with constant ends) clips to, on a grid per tensor."""
    if clip.op_type == "Relu":
        return clip_levels(0.0, np.inf, qparams)
    ends = [constant_value(clip.inputs[i]) if i < len(clip.inputs) else None for i in (1, 2)]
    low, high = (default if end is None else float(end) for end, default in zip(ends, (-np.inf, np.inf), strict=True))
    return clip_levels(low, high, qparams)
