"""Causal attention to keys and values that a decoder keeps between Q and DQ, found in a graph."""

from __future__ import annotations  # help() shows npt.NDArray, and not the union behind it

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import (
    CacheValue,
    cache_slot,
    cache_values,
    clip_of_codes,
    constant_value,
    input_at,
    int_attribute,
    is_group_query,
    kept_type,
    node_key,
    node_qparams,
)

#     q (N, T, H·d) ─ moved to (N, H, T, d) ─────────────────────────┐
#     k (N, T, K·d) ─ moved ─ Q ─ DQ ─ moved to (N, K, T, d) ─ Concat(past, ·) ─ present key
#                     present key ─ Gather of heads ─ Transpose ─ MatMul(q, ·) ─ Add(mask) ─ Softmax
#     v as k ─ present value ─ Gather of heads ─ MatMul(Softmax, ·) ─ moved to (N, T, H·d)
#
# Moved: any Reshape and Transpose, which are tried on a small array of numbers, so that it does not
# matter how an exporter writes them. The mask (T, S + T) is cut out of a constant triangle, at row
# S: how many tokens there are before and now is followed through Shape, Add and Concat.

_Array = npt.NDArray[Any]
_Lengths = list["Counter[str]"]
"""For each number of a vector, how often S, T and 1 are in it."""
_TURNED = [0, 1, 3, 2]
_TOKENS, _NUMBERS = 2, 3
"""Axes of the past and the present."""
_HIDDEN = -1e4
"""What masks the future is at least as low: e to its power is 0 in float32."""
_N, _T = 2, 3
"""Of the arrays that are moved."""
_PAST, _NEW, _ONE = "past", "new", ""


class OtherShapeError(Exception):
    """Why attention is not of the shape above, in words."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A key or a value that is kept in codes.

    Args:
        flat: (N, T, K·d), heads next to each other.
        past, present: the input and what leaves the graph, (N, K, S or S + T, d).
        scales: one, or one for each number of a token, (K·d,).
        lowest, highest: the codes that there are.
        heads, numbers: K and d.
    """

    flat: ir.Value
    past: ir.Value
    present: ir.Value
    scales: npt.NDArray[np.float32]
    lowest: int
    highest: int
    heads: int
    numbers: int


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """One layer's attention: ``heads`` queries (N, T, H·d), and ``result`` (N, T, H·d)."""

    query: ir.Value
    key: Kept
    value: Kept
    heads: int
    result: ir.Value


def attentions(graph: ir.Graph, owned: Collection[ir.Value] = ()) -> list[Attention]:
    """The attention of every key and value that ``graph`` keeps, in the order of the nodes that
    make the results; without those whose past is one of ``owned``, by an operator.

    Raises:
        OtherShapeError: one is of another shape, or nothing is kept.
        InputError: past and present do not match.
    """
    kept = [(one, one.past) for one in cache_values(graph) if one.past is not None]
    _require(bool(kept), "it has no inputs of the past")
    read: dict[str, dict[ir.Node, tuple[Kept, _Array]]] = {"key": {}, "value": {}}
    for one, past in kept:
        if past in owned:
            continue
        found = _kept(one, past, _output(graph, one))
        product, heads = _product(found, turned=one.role == "key")
        read[one.role][product] = (found, heads)
    keys = read["key"].items()
    whole = [_attention(graph, node, *each, read["value"]) for node, each in keys]
    places: dict[ir.Node | None, int] = {node: place for place, node in enumerate(graph)}
    return sorted(whole, key=lambda one: places[one.result.producer()])


def _output(graph: ir.Graph, one: CacheValue) -> ir.Value:
    return next(value for value in graph.outputs if value.name == one.present)


def _require(holds: bool, words: str) -> None:
    if not holds:
        raise OtherShapeError(words)


