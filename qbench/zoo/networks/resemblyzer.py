"""A voice encoder: three recurrent layers over a spectrogram, and the direction of what the last one remembers.

    i = σ(W_i·xₜ + R_i·hₜ₋₁ + b_i)      f, o alike      g = tanh(W_g·xₜ + R_g·hₜ₋₁ + b_g)
    cₜ = f ∘ cₜ₋₁ + i ∘ g               hₜ = o ∘ tanh(cₜ)                    h₋₁ = c₋₁ = 0, three layers
    e = relu(A·h_T + a)                 embedding = e / max(‖e‖₂, 1e-12)

Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000, trained as Wan et al. 2018 describe (GE2E,
arXiv 1710.10467). The checkpoint stacks its gates i, f, g, o; ONNX's LSTM wants i, o, f, g (opset 14, section LSTM).
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.zoo.networks.building import GraphBuilder
from qbench.zoo.networks.parameters import Parameters

Array = npt.NDArray[np.float32]

MELS = 40
"""Bands of a frame."""

FRAMES = 160
"""Frames of a window: 1.6 s in steps of 10 ms."""

STATE = 256
"""Numbers in h, and in an embedding."""

LAYERS = 3
_ONNX_ORDER = (0, 3, 1, 2)
_LEAST_NORM = 1e-12


def resemblyzer_network(arrays: Mapping[str, Array]) -> ir.Model:
    """``mel`` (N, 160, 40) → ``embedding`` (N, 256), of length 1 and nowhere negative.

    Args:
        arrays: for l = 0, 1, 2 ``lstm.weight_ih_l``, ``lstm.weight_hh_l`` (4·256, inputs) and ``lstm.bias_ih_l``,
            ``lstm.bias_hh_l`` (4·256,), and ``linear.weight`` (256, 256), ``linear.bias`` (256,); the two
            ``similarity_…`` numbers of its training are let be.

    Raises:
        InputError: an array is missing, has another shape, or is left over.
    """
    parameters = Parameters("resemblyzer", arrays)
    graph = GraphBuilder("resemblyzer")
    value = graph.input("mel", ("N", FRAMES, MELS))
    value = graph.node("Transpose", [value], "frames", {"perm": (1, 0, 2)})
    for layer in range(LAYERS):
        value = _layer(graph, parameters, layer, value, MELS if layer == 0 else STATE)
    # hₜ of the last frame out of the whole sequence: ONNX Runtime quantizes a recurrence whichever output is read
    last = graph.node("Gather", [value, graph.constant("last", np.array(-1, np.int64))], "last_frame", {"axis": 0})
    weight = graph.constant("linear.weight", np.ascontiguousarray(parameters.take("linear.weight", (STATE, STATE)).T))
    bias = graph.constant("linear.bias", parameters.take("linear.bias", (STATE,)))
    raw = graph.node("Relu", [graph.node("Gemm", [last, weight, bias], "linear")], "relu")
    parameters.finish(unused=("similarity_weight", "similarity_bias"))
    norm = graph.node("ReduceL2", [raw, graph.constant("norm.axes", np.array([1], np.int64))], "norm", {"keepdims": 1})
    least = graph.constant("norm.least", np.array(_LEAST_NORM, np.float32))
    return graph.model({"embedding": graph.node("Div", [raw, graph.node("Max", [norm, least], "length")], "unit")})


def _layer(graph: GraphBuilder, parameters: Parameters, layer: int, value: ir.Value, inputs: int) -> ir.Value:
    """hₜ of every frame, (160, N, 256)."""
    w, r = (
        _in_onnx_order(parameters.take(f"lstm.weight_{side}_l{layer}", (4 * STATE, width)))[None]
        for side, width in (("ih", inputs), ("hh", STATE))
    )
    biases = [_in_onnx_order(parameters.take(f"lstm.bias_{side}_l{layer}", (4 * STATE,))) for side in ("ih", "hh")]
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
