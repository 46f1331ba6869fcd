"""Passes that change no numbers: dead nodes, identities, names, shared constants, shapes,
functions, padding.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, RemoveUnusedNodesPass, RemoveUnusedOpsetsPass

from qbench.graph import constant_value, consumers, infer_shapes, input_at, is_pinned, op_spec
from qbench.passes.contract import EXACT, Effect
from qbench.passes.editing import NameScope, remove_unread, take_place

# What no output depends on goes: nodes, constants and imported operator sets.


@dataclass(frozen=True, slots=True)
class RemoveDead:
    """Requires nothing. Ensures: every node and initializer is needed by an output; inputs
    stay, used or not.
    """

    name: str = "remove-dead"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Remove them; True when there were any."""
        nodes = RemoveUnusedNodesPass()(model).modified
        opsets = RemoveUnusedOpsetsPass()(model).modified
        return nodes or opsets


# Removing what computes nothing: Identity, and Dropout outside training.
#
# The readers of y = Identity(x) read x. Where y is a graph output, x takes the name of y, unless
# the graph's interface needs both names: then the node stays.


@dataclass(frozen=True, slots=True)
class RemoveIdentity:
    """Requires nothing. Ensures: no idle Dropout stays, and only an Identity between two names
    or sets of qparams.
    """

    name: str = "remove-identity"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Remove them; True when there were any that could go."""
        nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
        return sum(_removed(node) for node in nodes if _idle(node)) > 0


def _idle(node: ir.Node) -> bool:
    if node.domain or node.op_type not in ("Identity", "Dropout") or node.inputs[0] is None:
        return False
    if node.op_type == "Identity":
        return True
    mask = node.outputs[1] if len(node.outputs) > 1 else None
    if mask is not None and (mask.uses() or mask.is_graph_output()):
        return False
    training = input_at(node, 2)
    flag = constant_value(training)
    return training is None or (flag is not None and not flag.any())


def _removed(node: ir.Node) -> bool:
    source, result, graph = node.inputs[0], node.outputs[0], node.graph
    if source is None or graph is None or is_pinned(source) or is_pinned(result):
        # it separates two sets of qparams
        return False
    if result.is_graph_output():
        maker = source.producer()
        if maker is None or maker.graph is not graph or source.is_graph_output():
            return False
        take_place(result, source)
    else:
        result.replace_all_uses_with(source)
        source.type, source.shape = source.type or result.type, source.shape or result.shape
    graph.remove(node, safe=True)
    return True


# Every node gets a unique name, because names are what profiles, plans and findings call nodes by.
#
# A node without a name takes that of its first output; a name met twice stays with its first
# bearer, later ones get ``_1``, ``_2``, …; names that are there and unique stay. Value names are
# unique in valid ONNX; missing ones are filled.


@dataclass(frozen=True, slots=True)
class NameNodes:
    """Requires nothing. Ensures: every node has a name, unique in the whole model, and every
    result one too.
    """

    name: str = "name-nodes"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Give each node a name of its own and each used value a name; True when any changed."""
        nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
        taken = NameScope(())
        nameless = [node for node in nodes if not node.name or not taken.take(node.name)]
        values = NameScope.of_values(model)
        renamed = bool(nameless)
        for node in nameless:
            first = next((value.name for value in node.outputs if value.name), None)
            node.name = taken.fresh(node.name or first or node.op_type)
        for node in nodes:
            for index, value in enumerate(node.outputs):
                if not value.name and value.uses():
                    value.name = values.fresh(f"{node.name}.{index}")
                    renamed = True
        return renamed


# A weight or bias that several nodes share becomes one initializer a node.
#
# Each use gets its own qparams: the scale of a bias is the product of its node's input and weight
# scales, and per-channel scales run along an axis that depends on the operator. The copies share
# memory; only a file holds them twice.


