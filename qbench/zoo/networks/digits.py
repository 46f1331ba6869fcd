"""The digits network as a graph: twice conv → batch norm → ReLU, then max pooling, dense → ReLU → dense.

Batch normalization is kept as a node of its own, as a training framework exports it: folding it is a pass's work.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.zoo.networks.building import GraphBuilder

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DigitsWeights:
    """Trained numbers, all float32.

    Args:
        convolutions: (O, I, 3, 3) each. norms: gamma, beta, mean, variance (O,) of each convolution's result.
        dense: (w (inputs, outputs), b (outputs,)) each. epsilon: added to a variance before its root.
    """

    convolutions: tuple[Array, ...]
    norms: tuple[tuple[Array, Array, Array, Array], ...]
    dense: tuple[tuple[Array, Array], ...]
    epsilon: float


def digits_network(weights: DigitsWeights) -> ir.Model:
    """``x`` (N, 1, 8, 8) in 0 … 1 → ``logits`` (N, 10)."""
    graph = GraphBuilder("digits_cnn")
    value = graph.input("x", ("N", 1, 8, 8))
    for index, (kernel, norm) in enumerate(zip(weights.convolutions, weights.norms, strict=True), start=1):
        inputs = [value, graph.constant(f"conv{index}.weight", kernel)]
        value = graph.node("Conv", inputs, f"conv{index}", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})
        parts = [
            graph.constant(f"norm{index}.{part}", array)
            for part, array in zip(("gamma", "beta", "mean", "variance"), norm, strict=True)
        ]
        value = graph.node("BatchNormalization", [value, *parts], f"norm{index}", {"epsilon": weights.epsilon})
        value = graph.node("Relu", [value], f"relu{index}")
    value = graph.node("MaxPool", [value], "pool", {"kernel_shape": [2, 2], "strides": [2, 2]})
    value = graph.node("Flatten", [value], "flatten")
    for index, (weight, bias) in enumerate(weights.dense, start=1):
        parts = [graph.constant(f"dense{index}.weight", weight), graph.constant(f"dense{index}.bias", bias)]
        value = graph.node("Gemm", [value, *parts], f"dense{index}")
        if index < len(weights.dense):
            value = graph.node("Relu", [value], f"relu_dense{index}")
    return graph.model({"logits": value})
