"""Transformers as float graphs: MiniLM and Whisper, out of the same blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.subjects import GraphBuilder
from qbench_zoo.networks.parameters import Parameters, TrainedArrays

# The parts of a transformer as nodes: linear layers, layer normalization, attention, and the wide
# middle of blocks.
#
#     attention(q, k, v) = softmax(q · kᵀ / √d) · v      per head, d numbers each
#                                                        (Vaswani et al. 2017, 3.2)
#     feed forward(x)    = W₂ · gelu(W₁ · x + b₁) + b₂   gelu with the error function, not its
#                                                        tangent approximation
#
# Values are (N, T, numbers). Weights are stored as they are multiplied, (inputs, outputs).


@dataclass(frozen=True, slots=True)
class Linear:
    """One linear layer of a checkpoint, whose weight is (outputs, inputs).

    Args:
        name: of its nodes. weight, bias: names of its arrays; no bias: None.
        part, parts: which of how many layers that lie in the arrays one after the other.
    """

    name: str
    weight: str
    bias: str | None
    inputs: int
    outputs: int
    part: int = 0
    parts: int = 1


class TransformerParts:
    """Writes parts into one graph from one checkpoint.

    Args:
        heads: of attention.
        width: numbers of a value.
        epsilon: layer normalization's ε.
    """

    def __init__(
        self,
        graph: GraphBuilder,
        parameters: TrainedArrays,
        *,
        heads: int,
        width: int,
        epsilon: float,
    ) -> None:
        self._graph, self._take = graph, parameters.take
        self._heads, self._width, self._epsilon = heads, width, epsilon
        self._apart = graph.constant(
            "heads.apart", np.array([0, 0, heads, width // heads], np.int64)
        )
        self._together = graph.constant("heads.together", np.array([0, 0, width], np.int64))
        self._root = graph.constant("heads.root", np.array((width // heads) ** -0.5, np.float32))

    def linear(self, x: ir.Value, layer: Linear) -> ir.Value:
        """``x`` (N, T, inputs) through ``layer``."""
        every = layer.parts * layer.outputs
        ours = slice(layer.part * layer.outputs, (layer.part + 1) * layer.outputs)
        weight = self._take(layer.weight, (every, layer.inputs))[ours]
        y = self._graph.node(
            "MatMul",
            [x, self._graph.constant(f"{layer.name}.weight", np.ascontiguousarray(weight.T))],
            f"{layer.name}.product" if layer.bias else layer.name,
        )
        if layer.bias is None:
            return y
        bias = self._graph.constant(f"{layer.name}.bias", self._take(layer.bias, (every,))[ours])
        return self._graph.node("Add", [y, bias], layer.name)

    def normalize(self, x: ir.Value, name: str, scale: str, shift: str) -> ir.Value:
        """Layer normalization of the last axis."""
        parts = [
            self._graph.constant(f"{name}.{role}", self._take(key, (self._width,)))
            for role, key in (("scale", scale), ("shift", shift))
        ]
        return self._graph.node(
            "LayerNormalization", [x, *parts], name, {"axis": -1, "epsilon": self._epsilon}
        )

    def attention(self, name: str, q: ir.Value, k: ir.Value, v: ir.Value) -> ir.Value:
        """``q`` (N, T, width) attends to ``k`` and ``v`` (N, S, width): (N, T, width)."""
        return self.attend(name, self.queries(name, q), self.keys(name, k), self.values(name, v))

    def queries(self, name: str, q: ir.Value) -> ir.Value:
        """``q`` (N, T, width) / √d, heads apart: (N, heads, T, d)."""
        q = self._graph.node("Mul", [q, self._root], f"{name}.query.scaled")
        return self._split(q, f"{name}.query.heads", (0, 2, 1, 3))

    def keys(self, name: str, k: ir.Value) -> ir.Value:
        """``k`` (N, S, width), heads apart, as queries are multiplied with it: (N, heads, d, S)."""
        return self._split(k, f"{name}.key.heads", (0, 2, 3, 1))

    def values(self, name: str, v: ir.Value) -> ir.Value:
        """``v`` (N, S, width), heads apart: (N, heads, S, d)."""
        return self._split(v, f"{name}.value.heads", (0, 2, 1, 3))

    def attend(
        self,
        name: str,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        mask: ir.Value | None = None,
    ) -> ir.Value:
        """What ``queries`` take of ``values`` by ``keys``: (N, T, width); ``mask`` (T, S) is added
        to the scores.
        """
        graph = self._graph
        scores = graph.node("MatMul", [query, key], f"{name}.scores")
        if mask is not None:
            scores = graph.node("Add", [scores, mask], f"{name}.scores.masked")
        weights = graph.node("Softmax", [scores], f"{name}.weights", {"axis": -1})
        mixed = graph.node("MatMul", [weights, value], f"{name}.mixed")
        turned = graph.node("Transpose", [mixed], f"{name}.mixed.turned", {"perm": (0, 2, 1, 3)})
        return graph.node("Reshape", [turned, self._together], f"{name}.together")

    def feed_forward(self, x: ir.Value, first: Linear, second: Linear) -> ir.Value:
        """``x`` through two layers with gelu between them."""
        wide = self._graph.node("Gelu", [self.linear(x, first)], f"{first.name}.gelu")
        return self.linear(wide, second)

    def _split(self, x: ir.Value, name: str, order: Sequence[int]) -> ir.Value:
        apart = self._graph.node("Reshape", [x, self._apart], f"{name}.apart")
        return self._graph.node("Transpose", [apart], name, {"perm": tuple(order)})


# all-MiniLM-L6-v2: six layers of BERT, and the mean of all tokens as a sentence's direction.
#
#     ids (N, T) → E[id] + P[place] + S, normalized → 6 × block → mean over T → / ‖·‖ → (N, 384)
#     block:  x ← norm(x + attention(x)),  x ← norm(x + feed forward(x))
#
# All T tokens count: sentences of one length run together, so that no padding needs a mask.
# Source: Devlin et al., BERT (2018), and Reimers and Gurevych, Sentence-BERT (2019), section 3.

WIDTH, LAYERS, WORDS, PLACES = 384, 6, 30522, 512
_USUAL = 16
"""Tokens of a usual sentence, for costs."""


def build_minilm(
    arrays: Mapping[str, npt.NDArray[Any]],
    head: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None = None,
) -> ir.Model:
    """The float graph ``ids`` (N, T) int64 → ``embedding`` (N, 384), or ``logits`` of a linear
    head on it.

    Args:
        arrays: the checkpoint.
        head: weight (384, classes) and bias (classes,).

    Raises:
        InputError: an array is missing, has another shape, or belongs to no layer.
    """
    parameters, graph = Parameters("minilm", arrays), GraphBuilder("minilm")
    parts = TransformerParts(graph, parameters, heads=12, width=WIDTH, epsilon=1e-12)
    x = _embedded(graph, parameters, parts, graph.input("ids", ("N", "T"), ir.DataType.INT64))
    for index in range(LAYERS):
        x = _block(graph, parts, x, f"encoder.layer.{index}", f"layer{index}")
    parameters.take("embeddings.position_ids", (1, PLACES))
    for role in ("weight", "bias"):  # of a pooler that sentence vectors do not use
        parameters.take(f"pooler.dense.{role}", (WIDTH, WIDTH) if role == "weight" else (WIDTH,))
    parameters.finish()
    tokens = graph.constant("pool.axes", np.array([1], np.int64))
    mean = graph.node("ReduceMean", [x, tokens], "pool", {"keepdims": 0})
    last = graph.constant("norm.axes", np.array([-1], np.int64))
    length = graph.node("ReduceL2", [mean, last], "norm", {"keepdims": 1})
    embedding = graph.node("Div", [mean, length], "direction")
    if head is None:
        return graph.model({"embedding": embedding}, dims={"T": _USUAL})
    constants = [
        graph.constant(f"head.{role}", array)
        for role, array in zip(("weight", "bias"), head, strict=True)
    ]
    return graph.model(
        {"logits": graph.node("Gemm", [embedding, *constants], "head")}, dims={"T": _USUAL}
    )


def _embedded(
    graph: GraphBuilder, parameters: Parameters, parts: TransformerParts, ids: ir.Value
) -> ir.Value:
    words = parameters.take("embeddings.word_embeddings.weight", (WORDS, WIDTH))
    places = parameters.take("embeddings.position_embeddings.weight", (PLACES, WIDTH))
    sentence = parameters.take("embeddings.token_type_embeddings.weight", (2, WIDTH))[0]
    word = graph.node("Gather", [graph.constant("words.weight", words), ids], "words")
    length = graph.node("Shape", [ids], "length", {"start": 1, "end": 2})
    ends = [
        graph.constant(f"places.{role}", np.array([n], np.int64))
        for role, n in (("first", 0), ("axis", 0))
    ]
    # which of two sentences a token is of never changes: the first one's vector is part of every
    # place
    table = graph.constant("places.weight", places + sentence)
    place = graph.node("Slice", [table, ends[0], length, ends[1]], "places")
    return parts.normalize(
        graph.node("Add", [word, place], "embeddings.sum"),
        "embeddings",
        "embeddings.LayerNorm.weight",
        "embeddings.LayerNorm.bias",
    )


def _block(
    graph: GraphBuilder, parts: TransformerParts, x: ir.Value, key: str, name: str
) -> ir.Value:
    def layer(title: str, place: str, inputs: int = WIDTH, outputs: int = WIDTH) -> Linear:
        return Linear(
            f"{name}.{title}", f"{key}.{place}.weight", f"{key}.{place}.bias", inputs, outputs
        )

    q, k, v = (
        parts.linear(x, layer(title, f"attention.self.{title}"))
        for title in ("query", "key", "value")
    )
    mixed = parts.linear(
        parts.attention(f"{name}.attention", q, k, v), layer("mixed", "attention.output.dense")
    )
    x = parts.normalize(
        graph.node("Add", [x, mixed], f"{name}.attention.sum"),
        f"{name}.attention.norm",
        f"{key}.attention.output.LayerNorm.weight",
        f"{key}.attention.output.LayerNorm.bias",
    )
    wide = parts.feed_forward(
        x,
        layer("wide", "intermediate.dense", outputs=4 * WIDTH),
        layer("narrow", "output.dense", inputs=4 * WIDTH),
    )
    return parts.normalize(
        graph.node("Add", [x, wide], f"{name}.sum"),
        f"{name}.norm",
        f"{key}.output.LayerNorm.weight",
        f"{key}.output.LayerNorm.bias",
    )


# Whisper: an encoder of sound, and one step of a decoder that reads the encoder's states and the
# text so far.
#
#     encoder        mel (N, 80, T) → gelu(conv) → gelu(conv, stride 2) + P[place] → 4 × block
#                    → norm → states (N, T/2, 384), and of these, for every layer of the decoder,
#                    keys and values of its attention
#     decoder_step   token (N, 1) → E[token] + P[place] → 4 × block → norm → · Eᵀ
#                    = logits (N, words)
#     block:         x ← x + attention(norm(x)),
#                    x ← x + attention to the states(norm(x)) in the decoder,
#                    x ← x + feed forward(norm(x))
#
#     decoder        token (N, T) → the same for T tokens at once, logits (N, T, words)
#
# The place of a token is the number of keys so far; a step adds its own key, so that none needs a
# mask. Of T tokens each attends to those in front of it and to itself: a mask is cut out of one
# constant. Keys have the shape (N, heads, 64, S), values (N, heads, S, 64). Source: Radford et al.,
# Robust Speech Recognition via Large-Scale Weak Supervision (2022), and its ``whisper/model.py``;
# names of arrays: CTranslate2's ``WhisperSpec``.

MELS, FRAMES = 80, 1500
"""Bands of sound, and how many steps of 10 ms the network is given here: 15 s, half of what it
was trained with.
"""

_EPSILON = 1e-5
_MASKED = -1e9
_SETTINGS = (
    *("/activation", "/alibi", "/alignment_heads", "/alignment_layer", "/num_heads", "/pre_norm"),
    *("/scale_embeddings", "/start_from_zero_embedding", "decoder/projection/weight"),
)
"""Of the specification, which is fixed here; the last is a second name of the embedding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhisperSize:
    """How large a network is: those of ``tiny.en``, unless said otherwise.

    Args:
        width: numbers of a state. heads, layers: of encoder and decoder each.
        words: tokens that there are.
        mels: bands of sound.
        sounds: states of the longest sound.
        places: tokens of the longest text.
        usual_sounds, usual_tokens: of a usual sound and text, for costs.
    """

    width: int = 384
    heads: int = 6
    layers: int = 4
    words: int = 51_864
    mels: int = MELS
    sounds: int = 1500
    places: int = 448
    usual_sounds: int = FRAMES // 2
    usual_tokens: int = 16