@dataclass(frozen=True, slots=True)
class SplitShared:
    """Requires: constants are initializers. Ensures: an initializer used as weight or bias has
    no other use.

    The first use that is not a weight or bias, or else the first use, keeps the initializer and its
    name.
    """

    name: str = "split-shared"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Split them; True when any was shared."""
        names = NameScope.of_values(model)
        modified = False
        for value in list(model.graph.initializers.values()):
            uses = consumers(value)
            own = [
                (node, index)
                for node, index in uses
                if node.graph is model.graph and _has_role(node, index)
            ]
            plain = len(own) < len(uses) or value.is_graph_output()
            for node, index in own if plain else own[1:]:
                node.replace_input_with(index, _copy(model.graph, value, names))
                modified = True
        return modified


def _has_role(node: ir.Node, index: int) -> bool:
    facts = op_spec(node)
    return index in (facts.weight, facts.bias)


def _copy(graph: ir.Graph, value: ir.Value, names: NameScope) -> ir.Value:
    name = names.fresh(str(value.name))
    copy = ir.val(name, value.dtype, value.shape, const_value=value.const_value)
    copy.metadata_props.update(value.metadata_props)
    graph.register_initializer(copy)
    return copy


# Every value carries the shape and dtype that can be inferred, for planners and people to read.


@dataclass(frozen=True, slots=True)
class InferShapes:
    """Requires nothing. Ensures: known shapes and dtypes are written; the numbers stay."""

    name: str = "infer-shapes"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Write them; True when any was new."""
        return infer_shapes(model)


# Model-local functions are replaced by their nodes: what is profiled must lie in the graph.


@dataclass(frozen=True, slots=True)
class InlineFunctions:
    """Requires nothing. Ensures: the model has no functions."""

    name: str = "inline-functions"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Inline every call; True when there were functions."""
        if not model.functions:
            return False
        InlinePass()(model)
        model.functions.clear()
        return True


# Zero padding before a convolution becomes padding of the convolution.


@dataclass(frozen=True, slots=True)
class AbsorbPad:
    """Requires: constants are initializers. Ensures: no Conv with explicit pads reads such a
    Pad.
    """

    name: str = "absorb-pad"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Absorb them; the Pad itself goes when nothing else reads it. True when any was
        absorbed.
        """
        return (
            sum(
                _absorbed(node)
                for node in list(model.graph)
                if node.op_type == "Conv" and not node.domain
            )
            > 0
        )


def _absorbed(conv: ir.Node) -> bool:
    pad = None if conv.inputs[0] is None else conv.inputs[0].producer()
    if (
        pad is None
        or pad.domain
        or pad.op_type != "Pad"
        or pad.graph is not conv.graph
        or is_pinned(pad.outputs[0])
    ):
        return False
    auto = conv.attributes.get("auto_pad")
    if auto is not None and auto.as_string() not in ("NOTSET", "VALID"):
        return False
    added = _spatial_pads(pad)
    if added is None:
        return False
    given = conv.attributes.get("pads")
    old = [0] * len(added) if given is None else list(given.as_ints())
    conv.attributes["pads"] = ir.AttrInt64s(
        "pads", [a + b for a, b in zip(old, added, strict=True)]
    )
    conv.attributes.pop("auto_pad", None)
    conv.replace_input_with(0, pad.inputs[0])
    remove_unread(pad)
    return True


def _spatial_pads(pad: ir.Node) -> list[int] | None:
    """Begins then ends of the spatial axes, or None when ``pad`` is no constant, non-negative,
    spatial zero padding.
    """
    mode = pad.attributes.get("mode")
    operands = [*pad.inputs, None, None][1:4]
    pads, fill = constant_value(operands[0]), constant_value(operands[1])
    if (
        (mode is not None and mode.as_string() != "constant")
        or pads is None
        or operands[2] is not None
    ):
        return None
    if operands[1] is not None and (fill is None or np.any(fill)):
        return None
    begins, ends = np.split(pads.astype(int), 2)
    if min(pads, default=0) < 0 or any((*begins[:2], *ends[:2])):
        return None
    return [*begins[2:].tolist(), *ends[2:].tolist()]
