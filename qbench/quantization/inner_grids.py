"""Grids inside a unit: of the product before its bias, of the sum before its clip, and of a bias on the product's grid.

    correlation ──Q──┐
                     + ──Q── clip ──output──
    bias ────────Q───┘

Such values exist where the canonical passes split biases off. Without a wish a unit of such a graph is planned as a
fused one is: nothing between its operands and its result is rounded.
"""

from collections.abc import Mapping

import numpy as np

from qbench.calibration import Unit
from qbench.graph import constant_value, is_constant, node_key, operator_facts
from qbench.numerics import Interval, QParams, QType
from qbench.passes import is_product
from qbench.quantization.bias import INT32
from qbench.quantization.bias_spec import BiasKind, Finer
from qbench.quantization.decision import BY_SCHEMA, Decision, Derived, Given, KeptFloat, Shared, Static, qparams_of
from qbench.quantization.ranges_of_values import Ranges
from qbench.quantization.schema import Wishes
from qbench.quantization.slot import Role, Slot
from qbench.quantization.spec import Granularity, Spec

_WIDEST_CHECKED = 16
"""Biases of so many bits are stored in types that no engine fuses."""


def inner_problem(unit: Unit, wishes: Wishes, ranges: Ranges) -> str | None:
    """Why the grids that are asked for inside ``unit`` cannot be planned; None when they can, or none are asked for."""
    words = _asked(unit, wishes)
    if _mistaken(unit, wishes):
        return "ONNX Runtime takes a Gemm's int32 bias for one at the product's scale: use canonical = 'split_bias'"
    if operator_facts(unit.head).weight is None or not words:
        return None
    if not is_product(unit.head):
        return f"{words[0]}, and no value of this graph is that product alone: use canonical = 'split_bias'"
    if _shares(unit, wishes) and wishes.correlation is None:
        return "the bias is to share the correlation's grid, and the schema gives the correlation none"
    if _rules(unit, wishes) and wishes.correlation is not None:
        return "the correlation is to be on the bias's grid, and on one of its own"
    for name, spec in (("correlation", wishes.correlation), ("sum", wishes.sum)):
        if spec is not None and (spec.dynamic or spec.granularity is not Granularity.TENSOR):
            return f"the {name} has one grid a tensor, known beforehand, not {spec}"
    return _without_range(unit, wishes, ranges)


def _without_range(unit: Unit, wishes: Wishes, ranges: Ranges) -> str | None:
    """What of the statistics of inner values, or of the grids that are to cover them, cannot be had."""
    for value in (unit.correlation, unit.sum):
        if value is not None and (problem := ranges.problem(value.name or "")) is not None:
            return problem
    if unit.correlation is not None and wishes.correlation is not None and wishes.correlation.fixed is None:
        found = ranges.qparams((unit.correlation.name or "",), wishes.correlation, _bias_beside(unit, wishes))
        if isinstance(found, str):
            return found
    if unit.sum is not None and wishes.sum is not None and wishes.sum.fixed is None:
        found = ranges.qparams((unit.sum.name or "",), wishes.sum)
        if isinstance(found, str):
            return found
    return None


def _mistaken(unit: Unit, wishes: Wishes) -> bool:
    """Whether the unit is a Gemm whose own bias would stand in int32: QGemm multiplies it by s_x · s_w, unchecked."""
    own = wishes.bias.kind is BiasKind.OWN and QType.parse(wishes.bias.qtype).bits > _WIDEST_CHECKED
    return own and unit.head.op_type == "Gemm" and unit.bias is None and unit.bias_operand is not None


def plan_inner(unit: Unit, wishes: Wishes, decided: Mapping[Slot, Decision], ranges: Ranges) -> dict[Slot, Decision]:
    """Slot → decision for the correlation and the sum, where asked for, and for a bias that shares a grid.

    Args:
        unit: one without an ``inner_problem``.
        wishes: of the schema.
        decided: slots of the unit's constants.
        ranges: of the graph's values.
    """
    if operator_facts(unit.head).weight is None:
        return {}
    found: dict[Slot, Decision] = {}
    correlation = Slot(unit.name, Role.CORRELATION, 0, unit.head.outputs[0].name or "")
    if wishes.correlation is not None:
        found[correlation] = _correlation(unit, wishes, wishes.correlation, ranges)
    elif _rules(unit, wishes):
        found[correlation] = _ruled(unit, decided, ranges)
    if _shares(unit, wishes):
        found.update(_sharing(unit, correlation, found.get(correlation)))
    if wishes.sum is not None:
        last = unit.bias or unit.head
        found[Slot(node_key(last), Role.SUM, 0, last.outputs[0].name or "")] = _sum(unit, wishes.sum, found, ranges)
    return found


