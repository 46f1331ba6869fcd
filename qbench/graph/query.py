"""Questions about one place of a graph, and where a node or graph comes from."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError

# Questions about one place of a graph: what is constant, who makes a value, who reads it, how a
# node is called.


def node_key(node: ir.Node) -> str:
    """The name of ``node`` in profiles, plans and counts: its own, or its first named output's."""
    return node.name or next((value.name for value in node.outputs if value.name), "")


def constant_value(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """The array of an initializer or a Constant node's output; None for anything computed or fed.

    An initializer that is also a graph input can be fed another value, hence is no constant.
    """
    if value is None or value.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else np.asarray(tensor.numpy())


def is_constant(value: ir.Value | None) -> bool:
    """Whether ``value`` is there and constant (without reading its array)."""
    if value is None or value.is_graph_input():
        return False
    return ir.convenience.get_const_tensor(value) is not None


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """The input of ``node`` at ``index``; None where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def int_attribute(node: ir.Node, name: str, default: int) -> int:
    """The integer attribute ``name``, or ``default`` where it is left out."""
    attribute = node.attributes.get(name)
    return default if attribute is None else int(attribute.as_int())


def float_attribute(node: ir.Node, name: str, default: float) -> float:
    """The float attribute ``name``, or ``default`` where it is left out."""
    attribute = node.attributes.get(name)
    return default if attribute is None else float(attribute.as_float())


def word_attribute(node: ir.Node, name: str, default: str) -> str:
    """The string attribute ``name``, or ``default`` where it is left out."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()


def ints_attribute(node: ir.Node, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
    """The attribute ``name`` of several integers, or ``default`` where it is left out."""
    attribute = node.attributes.get(name)
    return (
        tuple(default) if attribute is None else tuple(int(value) for value in attribute.as_ints())
    )


def producer(value: ir.Value | None) -> ir.Node | None:
    """The node that computes ``value``; None for inputs, initializers and absent inputs."""
    return None if value is None else value.producer()


def consumers(value: ir.Value) -> tuple[tuple[ir.Node, int], ...]:
    """Every use of ``value`` as (node, input index), in the order the uses were made."""
    return tuple((use.node, use.idx) for use in value.uses())


def only_consumer(value: ir.Value) -> ir.Node | None:
    """The one node that reads ``value``, when nothing else does and it is no graph output."""
    uses = consumers(value)
    return uses[0][0] if len(uses) == 1 and not value.is_graph_output() else None


def values_by_name(model: ir.Model) -> dict[str, ir.Value]:
    """Every named value of the main graph: inputs, initializers and node outputs."""
    graph = model.graph
    named: dict[str, ir.Value] = {}
    for value in (
        *graph.inputs,
        *graph.initializers.values(),
        *(v for node in graph for v in node.outputs),
    ):
        if value.name:
            named[value.name] = value
    return named


def opset(model: ir.Model) -> int:
    """The version of the default operator set that ``model`` imports; 1 when it imports none."""
    return model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))


# What is written into the metadata that ONNX keeps and no engine reads: where a node and a graph
# come from.
#
# ``qbench.origin`` of a node names the fp32 node its result stems from; ``qbench.lineage`` of a
# model lists the digests of the graphs it was rewritten from, oldest first: so a profile of an
# ancestor is accepted, one of another graph not. A value has the same numbers under the same name
# in all of them; a pass that breaks this begins a new lineage.

T = TypeVar("T")

ORIGIN = "qbench.origin"
LINEAGE = "qbench.lineage"
OF_REALS = "qbench.of_reals"
"""Metadata of a Clip of codes in a lowered graph: limits that the graph, as it is written, puts
on reals.
"""


def read_entry(
    metadata: Mapping[str, str], key: str, where: str, made_of: Callable[[Any], T]
) -> T | None:
    """What ``made_of`` makes of the JSON in the entry ``key`` of ``metadata``, if there is one.

    Args:
        where: whose metadata, for the message.

    Raises:
        InputError: the entry is not as qbench writes it.
    """
    text = metadata.get(key)
    if text is None:
        return None
    try:
        return made_of(json.loads(text))
    except Exception as error:
        # JSON, enums, types and arrays raise many kinds for what others wrote
        raise InputError(
            f"Reading the metadata '{key}' of {where}",
            found=f"'{text[:60]}' ({type(error).__name__})",
            expected="an entry as qbench writes it",
            remedy="Remove the entry from the model.",
        ) from error


def origin_of(node: ir.Node) -> str:
    """The name of the fp32 node that ``node`` stems from: written, or its own."""
    return node.metadata_props.get(ORIGIN) or node_key(node)


def set_origin(node: ir.Node, origin: str) -> None:
    """Write that ``node`` stems from the fp32 node ``origin``."""
    node.metadata_props[ORIGIN] = origin


def lineage_of(model: ir.Model) -> tuple[str, ...]:
    """The digests of the graphs that ``model`` was rewritten from, oldest first; its own is not
    among them.
    """
    return tuple(model.metadata_props.get(LINEAGE, "").split())


def forget_lineage(model: ir.Model) -> None:
    """Write that values of ``model`` have other numbers than under the same names before:
    nothing is its ancestor.
    """
    model.metadata_props[LINEAGE] = ""


def extend_lineage(model: ir.Model, digest: str) -> None:
    """Write that ``model`` was made from the graph with ``digest``; one that is there already
    stays where it is.
    """
    lineage = lineage_of(model)
    if digest not in lineage:
        model.metadata_props[LINEAGE] = " ".join((*lineage, digest))
