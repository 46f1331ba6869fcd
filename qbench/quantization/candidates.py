"""Which units can be quantized under a schema on a backend, and a reason for each that cannot."""

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx_ir as ir

from qbench.backends import backends_that
from qbench.calibration import Unit, units_of
from qbench.graph import (
    OPERATORS,
    QDQ_OPSET,
    Capabilities,
    Form,
    Kind,
    OpSpec,
    Output,
    constant_value,
    int_attribute,
    is_constant,
    is_pinned,
    op_spec,
    weight_channel_axis,
    weight_summed_axis,
)
from qbench.numerics import Interval, QParams, QParamsKind, clip_codes
from qbench.quantization.internal_qparams import Ranges, inner_problem
from qbench.quantization.schema import GraphOutputs, Schema, SlotOptions
from qbench.quantization.spec import (
    Spec,
    activation_dtype,
    beyond_activations,
    beyond_weights,
    clips_codes,
)


def demand_of(node: ir.Node) -> OpSpec | None:
    """The row of the operator of ``node``; None where it has no integer form and stays float."""
    spec = op_spec(node)
    return spec if spec.data is None or spec.data else None


def fixed_interval(operator: str, bits: int) -> Interval:
    """The range of a FIXED operator in ``bits`` bits, whose asymmetric scale is a power of two.

    With 1/(2ᵇ−1) an engine that multiplies by a truncated reciprocal never reaches the highest
    quantized value.
    """
    low, high = (
        (-1.0, 1 - 2.0 ** (1 - bits)) if OPERATORS[operator].signed else (0.0, 1 - 2.0**-bits)
    )
    return Interval(np.asarray(low), np.asarray(high))


def fixed_qparams(operator: str, kind: QParamsKind) -> QParams:
    """The qparams of the result of a FIXED operator; those of floats reach 1."""
    if kind.qtype.is_float:
        return kind.choose(-1.0, 1.0)
    interval = fixed_interval(operator, kind.qtype.bits)
    return kind.choose(interval.low, interval.high)


def channel_axis(node: ir.Node, weight_rank: int) -> int | None:
    """The axis of the weight along which each element meets its own accumulators, if there is
    one.
    """
    if node.op_type == "ConvTranspose" and int_attribute(node, "group", 1) != 1:
        return None  # one slice of the weight serves a channel of every group
    return weight_channel_axis(node, weight_rank)


def float_reason(node: ir.Node) -> str | None:
    """Why this very node has no integer form though its kind may have one; None when it has."""
    spec = op_spec(node)
    if node.domain:
        return (
            None
            if demand_of(node)
            else f"operators of the domain '{node.domain}' have no integer form here"
        )
    if spec.why_float is not None:
        return spec.why_float(node)
    return None if demand_of(node) else f"no integer form of {node.op_type} is known"


# Reasons for float are of two kinds: the schema keeps the unit in float, or something that it
# requests is refused. Refusals are always reported.

_UNKNOWN = OpSpec(data=(0,))
"""In the place of an operator without an integer form, until its reason is found."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A unit, the row of its operator, and what the schema requests for its slots.

    ``float_input``: why its operand is float although the schema asks for integers.
    """

    unit: Unit
    operator: OpSpec
    options: SlotOptions
    float_input: str = ""
    quantizes_graph_outputs: bool = False

    @property
    def weight_index(self) -> int | None:
        """The input of the head that is its weight, constant or not."""
        return op_spec(self.unit.head).weight

    @property
    def data_inputs(self) -> tuple[tuple[int, ir.Value], ...]:
        """Inputs of the head that carry computed or fed float data, with their index."""
        return tuple(
            (i, v) for i, v in _operands(self.unit.head, self.operator) if not is_constant(v)
        )

    @property
    def constant_inputs(self) -> tuple[tuple[int, ir.Value], ...]:
        """Constants among the operands of the head, with their index."""
        return tuple((i, v) for i, v in _operands(self.unit.head, self.operator) if is_constant(v))

    @property
    def outputs(self) -> tuple[ir.Value, ...]:
        """The float results."""
        return tuple(v for v in self.unit.last.outputs if v.dtype == ir.DataType.FLOAT)

    @property
    def input(self) -> Spec | None:
        """What is requested for its data inputs, where parameters are known beforehand."""
        return _beforehand(self.options.input)

    @property
    def output(self) -> Spec | None:
        """What is requested for its results, where parameters are known beforehand."""
        return _beforehand(self.options.output)

    @property
    def dynamic(self) -> bool:
        """Whether parameters of its data are computed at run time."""
        return self.options.input is not None and self.options.input.dynamic

    @property
    def moves(self) -> bool:
        """Whether its result has the parameters of what it moves."""
        return self.operator.output is Output.SHARED


