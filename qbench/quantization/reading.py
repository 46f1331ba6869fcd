"""Plans out of models that are quantized already: QDQ or operator form, from any tool.

Passes lift what the model says to the values of a float graph (``graph.pinned``); here each becomes a decision "given".
Nothing is chosen, no profile is needed, and writing the plan into the same model gives the very integers it came with.
"""

from collections.abc import Mapping

import onnx_ir as ir

from qbench.calibration import Unit, units_of
from qbench.graph import Form, form_of, graph_digest, node_key, node_macs, pin_of
from qbench.passes import plannable
from qbench.quantization.candidates import Float
from qbench.quantization.clips import ClipForm, clip_form
from qbench.quantization.decision import Decision
from qbench.quantization.engine_operators import engine_slots
from qbench.quantization.pinned_grids import float_operand, pinned_slots
from qbench.quantization.plan import Plan
from qbench.quantization.slot import Slot

GIVEN = "given"
"""The schema of a plan that was read out of a model."""

_QUANTIZED = 0.5


def read_plan(model: ir.Model) -> Plan:
    """What the quantized ``model`` says about its slots, as a plan of its float graph; without a profile.

    Args:
        model: in QDQ or operator form; not touched. Of a float model the plan is empty.

    Raises:
        InputError: a Q or DQ that means nothing: a scale of zero, a DequantizeLinear of reals.
        UnsupportedError: the model cannot be brought to the opset that QDQ is written at.
    """
    lifted = plannable(model)
    macs = node_macs(lifted)
    decisions: dict[Slot, Decision] = {}
    clips: dict[str, ClipForm] = {}
    floats: dict[str, Float] = {}
    integer_mac_count = 0
    for unit in units_of(lifted.graph):
        slots = engine_slots(unit.head) or pinned_slots(unit)
        decisions.update(slots)
        clips.update(_clip(unit))
        reason = _float_reason(unit, slots) if unit.name in macs else None
        if reason:
            floats[unit.name] = Float(reason, refused=True)
        else:
            integer_mac_count += macs.get(unit.name, 0)
    return Plan(
        schema=GIVEN,
        canonical="default",
        graph=graph_digest(lifted),
        profile="",
        decisions=decisions,
        clips=clips,
        floats=floats,
        macs=sum(macs.values()),
        integer_mac_count=integer_mac_count,
    )


def is_quantized(model: ir.Model) -> bool:
    """Whether ``model`` is a quantized one: it holds integer operators, or its Q/DQ pairs stand around most products.

    A float model with a few pairs placed by hand is none, nor is one with integer weights and float activations.

    Raises:
        What ``read_plan`` raises.
    """
    form = form_of(model)
    return form in (Form.QOPERATOR, Form.INTEGER) or (form is Form.QDQ and read_plan(model).integer_macs > _QUANTIZED)


def _clip(unit: Unit) -> dict[str, ClipForm]:
    pin = pin_of(unit.output)
    if unit.clip is None or pin is None or pin.qparams is None:
        return {}
    return {node_key(unit.clip): clip_form(unit.clip, pin.qparams)}


def _float_reason(unit: Unit, slots: Mapping[Slot, Decision]) -> str | None:
    """Which operand of a product is float in the model; None when none is."""
    word = float_operand(unit, slots)
    return None if word is None else f"its {word} {'are' if word == 'data' else 'is'} float in the model"
