"""Whether a graph can run at all: every value made once, before it is read, under one name; outputs as they were.

Nodes are as ONNX's schemas want them, or no worse than before: graphs from elsewhere are not blamed on passes.
"""

from dataclasses import dataclass, field

import onnx_ir as ir

from qbench.graph import node_key
from qbench.passes.schemas import misfits


@dataclass(frozen=True, slots=True)
class Interface:
    """The names of inputs and outputs, and the element types of outputs, in order; what schemas forbid already."""

    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, ir.DataType | None], ...]
    forbidden: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def of(cls, model: ir.Model) -> "Interface":
        """That of ``model``."""
        return cls(*_ends(model.graph), frozenset(problem for _, problem in misfits(model)))


def fault_of(model: ir.Model, interface: Interface) -> str | None:
    """What is wrong with the main graph of ``model``, in words; None: it is sound and has ``interface``."""
    return (
        _lost(Interface(*_ends(model.graph)), interface)
        or _unsound(model.graph)
        or _foreign(model)
        or _forbidden(model, interface)
    )


def _ends(graph: ir.Graph) -> tuple[tuple[str, ...], tuple[tuple[str, ir.DataType | None], ...]]:
    return tuple(v.name or "" for v in graph.inputs), tuple((v.name or "", v.dtype) for v in graph.outputs)


def _forbidden(model: ir.Model, before: Interface) -> str | None:
    return next((f"'{node}' with {what}" for node, what in misfits(model) if what not in before.forbidden), None)


def _lost(found: Interface, wanted: Interface) -> str | None:
    if found == wanted:
        return None
    for word, now, then in (("input", found.inputs, wanted.inputs), ("output", found.outputs, wanted.outputs)):
        missing = [one for one in then if one not in now]
        if missing:
            return f"the {word} {_named(missing[0])} lost"
    return "other inputs and outputs, or in another order"


def _named(one: "str | tuple[str, ir.DataType | None]") -> str:
    return f"'{one}'" if isinstance(one, str) else f"'{one[0]}' of type {one[1]}"


def _unsound(graph: ir.Graph) -> str | None:
    known: set[ir.Value] = set()
    named: set[str] = set()
    for value in (*graph.inputs, *(v for v in graph.initializers.values() if not v.is_graph_input())):
        if (problem := _taken(value, named)) is not None:
            return problem
        known.add(value)
    for node in graph:
        unmade = next((v for v in node.inputs if v is not None and v not in known), None)
        if unmade is not None:
            return f"'{node_key(node)}' reading '{unmade.name}', which nothing before it makes"
        for value in node.outputs:
            if (problem := _taken(value, named)) is not None:
                return problem
            known.add(value)
    outer = next((value for value in graph.outputs if value not in known), None)
    return None if outer is None else f"the output '{outer.name}', which nothing makes"


def _taken(value: ir.Value, named: set[str]) -> str | None:
    if value.name and value.name in named:
        return f"two values called '{value.name}'"
    named.add(value.name or "")
    return None


def _foreign(model: ir.Model) -> str | None:
    imported = {domain or "ai.onnx" for domain in model.opset_imports}
    for node in model.graph:
        if (node.domain or "ai.onnx") not in imported:
            return f"'{node_key(node)}' of the domain '{node.domain}', which the graph does not import"
    return None
