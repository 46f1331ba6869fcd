"""The layers that MobileNetV2 and EfficientNet-Lite share: convolution units and inverted residual blocks.

    unit:   y = clip(γ · (conv(x) − μ) / √(σ² + ε) + β, 0, 6)       (the clip is left out after a projection)
    block:  y = project(depthwise(expand(x)))  (+ x, where stride is 1 and the widths agree)

Batch normalization is left as its own node: folding it is a canonical pass, and part of what the bench tries.
Source: Sandler et al., MobileNetV2 (2018), section 3 and table 1.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.zoo.networks.building import GraphBuilder
from qbench.zoo.networks.parameters import TrainedArrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One convolution with batch normalization.

    Args:
        name: of its nodes. convolution, normalization: prefixes of its parameters in the state dict.
        inputs, outputs: channels. pads: top, left, bottom, right. groups: ``inputs`` for a depthwise one.
        clipped: whether ReLU6 follows.
    """

    name: str
    convolution: str
    normalization: str
    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1
    clipped: bool = True


class Layers:
    """Writes layers into one graph from one state dict; ``epsilon`` is batch normalization's ε."""

    def __init__(self, graph: GraphBuilder, parameters: TrainedArrays, *, epsilon: float) -> None:
        self._graph = graph
        self._take = parameters.take
        self._epsilon = epsilon
        self._ends = [
            graph.constant(f"relu6.{end}", np.array(limit, np.float32)) for end, limit in (("low", 0), ("high", 6))
        ]

    def unit(self, x: ir.Value, unit: Unit) -> ir.Value:
        """``x`` (N, inputs, H, W) through ``unit``."""
        graph, name = self._graph, unit.name
        shape = (unit.outputs, unit.inputs // unit.groups, unit.kernel, unit.kernel)
        weight = graph.constant(f"{name}.conv.weight", self._take(f"{unit.convolution}.weight", shape))
        window: dict[str, int | list[int]] = {
            "kernel_shape": [unit.kernel] * 2,
            "strides": [unit.stride] * 2,
            "pads": list(unit.pads),
            "group": unit.groups,
        }
        y = graph.node("Conv", [x, weight], f"{name}.conv", window)
        roles = (("scale", "weight"), ("bias", "bias"), ("mean", "running_mean"), ("variance", "running_var"))
        statistics = [
            graph.constant(f"{name}.bn.{ours}", self._take(f"{unit.normalization}.{theirs}", (unit.outputs,)))
            for ours, theirs in roles
        ]
        y = graph.node("BatchNormalization", [y, *statistics], f"{name}.bn", {"epsilon": self._epsilon})
        return graph.node("Clip", [y, *self._ends], f"{name}.clip") if unit.clipped else y

    def block(self, x: ir.Value, name: str, units: tuple[Unit, ...]) -> ir.Value:
        """``x`` through (expand,) depthwise and project, plus ``x`` where the shapes allow it."""
        y = x
        for unit in units:
            y = self.unit(y, unit)
        residual = units[0].inputs == units[-1].outputs and all(unit.stride == 1 for unit in units)
        return self._graph.node("Add", [x, y], f"{name}.add") if residual else y

    def head(self, x: ir.Value, prefix: str, features: int, classes: int) -> ir.Value:
        """``x`` (N, features, H, W) averaged over H and W and through a linear layer: (N, classes)."""
        graph = self._graph
        pooled = graph.node("GlobalAveragePool", [x], "pool")
        rows = graph.node("Flatten", [pooled], "flatten", {"axis": 1})
        weight = graph.constant("classifier.weight", self._take(f"{prefix}.weight", (classes, features)))
        bias = graph.constant("classifier.bias", self._take(f"{prefix}.bias", (classes,)))
        return graph.node("Gemm", [rows, weight, bias], "classifier", {"transB": 1})
