"""What a decoder keeps of earlier tokens, its channels on one axis."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph import CacheValue, cache_values, node_key, origin_of, set_origin
from qbench.passes.contract import EXACT, Effect
from qbench.passes.editing import NameScope, add_constant

CACHE_CHANNELS = "qbench.cache_channels"
"""Metadata key of the operators of this pass; the one that gives the channels has ``channels``."""

_RANK = 4
_TOKENS = 2


@dataclass(frozen=True, slots=True)
class CacheChannels:
    """Requires: constants are initializers, nodes are named. Ensures: each key and value of
    the cache, (n, heads, tokens, numbers) with known heads and numbers, passes through the form
    (n, heads · numbers, tokens).

        k ── Transpose ── Reshape ── Reshape ── Transpose ── k'

    Axis 1 of that form are the channels that a cache per channel has qparams for, as ONNX Runtime's
    GroupQueryAttention has them (``PER_CHANNEL``): Q and DQ have them along one axis. A key that is
    (n, heads, numbers, tokens) already is not transposed.
    """

    name: str = "cache-channels"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Insert the operators; True when a value of the cache did not have them."""
        values, nodes = NameScope.of_values(model), NameScope.of_nodes(model)
        modified = False
        for one in _cache(model.graph):
            maker, sizes = one.value.producer(), _sizes(one)
            if (
                maker is not None
                and sizes is not None
                and CACHE_CHANNELS not in maker.metadata_props
            ):
                _insert(model.graph, one, sizes, (values, nodes))
                modified = True
        return modified


def _cache(graph: ir.Graph) -> tuple[CacheValue, ...]:
    try:
        return cache_values(graph)
    except InputError:  # its past and present do not match: the plan says so
        return ()


def channels_of_cache(value: ir.Value) -> ir.Value | None:
    """The form (n, heads · numbers, tokens) that ``value`` of a cache came through; None: none."""
    maker = value.producer()
    while maker is not None and (word := maker.metadata_props.get(CACHE_CHANNELS)) is not None:
        if word == "channels":
            return maker.outputs[0]
        source = maker.inputs[0]
        maker = None if source is None else source.producer()
    return None


def _sizes(one: CacheValue) -> tuple[int, int] | None:
    """Heads and numbers of a head; None where they are not known."""
    shape = one.value.shape
    if shape is None or len(shape) != _RANK:
        return None
    heads, numbers = shape[1], shape[_RANK + 1 - one.token_axis]
    return (heads, numbers) if isinstance(heads, int) and isinstance(numbers, int) else None


def _insert(
    graph: ir.Graph, one: CacheValue, sizes: tuple[int, int], scopes: tuple[NameScope, NameScope]
) -> None:
    value, (values, nodes) = one.value, scopes
    maker, name, count = value.producer(), str(value.name), sizes[0] * sizes[1]
    assert maker is not None
    assert value.shape is not None
    n, tokens = value.shape[0], value.shape[one.token_axis]
    turns = [("turned", (n, *sizes, tokens))] if one.token_axis == _TOKENS else []
    back = [("stored", tuple(value.shape))] if turns else []
    forms = [*turns, ("channels", (n, count, tokens)), ("heads", (n, *sizes, tokens)), *back]
    source, before = value, maker
    readers, leaves = tuple(value.uses()), value.is_graph_output()
    for word, shape in forms:
        if word in ("channels", "heads"):
            whole = [0, *shape[1:-1], -1]
            stem = f"{name}.{word}.shape"
            form = add_constant(graph, stem, np.array(whole, np.int64), values)
            made = ir.node("Reshape", [source, form])
        else:
            made = ir.node("Transpose", [source], attributes={"perm": [0, 1, 3, 2]})
        made.name = nodes.fresh(f"{node_key(maker)}.{word}")
        made.metadata_props[CACHE_CHANNELS] = word
        set_origin(made, origin_of(maker))
        result = made.outputs[0]
        result.name, result.type = values.fresh(f"{name}.{word}"), value.type
        result.shape = ir.Shape(shape)
        graph.insert_after(before, made)
        source, before = result, made
    for use in readers:
        use.node.replace_input_with(use.idx, source)
    if leaves:
        graph.outputs[list(graph.outputs).index(value)] = source
        value.name = values.fresh(f"{name}.computed")
        values.release(str(source.name))
        source.name = name
