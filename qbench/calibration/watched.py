"""The units and the watched values of a graph, and batches as samples."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Feeds
from qbench.errors import InputError, unknown_name
from qbench.graph import (
    PRODUCTS,
    constant_value,
    is_constant,
    is_group_query,
    is_pinned,
    node_key,
    only_consumer,
    op_spec,
    with_shapes,
)
from qbench.passes import bias_split_from, is_product

# Units: the operators of a graph as a quantizer sees them, each with its bias and its clip.
#
#     unit = head ──correlation── [Add of a constant] ──sum── [Relu | Clip] ──output──
#
# The Add follows a MatMul, and other operators where the bias was split off. Integer arithmetic
# computes such a chain in one accumulator, so no value inside it has qparams of its own: inner
# values are neither watched nor quantized, unless the graph's canonical passes split biases off for
# this purpose.

_CARRIES_A_CLIP = PRODUCTS | {"Add", "Mul", "Sub"}


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One operator with the nodes that follow it without further rounding."""

    head: ir.Node
    bias: ir.Node | None = None
    clip: ir.Node | None = None

    @property
    def name(self) -> str:
        """The name of its head, which is the name of the unit in plans and counts."""
        return node_key(self.head)

    @property
    def last(self) -> ir.Node:
        """The node that makes the unit's result."""
        return self.clip or self.bias or self.head

    @property
    def output(self) -> ir.Value:
        """The (first) result."""
        return self.last.outputs[0]

    @property
    def bias_operand(self) -> tuple[ir.Node, int, ir.Value] | None:
        """The place of its bias, constant or not: the node, the index of the operand, and the
        value.
        """
        node, index = self.bias or self.head, op_spec(self.head).bias
        if self.bias is not None:
            index = 1 if self.bias.inputs[0] is self.head.outputs[0] else 0
        value = None if index is None or index >= len(node.inputs) else node.inputs[index]
        return None if index is None or value is None else (node, index, value)

    @property
    def correlation(self) -> ir.Value | None:
        """The product before its bias or clip, where that is a value to be watched; never the
        result itself.
        """
        return self._inner(self.head)

    @property
    def sum(self) -> ir.Value | None:
        """The product and its bias before the clip, where that is a value to be watched; never
        the result itself.
        """
        return self._inner(self.bias or self.head)

    @property
    def values(self) -> tuple[ir.Value, ...]:
        """Its values that a schema can quantize, each once, in order."""
        inner = dict.fromkeys(value for value in (self.correlation, self.sum) if value is not None)
        return (*inner, *self.last.outputs[:1])

    def _inner(self, node: ir.Node) -> ir.Value | None:
        return node.outputs[0] if is_product(self.head) and node is not self.last else None

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        """Its nodes in order."""
        return tuple(node for node in (self.head, self.bias, self.clip) if node is not None)


def units_of(graph: ir.Graph) -> tuple[Unit, ...]:
    """Every node of the main graph in exactly one unit, in the order of the heads."""
    return tuple(_units(graph))


def _units(graph: ir.Graph) -> Iterator[Unit]:
    taken: set[ir.Node] = set()
    for node in graph:
        if node in taken:
            continue
        bias = bias_split_from(node) or _bias_behind(node)
        clip = _clip_behind(bias or node)
        unit = Unit(node, bias, clip)
        taken.update(unit.nodes)
        yield unit


def _bias_behind(node: ir.Node) -> ir.Node | None:
    """The Add of one constant a column behind a MatMul with constant weights, when nothing else
    reads the product.
    """
    if is_pinned(node.outputs[0]):
        return None  # it has qparams of its own, so it is not an inner value
    if node.op_type != "MatMul" or node.domain or not is_constant(node.inputs[1]):
        return None
    follower = only_consumer(node.outputs[0])
    if follower is None or follower.op_type != "Add" or follower.domain:
        return None
    other = follower.inputs[1] if follower.inputs[0] is node.outputs[0] else follower.inputs[0]
    bias, weight = constant_value(other), constant_value(node.inputs[1])
    if bias is None or weight is None or weight.ndim != 2 or bias.ndim == 0:
        return None
    columns = weight.shape[1]
    return follower if bias.size == columns and bias.shape[-1] == columns else None