@dataclass(frozen=True, slots=True)
class Float:
    """A unit that stays float; ``refused`` when the schema requested more."""

    reason: str
    refused: bool


def candidates_of(
    requests: Iterable[tuple[Unit, SlotOptions]],
    ranges: Ranges,
    capabilities: Capabilities,
    masked: Mapping[str, str],
    outputs: GraphOutputs = GraphOutputs.FLOAT,
) -> tuple[list[Candidate], dict[str, Float]]:
    """The units of ``requests`` that can be quantized, in graph order, and why others cannot.

    ``masked``: values that hold an attention mask, and how that shows. ``outputs``: what happens to
        graph outputs.
    """
    candidates, floats = [], {}
    for unit, options in requests:
        leaves = outputs is GraphOutputs.QUANTIZED or (
            outputs is GraphOutputs.AUTO and unit.head.op_type in capabilities.requantized_products
        )
        candidate = Candidate(
            unit, demand_of(unit.head) or _UNKNOWN, options, quantizes_graph_outputs=leaves
        )
        candidate = _unmasked(candidate, masked)
        found = (
            _kept(candidate)
            or _masked(candidate, masked)
            or _refused(candidate, ranges, capabilities)
        )
        if found is None:
            candidates.append(candidate)
        else:
            floats[unit.name] = found
    return candidates, floats


def requested_units(model: ir.Model, schema: Schema) -> list[tuple[Unit, SlotOptions]]:
    """The units of a canonical ``model`` (with shapes) and what ``schema`` requests for each.

    Units without a float result, such as arithmetic on shapes, are left out.
    """
    units = [
        u
        for u in units_of(model.graph)
        if any(v.dtype == ir.DataType.FLOAT for v in u.last.outputs)
    ]
    return list(
        zip(units, schema.options_of([(u.head.op_type, u.name) for u in units]), strict=True)
    )


def is_recurrent(node: ir.Node) -> bool:
    """Whether ``node`` is a whole recurrence, whose inside no Q/DQ pair reaches."""
    return op_spec(node).kind is Kind.RECURRENCE


def _beforehand(spec: Spec | None) -> Spec | None:
    return None if spec is None or spec.dynamic else spec


def _operands(node: ir.Node, operator: OpSpec) -> list[tuple[int, ir.Value]]:
    bias = op_spec(node).bias
    found = [(i, value) for i, value in enumerate(node.inputs) if value is not None and i != bias]
    return (
        found if operator.data is None else [(i, value) for i, value in found if i in operator.data]
    )


def _masked(candidate: Candidate, masked: Mapping[str, str]) -> Float | None:
    """Why a unit that makes a value with an attention mask stays float."""
    spec = candidate.output
    results = [] if spec is None or spec.fixed is not None else candidate.outputs
    reason = next(
        (masked[v.name or ""] for v in results if v.name in masked and not is_pinned(v)), None
    )
    return None if reason is None else Float(reason, refused=True)


