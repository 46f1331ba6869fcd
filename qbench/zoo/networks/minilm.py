"""all-MiniLM-L6-v2: six layers of BERT, and the mean of all tokens as a sentence's direction.

    ids (N, T) → E[id] + P[place] + S, normalized → 6 × block → mean over T → / ‖·‖ → (N, 384)
    block:  x ← norm(x + attention(x)),  x ← norm(x + feed forward(x))

All T tokens count: sentences of one length run together, so that no padding needs a mask.
Source: Devlin et al., BERT (2018), and Reimers and Gurevych, Sentence-BERT (2019), section 3.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.zoo.networks.building import GraphBuilder
from qbench.zoo.networks.parameters import Parameters
from qbench.zoo.networks.transformer import Linear, TransformerParts

WIDTH, LAYERS, WORDS, PLACES = 384, 6, 30522, 512
_USUAL = 16
"""Tokens of a usual sentence, for costs."""


def build_minilm(
    arrays: Mapping[str, npt.NDArray[Any]], head: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None = None
) -> ir.Model:
    """The float graph ``ids`` (N, T) int64 → ``embedding`` (N, 384), or ``logits`` of a linear head on it.

    Args:
        arrays: the checkpoint. head: weight (384, classes) and bias (classes,).

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
    constants = [graph.constant(f"head.{role}", array) for role, array in zip(("weight", "bias"), head, strict=True)]
    return graph.model({"logits": graph.node("Gemm", [embedding, *constants], "head")}, dims={"T": _USUAL})


def _embedded(graph: GraphBuilder, parameters: Parameters, parts: TransformerParts, ids: ir.Value) -> ir.Value:
    words = parameters.take("embeddings.word_embeddings.weight", (WORDS, WIDTH))
    places = parameters.take("embeddings.position_embeddings.weight", (PLACES, WIDTH))
    sentence = parameters.take("embeddings.token_type_embeddings.weight", (2, WIDTH))[0]
    word = graph.node("Gather", [graph.constant("words.weight", words), ids], "words")
    length = graph.node("Shape", [ids], "length", {"start": 1, "end": 2})
    ends = [graph.constant(f"places.{role}", np.array([n], np.int64)) for role, n in (("first", 0), ("axis", 0))]
    # which of two sentences a token is of never changes: the first one's vector is part of every place
    table = graph.constant("places.weight", places + sentence)
    place = graph.node("Slice", [table, ends[0], length, ends[1]], "places")
    return parts.normalize(
        graph.node("Add", [word, place], "embeddings.sum"),
        "embeddings",
        "embeddings.LayerNorm.weight",
        "embeddings.LayerNorm.bias",
    )


def _block(graph: GraphBuilder, parts: TransformerParts, x: ir.Value, key: str, name: str) -> ir.Value:
    def layer(title: str, place: str, inputs: int = WIDTH, outputs: int = WIDTH) -> Linear:
        return Linear(f"{name}.{title}", f"{key}.{place}.weight", f"{key}.{place}.bias", inputs, outputs)

    q, k, v = (parts.linear(x, layer(title, f"attention.self.{title}")) for title in ("query", "key", "value"))
    mixed = parts.linear(parts.attention(f"{name}.attention", q, k, v), layer("mixed", "attention.output.dense"))
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