def _clip_behind(node: ir.Node) -> ir.Node | None:
    """The Relu, or Clip with constant ends, that alone reads the result of ``node``."""
    if node.op_type not in _CARRIES_A_CLIP or node.domain or is_pinned(node.outputs[0]):
        return None
    follower = only_consumer(node.outputs[0])
    if follower is None or follower.domain or follower.inputs[0] is not node.outputs[0]:
        return None
    if follower.op_type == "Relu":
        return follower
    constant_ends = all(value is None or is_constant(value) for value in follower.inputs[1:])
    return follower if follower.op_type == "Clip" and constant_ends else None


# The watched values are those that some schema could quantize: every float32 input of the graph,
# every float32 result of a unit, and the keys and values that an operator keeps; constants are
# known without watching.


@dataclass(frozen=True, slots=True)
class WatchedValue:
    """A value by name; ``sample_axis``: where it runs over samples, as the graph's first input
    does along its first.
    """

    name: str
    sample_axis: int | None


def watched_values(model: ir.Model, names: Iterable[str] | None = None) -> tuple[WatchedValue, ...]:
    """The values of a canonical ``model`` to watch, in graph order; only ``names`` where given.

    Raises:
        InputError: a name is none of the graph's float32 values, or the graph has no input to count
            samples by.
    """
    shaped = with_shapes(model)
    batch = batch_of(shaped.graph)
    results = _all_results(shaped.graph)
    if names is None:
        results = [v for unit in units_of(shaped.graph) for v in unit.values]
        results += _kept_by_operators(shaped.graph)
    found = {}
    for value in (*shaped.graph.inputs, *results):
        if value.name and value.dtype == ir.DataType.FLOAT and not is_constant(value):
            found[value.name] = WatchedValue(value.name, sample_axis(value, batch))
    if names is None:
        return tuple(found.values())
    asked = list(names)
    for name in asked:
        if name not in found:
            raise unknown_name(
                f"Choosing the values of '{model.graph.name}' to watch", "value", name, found
            )
    return tuple(found[name] for name in found if name in set(asked))


def batch_of(graph: ir.Graph) -> int | str | None:
    """The first dimension of the first input: a number, its symbolic name, or None.

    Raises:
        InputError: the graph takes no data.
    """
    fed = [value for value in graph.inputs if value.name not in graph.initializers]
    if not fed:
        raise InputError(
            f"Choosing the values of '{graph.name}' to watch",
            found="a graph without inputs",
            expected="at least one input whose first axis runs over samples",
            remedy="Calibrate a graph that takes data.",
        )
    return dimensions(fed[0])[0] if dimensions(fed[0]) else None


def sample_axis(value: ir.Value, batch: int | str | None) -> int | None:
    """The axis of ``value`` that runs over samples: of ``batch``'s name; a number says so of
    the first axis only.
    """
    found = dimensions(value)
    if batch is None or batch not in found:
        return None
    if isinstance(batch, int):
        return 0 if found[0] == batch else None
    return found.index(batch)


def dimensions(value: ir.Value) -> list[int | str | None]:
    """Numbers and names; None for a dimension of neither. Empty where nothing is known."""
    if value.shape is None:
        return []
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape]


def _kept_by_operators(graph: ir.Graph) -> list[ir.Value]:
    nodes = [node for node in graph if is_group_query(node)]
    return [value for node in nodes for value in node.outputs[1:]]


def _all_results(graph: ir.Graph) -> list[ir.Value]:
    return [value for node in graph for value in node.outputs]


# A batch is split into runs of one sample, so that a value's bits depend on its sample alone.
#
#     run(x₁ … x_n) = join(run(x₁), …, run(x_n))    along the axes with the name of the batch axis
#
# Engines choose their kernels, and so the last bit of a sum, by the size of a batch, and a profile
# must not depend on how its samples were batched. This also keeps no more than one sample's values
# in memory. Outputs whose free first axis has another name are assumed to run over samples too. A
# graph without a free first axis is run with whole batches; a graph of a fixed batch b with b
# samples at a time.