@dataclass(frozen=True, slots=True)
class _Writer:
    """One graph being written."""

    graph: GraphBuilder
    parameters: Parameters
    parts: TransformerParts
    size: WhisperSize

    @staticmethod
    def of(name: str, parameters: Parameters, size: WhisperSize) -> "_Writer":
        graph = GraphBuilder(name)
        parts = TransformerParts(
            graph, parameters, heads=size.heads, width=size.width, epsilon=_EPSILON
        )
        return _Writer(graph, parameters, parts, size)

    def normalize(self, x: ir.Value, name: str, key: str) -> ir.Value:
        """Layer normalization by the arrays behind ``key``."""
        return self.parts.normalize(x, name, f"{key}/gamma", f"{key}/beta")

    def linear(self, x: ir.Value, name: str, key: str, part: int = 0, parts: int = 1) -> ir.Value:
        """``x`` through a layer that keeps its width."""
        width = self.size.width
        return self.parts.linear(
            x, Linear(name, f"{key}/weight", f"{key}/bias", width, width, part, parts)
        )

    def add(self, x: ir.Value, more: ir.Value, name: str) -> ir.Value:
        """``x`` + ``more``."""
        return self.graph.node("Add", [x, more], name)

    def feed_forward(self, x: ir.Value, name: str, key: str) -> ir.Value:
        """``x`` and what two layers make of it."""
        width = self.size.width
        wide, narrow = (
            Linear(
                f"{name}.{title}",
                f"{key}/linear_{index}/weight",
                f"{key}/linear_{index}/bias",
                *ends,
            )
            for index, (title, ends) in enumerate(
                {"wide": (width, 4 * width), "narrow": (4 * width, width)}.items()
            )
        )
        normal = self.normalize(x, f"{name}.wide.norm", f"{key}/layer_norm")
        return self.add(x, self.parts.feed_forward(normal, wide, narrow), f"{name}.sum")


