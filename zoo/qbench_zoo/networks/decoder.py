"""A small decoder as a float graph with a cache: places are learned, keys and values are shared by
several heads.

    input_ids (N, T), past_key_values.i.key and .value (N, kept heads, S, depth), S ≥ 0
    → logits (N, T, words), present.i.key and .value (N, kept heads, S + T, depth)

    x = E[token] + P[place] → layers × block → norm → · Eᵀ        place: S … S + T − 1
    block:  x ← x + attention(norm(x)),  x ← x + feed forward(norm(x))

The token at place t attends to those at 0 … t: a mask, cut out of one constant, is added to the
scores. Two heads and more share the keys and values of one kept head (Ainslie et al., GQA, 2023,
section 2.2). Names and shapes are those that exporters write (Hugging Face's Optimum). Source:
Radford et al., GPT-2 (2019), section 2.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.subjects import GraphBuilder
from qbench_zoo.networks.parameters import Parameters
from qbench_zoo.networks.transformers import Linear, TransformerParts

EPSILON = 1e-5
_MASKED = -1e9
_USUAL = 64
"""Tokens of a usual run and of its past, for costs."""
_PARTS = ("key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSize:
    """How large a decoder is.

    Args:
        words: tokens that there are.
        width: numbers of a state.
        heads, kept_heads: of attention, and how many of them have keys and values of their own.
        layers: blocks.
        places: tokens of the longest text.
    """

    words: int = 1024
    width: int = 128
    heads: int = 4
    kept_heads: int = 2
    layers: int = 4
    places: int = 256

    @property
    def depth(self) -> int:
        """Numbers of a head."""
        return self.width // self.heads


def parameter_shapes(size: DecoderSize) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter by name; weights are (outputs, inputs)."""
    width, kept = size.width, size.kept_heads * size.depth
    shapes: dict[str, tuple[int, ...]]
    shapes = {"words": (size.words, width), "places": (size.places, width)}
    linear = {
        "query": (width, width),
        "key": (kept, width),
        "value": (kept, width),
        "mixed": (width, width),
        "wide": (4 * width, width),
        "narrow": (width, 4 * width),
    }
    for layer in range(size.layers):
        for norm in ("attention.norm", "wide.norm"):
            shapes |= {f"{layer}.{norm}.{role}": (width,) for role in ("scale", "shift")}
        for role, shape in linear.items():
            shapes |= {f"{layer}.{role}.weight": shape, f"{layer}.{role}.bias": shape[:1]}
    return shapes | {f"last.norm.{role}": (width,) for role in ("scale", "shift")}


def build_decoder(
    arrays: Mapping[str, npt.NDArray[Any]], size: DecoderSize | None = None, *, keeps: bool = True
) -> ir.Model:
    """The float graph of the module's formula.

    Args:
        arrays: its parameters, by the names of ``parameter_shapes``.
        size: of the network; None: that of ``gloss_decoder``.
        keeps: whether it takes and gives keys and values; else S = 0, and ``logits`` is all that it
            gives.

    Raises:
        InputError: an array is missing, has another shape, or belongs to no layer.
    """
    size = size or DecoderSize()
    parameters, graph = Parameters("decoder", arrays), GraphBuilder("decoder")
    parts = TransformerParts(graph, parameters, heads=size.heads, width=size.width, epsilon=EPSILON)
    writer = _Writer(graph, parameters, parts, size, keeps)
    ids = graph.input("input_ids", ("N", "T"), ir.DataType.INT64)
    past = writer.past()
    x, table = writer.embedded(ids, past)
    outputs: dict[str, ir.Value] = {}
    for layer in range(size.layers):
        x, kept = writer.attended(x, layer, past)
        outputs |= kept
        x = writer.widened(x, layer)
    x = parts.normalize(x, "last.norm", "last.norm.scale", "last.norm.shift")
    turned = graph.constant("words.turned", np.ascontiguousarray(table.T))
    logits = graph.node("MatMul", [x, turned], "logits")
    parameters.finish()
    dims = {"T": _USUAL, "S": _USUAL} if keeps else {"T": _USUAL}
    return graph.model({"logits": logits, **(outputs if keeps else {})}, dims=dims)


