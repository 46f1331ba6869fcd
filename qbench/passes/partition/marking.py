"""Where each node of a quantized graph goes: onto the device, to its borders, or to the host, and why not the device.

The device's share is lowered to operators on integers; everything else stays as it is between Q and DQ. A node is the
device's when it bears an operator of its target and all that it computes with and gives are integers.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from qbench.graph import infer_shapes, is_constant, is_qdq, node_key, operator_facts, own_copy
from qbench.passes.canonical.lift_constants import LiftConstants
from qbench.passes.canonical.name_nodes import NameNodes
from qbench.passes.declining import declined
from qbench.passes.lowering.movers import is_mover
from qbench.passes.lowering.qoperator import LowerToQOperator
from qbench.passes.partition.admission import refusals
from qbench.passes.partition.device import Device
from qbench.passes.partition.operators import float_name

_ASIDE = "qbench.aside"
"""The domain that what the device refuses bears while the rest is lowered: no rule knows it."""
_CLIPS = frozenset({"Clip", "Relu"})


class Place(enum.Enum):
    """Who computes a node.

    STORED: nobody; it is made of constants alone and goes with whoever reads it.
    """

    DEVICE = "device"
    BORDER = "border"
    HOST = "host"
    STORED = "stored"


@dataclass(frozen=True, slots=True, eq=False)
class Marked:
    """A lowered graph, the place of each node of it in graph order, and why nodes are off the device.

    ``named`` is the graph before lowering, with a name on each node.
    """

    named: ir.Model
    model: ir.Model
    places: Mapping[ir.Node, Place]
    off: Mapping[str, str]


def marked(model: ir.Model, device: Device) -> Marked:
    """``model`` lowered where ``device`` takes it, every node with its place; ``model`` is not changed.

    Raises:
        InputError: a Q or DQ that means nothing.
    """
    named = own_copy(model)
    LiftConstants().run(named)
    NameNodes().run(named)
    if any(value.dtype is None for node in named.graph for value in node.outputs):
        infer_shapes(named)  # files of others say less about inner values than ours
    lowered = named.clone()
    reasons = _lower(lowered, device)
    places = _places(lowered.graph, device)
    off = {
        node_key(node): reasons.get(node_key(node)) or _why_off(node)
        for node, place in places.items()
        if place is Place.HOST and not is_qdq(node)
    }
    return Marked(named, lowered, places, off)


def _lower(model: ir.Model, device: Device) -> dict[str, str]:
    """Lower in place what the device does not refuse; node → why it was left as it was."""
    refused = {node_key(node): reason for node, reason in _set_aside(model, device).items()}
    opsets = dict(model.opset_imports)
    LowerToQOperator(device.target).run(model)
    for node in model.graph:
        if node.domain == _ASIDE:
            node.domain = ""
    for domain, version in opsets.items():
        model.opset_imports.setdefault(domain, version)
    return declined(model) | refused


def _set_aside(model: ir.Model, device: Device) -> dict[ir.Node, str]:
    refused = refusals(model.graph, device)
    for node in refused:
        if not node.domain:
            node.domain = _ASIDE
    return refused


def _places(graph: ir.Graph, device: Device) -> dict[ir.Node, Place]:
    """Node → place, in graph order: every Q that the device reads, and every DQ of what it gives, is its border."""
    target = device.target.operators
    on_device = {node for node in graph if _counted(node, target, device)}
    places: dict[ir.Node, Place] = {}
    given: set[ir.Value | None] = set()
    stored: set[ir.Value | None] = set()
    for node in graph:
        if node in on_device:
            place = Place.DEVICE
        elif _is_stored(node, stored):
            place = Place.STORED
            stored.update(node.outputs)
        elif _is_border(node, given, on_device):
            place = Place.BORDER
        else:
            place = Place.HOST
        if place is Place.DEVICE or (place is Place.BORDER and node.op_type == "QuantizeLinear"):
            given.update(node.outputs)
        places[node] = place
    return places


def _is_border(node: ir.Node, given: set[ir.Value | None], on_device: set[ir.Node]) -> bool:
    if node.domain:
        return False
    if node.op_type == "DequantizeLinear":
        return node.inputs[0] in given
    return node.op_type == "QuantizeLinear" and any(use.node in on_device for use in node.outputs[0].uses())


def _counted(node: ir.Node, target: frozenset[tuple[str, str]], device: Device) -> bool:
    """Whether the device has the operator of ``node``, on integers that it has, and nothing about it is real."""
    listed = (node.domain, node.op_type) in target
    if not listed and not (node.op_type == "Clip" and not node.domain and not _CLIPS.isdisjoint(device.operators)):
        return False
    if not all(value.dtype is not None and value.dtype.is_integer() for value in node.outputs):
        return False
    computed = [value for value in node.inputs if value is not None and not is_constant(value)]
    if not all(value.dtype is not None and value.dtype.is_integer() for value in computed):
        return False
    if float_name(node) != node.op_type:  # it stands between grids of its own, which admission has seen
        return True
    first = node.inputs[0]
    if first is None or first.dtype is None or first.dtype.name.lower() not in device.limits.activations:
        return False
    return computed == [first] and (is_mover(node) or node.op_type == "Clip")


def _is_stored(node: ir.Node, stored: set[ir.Value | None]) -> bool:
    """Whether ``node`` unpacks or moves constants alone: a weight, which is no step of anybody's."""
    if node.domain or any(value.is_graph_output() for value in node.outputs):
        return False
    if node.op_type != "DequantizeLinear" and operator_facts(node).moved != (0,):
        return False
    return all(value is None or value in stored or is_constant(value) for value in node.inputs)


def _why_off(node: ir.Node) -> str:
    """Why nothing was ever asked about ``node``."""
    if any(value.dtype is not None and value.dtype.is_integer() for value in node.outputs):
        return f"the device has no {float_name(node)} of such integers"
    return "what it reads is real"


__all__ = ["Marked", "Place", "marked"]
