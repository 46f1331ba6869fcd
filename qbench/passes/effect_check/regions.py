"""What of a graph a pass changed, cut out."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir.passes.common import RemoveInitializersFromInputsPass

from qbench.graph import (
    clip_of_codes,
    constant_value,
    infer_shapes,
    int_attribute,
    is_constant,
    node_key,
    op_spec,
    own_copy,
)
from qbench.passes.partition.sections import values_read

# What of a graph a pass changed, cut out: for every value that is computed otherwise, the two ways
# to compute it.
#
# Borders are the values that both graphs know by one name: inputs, outputs, and codes (integers of
# 8 and 16 bits). Each is defined by the nodes between it and the next borders before it. Where the
# two definitions differ, they become two small models of the same inputs and the same output. Where
# they read different borders, what these are computed of is taken instead, step by step: values
# that stem from one another must not be taken for independent ones.
#
# If every border is what it was, given the borders it reads, then so is the graph: by induction
# along its order. All of this is linear in the graph and in what changed.

_WIDENINGS = 64
"""Steps back at most, until both sides of a region read the same."""
_CODE_TYPES = frozenset(
    {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16}
)


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Two ways to compute ``output`` of the values ``inputs``, borders of the graph."""

    output: str
    inputs: tuple[str, ...]
    before: ir.Model
    after: ir.Model

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The nodes of both."""
        before, after = (tuple(map(node_key, model.graph)) for model in (self.before, self.after))
        return before, after


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A graph with its values by name; constants are none of its ``values``."""

    model: ir.Model
    values: Mapping[str, ir.Value]
    places: Mapping[ir.Node, int]

    @classmethod
    def of(cls, model: ir.Model) -> "Side":
        """A copy of ``model``, in which types are known and constants are no inputs."""
        copy = own_copy(model)
        RemoveInitializersFromInputsPass()(copy)
        infer_shapes(copy)
        graph = copy.graph
        places = {node: place for place, node in enumerate(graph)}
        computed = (value for node in graph for value in node.outputs if not is_constant(value))
        return cls(
            copy,
            {value.name or "": value for value in (*graph.inputs, *computed) if value.name},
            places,
        )

    def end(self, name: str) -> ir.Value:
        """The value called ``name``, a border or an output of the graph."""
        return (
            next((value for value in self.model.graph.outputs if value.name == name), None)
            or self.values[name]
        )

    def border(self, name: str) -> ir.DataType | None:
        """The type of a value that can be a border; None of any other."""
        value = self.values.get(name)
        if value is None or not (value.producer() is None or value.dtype in _CODE_TYPES):
            return None
        maker = value.producer()
        if maker is not None and clip_of_codes(maker) is not None:
            return None  # codes are known behind their Clip: what is before it has another range
        return value.dtype


def changed_regions(
    before: Side, after: Side, inside: AbstractSet[str] = frozenset()
) -> Iterator[Region]:
    """Every value that both graphs know and compute otherwise, in graph order; those ``inside``
    are no borders.
    """
    kinds = {name: kind for name in before.values if (kind := before.border(name)) is not None}
    borders = {
        name: kind for name, kind in kinds.items() if after.border(name) == kind
    }.keys() - inside
    known: dict[int, str] = {}
    definitions = [_definitions(side.model, borders, known) for side in (before, after)]
    outputs = [value.name or "" for value in before.model.graph.outputs]
    order = {name: place for place, name in enumerate((*before.values, *outputs))}
    for name in dict.fromkeys((*sorted(borders, key=order.__getitem__), *outputs)):
        if definitions[0].get(name) != definitions[1].get(name):
            yield _cut(before, after, name, borders, order)


def _cut(
    before: Side, after: Side, output: str, borders: AbstractSet[str], order: Mapping[str, int]
) -> Region:
    open_: set[str] = {output}
    for _ in range(_WIDENINGS):
        cones = [_cone(side, output, borders, open_) for side in (before, after)]
        read = [reads for _, reads in cones]
        one_sided = read[0] ^ read[1]
        made = {name for name in read[0] | read[1] if before.values[name].producer() is not None}
        near = {
            name for name in made if one_sided & _cone(before, name, borders, open_ | {name})[1]
        }
        if not one_sided or not (near or made & one_sided):
            break
        open_ |= near or {max(made & one_sided, key=order.__getitem__)}
    inputs = tuple(sorted(read[0] | read[1], key=order.__getitem__))
    models = [
        _model(side, cone[0], inputs, output)
        for side, cone in zip((before, after), cones, strict=True)
    ]
    return Region(output, inputs, *models)