class _Writer:
    """One graph being written."""

    def __init__(
        self,
        graph: GraphBuilder,
        parameters: Parameters,
        parts: TransformerParts,
        size: DecoderSize,
        keeps: bool,
    ) -> None:
        self._graph, self._take, self._parts = graph, parameters.take, parts
        self._size, self._keeps = size, keeps
        self._mask: ir.Value | None = None

    def past(self) -> dict[str, ir.Value]:
        """Inputs: keys and values of the tokens before, ``0.key`` … by name."""
        if not self._keeps:
            return {}
        shape = ("N", self._size.kept_heads, "S", self._size.depth)
        return {
            f"{layer}.{part}": self._graph.input(f"past_key_values.{layer}.{part}", shape)
            for layer in range(self._size.layers)
            for part in _PARTS
        }

    def embedded(
        self, ids: ir.Value, past: Mapping[str, ir.Value]
    ) -> tuple[ir.Value, npt.NDArray[np.float32]]:
        """Tokens with their places, and the table of all tokens; the mask is made with it."""
        graph, size = self._graph, self._size
        axis = {
            name: graph.constant(f"axis.{name}", np.array(values, np.int64))
            for name, values in {"rows": [0], "both": [0, 1], "start": [0]}.items()
        }
        first, length = axis["start"], graph.node("Shape", [ids], "length", {"start": 1, "end": 2})
        end = length
        if past:
            first = graph.node("Shape", [past["0.key"]], "before", {"start": 2, "end": 3})
            end = graph.node("Add", [first, length], "end")
        table = self._take("words", (size.words, size.width))
        places = graph.constant("places.weight", self._take("places", (size.places, size.width)))
        place = graph.node("Slice", [places, first, end, axis["rows"]], "places")
        word = graph.node("Gather", [graph.constant("words.weight", table), ids], "words")
        future = np.triu(np.full((size.places, size.places), _MASKED, np.float32), 1)
        corners = [
            graph.node("Concat", [rows, columns], f"mask.{name}", {"axis": 0})
            for name, rows, columns in (("start", first, axis["start"]), ("end", end, end))
        ]
        self._mask = graph.node(
            "Slice", [graph.constant("future", future), *corners, axis["both"]], "mask"
        )
        return graph.node("Add", [word, place], "words.placed"), table

    def attended(
        self, x: ir.Value, layer: int, past: Mapping[str, ir.Value]
    ) -> tuple[ir.Value, dict[str, ir.Value]]:
        """``x`` and its attention to what came before and to itself; the keys and values of all
        these, by the names of outputs.
        """
        graph, size, name = self._graph, self._size, f"layer{layer}"
        normal = self._normalized(x, layer, "attention.norm")
        kept_width = size.kept_heads * size.depth
        query = self._parts.queries(name, self._linear(normal, layer, "query", size.width))
        kept = {}
        for part in _PARTS:
            value = self._linear(normal, layer, part, kept_width)
            shape = np.array([0, 0, size.kept_heads, size.depth], np.int64)
            apart = graph.node(
                "Reshape", [value, graph.constant("kept.apart", shape)], f"{name}.{part}.apart"
            )
            value = graph.node("Transpose", [apart], f"{name}.{part}.heads", {"perm": (0, 2, 1, 3)})
            if past:
                before = past[f"{layer}.{part}"]
                value = graph.node(
                    "Concat", [before, value], f"present.{layer}.{part}", {"axis": 2}
                )
            kept[part] = value
        key, value = (self._for_all_heads(kept[part], f"{name}.{part}") for part in _PARTS)
        key = graph.node("Transpose", [key], f"{name}.key.turned", {"perm": (0, 1, 3, 2)})
        mixed = self._attend(name, query, key, value)
        x = graph.node(
            "Add", [x, self._linear(mixed, layer, "mixed", size.width)], f"{name}.attention.sum"
        )
        return x, {f"present.{layer}.{part}": one for part, one in kept.items()}

    def widened(self, x: ir.Value, layer: int) -> ir.Value:
        """``x`` and what two layers make of it."""
        width = self._size.width
        wide, narrow = (
            Linear(f"layer{layer}.{role}", f"{layer}.{role}.weight", f"{layer}.{role}.bias", *ends)
            for role, ends in (("wide", (width, 4 * width)), ("narrow", (4 * width, width)))
        )
        made = self._parts.feed_forward(self._normalized(x, layer, "wide.norm"), wide, narrow)
        return self._graph.node("Add", [x, made], f"layer{layer}.sum")

    def _attend(self, name: str, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        graph = self._graph
        assert self._mask is not None
        scores = graph.node("MatMul", [query, key], f"{name}.scores")
        masked = graph.node("Add", [scores, self._mask], f"{name}.scores.masked")
        weights = graph.node("Softmax", [masked], f"{name}.weights", {"axis": -1})
        mixed = graph.node("MatMul", [weights, value], f"{name}.heads.mixed")
        turned = graph.node("Transpose", [mixed], f"{name}.turned", {"perm": (0, 2, 1, 3)})
        together = graph.constant("heads.together", np.array([0, 0, self._size.width], np.int64))
        return graph.node("Reshape", [turned, together], f"{name}.together")

    def _for_all_heads(self, kept: ir.Value, name: str) -> ir.Value:
        size = self._size
        if size.heads == size.kept_heads:
            return kept
        heads = np.repeat(np.arange(size.kept_heads), size.heads // size.kept_heads)
        index = self._graph.constant("heads.of", heads.astype(np.int64))
        return self._graph.node("Gather", [kept, index], f"{name}.shared", {"axis": 1})

    def _linear(self, x: ir.Value, layer: int, role: str, outputs: int) -> ir.Value:
        name, width = f"layer{layer}.{role}", self._size.width
        return self._parts.linear(
            x, Linear(name, f"{layer}.{role}.weight", f"{layer}.{role}.bias", width, outputs)
        )

    def _normalized(self, x: ir.Value, layer: int, role: str) -> ir.Value:
        keys = (f"{layer}.{role}.scale", f"{layer}.{role}.shift")
        return self._parts.normalize(x, f"layer{layer}.{role}", *keys)
