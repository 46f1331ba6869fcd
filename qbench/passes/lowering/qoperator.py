"""QDQ → the operator-oriented form: QLinearConv and its kin of ONNX and ONNX Runtime."""

import importlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from qbench.graph import (
    OPERATORS,
    code_dtype,
    constant_value,
    infer_shapes,
    int_attribute,
    is_mover,
    node_qparams,
    op_spec,
)
from qbench.passes.canonical.cleanup import RemoveDead
from qbench.passes.contract import LOSSY, QDQ, Effect, decline
from qbench.passes.editing import NameScope
from qbench.passes.lowering.elementwise import (
    has_own_operator,
    lower_counted,
    lower_mover,
    move_constant,
)
from qbench.passes.lowering.products import (
    is_dynamic_product,
    lower_dynamic_product,
)
from qbench.passes.lowering.site import ONNX_RUNTIME, Site, Target, is_quantize, operand_of
from qbench.passes.qdq.folding import fold_quantizer
from qbench.passes.run import rewrite

# Quantizers of one value with the same qparams are one quantizer to the interpreter, however many
# pairs a graph was written with.
#
# An operator counts in integers when one QuantizeLinear alone reads its result: a pair for every
# reader, as some tools write them, would leave it in floats. What reads the codes (a Clip for some
# readers) stays where it is.


def share_quantizers(graph: ir.Graph) -> bool:
    """Let the readers of a later quantizer read the first of its value and qparams; True when
    there were two.
    """
    first: dict[Hashable, ir.Node] = {}
    changed = False
    for node in list(graph):
        if node.domain or node.op_type != "QuantizeLinear" or node.outputs[0].is_graph_output():
            continue
        known = first.setdefault(_key(node), node)
        if known is node:
            continue
        node.outputs[0].replace_all_uses_with(known.outputs[0])
        graph.remove(node, safe=True)
        changed = True
    return changed


def _key(node: ir.Node) -> Hashable:
    qparams = tuple(_content(value) for value in node.inputs[1:])
    return (node.inputs[0], node.outputs[0].dtype, int_attribute(node, "axis", 1), *qparams)


def _content(value: ir.Value | None) -> Hashable:
    """What a parameter holds; itself where it is computed."""
    array = constant_value(value)
    return value if array is None else (array.dtype.str, array.shape, array.tobytes())


# Zero points that others leave out are written down: 0, of the type of the integers
# (``graph.code_dtype``).


def write_zero_points(site: Site) -> bool:
    """Give every Q and DQ its zero point, of the shape of its scale; True when one had none."""
    known: dict[tuple[ir.DataType, tuple[int, ...]], ir.Value] = {}
    changed = False
    for node in site.graph:
        if not is_quantize(node) or node.op_type == "DynamicQuantizeLinear" or not _has_none(node):
            continue
        dtype, shape = code_dtype(node), _shape(node.inputs[1])
        if shape is None or not dtype.is_integer():
            continue
        if (dtype, shape) not in known:
            known[dtype, shape] = site.constant(
                f"zero_{dtype.name.lower()}", np.zeros(shape, dtype.numpy())
            )
        node.resize_inputs(3)
        node.replace_input_with(2, known[dtype, shape])
        changed = True
    return changed


def _has_none(node: ir.Node) -> bool:
    return len(node.inputs) < 3 or node.inputs[2] is None


def _shape(scale: ir.Value | None) -> tuple[int, ...] | None:
    known = constant_value(scale)
    if known is not None:
        return known.shape
    sizes = (
        None
        if scale is None or scale.shape is None
        else [size for size in scale.shape if isinstance(size, int)]
    )
    return (
        None
        if sizes is None or scale is None or len(sizes) != len(scale.shape or ())
        else tuple(sizes)
    )


# QDQ → the operator-oriented form: QLinearConv and its kin of ONNX and ONNX Runtime, and movers on
# integers.
#
# What has no such operator, or none on the ``Target``, stays float between DequantizeLinear and
# QuantizeLinear, with its reason (``declined``). Clips of codes stay. On u8 data ONNX Runtime gives
# for this form, bit for bit, what it makes of the QDQ form itself.