def _cone(
    side: Side, output: str, borders: AbstractSet[str], open_: AbstractSet[str]
) -> tuple[list[ir.Node], set[str]]:
    """The nodes that ``output`` is computed by behind the next borders that are not ``open_``,
    and what they read.
    """
    end = side.end(output)
    reads, seen, pending = set[str](), set[ir.Node](), [end]
    while pending:
        value = pending.pop()
        maker = value.producer()
        if (value.name in borders and value.name not in open_) or (
            maker is None and value.name in side.values
        ):
            reads.add(value.name or "")
        elif maker is not None and maker not in seen:
            seen.add(maker)
            pending += values_read(maker)
    return sorted(seen, key=side.places.__getitem__), reads


def _model(side: Side, nodes: list[ir.Node], inputs: tuple[str, ...], output: str) -> ir.Model:
    whole, graph, end = side.model, side.model.graph, side.end(output)
    taken = [side.values[name] for name in inputs if name in side.values]
    constants = {
        value: None for node in nodes for value in values_read(node) if value.is_initializer()
    }
    if end.is_initializer():
        constants[end] = None
    view = ir.GraphView(
        taken,
        [end],
        nodes=nodes,
        initializers=tuple(constants),
        opset_imports=graph.opset_imports,
        name=f"{graph.name or 'graph'}, '{output}'",
    )
    return ir.Model(
        view.clone(), ir_version=whole.ir_version, functions=tuple(whole.functions.values())
    )


def _definitions(
    model: ir.Model, borders: AbstractSet[str], known: dict[int, str]
) -> dict[str, str]:
    """Name of a border or output → a digest of how it is computed of the borders before it."""
    inside: dict[ir.Value, str] = {}
    found: dict[str, str] = {}

    def read(value: ir.Value) -> str:
        if value.name in borders or (value.producer() is None and not value.is_initializer()):
            return f"value {value.name}"
        return inside[value] if value in inside else _constant(value, known)

    for node in model.graph:
        # what a subgraph reads comes behind the node's own inputs
        operands = [
            "" if value is None else read(value) for value in (*node.inputs, *values_read(node))
        ]
        attributes = [_attribute(one) for _, one in sorted(node.attributes.items())]
        made = _digest(node.domain, node.op_type, node.overload, *attributes, "of", *operands)
        for index, value in enumerate(node.outputs):
            inside[value] = found[value.name or ""] = f"{index} of {made}"
    return found | {
        value.name or "": read(value) for value in model.graph.outputs if value.producer() is None
    }


def _constant(value: ir.Value, known: dict[int, str]) -> str:
    tensor = value.const_value
    if tensor is None or constant_value(value) is None:
        return f"value {value.name}"
    if id(tensor) not in known:  # both graphs share the tensors that no pass touched
        known[id(tensor)] = _digest(tensor.dtype.name, str(tuple(tensor.shape)), tensor.tobytes())
    return known[id(tensor)]


def _attribute(attribute: ir.Attr) -> bytes:
    return bytes(ir.serde.serialize_attribute(attribute).SerializeToString(deterministic=True))


def _digest(*parts: str | bytes) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()


# Whether a region treats every element alike, so that its cases fit into one array.
#
# A constant with channels needs their dimension in every case; everything else shrinks to one
# element.

BORDERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_ALIKE = BORDERS | {"Cast", "Identity", "Max", "Min"}


def dims_of_a_case(region: Region, ranks: AbstractSet[int]) -> tuple[int, ...] | None:
    """The dimensions behind the first that a case needs, the first being free to hold cases.

    Args:
        ranks: of the inputs of the region.

    Returns:
        None where an element depends on others, or where the first dimension is not free.
    """
    sizes: dict[int, int] = {}
    for model in (region.before, region.after):
        for node, fixed in _computed(model):
            if _is_table(node, fixed):
                continue
            if not op_spec(node).pointwise and (node.domain or node.op_type not in _ALIKE):
                return None
            for index, value in fixed:
                dims = _along(node, index, value, ranks)
                if dims is None:
                    return None
                for place, size in enumerate(reversed(dims)):
                    if size > 1 and sizes.setdefault(place, size) != size:
                        return None
    rank = max(ranks, default=1)
    if any(place >= rank - 1 for place in sizes):
        return None
    return tuple(sizes.get(place, 1) for place in range(rank - 2, -1, -1))


