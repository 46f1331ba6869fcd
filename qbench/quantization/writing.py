"""Writing a plan into a graph as QuantizeLinear / DequantizeLinear; nothing is decided here.

    value ──Q(s, z)──[Clip of levels]──┬──DQ(s, z)── consumer        one Q a value, right behind its producer
                                       └──DQ(s, z)── consumer        one DQ a use, right before its consumer
    value ──DynamicQuantizeLinear──────┴──DQ── consumer              parameters that every batch makes anew
    integer constant ──DQ(s, z)── consumer

Graph inputs and outputs keep their names and float types; a value that is a graph output leaves the graph unquantized.
A Relu or Clip before a Q is absorbed, or moves behind it, as the plan says (``clips``). The convention, with what
becomes of grids that ONNX has no type for, is in ``graph.qdq``.
"""

import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph import AnyModel, as_model, extend_lineage, graph_digest, node_key, own_copy, values_by_name
from qbench.numerics import QType
from qbench.passes import plannable
from qbench.quantization.clips import ClipForm
from qbench.quantization.decision import Dynamic
from qbench.quantization.pair_writer import PairWriter
from qbench.quantization.plan import Plan
from qbench.quantization.plan_text import plan_digest
from qbench.quantization.slot import Role

MARK = "qbench.plan"
"""Metadata key of a model that a plan was written into: the plan's schema and digest."""


def quantize_model(model: AnyModel, plan: Plan) -> ir.Model:
    """The QDQ model of the float ``model`` (or of the file there; canonicalized here) under ``plan``, as a new model.

    Raises:
        InputError: the plan is of another graph.
        UnsupportedError: the plan holds a decision that ONNX has no operators for.
    """
    graph = as_model(model)
    return own_copy(graph) if is_written(graph, plan) else insert_qdq(plannable(graph, plan.canonical), plan)


def insert_qdq(model: ir.Model, plan: Plan) -> ir.Model:
    """A copy of the canonical ``model`` with ``plan`` written into it; a copy as it is when that was done before.

    Raises:
        InputError: the plan is of another graph.
        UnsupportedError: the plan holds a decision that ONNX has no operators for.
    """
    if is_written(model, plan):
        return own_copy(model)
    digest = graph_digest(model)
    if digest != plan.graph:
        raise InputError(
            f"Writing a plan into '{model.graph.name}'",
            found=f"a plan of another graph ({plan.graph[:12]}…)",
            expected=f"one of this graph ({digest[:12]}…)",
            remedy="Make a plan for this model.",
        )
    copy = own_copy(model)
    writer = PairWriter(copy)
    nodes = {node_key(node): node for node in copy.graph}
    values = values_by_name(copy)
    for slot, qparams in plan.constants.items():
        try:
            writer.constant(nodes[slot.node], slot.index, qparams)
        except (KeyError, IndexError, ValueError) as error:
            raise _misplaced(model, f"parameters for '{slot}' ({error})") from error
    if strange := plan.values.keys() - values.keys():
        raise _misplaced(model, f"a grid for the value '{min(strange)}'")
    for name, qparams in plan.values.items():
        maker = values[name].producer()
        clip = ClipForm.FLOAT if maker is None else plan.clips.get(node_key(maker), ClipForm.FLOAT)
        writer.value(values[name], qparams, clip)
    for (name, qtype), readers in _dynamic(plan).items():
        writer.dynamic(values[name], qtype, readers)
    writer.drop_unused()
    extend_lineage(copy, digest)
    copy.metadata_props[MARK] = _mark(plan)
    return copy


def _misplaced(model: ir.Model, found: str) -> InputError:
    return InputError(
        f"Writing a plan into '{model.graph.name}'",
        found=found,
        expected="grids for constants and values of the graph that the plan names",
        remedy="Make the plan again: its file was changed.",
    )


def is_written(model: ir.Model, plan: Plan) -> bool:
    """Whether ``plan`` was written into ``model``."""
    return model.metadata_props.get(MARK) == _mark(plan)


def _dynamic(plan: Plan) -> dict[tuple[str, QType], set[tuple[str, int]]]:
    """Value and grid → the operands, node and index, that read it on parameters made at run time."""
    found: dict[tuple[str, QType], set[tuple[str, int]]] = {}
    for slot, decision in plan.decisions.items():
        if isinstance(decision, Dynamic) and slot.role is Role.INPUT:
            found.setdefault((slot.value, decision.qtype), set()).add((slot.node, slot.index))
    return found


def _mark(plan: Plan) -> str:
    return f"{plan.schema} {plan_digest(plan)}"