def _unmasked(candidate: Candidate, masked: Mapping[str, str]) -> Candidate:
    """``candidate``, which takes its operands in float where one of them holds an attention
    mask.
    """
    spec = candidate.input
    if spec is None or spec.fixed is not None or candidate.weight_index is not None:
        return candidate
    operands = [value for _, value in candidate.data_inputs if not is_pinned(value)]
    reason = next((masked[value.name or ""] for value in operands if value.name in masked), "")
    return (
        replace(candidate, options=replace(candidate.options, input=None), float_input=reason)
        if reason
        else candidate
    )


def _kept(candidate: Candidate) -> Float | None:
    """Why the unit stays float where the schema requests nothing for it."""
    options, head = candidate.options, candidate.unit.head
    if options.silent:
        words = (
            "the schema keeps it in float" if options.rules else "no rule of the schema matches it"
        )
        return Float(options.reason or words, refused=False)
    if candidate.input is not None or candidate.output is not None:
        return None
    if candidate.dynamic and candidate.weight_index is None and not is_recurrent(head):
        return Float(
            "the schema computes parameters at run time, for products with constant weights",
            refused=False,
        )
    if not candidate.dynamic and candidate.weight_index is None and not is_recurrent(head):
        return Float("it has no weight, and the schema asks for nothing else", refused=False)
    return None


def _refused(candidate: Candidate, ranges: Ranges, capabilities: Capabilities) -> Float | None:
    """Why what the schema requests is impossible, where it is."""
    problem = (
        _no_form(candidate)
        or _missing(candidate, ranges)
        or _beyond(candidate, capabilities)
        or inner_problem(candidate.unit, candidate.options, ranges)
    )
    return None if problem is None else Float(problem, refused=True)


def _no_form(candidate: Candidate) -> str | None:
    head = candidate.unit.head
    if not is_recurrent(head):
        return float_reason(head)
    if candidate.options.input is not None or candidate.options.output is not None:
        return (
            f"{head.op_type} keeps its products inside, where no Q/DQ pair reaches; its weights "
            "alone can be integers"
        )
    return None


def _missing(candidate: Candidate, ranges: Ranges) -> str | None:
    """What this unit needs and the profile or the graph lacks."""
    if not candidate.data_inputs:
        return "it reads constants only"
    if any(
        value.dtype != ir.DataType.FLOAT
        for _, value in (*candidate.data_inputs, *candidate.constant_inputs)
    ):
        return "an operand is no float32 tensor"
    if candidate.dynamic and not any(
        i == candidate.weight_index for i, _ in candidate.constant_inputs
    ):
        return (
            "parameters at run time are for products with constant weights, and its weight is "
            "computed"
        )
    inputs = [v for _, v in candidate.data_inputs] if _calibrated(candidate.input) else []
    outputs = candidate.outputs if _calibrated(candidate.output) and not candidate.moves else ()
    for value in (*inputs, *outputs):
        if is_pinned(value):
            continue  # the model has qparams for it
        if (problem := ranges.problem(value.name or "")) is not None:
            return problem
    return None


def _calibrated(spec: Spec | None) -> bool:
    return spec is not None and spec.fixed is None


def _beyond(candidate: Candidate, capabilities: Capabilities) -> str | None:
    """What of the requested options the backend cannot do."""
    if not capabilities.forms - {Form.FLOAT}:
        return "the backend runs float graphs only"
    if capabilities.max_opset < QDQ_OPSET:
        return f"the backend ends at opset {capabilities.max_opset}, QDQ is written at {QDQ_OPSET}"
    options, head = candidate.options, candidate.unit.head
    if candidate.operator.table and not capabilities.tables:
        return f"the backend has no tables, hence computes {head.op_type} in float"
    for spec in dict.fromkeys((options.input, candidate.output)):
        if spec is None:
            continue
        check = partial(beyond_activations, spec, moved=candidate.moves)
        if (problem := _beyond_spec(spec, check, capabilities)) is not None:
            return problem
    if options.weight is None or not (is_recurrent(head) or _has_weight(candidate)):
        return None
    return _beyond_spec(options.weight, partial(_beyond_weights, candidate), capabilities)


