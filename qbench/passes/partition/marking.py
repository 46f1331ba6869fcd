"""Where each node of a quantized graph goes: onto the device, to its borders, or to the host,
and why.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.graph import (
    REQUANTIZE,
    Kind,
    ZeroPoints,
    constant_value,
    infer_shapes,
    ints_attribute,
    is_constant,
    is_mover,
    is_qdq,
    node_key,
    only_consumer,
    op_spec,
    own_copy,
)
from qbench.passes.canonical.cleanup import NameNodes
from qbench.passes.canonical.constants import LiftConstants
from qbench.passes.contract import declined
from qbench.passes.lowering.qoperator import LowerToQOperator
from qbench.passes.lowering.site import Operand, is_quantize, operand_of, quantized_by, result_of
from qbench.passes.partition.device import Device, float_name

# Which nodes of a QDQ graph a device refuses, and why; what it does not refuse, lowering may still
# decline.
#
# In graph order, because what moves codes passes their qparams on:
#
#     DQ ── Reshape ── Transpose ── Q          the Transpose reads the codes that the DQ read

_WINDOWS = frozenset({Kind.CONVOLUTION, Kind.POOL})


def refusals(graph: ir.Graph, device: Device) -> dict[ir.Node, str]:
    """Node → why ``device`` does not take it, of nodes that read codes, as far as it is known
    before lowering.
    """
    all_qparams: dict[ir.Value, Operand] = {}
    refused: dict[ir.Node, str] = {}
    for node in graph:
        if node.op_type == "DequantizeLinear" and not node.domain:
            found = operand_of(node.outputs[0])
            if found is not None:
                all_qparams[node.outputs[0]] = found
            continue
        operands = [
            (index, all_qparams[value])
            for index, value in enumerate(node.inputs)
            if value in all_qparams
        ]
        if all(operand.is_constant for _, operand in operands):
            continue
        reason = next(_problems(node, operands, device), None)
        if reason is not None:
            refused[node] = reason
        elif is_mover(node):
            all_qparams.update((value, operands[0][1]) for value in node.outputs)
    return refused


def _problems(node: ir.Node, operands: list[tuple[int, Operand]], device: Device) -> Iterator[str]:
    """Every reason to refuse ``node``, the simplest first."""
    name = REQUANTIZE if is_quantize(node) else node.op_type
    row = op_spec(node)
    if node.domain or name not in device.operators:
        yield f"the device has no {name}"
    if row.kind in _WINDOWS:
        yield from _window_problems(node, device)
    if is_mover(node):
        yield from (
            f"where it moves is computed: '{value.name}'"
            for value in node.inputs[1:]
            if value is not None and not is_constant(value) and operand_of(value) is None
        )
    for index, operand in operands:
        if row.weight == index and operand.is_constant:
            yield from _weight_problems(operand, device)
        elif row.bias != index and not _is_bias(operand):
            yield from _value_problems(operand, device)
    if is_quantize(node):
        given = quantized_by(node)
        yield from () if given is None else _value_problems(given, device)
        return
    result = _result(node)
    if result is not None:
        yield from _value_problems(result, device)
    elif row.kind is Kind.MATRIX_PRODUCT:
        yield "its result is real: no QuantizeLinear alone reads it"


def _value_problems(operand: Operand, device: Device) -> Iterator[str]:
    """Why the device does not take these codes."""
    limits = device.limits
    if operand.is_dynamic:
        yield "its qparams are computed for every batch"
        return
    if _type_name(operand) not in limits.activations:
        yield (
            f"activations of {_type_name(operand)}, where the device has "
            f"{', '.join(limits.activations)}"
        )
    if operand.axis is not None or operand.block:
        yield "activations with more than one scale"
    elif not _zero_point_fits(operand, limits.zero_points):
        point, taken = operand.points.reshape(-1)[0], limits.zero_points.value
        yield f"a zero point of {point}, where the device has {taken}"


def _weight_problems(weight: Operand, device: Device) -> Iterator[str]:
    limits = device.limits
    if _type_name(weight) not in limits.weights:
        yield f"weights of {_type_name(weight)}, where the device has {', '.join(limits.weights)}"
    if weight.axis is not None and not limits.weight_per_channel:
        yield "weights with one scale per channel"


def _window_problems(node: ir.Node, device: Device) -> Iterator[str]:
    limits, window = device.limits, _window(node)
    if limits.largest_kernel is not None and max(window, default=1) > limits.largest_kernel:
        shape = "×".join(str(side) for side in window)
        yield f"a window of {shape}, where the device has sides up to {limits.largest_kernel}"
    if not limits.dilations and any(gap != 1 for gap in ints_attribute(node, "dilations")):
        yield "a window with dilations, which the device does not have"
    if not limits.groups and "group" in node.attributes and node.attributes["group"].as_int() != 1:
        yield "a convolution with groups, which the device does not have"


def _window(node: ir.Node) -> tuple[int, ...]:
    """The sides of the window of ``node``: written out, or those of its weight; () where
    neither is known.
    """
    written = ints_attribute(node, "kernel_shape")
    if written or op_spec(node).kind is not Kind.CONVOLUTION:
        return written
    weight = operand_of(node.inputs[1])
    codes = None if weight is None else constant_value(weight.integers)
    return () if codes is None else codes.shape[2:]


def _result(node: ir.Node) -> Operand | None:
    """The qparams of what ``node`` gives, behind the bias that alone reads a matrix product;
    None: it is real.
    """
    value = node.outputs[0]
    found = result_of(value)
    follower = only_consumer(value)
    if (
        found is None
        and node.op_type == "MatMul"
        and follower is not None
        and follower.op_type == "Add"
    ):
        found = result_of(follower.outputs[0])
    return None if found is None else found[1]


def _is_bias(operand: Operand) -> bool:
    return operand.is_constant and operand.dtype is ir.DataType.INT32


def _zero_point_fits(operand: Operand, taken: ZeroPoints) -> bool:
    if taken is ZeroPoints.ANY:
        return True
    points = operand.points
    lowest = np.iinfo(points.dtype).min if taken is ZeroPoints.ZERO_OR_QMIN else 0
    return bool(np.all((points == 0) | (points == lowest)))


def _type_name(operand: Operand) -> str:
    return "unknown type" if operand.dtype is None else operand.dtype.name.lower()


# Where each node of a quantized graph goes: onto the device, to its borders, or to the host, and
# why not the device.
#
# The device's share is lowered to operators on integers; everything else stays as it is between Q
# and DQ. A node is the device's when it has an operator of its target and all that it computes with
# and gives are integers.

_ASIDE = "qbench.aside"
"""The domain that what the device refuses has while the rest is lowered: no rule knows it."""
_CLIPS = frozenset({"Clip", "Relu"})


class Place(enum.Enum):
    """Who computes a node.

    STORED: neither; it is made of constants alone and goes with its readers.
    """

    DEVICE = "device"
    BORDER = "border"
    HOST = "host"
    STORED = "stored"


@dataclass(frozen=True, slots=True, eq=False)
class Marked:
    """A lowered graph, the place of each node of it in graph order, and why nodes are off the
    device.

    ``named`` is the graph before lowering, with a name on each node.
    """

    named: ir.Model
    model: ir.Model
    places: Mapping[ir.Node, Place]
    off: Mapping[str, str]


def marked(model: ir.Model, device: Device) -> Marked:
    """``model`` lowered where ``device`` takes it, every node with its place; ``model`` is not
    changed.

    Raises:
        InputError: an invalid Q or DQ.
    """
    named = own_copy(model)
    LiftConstants().run(named)
    NameNodes().run(named)
    if any(value.dtype is None for node in named.graph for value in node.outputs):
        infer_shapes(named)  # files of other tools give fewer types of inner values
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
    """Node → place, in graph order: every Q that the device reads, and every DQ of what it
    gives, is its border.
    """
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
    return node.op_type == "QuantizeLinear" and any(
        use.node in on_device for use in node.outputs[0].uses()
    )


def _counted(node: ir.Node, target: frozenset[tuple[str, str]], device: Device) -> bool:
    """Whether the device has the operator of ``node``, on integers that it has, and nothing
    about it is real.
    """
    listed = (node.domain, node.op_type) in target
    if not listed and not (
        node.op_type == "Clip" and not node.domain and not _CLIPS.isdisjoint(device.operators)
    ):
        return False
    if not all(value.dtype is not None and value.dtype.is_integer() for value in node.outputs):
        return False
    computed = [value for value in node.inputs if value is not None and not is_constant(value)]
    if not all(value.dtype is not None and value.dtype.is_integer() for value in computed):
        return False
    if float_name(node) != node.op_type:  # it is between quantizers, which ``refusals`` has seen
        return True
    first = node.inputs[0]
    if (
        first is None
        or first.dtype is None
        or first.dtype.name.lower() not in device.limits.activations
    ):
        return False
    return computed == [first] and (is_mover(node) or node.op_type == "Clip")


def _is_stored(node: ir.Node, stored: set[ir.Value | None]) -> bool:
    """Whether ``node`` unpacks or moves constants alone: a weight, which is no step of
    anybody's.
    """
    if node.domain or any(value.is_graph_output() for value in node.outputs):
        return False
    if node.op_type != "DequantizeLinear" and op_spec(node).moved != (0,):
        return False
    return all(value is None or value in stored or is_constant(value) for value in node.inputs)


def _why_off(node: ir.Node) -> str:
    """Why ``node`` was never considered."""
    if any(value.dtype is not None and value.dtype.is_integer() for value in node.outputs):
        return f"the device has no {float_name(node)} of such integers"
    return "what it reads is real"


__all__ = ["Marked", "Place", "marked"]