_WHOLE = 1 << 62
"""More samples than any batch has."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How batches of one graph are split into samples.

    Args:
        first: the input whose first axis gives the number of samples.
        inputs: graph input → the axis that runs over samples; those without one belong as a whole
            to every sample.
        outputs: graph output → such an axis.
        size: samples a run takes.
    """

    first: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    size: int

    @classmethod
    def of(cls, model: ir.Model) -> "Rows":
        """Those of ``model``.

        Raises:
            InputError: it takes no data.
        """
        graph = with_shapes(model).graph
        batch = batch_of(graph)
        fed = [value for value in graph.inputs if value.name not in graph.initializers]
        inputs, outputs = _axes(fed, batch), _axes(graph.outputs, batch)
        if isinstance(batch, str):
            outputs |= {
                str(v.name): 0 for v in graph.outputs if v.name not in outputs and _free_first(v)
            }
        whole = batch is None or len(outputs) < len(graph.outputs)
        size = batch if isinstance(batch, int) and batch > 0 else 1
        return cls(
            str(fed[0].name),
            inputs or {str(value.name): 0 for value in fed},
            outputs,
            _WHOLE if whole else size,
        )

    def count(self, feeds: Feeds) -> int:
        """How many samples are in ``feeds``.

        Raises:
            InputError: the first input is missing or has no axis to count samples by.
        """
        first = feeds.get(self.first)
        if first is None or not np.ndim(first):
            raise InputError(
                "Calibrating",
                found=f"a batch without '{self.first}', or with it as one number",
                expected="an array whose first axis runs over samples",
                remedy="Feed the graph's inputs by name.",
            )
        return len(first)

    def parts(
        self, feeds: Feeds, count: int, *, start: int = 0
    ) -> Iterator[tuple[int, int, dict[str, Array]]]:
        """``feeds`` of ``count`` samples run by run: the first sample of each, the one behind
        its last, its feeds.

        ``start``: the first sample that is run.
        """
        for first in range(start, max(count, 1), self.size):
            stop = min(count, first + self.size)
            yield (
                first,
                stop,
                {name: self._part(name, feeds[name], count, first, stop) for name in feeds},
            )

    def joined(
        self, results: Sequence[Mapping[str, Array]], names: Sequence[str]
    ) -> dict[str, Array]:
        """The outputs ``names`` of the runs as one batch."""
        if len(results) == 1:
            return {name: results[0][name] for name in names}
        return {
            name: np.concatenate([part[name] for part in results], axis=self.outputs[name])
            for name in names
        }

    def digests(self, feeds: Feeds, count: int) -> list[str]:
        """The digest of each sample's feeds: names, dtypes, shapes and bytes of its parts."""
        return [
            _digest(
                {name: self._part(name, feeds[name], count, row, row + 1) for name in sorted(feeds)}
            )
            for row in range(count)
        ]

    def _part(self, name: str, feed: Any, count: int, start: int, stop: int) -> Array:  # noqa: ANN401 - what is fed
        array, axis = np.asarray(feed), self.inputs.get(name)
        if (
            axis is None
            or array.ndim <= axis
            or array.shape[axis] != count
            or (start == 0 and stop == count)
        ):
            return array
        return np.ascontiguousarray(array[(slice(None),) * axis + (slice(start, stop),)])


def _digest(parts: Mapping[str, Array]) -> str:
    state = hashlib.sha256()
    for name, part in parts.items():
        state.update(f"{name}|{part.dtype.str}|{part.shape}|".encode())
        state.update(
            np.ascontiguousarray(part).data
            if part.dtype.kind in "biufc"
            else repr(part.tolist()).encode()
        )
    return state.hexdigest()


def _free_first(value: ir.Value) -> bool:
    """Whether the length of its first axis is unknown."""
    return value.shape is None or not isinstance((dimensions(value) or [0])[0], int)


def _axes(values: Sequence[ir.Value], batch: int | str | None) -> dict[str, int]:
    found = {str(value.name): sample_axis(value, batch) for value in values}
    return {name: axis for name, axis in found.items() if axis is not None}
