"""What a graph stores between its kernels, and what it computes twice, after fusion."""

import enum
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from qbench.graph import POINTWISE, fixed_batch, is_constant, node_key, op_spec, shapes_alone
from qbench.number_text import counted

_WIDE = 16
_FUSED = POINTWISE | {
    "QuantizeLinear",
    "DequantizeLinear",
    "Cast",
    "Concat",
    "Max",
    "Min",
    "Where",
    "Constant",
}


class Shared(enum.Enum):
    """What becomes of a wide value that several kernels read."""

    STORED = "stored"
    RECOMPUTED = "recomputed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValue:
    """One value that a kernel writes and others read, or that leaves the graph.

    Args:
        name: of the value.
        node: that makes it, the last of its kernel.
        dtype: of its elements.
        bytes: of one sample; None: its shape is not known.
        readers: how many nodes read it, as it is or dequantized.
        is_output: whether it leaves the graph.
    """

    name: str
    node: str
    dtype: str
    bytes: int | None
    readers: int
    is_output: bool


@dataclass(frozen=True, slots=True, eq=False)
class StorageCost:
    """That of one sample.

    Args:
        intermediates: values that are stored and do not leave the graph.
        bytes_written: of these and of what leaves the graph, where the shape is known.
        unsized: how many of them have no known shape.
        recomputed: node → how many times it is computed beyond the first.
        values: all that are stored, in graph order.
    """

    intermediates: int
    bytes_written: int
    unsized: int
    recomputed: Mapping[str, int]
    values: tuple[StoredValue, ...]

    @property
    def recomputed_nodes(self) -> int:
        """How many times nodes are computed again: computations less nodes."""
        return sum(self.recomputed.values())

    def __str__(self) -> str:
        size = f"{self.bytes_written} bytes written" + (
            f" and {self.unsized} of unknown size" * (self.unsized > 0)
        )
        again = counted(self.recomputed_nodes, "node")
        return f"{counted(self.intermediates, 'intermediate')}, {size}, {again} computed again"


def storage_cost(model: ir.Model, shared: Shared = Shared.STORED) -> StorageCost:
    """What the main graph of ``model`` costs where wide, often-read values are ``shared`` so.

    Args:
        model: in QDQ form, or float; not changed. Free dimensions count as ``graph.cost`` counts
            them.
    """
    samples = fixed_batch(model) or 1
    graph = shapes_alone(model, free_dims=1).graph
    values = [
        v
        for node in graph
        for v in node.outputs
        if _is_kept(node) and (v.uses() or v.is_graph_output())
    ]
    stored = {value: None for value in values if _is_stored(value, shared)}
    rows = tuple(_row(value, samples) for value in stored)
    times = Counter(node for value in stored for node in _kernel(value, stored))
    return StorageCost(
        intermediates=sum(not row.is_output for row in rows),
        bytes_written=sum(row.bytes for row in rows if row.bytes is not None),
        unsized=sum(row.bytes is None for row in rows),
        recomputed={node_key(node): count - 1 for node, count in times.items() if count > 1},
        values=rows,
    )


def _row(value: ir.Value, samples: int) -> StoredValue:
    maker, size = value.producer(), _bytes(value)
    return StoredValue(
        name=value.name or "",
        node="" if maker is None else node_key(maker),
        dtype="unknown" if value.dtype is None else value.dtype.name.lower(),
        bytes=None if size is None else -(-size // samples),
        readers=sum(1 for _ in _readers(value)),
        is_output=value.is_graph_output(),
    )


def _is_kept(node: ir.Node) -> bool:
    """Whether what ``node`` gives may ever be stored."""
    leaves = any(value.is_graph_output() for value in node.outputs)
    return leaves or not (_is_dequantize(node) or all(is_constant(value) for value in node.inputs))


def _is_dequantize(node: ir.Node) -> bool:
    return not node.domain and node.op_type == "DequantizeLinear"


def _is_stored(value: ir.Value, shared: Shared) -> bool:
    readers = list(_readers(value))
    if value.is_graph_output() or any(_begins_a_kernel(node, value) for node in readers):
        return True
    return len(readers) > 1 and (shared is Shared.STORED or not _is_wide(value))


def _readers(value: ir.Value) -> Iterator[ir.Node]:
    """Who reads ``value``, whether as it is or dequantized; a DQ whose result leaves the graph
    reads it, too.
    """
    for use in value.uses():
        if not _is_dequantize(use.node) or use.node.outputs[0].is_graph_output():
            yield use.node
        if _is_dequantize(use.node):
            yield from _readers(use.node.outputs[0])


def _begins_a_kernel(node: ir.Node, value: ir.Value) -> bool:
    maker = value.producer()
    if node.domain or maker is None or node.graph is not maker.graph:
        return True
    if op_spec(node).is_max_pool:
        return True
    return node.op_type not in _FUSED and op_spec(node).moved != (0,)


def _is_wide(value: ir.Value) -> bool:
    return value.dtype is None or value.dtype.bitwidth > _WIDE


def _kernel(value: ir.Value, stored: Mapping[ir.Value, None]) -> Iterator[ir.Node]:
    """Every node that is computed for ``value`` alone, back to what is stored; each once."""
    seen, waiting = set[ir.Node](), [value.producer()]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if not _is_dequantize(node):
            yield node
        waiting += [
            v.producer()
            for v in node.inputs
            if v is not None and v not in stored and not is_constant(v)
        ]


def _bytes(value: ir.Value) -> int | None:
    sizes = [] if value.shape is None else [size for size in value.shape if isinstance(size, int)]
    if value.shape is None or value.dtype is None or len(sizes) < len(value.shape):
        return None
    return math.ceil(math.prod(sizes) * value.dtype.bitwidth / 8)