def whisper_networks(
    arrays: Mapping[str, npt.NDArray[Any]], size: WhisperSize | None = None
) -> dict[str, ir.Model]:
    """The float graphs ``encoder`` and ``decoder_step``.

    ``encoder``: mel (N, mels, T) float32 → heard_key_i (N, heads, width / heads, T/2),
    heard_value_i (N, heads, T/2, width / heads), i < layers. ``decoder_step``: token (N, 1) int64,
    these, and key_i, value_i of S tokens before it, S ≥ 0 → logits (N, words), next_key_i and
    next_value_i of S + 1 tokens.

    Args:
        arrays: the checkpoint.
        size: of the network; None: that of tiny.en.

    Raises:
        InputError: an array is missing, has another shape, or belongs to no layer.
    """
    size = size or WhisperSize()
    parameters = Parameters("whisper", arrays)
    graphs = {
        "encoder": _encoder(_Writer.of("whisper_encoder", parameters, size)),
        "decoder_step": _decoder_step(_Writer.of("whisper_decoder_step", parameters, size)),
    }
    parameters.finish(unused=_SETTINGS)
    return graphs


def whisper_decoder(
    arrays: Mapping[str, npt.NDArray[Any]], size: WhisperSize | None = None
) -> ir.Model:
    """The float graph ``decoder``: that of a step, for T tokens at once.

    token (N, T) int64, heard_key_i, heard_value_i, and key_i, value_i of S tokens before it →
    logits (N, T, words), next_key_i and next_value_i of S + T tokens. Keys and values have the
    shapes of ``whisper_networks``.

    Args:
        arrays: the checkpoint.
        size: of the network; None: that of tiny.en.

    Raises:
        InputError: an array of the decoder is missing, has another shape, or belongs to no layer.
    """
    own = {name: array for name, array in arrays.items() if name.startswith("decoder/")}
    parameters = Parameters("whisper's decoder", own)
    model = _decoder(_Writer.of("whisper_decoder", parameters, size or WhisperSize()))
    # keys and values of what was heard are made where it was heard
    parameters.finish(
        unused=(*_SETTINGS, *(f"/attention/linear_1/{r}" for r in ("weight", "bias")))
    )
    return model


