"""Whether nodes are what ONNX's own schemas allow: operators that there are, as many operands, types that agree.

    Clip(x: T, min: T, max: T) → T          x int8, min uint8   ✗
    QuantizeLinear(x: T1, s: T1, z: T2) → T2

Nothing is known of other domains and of functions that the model brings along. Linear in the graph.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from qbench.graph import node_key

_Option = onnx.defs.OpSchema.FormalParameterOption


@dataclass(frozen=True, slots=True)
class _Schema:
    """What is looked at of a schema.

    Args:
        inputs, outputs: least and most. needed: places of inputs that cannot be left out.
        takes, gives: the letter of the type at each place, "" where there is none; the last stands for all behind it.
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
        if version is None or node.domain not in _domains() or node.op_identifier() in model.functions:
            continue
        schema = _schema(node.op_type, version, node.domain)
        if schema is None:
            yield node_key(node), f"the operator '{node.op_type}', which opset {version} has not"
        elif (problem := _miscounted(node, schema) or _mistyped(node, schema, types)) is not None:
            yield node_key(node), problem


def _miscounted(node: ir.Node, schema: _Schema) -> str | None:
    for word, given, (least, most) in (("in", node.inputs, schema.inputs), ("out", node.outputs, schema.outputs)):
        if not least <= len(given) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            return f"{len(given)} {word}put{'s' * (len(given) != 1)}, where '{node.op_type}' has {wanted}"
    lost = next((place for place in schema.needed if place < len(node.inputs) and node.inputs[place] is None), None)
    return None if lost is None else f"no input {lost}, which '{node.op_type}' needs"


def _mistyped(node: ir.Node, schema: _Schema, types: dict[ir.Value, ir.DataType]) -> str | None:
    """What does not agree; types that follow for outputs are put into ``types``."""
    bound: dict[str, ir.DataType] = {}
    for letter, value in (*_lettered(node.inputs, schema.takes), *_lettered(node.outputs, schema.gives)):
        dtype = _dtype(value, types)
        if dtype is not None and bound.setdefault(letter, dtype) != dtype:
            return f"'{value.name}' of {dtype.name.lower()} beside {bound[letter].name.lower()} in '{node.op_type}'"
    types.update((value, bound[letter]) for letter, value in _lettered(node.outputs, schema.gives) if letter in bound)
    return None


def _lettered(values: Sequence[ir.Value | None], letters: tuple[str, ...]) -> Iterator[tuple[str, ir.Value]]:
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


def _letters(schema: onnx.defs.OpSchema, side: "Sequence[onnx.defs.OpSchema.FormalParameter]") -> tuple[str, ...]:
    """Types that schemas spell out are no letters, nor those of operands that may differ among themselves."""
    free = {one.type_param_str for one in schema.type_constraints}
    return tuple(one.type_str if one.type_str in free and one.is_homogeneous else "" for one in side)