def _beyond_weights(candidate: Candidate, capabilities: Capabilities) -> str | None:
    spec = candidate.options.weight
    assert spec is not None
    return beyond_weights(spec, capabilities) or _short_block(candidate, spec, capabilities)


def _short_block(candidate: Candidate, spec: Spec, capabilities: Capabilities) -> str | None:
    """Why the backend does not take the blocks of a weight whose rows they do not divide."""
    if capabilities.short_blocks or spec.block_size is None:
        return None
    head = candidate.unit.head
    indices = (1, 2) if is_recurrent(head) else (candidate.weight_index,)
    for index, value in candidate.constant_inputs:
        if index not in indices or is_pinned(value) or value.shape is None:
            continue
        axis = weight_summed_axis(head, len(value.shape))
        length = spec.block_size if axis is None else value.shape[axis]
        if isinstance(length, int) and length % spec.block_size:
            return (
                f"the backend has no weights whose rows blocks of {spec.block_size} do not divide "
                f"(axis {axis} of '{value.name}' has length {length})"
            )
    return None


def _beyond_spec(
    spec: Spec, check: Callable[[Capabilities], str | None], capabilities: Capabilities
) -> str | None:
    """What ``check`` finds that a backend with ``capabilities`` cannot do; for floats, also the
    backends for which it finds nothing.
    """
    problem = check(capabilities)
    if problem is None or not spec.kind.qtype.is_float:
        return problem
    others = backends_that(lambda theirs: check(theirs) is None)
    if not others:
        return problem
    return f"{problem}; {' and '.join(others)} {'have' if len(others) > 1 else 'has'} them"


def _has_weight(candidate: Candidate) -> bool:
    return any(i == candidate.weight_index for i, _ in candidate.constant_inputs)


# How the Relu or Clip of a unit is written when its result is quantized.
#
# A clip before a Q equals a clip of quantized values behind it (``numerics.affine``), so three
# forms give the same numbers. Where the quantizer (of every channel) saturates exactly where the
# clip does, the clip is removed. Else the quantized values are clipped, behind the Q, so that an
# engine sees the operator directly before its Q. Where ONNX has no Clip for their type, or every
# channel has its own qparams, the clip stays in float.


class ClipForm(enum.Enum):
    """Where the clip of a unit is done."""

    ABSORBED = "absorbed"
    INTEGER = "integer"
    FLOAT = "float"


def clip_form(clip: ir.Node, qparams: QParams) -> ClipForm:
    """How the Relu or Clip ``clip`` is written when its result is quantized by ``qparams``."""
    if clip.outputs[0].is_graph_output() or qparams.qtype.is_float:
        return ClipForm.FLOAT
    parts = [qparams] if qparams.axis is None else _one_by_one(qparams)
    if all(codes_of(clip, one) == (one.qmin, one.qmax) for one in parts):
        return ClipForm.ABSORBED
    as_integers = qparams.axis is None and clips_codes(activation_dtype(qparams.qtype))
    return ClipForm.INTEGER if as_integers else ClipForm.FLOAT


def _one_by_one(qparams: QParams) -> list[QParams]:
    """The qparams of single channels."""
    pairs = zip(qparams.scale, qparams.zero_point, strict=True)
    return [QParams(s, z, qparams.qtype, narrow_range=qparams.narrow_range) for s, z in pairs]


def codes_of(clip: ir.Node, qparams: QParams) -> tuple[int, int]:
    """The quantized values that ``clip`` (with constant ends) clips to, under qparams per
    tensor.
    """
    if clip.op_type == "Relu":
        return clip_codes(0.0, np.inf, qparams)
    ends = [constant_value(clip.inputs[i]) if i < len(clip.inputs) else None for i in (1, 2)]
    low, high = (
        default if end is None else float(end)
        for end, default in zip(ends, (-np.inf, np.inf), strict=True)
    )
    return clip_codes(low, high, qparams)