Rule = Callable[[Site, ir.Node], str | None]
"""Lowers a node and returns None, or returns why it does not."""


def _rule_named(reference: str) -> Rule:
    """The rule that a row of ``graph.ops`` names."""
    module, _, name = reference.partition(":")
    found: Rule = getattr(importlib.import_module(f"qbench.passes.lowering.{module}"), name)
    return found


_RULES: Mapping[str, Rule] = MappingProxyType(
    {row.name: _rule_named(row.lowering) for row in OPERATORS.values() if row.lowering}
)


@dataclass(frozen=True, slots=True)
class LowerToQOperator:
    """Requires: the QDQ convention. Ensures: no operator that the target counts in integers is
    left in floats.

    Nodes that read integers through a DequantizeLinear and stay float carry the reason.

    Raises (from ``run``):
        InputError: an invalid Q or DQ: a scale that is not positive and finite, parameters that do
            not fit together.

    Args:
        target: the integer operators that may be brought in; others are declined, and their Q and
            DQ stay.
        name: of the pass.
    """

    target: Target = ONNX_RUNTIME
    name: str = "lower-to-qoperator"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Lower the main graph in order; True when anything changed, reasons included."""
        if any(value.dtype is None for node in model.graph for value in node.outputs):
            infer_shapes(model)  # files of other tools give fewer types of inner values
        for node in model.graph:
            if is_quantize(node) and node.op_type != "DynamicQuantizeLinear":
                node_qparams(node)  # an invalid Q or DQ is reported before anything is lowered
        quantized = _quantize_constants(model)
        site = Site(model, self.target)
        changed = write_zero_points(site) or quantized
        if self.target.any_qparams:  # ONNX Runtime has a way of its own with such graphs
            changed |= share_quantizers(site.graph)
        for node in list(model.graph):
            if node.graph is not None and move_constant(site, node):
                changed = True
                continue
            if (
                node.graph is None
                or not _reads_integers(node)
                or (is_quantize(node) and not site.target.any_qparams)
            ):
                continue
            reason = _lowered(site, node)
            changed |= True if reason is None else decline(node, reason)
        if changed:
            RemoveDead().run(model)
        return changed


def lower_to_qoperator(model: ir.Model, target: Target = ONNX_RUNTIME) -> ir.Model:
    """The operator-oriented form of a QDQ ``model``, as a new model; ``declined`` gives what
    was left, and why.

    Args:
        model: not changed.
        target: the integer operators that there are where it will run.

    Raises:
        InputError: an invalid Q or DQ.
    """
    return rewrite(model, (LowerToQOperator(target),))


def _quantize_constants(model: ir.Model) -> bool:
    """Quantize beforehand what a graph quantizes of constants, True when there was any; so it
    counts as if folded.

    By ONNX's rule under every arithmetic: the converter of a model quantizes its constants, not the
    engine.

    Raises:
        InputError: an invalid Q or DQ.
    """
    names = NameScope.of_values(model)
    quantizers = [
        node for node in model.graph if not node.domain and node.op_type == "QuantizeLinear"
    ]
    return [fold_quantizer(node, names, (QDQ,)) for node in quantizers].count(True) > 0


def _rule(node: ir.Node) -> Rule:
    if op_spec(node).dynamic and is_dynamic_product(node):
        return lower_dynamic_product
    if is_mover(node):
        return lower_mover
    return _no_operator if node.domain else _RULES.get(node.op_type, _no_operator)


def _lowered(site: Site, node: ir.Node) -> str | None:
    """The engine's operator, or else our own where the target has it; why neither, or None when
    it was lowered.
    """
    reason = _rule(node)(site, node)
    return (
        lower_counted(site, node) if reason is not None and has_own_operator(site, node) else reason
    )


def _no_operator(_: Site, node: ir.Node) -> str:
    return f"there is no integer operator for {node.op_type}"


def _reads_integers(node: ir.Node) -> bool:
    """Whether an operand is what a DequantizeLinear made of computed integers."""
    operands = [operand_of(value) for value in node.inputs]
    return any(operand is not None and not operand.is_constant for operand in operands)
