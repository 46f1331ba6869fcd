"""What is written into the metadata that ONNX keeps and no engine reads: where a node and a graph come from.

``qbench.origin`` of a node names the fp32 node its result stems from; ``qbench.lineage`` of a model lists the digests
of the graphs it was rewritten from, oldest first, so that a profile of an ancestor can be told from a stranger's. A
value has the same numbers under the same name in all of them; a pass that breaks this begins a new lineage.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph.query import node_key

T = TypeVar("T")

ORIGIN = "qbench.origin"
LINEAGE = "qbench.lineage"


def read_entry(metadata: Mapping[str, str], key: str, where: str, made_of: Callable[[Any], T]) -> T | None:
    """What ``made_of`` makes of the JSON in the entry ``key`` of ``metadata``; None where there is none.

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
    except Exception as error:  # JSON, enums, types and arrays raise many kinds for what others wrote
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
    """The digests of the graphs that ``model`` was rewritten from, oldest first; its own is not among them."""
    return tuple(model.metadata_props.get(LINEAGE, "").split())


def forget_lineage(model: ir.Model) -> None:
    """Write that values of ``model`` have other numbers than under the same names before: nothing is its ancestor."""
    model.metadata_props[LINEAGE] = ""


def extend_lineage(model: ir.Model, digest: str) -> None:
    """Write that ``model`` was made from the graph with ``digest``; one that is there already stays where it is."""
    lineage = lineage_of(model)
    if digest not in lineage:
        model.metadata_props[LINEAGE] = " ".join((*lineage, digest))
