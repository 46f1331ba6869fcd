"""Whether a graph can run at all: names, order, outputs, and what ONNX's schemas allow."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from qbench.graph import node_key

# Whether nodes are what ONNX's own schemas allow: operators that there are, as many operands, types
# that agree.
#
#     Clip(x: T, min: T, max: T) → T          x int8, min uint8   ✗
#     QuantizeLinear(x: T1, s: T1, z: T2) → T2
#
# Nothing is known of other domains and of functions that the model brings along. Linear in the
# graph.

_Option = onnx.defs.OpSchema.FormalParameterOption


@dataclass(frozen=True, slots=True)
class _Schema:
    """What is looked at of a schema.

    Args:
        inputs, outputs: least and most.
        needed: places of inputs that cannot be left out.
        takes, gives: the letter of the type at each place, "" where it has none; the last applies
            to all behind it.
    """

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    needed: tuple[int, ...]
    takes: tuple[str, ...]
    gives: tuple[str, ...]


def misfits(model: ir.Model) -> Iterator[tuple[str, str]]:
    """(node, what is wrong with it) of the main graph, in its order."""
    types: dict[ir.Value, ir.DataType] = {}
    for node in model.graph:
        version = model.opset_imports.get(node.domain)
        if (
            version is None
            or node.domain not in _domains()
            or node.op_identifier() in model.functions
        ):
            continue
        schema = _schema(node.op_type, version, node.domain)
        if schema is None:
            yield node_key(node), f"the operator '{node.op_type}', which opset {version} has not"
        elif (problem := _miscounted(node, schema) or _mistyped(node, schema, types)) is not None:
            yield node_key(node), problem


def _miscounted(node: ir.Node, schema: _Schema) -> str | None:
    for word, given, (least, most) in (
        ("in", node.inputs, schema.inputs),
        ("out", node.outputs, schema.outputs),
    ):
        if not least <= len(given) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            return (
                f"{len(given)} {word}put{'s' * (len(given) != 1)}, where '{node.op_type}' has "
                f"{wanted}"
            )
    lost = next(
        (
            place
            for place in schema.needed
            if place < len(node.inputs) and node.inputs[place] is None
        ),
        None,
    )
    return None if lost is None else f"no input {lost}, which '{node.op_type}' needs"


def _mistyped(node: ir.Node, schema: _Schema, types: dict[ir.Value, ir.DataType]) -> str | None:
    """What does not agree; types that follow for outputs are put into ``types``."""
    bound: dict[str, ir.DataType] = {}
    for letter, value in (
        *_lettered(node.inputs, schema.takes),
        *_lettered(node.outputs, schema.gives),
    ):
        dtype = _dtype(value, types)
        if dtype is not None and bound.setdefault(letter, dtype) != dtype:
            return (
                f"'{value.name}' of {dtype.name.lower()} with {bound[letter].name.lower()} in "
                f"'{node.op_type}'"
            )
    types.update(
        (value, bound[letter])
        for letter, value in _lettered(node.outputs, schema.gives)
        if letter in bound
    )
    return None


def _lettered(
    values: Sequence[ir.Value | None], letters: tuple[str, ...]
) -> Iterator[tuple[str, ir.Value]]:
    for place, value in enumerate(values):
        letter = letters[min(place, len(letters) - 1)]
        if value is not None and letter:
            yield letter, value


def _dtype(value: ir.Value, types: Mapping[ir.Value, ir.DataType]) -> ir.DataType | None:
    """As it follows of what is read, else as it is declared or held."""
    if value in types:
        return types[value]
    if value.dtype is None and value.const_value is not None:
        return value.const_value.dtype
    return value.dtype if value.type is None or isinstance(value.type, ir.TensorType) else None


@functools.cache
def _domains() -> frozenset[str]:
    return frozenset(one.domain for one in onnx.defs.get_all_schemas_with_history())


@functools.cache
def _schema(name: str, version: int, domain: str) -> _Schema | None:
    try:
        found = onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        return None
    if found.deprecated:
        return None
    return _Schema(
        (found.min_input, found.max_input),
        (found.min_output, found.max_output),
        tuple(place for place, one in enumerate(found.inputs) if one.option == _Option.Single),
        *(_letters(found, side) for side in (found.inputs, found.outputs)),
    )


def _letters(
    schema: onnx.defs.OpSchema, side: "Sequence[onnx.defs.OpSchema.FormalParameter]"
) -> tuple[str, ...]:
    """Types that schemas spell out are no letters, nor those of operands that may differ among
    themselves.
    """
    free = {one.type_param_str for one in schema.type_constraints}
    return tuple(
        one.type_str if one.type_str in free and one.is_homogeneous else "" for one in side
    )


# Whether a graph can run at all: every value made once, before it is read, under one name; outputs
# as they were.
#
# Nodes are as ONNX's schemas want them, or no worse than before: graphs from elsewhere are not
# blamed on passes.


@dataclass(frozen=True, slots=True)
class Interface:
    """The names of inputs and outputs, and the element types of outputs, in order; what schemas
    forbid already.
    """

    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, ir.DataType | None], ...]
    forbidden: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def of(cls, model: ir.Model) -> "Interface":
        """That of ``model``."""
        return cls(*_ends(model.graph), frozenset(problem for _, problem in misfits(model)))


def fault_of(model: ir.Model, interface: Interface) -> str | None:
    """What is wrong with the main graph of ``model``; None: it is sound and has ``interface``."""
    return (
        _lost(Interface(*_ends(model.graph)), interface)
        or _unsound(model.graph)
        or _foreign(model)
        or _forbidden(model, interface)
    )


def _ends(graph: ir.Graph) -> tuple[tuple[str, ...], tuple[tuple[str, ir.DataType | None], ...]]:
    return tuple(v.name or "" for v in graph.inputs), tuple(
        (v.name or "", v.dtype) for v in graph.outputs
    )


def _forbidden(model: ir.Model, before: Interface) -> str | None:
    return next(
        (f"'{node}' with {what}" for node, what in misfits(model) if what not in before.forbidden),
        None,
    )


def _lost(found: Interface, wanted: Interface) -> str | None:
    if found == wanted:
        return None
    for word, now, then in (
        ("input", found.inputs, wanted.inputs),
        ("output", found.outputs, wanted.outputs),
    ):
        missing = [one for one in then if one not in now]
        if missing:
            return f"the {word} {_named(missing[0])} lost"
    return "other inputs and outputs, or in another order"


def _named(one: "str | tuple[str, ir.DataType | None]") -> str:
    return f"'{one}'" if isinstance(one, str) else f"'{one[0]}' of type {one[1]}"


def _unsound(graph: ir.Graph) -> str | None:
    known: set[ir.Value] = set()
    named: set[str] = set()
    for value in (
        *graph.inputs,
        *(v for v in graph.initializers.values() if not v.is_graph_input()),
    ):
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
            return (
                f"'{node_key(node)}' of the domain '{node.domain}', which the graph does not import"
            )
    return None
