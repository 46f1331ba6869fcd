"""Attention as one operator, of ONNX and of ONNX Runtime: its result's shape, and its
multiply-accumulates.

    Q · Kᵀ and P · V        N · T · U · (H·d + H·e)      H heads of d numbers, values of e
                            T tokens are read, U = T and those of the past

    GroupQueryAttention     Q (N, T, H·d), K, V, past keys and values (N, kept heads, S, d); without
                            K and V, Q (N, T, (H + 2 · kept heads) · d)
    MultiHeadAttention      K (N, U, H·d) or (N, H, U, d); K in Q, (N, T, H, 3, d), or V in K,
                            (N, U, H, 2, d); the past is inputs 6 and 7
    Attention               of ONNX Runtime: X (N, T, w) · W (w, c) too; past (2, N, H, S, d)
    Attention               of ONNX: Q (N, T, H·d) or (N, H, T, d); the past is inputs 4 and 5

What a mask hides counts: the same network written with MatMul multiplies it, too. Sources:
docs/ContribOperators.md of ONNX Runtime 1.31, and ONNX's operator Attention of version 23.
"""

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir

from qbench.graph.query import input_at, int_attribute

_ENGINE = "com.microsoft"
GROUP_QUERY = "GroupQueryAttention"


def is_group_query(node: ir.Node) -> bool:
    """Whether ``node`` is ONNX Runtime's GroupQueryAttention."""
    return (node.domain, node.op_type) == (_ENGINE, GROUP_QUERY)


def attention_macs(node: ir.Node) -> int:
    """Multiply-accumulates of ``node``, one of ``ATTENTIONS``. An open size counts as 1, that of
    the past too, as in the network of MatMul; a past without a shape counts as none.
    """
    return _MACS[node.domain, node.op_type](node)


def _of_groups(node: ir.Node) -> int:
    rows, tokens, _ = _three(_sizes(node, 0))
    return rows * tokens * (tokens + _past(node, 3)) * 2 * _group_width(node)


def _group_width(node: ir.Node) -> int:
    """H · d of a GroupQueryAttention."""
    width = _three(_sizes(node, 0))[2]
    if input_at(node, 1) is not None:
        return width
    heads, kept = (int_attribute(node, name, 1) for name in ("num_heads", "kv_num_heads"))
    return width * heads // (heads + 2 * kept)


def _of_heads(node: ir.Node) -> int:
    query, key, value = (_sizes(node, index) for index in range(3))
    rows, tokens, *each = query or (1, 1, 1)
    width = math.prod(each) // (1, 3)[len(each) == 3]
    read, mixed = tokens, width
    if len(key) == 4:
        read, mixed = key[2], key[1] * (value or key)[-1]
    elif key:
        read = key[1]
        mixed = width if len(key) == 5 else (value or key)[-1]
    return rows * tokens * (read + _past(node, 6)) * (width + mixed)


def _with_weights(node: ir.Node) -> int:
    rows, tokens, width = _three(_sizes(node, 0))
    columns = (_sizes(node, 1) or (1,))[-1]
    given = node.attributes.get("qkv_hidden_sizes")
    query, _, value = [columns // 3] * 3 if given is None else given.as_ints()
    read = tokens + _past(node, 4)
    return rows * tokens * (width * columns + read * (query + value))


def _of_onnx(node: ir.Node) -> int:
    query, key, value = (_sizes(node, index) for index in range(3))
    if len(query) == 4:
        rows, heads, tokens, depth = query
        width, mixed = heads * depth, heads * (value or (1,))[-1]
    else:
        rows, tokens, width = _three(query)
        heads, kept = (int_attribute(node, name, 1) for name in ("q_num_heads", "kv_num_heads"))
        mixed = (value or (kept,))[-1] * heads // kept
    read = key[-2] if len(key) > 1 else tokens
    return rows * tokens * (read + _past(node, 4)) * (width + mixed)


_MACS: dict[tuple[str, str], Callable[[ir.Node], int]] = {
    (_ENGINE, GROUP_QUERY): _of_groups,
    (_ENGINE, "MultiHeadAttention"): _of_heads,
    (_ENGINE, "Attention"): _with_weights,
    ("", "Attention"): _of_onnx,
}
ATTENTIONS = frozenset(_MACS)
"""Domain and name of the operators above."""


def _past(node: ir.Node, index: int) -> int:
    """Tokens of the past, the axis before the last of that input."""
    sizes = _sizes(node, index)
    return sizes[-2] if len(sizes) > 1 else 0


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    rows, tokens, width = sizes if len(sizes) == 3 else (1, 1, 1)
    return rows, tokens, width


def _sizes(node: ir.Node, index: int) -> tuple[int, ...]:
    value = input_at(node, index)
    if value is None or value.shape is None:
        return ()
    return tuple(size if isinstance(size, int) else 1 for size in value.shape)


def attention_shape(node: ir.Node) -> tuple[int | str | None, ...] | None:
    """The shape (N, T, H·d) of the result of a GroupQueryAttention of ONNX Runtime, of whose
    operators onnx infers none; None: it is another operator, or the query has no known shape.
    """
    query = input_at(node, 0)
    if not is_group_query(node) or query is None:
        return None
    if query.shape is None or len(query.shape) != 3 or not isinstance(query.shape[2], int):
        return None
    rows, tokens = (size if isinstance(size, int) else size.value for size in query.shape[:2])
    return (rows, tokens, _group_width(node))