def _asked(unit: Unit, wishes: Wishes) -> list[str]:
    words = ["the schema gives the correlation a grid"] * (wishes.correlation is not None)
    words += ["the schema gives the sum a grid"] * (wishes.sum is not None)
    words += ["the schema adds the bias on the bias's grid"] * _rules(unit, wishes)
    return words + ["the schema adds the bias on the correlation's grid"] * _shares(unit, wishes)


def _rules(unit: Unit, wishes: Wishes) -> bool:
    """Whether the grid of the unit's bias is forced upon its correlation."""
    own = wishes.bias.kind is BiasKind.OWN and wishes.bias.finer is Finer.BIAS
    return own and unit.bias_operand is not None


def _shares(unit: Unit, wishes: Wishes) -> bool:
    """Whether the unit's bias, a constant, is to be on the grid of its correlation."""
    operand = unit.bias_operand
    return wishes.bias.kind is BiasKind.SHARED and operand is not None and is_constant(operand[2])


def _correlation(unit: Unit, wishes: Wishes, spec: Spec, ranges: Ranges) -> Decision:
    value = unit.correlation
    if value is None:
        return KeptFloat("no bias and no clip follow: the product is the result, which has a grid of its own")
    if spec.fixed is not None:
        return Given(spec.fixed, BY_SCHEMA)
    beside = _bias_beside(unit, wishes)
    return _static(ranges.qparams((value.name or "",), spec, beside), "for product and bias" if beside else "")


def _bias_beside(unit: Unit, wishes: Wishes) -> Interval | None:
    """What the grid of the correlation is to cover beside the product: a finite bias that shares it."""
    operand = unit.bias_operand
    bias = constant_value(operand[2]) if operand is not None and _shares(unit, wishes) else None
    if bias is None or not bias.size or not np.isfinite(bias).all():
        return None  # of one that is not finite ``plan_constants`` complains
    return Interval(bias.min(), bias.max())


def _ruled(unit: Unit, decided: Mapping[Slot, Decision], ranges: Ranges) -> Decision:
    """The grid of the bias, at the width of an accumulator."""
    slot, own = next(
        ((slot, qparams_of(decision)) for slot, decision in decided.items() if slot.role is Role.BIAS), (None, None)
    )
    operand, value = unit.bias_operand, unit.correlation
    if slot is None or own is None or operand is None or value is None:
        return KeptFloat("its bias has no grid to put it on")
    if not np.any(constant_value(operand[2])):
        return KeptFloat("its bias is zero, on any grid")
    seen = ranges.absmax(value.name or "")
    beyond = seen / float(own.scale) > INT32.qmax
    note = f"int32 ends at {INT32.qmax * float(own.scale):.4g}, the product at {seen:.4g}" if beyond else ""
    return Derived(QParams(own.scale, 0, INT32), (str(slot),), note)


def _sharing(unit: Unit, correlation: Slot, decision: Decision | None) -> dict[Slot, Decision]:
    operand = unit.bias_operand
    qparams = None if decision is None else qparams_of(decision)
    assert operand is not None
    assert qparams is not None
    node, index, value = operand
    return {Slot(node_key(node), Role.BIAS, index, value.name or ""): Shared(qparams, correlation.value)}


def _sum(unit: Unit, spec: Spec, found: Mapping[Slot, Decision], ranges: Ranges) -> Decision:
    value = unit.sum
    if value is None:
        return KeptFloat("no clip follows: the sum is the result, which has a grid of its own")
    if value is unit.correlation and any(qparams_of(decision) is not None for decision in found.values()):
        return KeptFloat("there is no bias: the sum is the correlation, which has a grid")
    if spec.fixed is not None:
        return Given(spec.fixed, BY_SCHEMA)
    return _static(ranges.qparams((value.name or "",), spec))


def _static(qparams: QParams | str, note: str = "") -> Static:
    """The decision for a grid that ``inner_problem`` found to be there."""
    assert not isinstance(qparams, str)
    return Static(qparams, note)
