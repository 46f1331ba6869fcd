"""What the model itself fixed before anything is planned: pinned values and constants, as decisions that stand.

a value      Given, for whoever reads it; units around it live on that grid or stay float
a weight     Given: quantizing it again gives the integers that were stored
a bias       Given where its grid is that of the planned product; else the product's, on which it is rounded again,
because engines add a bias on no other grid
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from qbench.calibration import Unit, units_of
from qbench.graph import Pin, PinKind, is_constant, node_key, operator_facts, pin_of, values_by_name
from qbench.numerics import QParams
from qbench.quantization.decision import Decision, Derived, Dynamic, Given, KeptFloat, qparams_of
from qbench.quantization.slot import Role, Slot

_SAME_SCALE = 1e-6
"""Relative: two tools that multiply two float32 scales agree so far."""


def decision_of(pin: Pin) -> Decision:
    """What ``pin`` says, as a decision."""
    if pin.qparams is not None:
        return Given(pin.qparams, pin.source)
    if pin.kind is PinKind.DYNAMIC and pin.qtype is not None:
        return Dynamic(pin.qtype)
    return KeptFloat(pin.source)


def given_of(value: ir.Value) -> Given | None:
    """The grid that ``value`` came with, if it did."""
    pin = pin_of(value)
    return None if pin is None or pin.qparams is None else Given(pin.qparams, pin.source)


def given_values(model: ir.Model) -> dict[str, Decision]:
    """Name of a computed or fed value → what the model fixed about it."""
    pins = ((name, value, pin_of(value)) for name, value in values_by_name(model).items())
    return {name: decision_of(pin) for name, value, pin in pins if pin is not None and not is_constant(value)}


def given_bias(given: Given, product: QParams | str, sources: tuple[str, ...]) -> Decision:
    """A bias that came with a grid, added to products on the grid ``product``, or to real ones (then the reason)."""
    if isinstance(product, str) or _same_grid(given.qparams, product):
        return given
    return Derived(product, sources, f"it came as {given.qparams.qtype} on another grid, by {given.source}")


def pinned_slots(unit: Unit) -> dict[Slot, Decision]:
    """Slot → decision for every value and constant of ``unit`` that came with a grid."""
    found: dict[Slot, Decision] = {}
    bias = unit.bias_operand
    for index, value in enumerate(unit.head.inputs):
        if value is not None and (bias is None or (unit.head, index) != bias[:2]):
            role = Role.WEIGHT if is_constant(value) else Role.INPUT
            found.update(_slot(unit.name, role, index, value))
    if bias is not None:
        node, index, value = bias
        found.update(_slot(node_key(node), Role.BIAS if is_constant(value) else Role.INPUT, index, value))
    for index, value in enumerate(unit.last.outputs):
        found.update(_slot(unit.name, Role.OUTPUT, index, value))
    return found


def float_operand(unit: Unit, slots: Mapping[Slot, Decision]) -> str | None:
    """Which operand of the product of ``unit`` is on no grid by ``slots``: data or weight; None where both are."""
    weight = operator_facts(unit.head).weight
    operands = {slot.index: decision for slot, decision in slots.items() if slot.role in (Role.INPUT, Role.WEIGHT)}
    for index, word in ((0, "data"), (1 if weight is None else weight, "weight")):
        decision = operands.get(index)
        if decision is None or (qparams_of(decision) is None and not isinstance(decision, Dynamic)):
            return word
    return None


def multiplies_integers(unit: Unit, slots: Mapping[Slot, Decision]) -> bool:
    """Whether ``unit`` is a product both of whose operands are on a grid by ``slots``."""
    return operator_facts(unit.head).weight is not None and float_operand(unit, slots) is None


def kept_slots(model: ir.Model, decided: Mapping[Slot, Decision]) -> tuple[dict[Slot, Decision], frozenset[str]]:
    """What the model fixed and ``decided`` has not, and the units whose products are in integers by that.

    Units that the schema or the backend leaves in float keep the grids they came with all the same.
    """
    kept: dict[Slot, Decision] = {}
    products = set()
    for unit in units_of(model.graph):
        slots = pinned_slots(unit)
        kept.update({slot: decision for slot, decision in slots.items() if slot not in decided})
        if multiplies_integers(unit, slots):
            products.add(unit.name)
    return kept, frozenset(products)


def _slot(node: str, role: Role, index: int, value: ir.Value) -> dict[Slot, Decision]:
    pin = pin_of(value)
    if pin is None or (role is Role.OUTPUT and pin.qparams is None):
        return {}
    return {Slot(node, role, index, value.name or ""): decision_of(pin)}


def _same_grid(one: QParams, other: QParams) -> bool:
    sizes = {one.scale.size, other.scale.size} - {1}
    if one.qtype != other.qtype or len(sizes) > 1 or one.zero_point.any() or other.zero_point.any():
        return False
    mine, theirs = np.broadcast_arrays(one.scale, other.scale)
    return bool(np.allclose(mine, theirs, rtol=_SAME_SCALE, atol=0.0))