def _attention(
    graph: ir.Graph,
    scores: ir.Node,
    key: Kept,
    shared: _Array,
    values: dict[ir.Node, tuple[Kept, _Array]],
) -> Attention:
    name = key.present.name
    masked = _reader(scores.outputs[0], "Add")
    mask = next(value for value in masked.inputs if value is not scores.outputs[0])
    _require(_is_causal(mask, graph), f"the mask of '{name}' is no constant triangle")
    weights = _reader(masked.outputs[0], "Softmax")
    _require(int_attribute(weights, "axis", -1) in (-1, 3), f"a Softmax of '{name}' along heads")
    mixed = _reader(weights.outputs[0], "MatMul")
    _require(mixed in values, f"what '{name}' weighs is no kept value")
    value, same = values[mixed]
    heads = len(shared)
    near = np.repeat(np.arange(key.heads), heads // key.heads)
    _require(
        np.array_equal(shared, near) and np.array_equal(same, near),
        f"heads that are no neighbours share '{name}'",
    )
    rows = _rows(heads * key.numbers)
    query, order = _before(scores.inputs[0], rows)
    is_apart = np.array_equal(order, _apart(rows, heads))
    _require(is_apart, f"what multiplies '{name}' is no row of {heads} heads")
    return Attention(query, key, value, heads, _together(mixed, heads, key.numbers))


def _kept(one: CacheValue, past: ir.Value, present: ir.Value) -> Kept:
    """How ``one`` is kept."""
    heads, numbers = _sizes_of(past)
    maker = present.producer()
    if maker is None or maker.op_type != "Concat":
        raise OtherShapeError(f"'{present.name}' is no Concat of '{past.name}' and what is new")
    if list(maker.inputs) != [past, one.value]:
        joined = " and ".join(f"'{each.name}'" for each in maker.inputs if each is not None)
        raise OtherShapeError(
            f"'{present.name}' is a Concat of {joined}, and not of '{past.name}' and what is new"
        )
    _require(
        int_attribute(maker, "axis", 0) in (_TOKENS, _TOKENS - 4),
        f"'{present.name}' is a Concat along another axis than that of tokens",
    )
    _require_past_alone(past, maker)
    rows = _rows(heads * numbers)
    codes = _codes(one.value, str(present.name), rows, _apart(rows, heads))
    return Kept(past=past, present=present, heads=heads, numbers=numbers, **codes)


def _sizes_of(past: ir.Value) -> tuple[int, int]:
    """The heads and the numbers of one."""
    shape = () if past.shape is None else tuple(past.shape)
    _require(len(shape) == 4, f"'{past.name}' is not (n, heads, tokens, numbers)")
    heads, numbers = shape[1], shape[3]
    if not (isinstance(heads, int) and isinstance(numbers, int)):
        raise OtherShapeError(f"how many heads and numbers '{past.name}' has is open")
    return heads, numbers


def _codes(value: ir.Value, name: str, given: _Array, kept: _Array) -> dict[str, Any]:
    """How ``value``, which is kept as ``name``, was quantized: fields of a ``Kept``.

    Args:
        given, kept: the places of the same numbers before they are moved, and where they are kept;
            a place in the last axis of (N, T, K·d) is its channel.
    """
    dequantize, movers = _moved_from(value)
    quantize = _quantizer(dequantize)
    if dequantize is None or quantize is None:
        raise OtherShapeError(f"'{name}' is in floats")
    qparams, limits = node_qparams(quantize), clip_of_codes(quantize)
    if qparams is None:
        raise OtherShapeError(f"'{name}' is kept in other codes than integers")
    _require(not qparams.zero_point.any(), f"'{name}' has a zero point")
    flat, order = _before(quantize.inputs[0], given)
    stored = order
    for node in movers:
        stored = _moved(node, stored)
    _require(np.array_equal(stored, kept), f"'{name}' is no row of {kept.shape[1]} heads")
    lowest, highest = qparams.qtype.qmin, qparams.qtype.qmax
    if limits is not None:
        ends = [constant_value(end) for end in limits.inputs[1:3]]
        lowest, highest = (int(end.reshape(())) for end in ends if end is not None)
    scales = qparams.scale.reshape(-1)
    if scales.size > 1:
        count = kept.shape[1] * kept.shape[3]
        channel = np.moveaxis(order, qparams.axis or 0, 0).reshape(len(scales), -1)
        scales = _by_channel(scales, channel % count, count)
    return {"flat": flat, "scales": scales, "lowest": lowest, "highest": highest}


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """A GroupQueryAttention in floats behind which Q and DQ round what it keeps."""

    node: ir.Node
    key: Kept
    value: Kept


def grouped_attentions(graph: ir.Graph) -> list[Grouped]:
    """Those of ``graph``, in its order; empty: it has no GroupQueryAttention in floats.

    Raises:
        OtherShapeError: one keeps floats, or other codes, or something else reads what it keeps.
        InputError: past and present do not match.
    """
    nodes = [node for node in graph if is_group_query(node) and not kept_type(node)]
    cache = {one.past: one for one in cache_values(graph) if one.past is not None} if nodes else {}
    found = []
    for node in nodes:
        both = [_behind(graph, node, index, cache) for index in (1, 2)]
        found.append(Grouped(node, *both))
    return found


def _behind(
    graph: ir.Graph, node: ir.Node, index: int, cache: Mapping[ir.Value, CacheValue]
) -> Kept:
    """How result ``index`` of ``node`` is kept."""
    past, words = input_at(node, index + 2), f"the {node.op_type} '{node_key(node)}'"
    if past is None or past not in cache or len(node.outputs) <= index:
        raise OtherShapeError(f"{words} has no past among the inputs, or no present")
    present = _output(graph, cache[past])
    heads, numbers = _sizes_of(past)
    _require_past_alone(past, node)
    apart = _apart(_rows(heads * numbers), heads)
    codes = _codes(present, str(present.name), apart, apart)
    _require(codes["flat"] is node.outputs[index], f"'{present.name}' is not what {words} keeps")
    _only_reader(node.outputs[index])
    return Kept(past=past, present=present, heads=heads, numbers=numbers, **codes)


def _require_past_alone(past: ir.Value, concat: ir.Node) -> None:
    """Check that ``concat`` alone reads the numbers of ``past``, which will be codes."""
    _require(not past.is_graph_output(), f"'{past.name}' is an output, too")
    for node in (use.node for use in past.uses() if use.node is not concat):
        words = f"the {node.op_type} '{node_key(node)}'"
        _require(node.op_type == "Shape", f"{words} reads '{past.name}', too")
        _require(_NUMBERS not in _axes(node), f"{words} reads how many numbers '{past.name}' has")


def _axes(shape: ir.Node) -> range:
    """The axes of (n, heads, tokens, numbers) whose sizes ``shape``, a Shape, gives."""
    return range(4)[int_attribute(shape, "start", 0) : int_attribute(shape, "end", 4)]


def _by_channel(scales: _Array, channels: _Array, count: int) -> npt.NDArray[np.float32]:
    """The scale of each of ``count`` channels; row i of ``channels`` are those with the i-th."""
    found = np.zeros(count, np.float32)
    for scale, row in zip(scales, channels, strict=True):
        found[row] = scale
    return found


def _quantizer(dequantize: ir.Node | None) -> ir.Node | None:
    """The QuantizeLinear whose codes ``dequantize`` reads."""
    value = None if dequantize is None else dequantize.inputs[0]
    maker = None if value is None else value.producer()
    if maker is not None and maker.op_type == "Clip":
        maker = None if maker.inputs[0] is None else maker.inputs[0].producer()
    return maker if maker is not None and maker.op_type == "QuantizeLinear" else None


def _moved_from(value: ir.Value) -> tuple[ir.Node | None, list[ir.Node]]:
    """The DequantizeLinear behind which ``value`` was only moved, and the movers in order."""
    movers: list[ir.Node] = []
    maker = value.producer()
    while maker is not None and maker.op_type in _MOVERS and maker.inputs[0] is not None:
        movers.insert(0, maker)
        maker = maker.inputs[0].producer()
    return (maker if maker is not None and maker.op_type == "DequantizeLinear" else None), movers


def _before(value: ir.Value | None, given: _Array) -> tuple[ir.Value, _Array]:
    """What ``value`` was before it was moved, and where the numbers at the places ``given`` there
    are now.
    """
    movers: list[ir.Node] = []
    while value is not None and (maker := value.producer()) is not None:
        if maker.op_type not in _MOVERS:
            break
        movers.insert(0, maker)
        value = maker.inputs[0]
    if value is None:
        raise OtherShapeError("an operand is missing")
    places = given
    for node in movers:
        places = _moved(node, places)
    return value, places


def _rows(width: int) -> _Array:
    """Places of (N, T, width)."""
    return np.arange(_N * _T * width).reshape(_N, _T, width)


def _apart(rows: _Array, heads: int) -> _Array:
    """``rows`` (N, T, heads · d) with heads apart, (N, heads, T, d)."""
    return rows.reshape(_N, _T, heads, -1).transpose(0, 2, 1, 3)


def _moved(node: ir.Node, places: _Array) -> _Array:
    """What ``node``, a Reshape or Transpose, makes of ``places``."""
    if node.op_type == "Transpose":
        order = node.attributes["perm"].as_ints() if "perm" in node.attributes else None
        fits = order is None or len(order) == places.ndim
        _require(fits, f"'{node_key(node)}' turns other axes")
        return places.transpose(order)
    shape = constant_value(node.inputs[1])
    if shape is None or int_attribute(node, "allowzero", 0):
        raise OtherShapeError(f"the shape of '{node_key(node)}' is computed")
    sizes = [
        places.shape[axis] if size == 0 and axis < places.ndim else int(size)
        for axis, size in enumerate(shape.reshape(-1))
    ]
    try:
        return places.reshape(sizes)
    except ValueError:
        raise OtherShapeError(f"'{node_key(node)}' takes no heads apart") from None


_MOVERS = frozenset({"Reshape", "Transpose"})


def _only_reader(value: ir.Value) -> ir.Node:
    """What alone reads ``value``, which does not leave the graph."""
    _require(not value.is_graph_output(), f"'{value.name}', inside its attention, is an output")
    return _only_operator(value)


def _only_operator(value: ir.Value) -> ir.Node:
    """What alone reads ``value`` inside the graph."""
    nodes = [use.node for use in value.uses()]
    _require(len(nodes) == 1, f"'{value.name}' is read {len(nodes)} times")
    return nodes[0]


def _reader(value: ir.Value, operator: str) -> ir.Node:
    """The only reader of ``value``, of a kind that takes it first."""
    node = _only_reader(value)
    fits = node.op_type == operator and (operator == "Add" or node.inputs[0] is value)
    _require(fits, f"behind '{value.name}' there is a {node.op_type}, no {operator} of it")
    return node


def _product(kept: Kept, *, turned: bool) -> tuple[ir.Node, _Array]:
    """The MatMul whose right side is what is kept, and the kept head of each of its heads."""
    value, heads, is_turned = kept.present, np.arange(kept.heads), False
    node = _only_operator(value)
    while node.op_type in ("Gather", "Transpose"):
        if node.op_type == "Gather":
            index = constant_value(node.inputs[1])
            if index is None or index.ndim != 1 or int_attribute(node, "axis", 0) != 1:
                raise OtherShapeError(f"'{node_key(node)}' picks no constant heads")
            heads = heads[index]
        else:
            _require(
                list(node.attributes["perm"].as_ints()) == _TURNED,
                f"'{node_key(node)}' turns other axes",
            )
            is_turned = not is_turned
        value = node.outputs[0]
        node = _only_reader(value)
    fits = node.op_type == "MatMul" and node.inputs[1] is value and is_turned == turned
    _require(fits, f"'{kept.present.name}' is read by the {node.op_type} '{node_key(node)}'")
    return node, heads


def _together(mixed: ir.Node, heads: int, numbers: int) -> ir.Value:
    """The result of ``mixed`` where its heads are together, (N, T, heads · numbers)."""
    whole = np.arange(_N * _T * heads * numbers).reshape(_N, _T, -1)
    value = mixed.outputs[0]
    places: _Array = whole.reshape(_N, _T, heads, -1).transpose(0, 2, 1, 3)
    while not np.array_equal(places, whole):
        node = _only_reader(value)
        _require(node.op_type in _MOVERS, f"the heads of '{value.name}' are not taken together")
        value, places = node.outputs[0], _moved(node, places)
    return value


def _is_causal(mask: ir.Value | None, graph: ir.Graph) -> bool:
    """Whether ``mask`` (T, S + T) hides exactly what comes behind each token."""
    node = None if mask is None else mask.producer()
    if node is None or node.op_type != "Slice" or len(node.inputs) != 4:
        return False
    triangle, axes = constant_value(node.inputs[0]), constant_value(node.inputs[3])
    if triangle is None or axes is None or triangle.ndim != 2 or axes.tolist() != [0, 1]:
        return False
    hidden = np.triu(np.ones(triangle.shape, bool), 1)
    if triangle[~hidden].any() or not (triangle[hidden] <= _HIDDEN).all():
        return False
    starts, ends = (_lengths(node.inputs[place], graph) for place in (1, 2))
    whole = Counter({_PAST: 1, _NEW: 1})
    return starts == [Counter({_PAST: 1}), Counter()] and ends == [whole, whole]


def _lengths(value: ir.Value | None, graph: ir.Graph) -> _Lengths | None:
    """The numbers of the vector ``value`` as sums; None: they are something else."""
    known = constant_value(value)
    if known is not None:
        return [Counter({_ONE: int(one)}) if one else Counter() for one in known.reshape(-1)]
    node = None if value is None else value.producer()
    if node is None:
        return None
    if node.op_type == "Shape":
        return _size(node, graph)
    parts = [_lengths(one, graph) for one in node.inputs]
    vectors = [one for one in parts if one is not None]
    if len(vectors) < len(parts):
        return None
    if node.op_type == "Concat":
        return [one for vector in vectors for one in vector]
    if node.op_type == "Add" and len(vectors[0]) == len(vectors[1]):
        return [a + b for a, b in zip(*vectors, strict=True)]
    return None


def _size(node: ir.Node, graph: ir.Graph) -> _Lengths | None:
    """S, the tokens of the past, or T, those of the only input of whole numbers."""
    read, first, end = (
        node.inputs[0],
        int_attribute(node, "start", 0),
        int_attribute(node, "end", 0),
    )
    whole = [one for one in graph.inputs if one.dtype in (ir.DataType.INT64, ir.DataType.INT32)]
    if read is None or not read.is_graph_input():
        return None
    if cache_slot(read) is not None and (first, end) == (2, 3):
        return [Counter({_PAST: 1})]
    return [Counter({_NEW: 1})] if [read] == whole and (first, end) == (1, 2) else None