def _encoder(writer: _Writer) -> ir.Model:
    graph, size = writer.graph, writer.size
    x = graph.input("mel", ("N", size.mels, "T"))
    for name, inputs, stride in (("conv1", size.mels, 1), ("conv2", size.width, 2)):
        x = _convolution(writer, x, name, inputs, stride)
    x = graph.node("Transpose", [x], "sounds", {"perm": (0, 2, 1)})
    places = writer.parameters.take(
        "encoder/position_encodings/encodings", (size.sounds, size.width)
    )
    ends = [
        graph.constant(f"places.{role}", np.array([n], np.int64))
        for role, n in (("first", 0), ("axis", 0))
    ]
    length = graph.node("Shape", [x], "length", {"start": 1, "end": 2})
    place = graph.node(
        "Slice", [graph.constant("places.weight", places), ends[0], length, ends[1]], "places"
    )
    x = writer.add(x, place, "sounds.placed")
    for index in range(size.layers):
        key, name = f"encoder/layer_{index}", f"layer{index}"
        attention = f"{key}/self_attention"
        normal = writer.normalize(x, f"{name}.attention.norm", f"{attention}/layer_norm")
        q, k, v = (
            writer.linear(normal, f"{name}.{role}", f"{attention}/linear_0", part, 3)
            for part, role in enumerate(("query", "key", "value"))
        )
        mixed = writer.parts.attention(f"{name}.attention", q, k, v)
        x = writer.add(
            x, writer.linear(mixed, f"{name}.out", f"{attention}/linear_1"), f"{name}.attention.sum"
        )
        x = writer.feed_forward(x, name, f"{key}/ffn")
    states = writer.normalize(x, "states", "encoder/layer_norm")
    outputs: dict[str, ir.Value] = {}
    for index in range(size.layers):
        key, name = f"decoder/layer_{index}/attention/linear_1", f"heard{index}"
        k, v = (
            writer.linear(states, f"{name}.{role}", key, part, 2)
            for part, role in enumerate(("key", "value"))
        )
        outputs[f"heard_key_{index}"] = writer.parts.keys(name, k)
        outputs[f"heard_value_{index}"] = writer.parts.values(name, v)
    return graph.model(outputs, dims={"T": 2 * size.usual_sounds})


