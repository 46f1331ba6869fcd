"""Whether a graph can run at all: every value made once, before it is read, under one name; outputs as they were."""

from dataclasses import dataclass

import onnx_ir as ir

from qbench.graph import node_key


@dataclass(frozen=True, slots=True)
class Interface:
    """The names of inputs and outputs, and the element types of outputs, in order."""

    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, ir.DataType | None], ...]

    @classmethod
    def of(cls, model: ir.Model) -> "Interface":
        """That of ``model``."""
        graph = model.graph
        return cls(tuple(v.name or "" for v in graph.inputs), tuple((v.name or "", v.dtype) for v in graph.outputs))


def fault_of(model: ir.Model, interface: Interface) -> str | None:
    """What is wrong with the main graph of ``model``, in words; None: it is sound and has ``interface``."""
    return _lost(Interface.of(model), interface) or _unsound(model.graph) or _foreign(model)


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
