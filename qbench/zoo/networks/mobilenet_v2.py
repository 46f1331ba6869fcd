"""MobileNetV2 at width 1.0 for 1,000 classes, as torchvision trained it.

    x (N, 3, H, W) → stem → 17 inverted residual blocks → 1×1 conv to 1,280 → mean → linear → logits (N, 1000)

Trained at 224 × 224; takes any size. Source: Sandler et al. (2018), table 2; parameter names as in torchvision's
``mobilenet_v2-b0353104.pth``.
"""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from qbench.zoo.networks.building import GraphBuilder
from qbench.zoo.networks.inverted_residual import Layers, Unit
from qbench.zoo.networks.parameters import Parameters

_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Per stage: expansion factor, output channels, blocks, stride of the first block."""


def build_mobilenet_v2(state: Mapping[str, npt.NDArray[Any]]) -> ir.Model:
    """The float graph ``x`` → ``logits`` from torchvision's state dict.

    Raises:
        InputError: a parameter is missing, has another shape, or belongs to no layer.
    """
    parameters = Parameters("mobilenet_v2", state)
    graph = GraphBuilder("mobilenet_v2")
    layers = Layers(graph, parameters, epsilon=1e-5)
    x = graph.input("x", ("N", 3, "H", "W"))
    x = layers.unit(x, _dense("features.0", "features.0", 3, 32, kernel=3, stride=2))
    width, index = 32, 1
    for expansion, outputs, repeats, first_stride in _STAGES:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            units = _block(f"features.{index}", width, outputs, expansion, stride)
            x = layers.block(x, f"features.{index}", units)
            width, index = outputs, index + 1
    x = layers.unit(x, _dense(f"features.{index}", f"features.{index}", width, 1280))
    logits = layers.head(x, "classifier.1", 1280, 1000)
    parameters.finish(unused=".num_batches_tracked")  # counts training steps; inference has no use for it
    return graph.model({"logits": logits}, dims={"H": 224, "W": 224})


def _dense(name: str, prefix: str, inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1) -> Unit:
    pad = kernel // 2
    return Unit(
        name=name,
        convolution=f"{prefix}.0",
        normalization=f"{prefix}.1",
        inputs=inputs,
        outputs=outputs,
        kernel=kernel,
        stride=stride,
        pads=(pad, pad, pad, pad),
    )


def _block(name: str, inputs: int, outputs: int, expansion: int, stride: int) -> tuple[Unit, ...]:
    """The units of one block; without expansion the first of the three is not there and the numbers move up."""
    hidden = inputs * expansion
    expand = (_dense(f"{name}.expand", f"{name}.conv.0", inputs, hidden),) if expansion != 1 else ()
    at = len(expand)
    filters = Unit(
        name=f"{name}.depthwise",
        convolution=f"{name}.conv.{at}.0",
        normalization=f"{name}.conv.{at}.1",
        inputs=hidden,
        outputs=hidden,
        kernel=3,
        stride=stride,
        pads=(1, 1, 1, 1),
        groups=hidden,
    )
    project = Unit(
        name=f"{name}.project",
        convolution=f"{name}.conv.{at + 1}",
        normalization=f"{name}.conv.{at + 2}",
        inputs=hidden,
        outputs=outputs,
        clipped=False,
    )
    return (*expand, filters, project)