def _convolution(writer: _Writer, x: ir.Value, name: str, inputs: int, stride: int) -> ir.Value:
    weight = writer.parameters.take(f"encoder/{name}/weight", (writer.size.width, inputs, 3))
    bias = writer.parameters.take(f"encoder/{name}/bias", (writer.size.width,))
    constants = [
        writer.graph.constant(f"{name}.{role}", a)
        for role, a in (("weight", weight), ("bias", bias))
    ]
    y = writer.graph.node("Conv", [x, *constants], name, {"pads": (1, 1), "strides": (stride,)})
    return writer.graph.node("Gelu", [y], f"{name}.gelu")


def _decoder_step(writer: _Writer) -> ir.Model:
    graph, size = writer.graph, writer.size
    token = graph.input("token", ("N", 1), ir.DataType.INT64)
    before, heard = _kept(writer, "", "S"), _kept(writer, "heard_", "H")
    table = writer.parameters.take("decoder/embeddings/weight", (size.words, size.width))
    places = writer.parameters.take(
        "decoder/position_encodings/encodings", (size.places, size.width)
    )
    embedding = graph.constant("words.weight", table)
    place = graph.node("Shape", [before["key_0"]], "place", {"start": 3, "end": 4})
    x = writer.add(
        graph.node("Gather", [embedding, token], "words"),
        graph.node("Gather", [graph.constant("places.weight", places), place], "places"),
        "words.placed",
    )
    x, outputs = _decoded(writer, x, before, heard)
    last = graph.node("Squeeze", [x, graph.constant("last.axes", np.array([1], np.int64))], "last")
    logits = graph.node("Gemm", [last, embedding], "logits", {"transB": 1})
    dims = {"S": size.usual_tokens, "H": size.usual_sounds}
    return graph.model({"logits": logits, **outputs}, dims=dims)


def _decoder(writer: _Writer) -> ir.Model:
    graph, size = writer.graph, writer.size
    tokens = graph.input("token", ("N", "T"), ir.DataType.INT64)
    before, heard = _kept(writer, "", "S"), _kept(writer, "heard_", "H")
    table = writer.parameters.take("decoder/embeddings/weight", (size.words, size.width))
    places = writer.parameters.take(
        "decoder/position_encodings/encodings", (size.places, size.width)
    )
    rows, columns = (
        graph.constant(f"{name}.axis", np.array([axis], np.int64))
        for name, axis in (("rows", 0), ("columns", 1))
    )
    first = graph.node("Shape", [before["key_0"]], "first", {"start": 3, "end": 4})
    length = graph.node("Shape", [tokens], "length", {"start": 1, "end": 2})
    end = graph.node("Add", [first, length], "end")
    ranges = [first, end, rows]
    place = graph.node("Slice", [graph.constant("places.weight", places), *ranges], "places")
    future = np.triu(np.full((size.places, size.places), _MASKED, np.float32), 1)
    below = graph.node("Slice", [graph.constant("future", future), *ranges], "mask.rows")
    mask = graph.node("Slice", [below, rows, end, columns], "mask")
    embedding = graph.constant("words.weight", table)
    word = graph.node("Gather", [embedding, tokens], "words")
    x, outputs = _decoded(writer, writer.add(word, place, "words.placed"), before, heard, mask)
    flat = graph.constant("flat.shape", np.array([-1, size.width], np.int64))
    # of all rows as one matrix, so that one table both reads tokens and scores them
    last = graph.node("Reshape", [x, flat], "last")
    scores = graph.node("Gemm", [last, embedding], "scores", {"transB": 1})
    batch = graph.node("Shape", [tokens], "batch")
    wide = graph.constant("words.count", np.array([size.words], np.int64))
    whole = graph.node("Concat", [batch, wide], "whole", {"axis": 0})
    logits = graph.node("Reshape", [scores, whole], "logits")
    dims = {"T": size.usual_tokens, "S": size.usual_tokens, "H": size.usual_sounds}
    return graph.model({"logits": logits, **outputs}, dims=dims)


