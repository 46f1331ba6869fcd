"""A residual network whose batch normalizations stand before its convolutions, for pictures of 28 × 28.

    stem:    3×3 conv, stride 2, 1 → 16                                    14 × 14
    block:   y = conv₂(relu(bn₂(conv₁(relu(bn₁(x)))))) + shortcut          3×3 each
             shortcut = x, or a 1×1 conv of relu(bn₁(x)) where the width changes
    stages:  3 blocks each of 16 (14 × 14), 24 (7 × 7) and 32 channels (4 × 4)
    head:    logits = dense(mean(relu(bn(x))))                             10 classes

bn₂ can be folded into conv₁; bn₁ reads a sum that the shortcut reads too, and cannot. 21 convolutions, 97,000
parameters. Source: He et al., "Identity Mappings in Deep Residual Networks" (2016), figure 4 (e).
"""

import onnx_ir as ir

from qbench.zoo.networks.building import GraphBuilder
from qbench.zoo.networks.parameters import TrainedArrays

_STAGES = ((16, 1), (24, 2), (32, 2))
"""Per stage: channels, and the stride of its first block."""

_BLOCKS = 3
_EPSILON = 1e-5
_ROLES = (("scale", "weight"), ("bias", "bias"), ("mean", "running_mean"), ("variance", "running_var"))
"""What the graph and a training framework call the four parts of a batch normalization."""


def build_preactivation(parameters: TrainedArrays, name: str) -> ir.Model:
    """The float graph ``x`` (N, 1, 28, 28) in 0 … 1 → ``logits`` (N, 10).

    Raises:
        InputError: a parameter is missing, or has another shape.
    """
    layers = _Layers(GraphBuilder(name), parameters)
    graph = layers.graph
    width = _STAGES[0][0]
    x = layers.convolution(graph.input("x", ("N", 1, 28, 28)), "stem", 1, width, kernel=3, stride=2)
    for stage, (channels, stride) in enumerate(_STAGES, start=1):
        for index in range(1, _BLOCKS + 1):
            x = layers.block(x, f"stage{stage}.block{index}", width, channels, stride if index == 1 else 1)
            width = channels
    x = layers.activation(x, "head", width)
    x = graph.node("Flatten", [graph.node("GlobalAveragePool", [x], "pool")], "flatten")
    weight = graph.constant("dense.weight", parameters.take("dense.weight", (10, width)))
    bias = graph.constant("dense.bias", parameters.take("dense.bias", (10,)))
    return graph.model({"logits": graph.node("Gemm", [x, weight, bias], "dense", {"transB": 1})})


class _Layers:
    """Writes the layers of this network into ``graph``."""

    def __init__(self, graph: GraphBuilder, parameters: TrainedArrays) -> None:
        self.graph = graph
        self._take = parameters.take

    def convolution(
        self, x: ir.Value, name: str, inputs: int, outputs: int, *, kernel: int, stride: int = 1
    ) -> ir.Value:
        """``x`` convolved, without a bias, padded so that stride 1 keeps the size."""
        weight = self._take(f"{name}.weight", (outputs, inputs, kernel, kernel))
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        return self.graph.node("Conv", [x, self.graph.constant(f"{name}.weight", weight)], name, window)

    def activation(self, x: ir.Value, name: str, channels: int) -> ir.Value:
        """``x`` normalized, and what is positive of it."""
        parts = [
            self.graph.constant(f"{name}.bn.{ours}", self._take(f"{name}.bn.{theirs}", (channels,)))
            for ours, theirs in _ROLES
        ]
        normal = self.graph.node("BatchNormalization", [x, *parts], f"{name}.bn", {"epsilon": _EPSILON})
        return self.graph.node("Relu", [normal], f"{name}.relu")

    def block(self, x: ir.Value, name: str, inputs: int, outputs: int, stride: int) -> ir.Value:
        """``x`` plus what two convolutions make of it."""
        first = self.activation(x, f"{name}.pre1", inputs)
        y = self.convolution(first, f"{name}.conv1", inputs, outputs, kernel=3, stride=stride)
        y = self.activation(y, f"{name}.pre2", outputs)
        y = self.convolution(y, f"{name}.conv2", outputs, outputs, kernel=3)
        if stride != 1 or inputs != outputs:
            x = self.convolution(first, f"{name}.shortcut", inputs, outputs, kernel=1, stride=stride)
        return self.graph.node("Add", [x, y], f"{name}.add")