def _computed(model: ir.Model) -> Iterator[tuple[ir.Node, list[tuple[int, ir.Value]]]]:
    """The nodes whose results are others in every run, each with those of its inputs that are
    not.
    """
    fixed: set[ir.Value] = set()
    for node in model.graph:
        given = [(index, value) for index, value in enumerate(node.inputs) if value is not None]
        still = [(index, value) for index, value in given if value in fixed or is_constant(value)]
        if len(still) == len(given):
            fixed.update(node.outputs)
        else:
            yield node, still


def _is_table(node: ir.Node, fixed: list[tuple[int, ir.Value]]) -> bool:
    """Whether ``node`` looks each element up in one list."""
    if node.domain or node.op_type != "Gather" or [index for index, _ in fixed] != [0]:
        return False
    shape = fixed[0][1].shape
    return shape is not None and len(shape) == 1


def _along(
    node: ir.Node, index: int, value: ir.Value, ranks: AbstractSet[int]
) -> tuple[int, ...] | None:
    """The dimensions of a fixed operand, as they lie along those of a case; None: unknown."""
    constant = constant_value(value)
    shape = constant.shape if constant is not None else value.shape
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    dims = tuple(int(dim) for dim in shape)  # type: ignore[arg-type]
    if math.prod(dims) == 1:
        return ()
    if node.op_type not in BORDERS or not index:
        return dims
    if len(ranks) != 1 or len(dims) != 1 or int_attribute(node, "block_size", 0):
        return None
    (rank,) = ranks
    behind = rank - 1 - int_attribute(node, "axis", 1) % rank
    return (dims[0], *(1 for _ in range(behind)))


# One step of a value: how far it moves at most when everything that it is made of moves by one step
# of its qparams.
#
#     codes                                              1
#     DQ                                                 its scale, the largest of several
#     moved, Concat, Neg, Relu, Clip, Max, …             the largest of all
#     Add, Sub, Sum                                      the sum of all
#     constants, inputs                                  0, for they do not move
#     anything else                                      it has none
#
# The qparams are those of the graph before: a requantize that a pass drops gave the step that it
# may be off by.

_HOPS = 40
"""Nodes looked back at."""
_NO_FARTHER = frozenset(
    {
        "Abs",
        "Atan",
        "Clip",
        "Concat",
        "Cos",
        "Max",
        "Min",
        "Neg",
        "Relu",
        "Sigmoid",
        "Sin",
        "Softplus",
        "Tanh",
    }
)
"""Their slope is one at most in any operand, and one operand alone decides."""
_SUMS = frozenset({"Add", "Sub", "Sum"})


def step_of(value: ir.Value) -> float | None:
    """One step of ``value``, an output of the graph before; None where it has none."""
    return _step(value, _HOPS, {}) or None


def _step(value: ir.Value, hops: int, known: dict[ir.Value, float | None]) -> float | None:
    if value.dtype is not None and value.dtype.is_integer():
        return 1.0
    node = value.producer()
    if node is None or is_constant(value):
        return 0.0
    if value not in known:
        known[value] = _of_node(node, hops, known)
    return known[value]


def _of_node(node: ir.Node, hops: int, known: dict[ir.Value, float | None]) -> float | None:
    if node.op_type == "DequantizeLinear" and node.domain == "":
        scale = _scale(node)
        return None if scale is None or not scale.size else float(scale.max())
    moved = op_spec(node).moved
    if not hops or not (moved or (node.domain == "" and node.op_type in _NO_FARTHER | _SUMS)):
        return None
    read = [
        one
        for place, one in enumerate(node.inputs)
        if one is not None and (not moved or place in moved)
    ]
    steps = [_step(one, hops - 1, known) for one in read]
    if any(step is None for step in steps):
        return None
    whole = [step for step in steps if step is not None]
    return sum(whole) if node.op_type in _SUMS and not moved else max(whole, default=None)


def _scale(node: ir.Node) -> npt.NDArray[Any] | None:
    scale = constant_value(node.inputs[1])
    return None if scale is None else np.abs(scale)