def _decoded(
    writer: _Writer,
    x: ir.Value,
    before: Mapping[str, ir.Value],
    heard: Mapping[str, ir.Value],
    mask: ir.Value | None = None,
) -> tuple[ir.Value, dict[str, ir.Value]]:
    """``x`` behind all blocks, normalized, and what is kept, by the names of outputs."""
    outputs: dict[str, ir.Value] = {}
    for index in range(writer.size.layers):
        kept = before[f"key_{index}"], before[f"value_{index}"]
        x, key, value = _written(writer, x, index, kept, mask)
        outputs |= {f"next_key_{index}": key, f"next_value_{index}": value}
        x = _listened(writer, x, index, heard[f"key_{index}"], heard[f"value_{index}"])
        x = writer.feed_forward(x, f"layer{index}", f"decoder/layer_{index}/ffn")
    return writer.normalize(x, "last.norm", "decoder/layer_norm"), outputs


def _kept(writer: _Writer, prefix: str, length: str) -> dict[str, ir.Value]:
    """Inputs: keys and values of ``length`` tokens or sounds, of every layer, by name without
    ``prefix``.
    """
    size = writer.size
    depth = size.width // size.heads
    shapes: Mapping[str, tuple[int | str, ...]]
    shapes = {"key": ("N", size.heads, depth, length), "value": ("N", size.heads, length, depth)}
    return {
        f"{role}_{index}": writer.graph.input(f"{prefix}{role}_{index}", shape)
        for index in range(size.layers)
        for role, shape in shapes.items()
    }


def _written(
    writer: _Writer,
    x: ir.Value,
    index: int,
    before: tuple[ir.Value, ir.Value],
    mask: ir.Value | None,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """``x`` and its attention to what was written before, whose keys and values are ``before``,
    and to itself; the keys and values of all these.
    """
    name, key = f"layer{index}.written", f"decoder/layer_{index}/self_attention"
    normal = writer.normalize(x, f"{name}.norm", f"{key}/layer_norm")
    q, k, v = (
        writer.linear(normal, f"{name}.{role}", f"{key}/linear_0", part, 3)
        for part, role in enumerate(("query", "key", "value"))
    )
    query = writer.parts.queries(name, q)
    keys, values = before
    k = writer.graph.node("Concat", [keys, writer.parts.keys(name, k)], f"{name}.keys", {"axis": 3})
    v = writer.graph.node(
        "Concat", [values, writer.parts.values(name, v)], f"{name}.values", {"axis": 2}
    )
    mixed = writer.parts.attend(name, query, k, v, mask)
    mixed = writer.linear(mixed, f"{name}.out", f"{key}/linear_1")
    return writer.add(x, mixed, f"{name}.sum"), k, v


def _listened(
    writer: _Writer, x: ir.Value, index: int, keys: ir.Value, values: ir.Value
) -> ir.Value:
    """``x`` and its attention to what was heard."""
    name, key = f"layer{index}.heard", f"decoder/layer_{index}/attention"
    normal = writer.normalize(x, f"{name}.norm", f"{key}/layer_norm")
    query = writer.parts.queries(name, writer.linear(normal, f"{name}.query", f"{key}/linear_0"))
    mixed = writer.linear(
        writer.parts.attend(name, query, keys, values), f"{name}.out", f"{key}/linear_2"
    )
    return writer.add(x, mixed, f"{name}.sum")
