"""A small network of inverted residual blocks for pictures of 28 × 28: depthwise convolutions, as MobileNetV2 has them.

x (N, 1, 28, 28) → 3×3 conv, stride 2 → 7 blocks of 24 … 64 channels → mean → dense → logits (N, 10)
"""

import onnx_ir as ir

from qbench.zoo.networks.building import GraphBuilder
from qbench.zoo.networks.inverted_residual import Layers, Unit
from qbench.zoo.networks.parameters import TrainedArrays

_STEM = 16
_EXPANSION = 4
_STAGES = ((24, 2, 1), (40, 3, 2), (64, 2, 2))
"""Per stage: channels, blocks, stride of the first block."""


def build_fashion_mobile(parameters: TrainedArrays, name: str) -> ir.Model:
    """The float graph ``x`` (N, 1, 28, 28) in 0 … 1 → ``logits`` (N, 10).

    Raises:
        InputError: a parameter is missing, or has another shape.
    """
    graph = GraphBuilder(name)
    layers = Layers(graph, parameters, epsilon=1e-5)
    x = layers.unit(graph.input("x", ("N", 1, 28, 28)), _unit("stem", 1, _STEM, kernel=3, stride=2))
    width = _STEM
    for stage, (channels, blocks, first_stride) in enumerate(_STAGES, start=1):
        for index in range(1, blocks + 1):
            units = _block(f"stage{stage}.block{index}", width, channels, first_stride if index == 1 else 1)
            x = layers.block(x, f"stage{stage}.block{index}", units)
            width = channels
    return graph.model({"logits": layers.head(x, "dense", width, 10)})


def _block(name: str, inputs: int, outputs: int, stride: int) -> tuple[Unit, Unit, Unit]:
    hidden = inputs * _EXPANSION
    return (
        _unit(f"{name}.expand", inputs, hidden),
        _unit(f"{name}.depthwise", hidden, hidden, kernel=3, stride=stride, groups=hidden),
        _unit(f"{name}.project", hidden, outputs, clipped=False),
    )


def _unit(
    name: str, inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1, groups: int = 1, clipped: bool = True
) -> Unit:
    return Unit(
        name=name,
        convolution=f"{name}.conv",
        normalization=f"{name}.bn",
        inputs=inputs,
        outputs=outputs,
        kernel=kernel,
        stride=stride,
        pads=(kernel // 2,) * 4,
        groups=groups,
        clipped=clipped,
    )
