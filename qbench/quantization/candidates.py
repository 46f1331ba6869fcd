"""Which units can be quantized under a schema on a backend, and a reason for each that cannot.

Reasons are of two kinds: the schema wants the unit in float, or something it asked for is refused; the second is never
silent.
"""

from dataclasses import dataclass

import onnx_ir as ir

from qbench.calibration import Profile, Unit, units_of
from qbench.graph import Capabilities, Form, is_constant, operator_facts
from qbench.quantization.constraints import Demand, demand_of, float_reason
from qbench.quantization.schema import Rule, Schema
from qbench.quantization.spec import Granularity, Spec

QDQ_OPSET = 21
"""The first opset whose QuantizeLinear has 16-bit, 4-bit and blocked forms, and that the onnx evaluator has."""

_ONNX_BITS = frozenset({4, 8, 16})


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A unit, what its operator demands, and the rule that the schema has for it."""

    unit: Unit
    demand: Demand
    rule: Rule

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


@dataclass(frozen=True, slots=True)
class Float:
    """A unit that stays float; ``refused`` when the schema had asked for more."""

    reason: str
    refused: bool


def candidates_of(
    model: ir.Model, profile: Profile, schema: Schema, capabilities: Capabilities
) -> tuple[list[Candidate], dict[str, Float]]:
    """The units of a canonical ``model`` (with shapes) that can be quantized, in graph order, and why others are not.

    Units without a float result, such as arithmetic on shapes, are in neither.
    """
    candidates, floats = [], {}
    for unit in units_of(model.graph):
        if not any(value.dtype == ir.DataType.FLOAT for value in unit.last.outputs):
            continue
        rule = schema.rule_for(unit.head.op_type, unit.name)
        if rule is None or (rule.activation is None and rule.weight is None):
            reason = (
                "no rule of the schema matches it" if rule is None else rule.reason or "the schema keeps it in float"
            )
            floats[unit.name] = Float(reason, refused=False)
            continue
        candidate = Candidate(unit, demand_of(unit.head) or Demand(), rule)
        problem = float_reason(unit.head) or _missing(candidate, profile) or _beyond(candidate, capabilities)
        if problem:
            floats[unit.name] = Float(problem, refused=True)
        else:
            candidates.append(candidate)
    return candidates, floats


def _operands(node: ir.Node, demand: Demand) -> list[tuple[int, ir.Value]]:
    bias = operator_facts(node).bias
    found = [(i, value) for i, value in enumerate(node.inputs) if value is not None and i != bias]
    return found if demand.all_data else found[:1]


def _missing(candidate: Candidate, profile: Profile) -> str | None:
    """What of the data this unit needs and the profile lacks."""
    if not candidate.data_inputs:
        return "it reads constants only"
    if any(value.dtype != ir.DataType.FLOAT for _, value in (*candidate.data_inputs, *candidate.constant_inputs)):
        return "an operand is no float32 tensor"
    if candidate.rule.activation is None:
        return None
    for value in (*(v for _, v in candidate.data_inputs), *candidate.outputs):
        statistics = profile.values.get(value.name or "")
        if statistics is None or not statistics.count:
            return f"the profile has no statistics of '{value.name}'"
    return None


def _beyond(candidate: Candidate, capabilities: Capabilities) -> str | None:
    """What of the rule the backend cannot do."""
    if not capabilities.forms - {Form.FLOAT}:
        return "the backend runs float graphs only"
    if capabilities.max_opset < QDQ_OPSET:
        return f"the backend ends at opset {capabilities.max_opset}, QDQ is written at {QDQ_OPSET}"
    activation, weight = candidate.rule.activation, candidate.rule.weight
    if activation is not None and (problem := _beyond_types(activation, capabilities.activation_qtypes, "activations")):
        return problem
    if activation is not None and activation.granularity is not Granularity.TENSOR:
        return "activations have one grid a tensor"
    if weight is None or not any(i == candidate.weight_index for i, _ in candidate.constant_inputs):
        return None
    if weight.granularity is Granularity.CHANNEL and not capabilities.weight_per_channel:
        return "the backend has no weights per channel"
    return _beyond_types(weight, capabilities.weight_qtypes, "weights")


def _beyond_types(spec: Spec, known: frozenset[str], what: str) -> str | None:
    if spec.qtype not in known:
        return f"the backend has no {spec.qtype} {what}"
    return None if spec.grid.bits in _ONNX_BITS else f"ONNX has no type of {spec.grid.bits} bits"
