"""One step of a gated recurrent unit as a graph: a letter in, or a phoneme in and the next one out.

    x = E[token]
    r = σ(x·Wᵣ + bᵣ + h·Uᵣ + cᵣ)        z = σ(x·W_z + b_z + h·U_z + c_z)
    n = tanh(x·Wₙ + bₙ + r ∘ (h·Uₙ + cₙ))
    h′ = n + z ∘ (h - n)                 (= (1 - z) ∘ n + z ∘ h)
    logits = h′·F + f                    (the decoder's step only)

after Cho et al. 2014 (arXiv 1406.1078), in the variant whose reset gate acts behind the recurrent product, as cuDNN
and torch have it. Each gate has a Gemm of its own: a node to name, and a weight with a scale of its own.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.zoo.networks.building import GraphBuilder
from qbench.zoo.networks.parameters import Parameters

Array = npt.NDArray[np.float32]

STATE = 256
"""Numbers in h, and in an embedding."""

GATES = ("reset", "update", "new")
"""The order in which the checkpoint stacks its gates."""


def g2p_networks(arrays: Mapping[str, Array], *, letters: int, phonemes: int) -> dict[str, ir.Model]:
    """``encoder_step``: token (N,) int64, h (N, 256) → next_h (N, 256); ``decoder_step``: → logits (N, phonemes) too.

    Args:
        arrays: for ``enc`` and ``dec`` each ``_emb`` (tokens, 256), ``_w_ih``, ``_w_hh`` (3·256, 256) and ``_b_ih``,
            ``_b_hh`` (3·256,), and ``fc_w`` (phonemes, 256), ``fc_b`` (phonemes,).
        letters, phonemes: how many tokens each side has.

    Raises:
        InputError: an array is missing, has another shape, or is left over.
    """
    parameters = Parameters("g2p_en", arrays)
    encoder, decoder = GraphBuilder("g2p_encoder_step"), GraphBuilder("g2p_decoder_step")
    encoded = _step(encoder, parameters, "enc", letters)
    decoded = _step(decoder, parameters, "dec", phonemes)
    classes = parameters.take("fc_w", (phonemes, STATE)), parameters.take("fc_b", (phonemes,))
    logits = _gemm(decoder, "classes", decoded, *classes)
    parameters.finish()
    return {
        "encoder_step": encoder.model({"next_h": encoded}),
        "decoder_step": decoder.model({"logits": logits, "next_h": decoded}),
    }


def _step(graph: GraphBuilder, parameters: Parameters, part: str, tokens: int) -> ir.Value:
    """h′ of one step."""
    token = graph.input("token", ("N",), ir.DataType.INT64)
    h = graph.input("h", ("N", STATE))
    table = graph.constant("embedding.weight", parameters.take(f"{part}_emb", (tokens, STATE)))
    x = graph.node("Gather", [table, token], "embedding")
    of_x = _products(graph, parameters, part, "ih", x)
    of_h = _products(graph, parameters, part, "hh", h)
    reset, update = (
        graph.node("Sigmoid", [graph.node("Add", [of_x[gate], of_h[gate]], f"{gate}.sum")], gate)
        for gate in ("reset", "update")
    )
    remembered = graph.node("Mul", [reset, of_h["new"]], "new.remembered")
    new = graph.node("Tanh", [graph.node("Add", [of_x["new"], remembered], "new.sum")], "new")
    kept = graph.node("Mul", [update, graph.node("Sub", [h, new], "state.difference")], "state.kept")
    return graph.node("Add", [new, kept], "state")


def _products(
    graph: GraphBuilder, parameters: Parameters, part: str, side: str, value: ir.Value
) -> dict[str, ir.Value]:
    """Each gate's affine image of ``value``; ``side``: ``ih`` from the input, ``hh`` from the state before."""
    weights = np.split(parameters.take(f"{part}_w_{side}", (3 * STATE, STATE)), 3)
    biases = np.split(parameters.take(f"{part}_b_{side}", (3 * STATE,)), 3)
    return {
        gate: _gemm(graph, f"{gate}.{side}", value, weight, bias)
        for gate, weight, bias in zip(GATES, weights, biases, strict=True)
    }


def _gemm(graph: GraphBuilder, name: str, x: ir.Value, weight: Array, bias: Array) -> ir.Value:
    """x·wᵀ + b, with the weight stored as it is multiplied: (inputs, outputs)."""
    parts = graph.constant(f"{name}.weight", np.ascontiguousarray(weight.T)), graph.constant(f"{name}.bias", bias)
    return graph.node("Gemm", [x, *parts], name)
