"""SqueezeNet 1.1: fire modules, a narrow convolution before two wide ones side by side; no normalization, no residual.

    x (N, 3, H, W) → 3×3 conv, stride 2 → pool → fire ×2 → pool → fire ×2 → pool → fire ×4 → 1×1 conv → mean → (N, 1000)
    fire:  s = relu(squeeze(x)),  y = [relu(expand₁ₓ₁(s)), relu(expand₃ₓ₃(s))]

The stride-2 convolution pads as TensorFlow's 'SAME' does on an even side: behind alone. Pools of 3 × 3 by 2 drop what
is left at the end.
Source: Iandola et al., SqueezeNet (2016), section 3.2 and table 1; version 1.1: the authors' repository.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.zoo.networks.building import GraphBuilder
from qbench.zoo.networks.parameters import Parameters

_SIDE = 224
_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""Channels of each fire module: squeezed, and of either expansion."""
_POOLED = (2, 4)
"""Fire modules behind which a pool stands, counted from 1."""


def build_squeezenet(arrays: Mapping[str, npt.NDArray[Any]]) -> ir.Model:
    """The float graph ``x`` (N, 3, H, W), blue first, → ``logits`` (N, 1000).

    Args:
        arrays: of each layer ``<layer>.0``, the weight (height, width, inputs, outputs), and ``<layer>.1``, the bias.

    Raises:
        InputError: an array is missing, has another shape, or belongs to no layer.
    """
    parameters, graph = Parameters("squeezenet", arrays), GraphBuilder("squeezenet")
    layers = _Layers(graph, parameters)
    x = graph.input("x", ("N", 3, "H", "W"))
    y = layers.conv(x, "conv1", 3, 64, kernel=3, stride=2, pads=(0, 0, 1, 1))
    y, inputs = layers.pool(y, "maxpool1"), 64
    for place, (squeezed, expanded) in enumerate(_FIRES, start=1):
        y = layers.fire(y, f"fire{place + 1}", inputs, squeezed, expanded)
        inputs = 2 * expanded
        if place in _POOLED:
            y = layers.pool(y, f"maxpool{place + 1}")
    y = layers.conv(y, "conv10", inputs, 1000, clipped=False)
    y = graph.node("GlobalAveragePool", [y], "pool")
    logits = graph.node("Flatten", [y], "flatten", {"axis": 1})
    parameters.finish()
    return graph.model({"logits": logits}, dims={"H": _SIDE, "W": _SIDE})


class _Layers:
    """Writes layers into one graph from one set of arrays."""

    def __init__(self, graph: GraphBuilder, parameters: Parameters) -> None:
        self._graph, self._take = graph, parameters.take

    def conv(
        self,
        x: ir.Value,
        name: str,
        inputs: int,
        outputs: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        clipped: bool = True,
    ) -> ir.Value:
        weight = np.ascontiguousarray(self._take(f"{name}.0", (kernel, kernel, inputs, outputs)).transpose(3, 2, 0, 1))
        parts = (
            self._graph.constant(f"{name}.weight", weight),
            self._graph.constant(f"{name}.bias", self._take(f"{name}.1", (outputs,))),
        )
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": list(pads)}
        y = self._graph.node("Conv", [x, *parts], name, window)
        return self._graph.node("Relu", [y], f"{name}.relu") if clipped else y

    def pool(self, x: ir.Value, name: str) -> ir.Value:
        return self._graph.node("MaxPool", [x], name, {"kernel_shape": [3, 3], "strides": [2, 2]})

    def fire(self, x: ir.Value, name: str, inputs: int, squeezed: int, expanded: int) -> ir.Value:
        s = self.conv(x, f"{name}/squeeze1x1", inputs, squeezed)
        narrow = self.conv(s, f"{name}/expand1x1", squeezed, expanded)
        wide = self.conv(s, f"{name}/expand3x3", squeezed, expanded, kernel=3, pads=(1, 1, 1, 1))
        return self._graph.node("Concat", [narrow, wide], f"{name}.concat", {"axis": 1})
