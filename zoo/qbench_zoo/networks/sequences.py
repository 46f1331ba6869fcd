"""Recurrent networks as float graphs: pronunciation by a GRU, voices by an LSTM."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.subjects import GraphBuilder
from qbench_zoo.networks.parameters import Parameters

# One step of a gated recurrent unit as a graph: a letter in, or a phoneme in and the next one out.
#
#     x = E[token]
#     r = σ(x·Wᵣ + bᵣ + h·Uᵣ + cᵣ)        z = σ(x·W_z + b_z + h·U_z + c_z)
#     n = tanh(x·Wₙ + bₙ + r ∘ (h·Uₙ + cₙ))
#     h′ = n + z ∘ (h - n)                 (= (1 - z) ∘ n + z ∘ h)
#     logits = h′·F + f                    (the decoder's step only)
#
# after Cho et al. 2014 (arXiv 1406.1078), in the variant whose reset gate acts behind the recurrent
# product, as cuDNN and torch have it. Each gate has a Gemm of its own: a node to name, and a weight
# with a scale of its own.

Array = npt.NDArray[np.float32]

STATE = 256
"""Numbers in h, and in an embedding."""

GATES = ("reset", "update", "new")
"""The order in which the checkpoint stacks its gates."""


def g2p_networks(
    arrays: Mapping[str, Array], *, letters: int, phonemes: int
) -> dict[str, ir.Model]:
    """``encoder_step``: token (N,) int64, h (N, 256) → next_h (N, 256); ``decoder_step``: →
    logits (N, phonemes) too.

    Args:
        arrays: for ``enc`` and ``dec`` each ``_emb`` (tokens, 256), ``_w_ih``, ``_w_hh`` (3·256,
            256) and ``_b_ih``, ``_b_hh`` (3·256,), and ``fc_w`` (phonemes, 256), ``fc_b``
            (phonemes,).
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
    kept = graph.node(
        "Mul", [update, graph.node("Sub", [h, new], "state.difference")], "state.kept"
    )
    return graph.node("Add", [new, kept], "state")


def _products(
    graph: GraphBuilder, parameters: Parameters, part: str, side: str, value: ir.Value
) -> dict[str, ir.Value]:
    """Each gate's affine image of ``value``; ``side``: ``ih`` from the input, ``hh`` from the
    state before.
    """
    weights = np.split(parameters.take(f"{part}_w_{side}", (3 * STATE, STATE)), 3)
    biases = np.split(parameters.take(f"{part}_b_{side}", (3 * STATE,)), 3)
    return {
        gate: _gemm(graph, f"{gate}.{side}", value, weight, bias)
        for gate, weight, bias in zip(GATES, weights, biases, strict=True)
    }


def _gemm(graph: GraphBuilder, name: str, x: ir.Value, weight: Array, bias: Array) -> ir.Value:
    """x·wᵀ + b, with the weight stored as it is multiplied: (inputs, outputs)."""
    parts = (
        graph.constant(f"{name}.weight", np.ascontiguousarray(weight.T)),
        graph.constant(f"{name}.bias", bias),
    )
    return graph.node("Gemm", [x, *parts], name)


# A voice encoder: three recurrent layers over a spectrogram, and the direction of what the last one
# remembers.
#
#     i = σ(W_i·xₜ + R_i·hₜ₋₁ + b_i)    f, o alike      g = tanh(W_g·xₜ + R_g·hₜ₋₁ + b_g)
#     cₜ = f ∘ cₜ₋₁ + i ∘ g             hₜ = o ∘ tanh(cₜ)    h₋₁ = c₋₁ = 0, three layers
#     e = relu(A·h_T + a)               embedding = e / max(‖e‖₂, 1e-12)
#
# Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000, trained as Wan et al.
# 2018 describe (GE2E, arXiv 1710.10467). The checkpoint stacks its gates i, f, g, o; ONNX's LSTM
# wants i, o, f, g (opset 14, section LSTM).

MELS = 40
"""Bands of a frame."""

FRAMES = 160
"""Frames of a window: 1.6 s in steps of 10 ms."""

"""Numbers in h, and in an embedding."""

LAYERS = 3
_ONNX_ORDER = (0, 3, 1, 2)
_LEAST_NORM = 1e-12


def resemblyzer_network(arrays: Mapping[str, Array]) -> ir.Model:
    """``mel`` (N, 160, 40) → ``embedding`` (N, 256), of length 1 and nowhere negative.

    Args:
        arrays: for l = 0, 1, 2 ``lstm.weight_ih_l``, ``lstm.weight_hh_l`` (4·256, inputs) and
            ``lstm.bias_ih_l``, ``lstm.bias_hh_l`` (4·256,), and ``linear.weight`` (256, 256),
            ``linear.bias`` (256,); the two ``similarity_…`` numbers of its training are let be.

    Raises:
        InputError: an array is missing, has another shape, or is left over.
    """
    parameters = Parameters("resemblyzer", arrays)
    graph = GraphBuilder("resemblyzer")
    value = graph.input("mel", ("N", FRAMES, MELS))
    value = graph.node("Transpose", [value], "frames", {"perm": (1, 0, 2)})
    for layer in range(LAYERS):
        value = _layer(graph, parameters, layer, value, MELS if layer == 0 else STATE)
    # hₜ of the last frame out of the whole sequence: ONNX Runtime quantizes a recurrence whichever
    # output is read
    last = graph.node(
        "Gather", [value, graph.constant("last", np.array(-1, np.int64))], "last_frame", {"axis": 0}
    )
    weight = graph.constant(
        "linear.weight", np.ascontiguousarray(parameters.take("linear.weight", (STATE, STATE)).T)
    )
    bias = graph.constant("linear.bias", parameters.take("linear.bias", (STATE,)))
    raw = graph.node("Relu", [graph.node("Gemm", [last, weight, bias], "linear")], "relu")
    parameters.finish(unused=("similarity_weight", "similarity_bias"))
    norm = graph.node(
        "ReduceL2",
        [raw, graph.constant("norm.axes", np.array([1], np.int64))],
        "norm",
        {"keepdims": 1},
    )
    least = graph.constant("norm.least", np.array(_LEAST_NORM, np.float32))
    return graph.model(
        {"embedding": graph.node("Div", [raw, graph.node("Max", [norm, least], "length")], "unit")}
    )


def _layer(
    graph: GraphBuilder, parameters: Parameters, layer: int, value: ir.Value, inputs: int
) -> ir.Value:
    """hₜ of every frame, (160, N, 256)."""
    w, r = (
        _in_onnx_order(parameters.take(f"lstm.weight_{side}_l{layer}", (4 * STATE, width)))[None]
        for side, width in (("ih", inputs), ("hh", STATE))
    )
    biases = [
        _in_onnx_order(parameters.take(f"lstm.bias_{side}_l{layer}", (4 * STATE,)))
        for side in ("ih", "hh")
    ]
    name = f"lstm{layer}"
    constants = [
        graph.constant(f"{name}.{part}", array)
        for part, array in (("W", w), ("R", r), ("B", np.concatenate(biases)[None]))
    ]
    every = graph.node("LSTM", [value, *constants], name, {"hidden_size": STATE})
    axes = graph.constant("direction", np.array([1], np.int64))
    return graph.node("Squeeze", [every, axes], f"{name}.states")


def _in_onnx_order(stacked: Array) -> Array:
    """Gates stacked along the first axis as i, f, g, o → as i, o, f, g."""
    gates = np.split(stacked, 4)
    return np.concatenate([gates[place] for place in _ONNX_ORDER])
