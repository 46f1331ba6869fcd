"""Networks that classify pictures, as float graphs: MobileNetV2, EfficientNet-Lite, SqueezeNet,
three trained here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.subjects import GraphBuilder
from qbench_zoo.networks.parameters import Parameters, TrainedArrays

# The layers that MobileNetV2 and EfficientNet-Lite share: convolution units and inverted residual
# blocks.
#
#     unit:   y = clip(γ · (conv(x) − μ) / √(σ² + ε) + β, 0, 6)
#             (the clip is left out after a projection)
#     block:  y = project(depthwise(expand(x)))  (+ x, where stride is 1 and the widths agree)
#
# Batch normalization is left as its own node: folding it is a canonical pass, and part of what the
# bench tries. Source: Sandler et al., MobileNetV2 (2018), section 3 and table 1.


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One convolution with batch normalization.

    Args:
        name: of its nodes. convolution, normalization: prefixes of its parameters in the state
            dict.
        inputs, outputs: channels.
        pads: top, left, bottom, right.
        groups: ``inputs`` for a depthwise one.
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
            graph.constant(f"relu6.{end}", np.array(limit, np.float32))
            for end, limit in (("low", 0), ("high", 6))
        ]

    def unit(self, x: ir.Value, unit: Unit) -> ir.Value:
        """``x`` (N, inputs, H, W) through ``unit``."""
        graph, name = self._graph, unit.name
        shape = (unit.outputs, unit.inputs // unit.groups, unit.kernel, unit.kernel)
        weight = graph.constant(
            f"{name}.conv.weight", self._take(f"{unit.convolution}.weight", shape)
        )
        window: dict[str, int | list[int]] = {
            "kernel_shape": [unit.kernel] * 2,
            "strides": [unit.stride] * 2,
            "pads": list(unit.pads),
            "group": unit.groups,
        }
        y = graph.node("Conv", [x, weight], f"{name}.conv", window)
        roles = (
            ("scale", "weight"),
            ("bias", "bias"),
            ("mean", "running_mean"),
            ("variance", "running_var"),
        )
        statistics = [
            graph.constant(
                f"{name}.bn.{ours}", self._take(f"{unit.normalization}.{theirs}", (unit.outputs,))
            )
            for ours, theirs in roles
        ]
        y = graph.node(
            "BatchNormalization", [y, *statistics], f"{name}.bn", {"epsilon": self._epsilon}
        )
        return graph.node("Clip", [y, *self._ends], f"{name}.clip") if unit.clipped else y

    def block(self, x: ir.Value, name: str, units: tuple[Unit, ...]) -> ir.Value:
        """``x`` through (expand,) depthwise and project, plus ``x`` where the shapes allow it."""
        y = x
        for unit in units:
            y = self.unit(y, unit)
        residual = units[0].inputs == units[-1].outputs and all(unit.stride == 1 for unit in units)
        return self._graph.node("Add", [x, y], f"{name}.add") if residual else y

    def head(self, x: ir.Value, prefix: str, features: int, classes: int) -> ir.Value:
        """``x`` (N, features, H, W) averaged over H and W and through a linear layer: (N,
        classes).
        """
        graph = self._graph
        pooled = graph.node("GlobalAveragePool", [x], "pool")
        rows = graph.node("Flatten", [pooled], "flatten", {"axis": 1})
        weight = graph.constant(
            "classifier.weight", self._take(f"{prefix}.weight", (classes, features))
        )
        bias = graph.constant("classifier.bias", self._take(f"{prefix}.bias", (classes,)))
        return graph.node("Gemm", [rows, weight, bias], "classifier", {"transB": 1})


# MobileNetV2 at width 1.0 for 1,000 classes, as torchvision trained it.
#
#     x (N, 3, H, W) → stem → 17 inverted residual blocks → 1×1 conv to 1,280 → mean → linear
#                    → logits (N, 1000)
#
# Trained at 224 × 224; takes any size. Source: Sandler et al. (2018), table 2; parameter names as
# in torchvision's ``mobilenet_v2-b0353104.pth``.

_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
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
    # counts training steps; inference has no use for it
    parameters.finish(unused=".num_batches_tracked")
    return graph.model({"logits": logits}, dims={"H": 224, "W": 224})


def _dense(
    name: str, prefix: str, inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1
) -> Unit:
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
    """The units of one block; without expansion the first of the three is not there and the
    numbers move up.
    """
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


# EfficientNet-Lite0, 1 and 2: EfficientNets without squeeze-and-excitation, with ReLU6 in place of
# swish.
#
#     x (N, 3, H, W) → stem → inverted residual blocks → 1×1 conv to 1,280 → mean → linear
#                    → logits (N, 1000)
#
# A larger net has ⌈depth · blocks⌉ blocks in all stages but the first and the last, and width ·
# channels, rounded to eights, in all stages; stem and head keep theirs. Trained in TensorFlow, so
# padding is its 'SAME': out = ⌈in / stride⌉, and of the padding that this needs the smaller half
# goes before. With stride 2 on an even side that is one- sided, unlike torch's. The pads written
# here are those of the net's own side; for Lite0 they are right for every side that 32 divides.
# Source: Tan and Le, EfficientNet (2019), table 1; the Lite changes: TensorFlow's
# ``efficientnet_lite_builder.py``.

_EFFICIENTNET_LITE_STAGES = (
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)
"""Per stage: expansion factor, kernel, output channels, blocks, stride of the first block."""


@dataclass(frozen=True, slots=True)
class Size:
    """One net of the family: pixels of its pictures, and the factors of its width and depth."""

    side: int
    width: float
    depth: float

    def channels(self, plain: int) -> int:
        """``plain`` channels scaled to the nearest multiple of 8, never by more than a tenth
        down.
        """
        wanted = plain * self.width
        nearest = max(8, int(wanted + 4) // 8 * 8)
        return nearest + 8 if nearest < 0.9 * wanted else nearest

    def blocks(self, stage: int) -> int:
        """How many blocks stage ``stage`` has."""
        plain = _EFFICIENTNET_LITE_STAGES[stage][3]
        return (
            plain
            if stage in (0, len(_EFFICIENTNET_LITE_STAGES) - 1)
            else math.ceil(self.depth * plain)
        )


SIZES = (Size(224, 1.0, 1.0), Size(240, 1.0, 1.1), Size(260, 1.1, 1.2))
"""Lite0, Lite1 and Lite2."""


def build_efficientnet_lite(number: int, state: Mapping[str, npt.NDArray[Any]]) -> ir.Model:
    """The float graph ``x`` → ``logits`` of Lite0, 1 or 2 from the state dict of its package.

    Raises:
        InputError: a parameter is missing, has another shape, or belongs to no layer.
    """
    size, name = SIZES[number], f"efficientnet_lite{number}"
    parameters, graph = Parameters(name, state), GraphBuilder(name)
    layers = Layers(graph, parameters, epsilon=1e-3)
    x = graph.input("x", ("N", 3, "H", "W"))
    x = layers.unit(x, _stem(size.side))
    width, side, index = 32, -(-size.side // 2), 0
    for stage, (expansion, kernel, plain, _, first_stride) in enumerate(_EFFICIENTNET_LITE_STAGES):
        outputs = size.channels(plain)
        for repeat in range(size.blocks(stage)):
            stride = first_stride if repeat == 0 else 1
            pads = same_pads(side, kernel, stride)
            units = _efficientnet_lite_block(index, width, outputs, expansion, kernel, stride, pads)
            x = layers.block(x, f"blocks.{index}", units)
            width, side, index = outputs, -(-side // stride), index + 1
    x = layers.unit(
        x,
        Unit(
            name="head", convolution="_conv_head", normalization="_bn1", inputs=width, outputs=1280
        ),
    )
    logits = layers.head(x, "_fc", 1280, 1000)
    # counts training steps; inference has no use for it
    parameters.finish(unused=".num_batches_tracked")
    return graph.model({"logits": logits}, dims={"H": size.side, "W": size.side})


def same_pads(side: int, kernel: int, stride: int) -> tuple[int, int, int, int]:
    """TensorFlow's 'SAME' padding of a square picture: top, left, bottom, right."""
    total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    before = total // 2
    return (before, before, total - before, total - before)


def _stem(side: int) -> Unit:
    return Unit(
        name="stem",
        convolution="_conv_stem",
        normalization="_bn0",
        inputs=3,
        outputs=32,
        kernel=3,
        stride=2,
        pads=same_pads(side, 3, 2),
    )


def _efficientnet_lite_block(  # noqa: PLR0917 - one row of the table and its place
    index: int,
    inputs: int,
    outputs: int,
    expansion: int,
    kernel: int,
    stride: int,
    pads: tuple[int, int, int, int],
) -> tuple[Unit, ...]:
    name, prefix, hidden = f"blocks.{index}", f"_blocks.{index}", inputs * expansion
    expand = Unit(
        name=f"{name}.expand",
        convolution=f"{prefix}._expand_conv",
        normalization=f"{prefix}._bn0",
        inputs=inputs,
        outputs=hidden,
    )
    filters = Unit(
        name=f"{name}.depthwise",
        convolution=f"{prefix}._depthwise_conv",
        normalization=f"{prefix}._bn1",
        inputs=hidden,
        outputs=hidden,
        kernel=kernel,
        stride=stride,
        pads=pads,
        groups=hidden,
    )
    project = Unit(
        name=f"{name}.project",
        convolution=f"{prefix}._project_conv",
        normalization=f"{prefix}._bn2",
        inputs=hidden,
        outputs=outputs,
        clipped=False,
    )
    return (expand, filters, project) if expansion != 1 else (filters, project)


# A small network of inverted residual blocks for pictures of 28 × 28: depthwise convolutions, as
# MobileNetV2 has them.
#
# x (N, 1, 28, 28) → 3×3 conv, stride 2 → 7 blocks of 24 … 64 channels → mean → dense → logits (N,
# 10)

_STEM = 16
_EXPANSION = 4
_FASHION_MOBILE_STAGES = ((24, 2, 1), (40, 3, 2), (64, 2, 2))
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
    for stage, (channels, blocks, first_stride) in enumerate(_FASHION_MOBILE_STAGES, start=1):
        for index in range(1, blocks + 1):
            units = _fashion_mobile_block(
                f"stage{stage}.block{index}", width, channels, first_stride if index == 1 else 1
            )
            x = layers.block(x, f"stage{stage}.block{index}", units)
            width = channels
    return graph.model({"logits": layers.head(x, "dense", width, 10)})


def _fashion_mobile_block(
    name: str, inputs: int, outputs: int, stride: int
) -> tuple[Unit, Unit, Unit]:
    hidden = inputs * _EXPANSION
    return (
        _unit(f"{name}.expand", inputs, hidden),
        _unit(f"{name}.depthwise", hidden, hidden, kernel=3, stride=stride, groups=hidden),
        _unit(f"{name}.project", hidden, outputs, clipped=False),
    )


def _unit(
    name: str,
    inputs: int,
    outputs: int,
    *,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    clipped: bool = True,
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


# A residual network whose batch normalizations stand before its convolutions, for pictures of 28 ×
# 28.
#
#     stem:    3×3 conv, stride 2, 1 → 16                                    14 × 14
#     block:   y = conv₂(relu(bn₂(conv₁(relu(bn₁(x)))))) + shortcut          3×3 each
#              shortcut = x, or a 1×1 conv of relu(bn₁(x)) where the width changes
#     stages:  3 blocks each of 16 (14 × 14), 24 (7 × 7) and 32 channels (4 × 4)
#     head:    logits = dense(mean(relu(bn(x))))                             10 classes
#
# bn₂ can be folded into conv₁; bn₁ reads a sum that the shortcut reads too, and cannot. 21
# convolutions, 97,000 parameters. Source: He et al., "Identity Mappings in Deep Residual Networks"
# (2016), figure 4 (e).

_PREACTIVATION_STAGES = ((16, 1), (24, 2), (32, 2))
"""Per stage: channels, and the stride of its first block."""

_BLOCKS = 3
_EPSILON = 1e-5
_ROLES = (
    ("scale", "weight"),
    ("bias", "bias"),
    ("mean", "running_mean"),
    ("variance", "running_var"),
)
"""What the graph and a training framework call the four parts of a batch normalization."""


def build_preactivation(parameters: TrainedArrays, name: str) -> ir.Model:
    """The float graph ``x`` (N, 1, 28, 28) in 0 … 1 → ``logits`` (N, 10).

    Raises:
        InputError: a parameter is missing, or has another shape.
    """
    layers = _Layers(GraphBuilder(name), parameters)
    graph = layers.graph
    width = _PREACTIVATION_STAGES[0][0]
    x = layers.convolution(graph.input("x", ("N", 1, 28, 28)), "stem", 1, width, kernel=3, stride=2)
    for stage, (channels, stride) in enumerate(_PREACTIVATION_STAGES, start=1):
        for index in range(1, _BLOCKS + 1):
            x = layers.block(
                x, f"stage{stage}.block{index}", width, channels, stride if index == 1 else 1
            )
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
        return self.graph.node(
            "Conv", [x, self.graph.constant(f"{name}.weight", weight)], name, window
        )

    def activation(self, x: ir.Value, name: str, channels: int) -> ir.Value:
        """``x`` normalized, and what is positive of it."""
        parts = [
            self.graph.constant(f"{name}.bn.{ours}", self._take(f"{name}.bn.{theirs}", (channels,)))
            for ours, theirs in _ROLES
        ]
        normal = self.graph.node(
            "BatchNormalization", [x, *parts], f"{name}.bn", {"epsilon": _EPSILON}
        )
        return self.graph.node("Relu", [normal], f"{name}.relu")

    def block(self, x: ir.Value, name: str, inputs: int, outputs: int, stride: int) -> ir.Value:
        """``x`` plus what two convolutions make of it."""
        first = self.activation(x, f"{name}.pre1", inputs)
        y = self.convolution(first, f"{name}.conv1", inputs, outputs, kernel=3, stride=stride)
        y = self.activation(y, f"{name}.pre2", outputs)
        y = self.convolution(y, f"{name}.conv2", outputs, outputs, kernel=3)
        if stride != 1 or inputs != outputs:
            x = self.convolution(
                first, f"{name}.shortcut", inputs, outputs, kernel=1, stride=stride
            )
        return self.graph.node("Add", [x, y], f"{name}.add")


# SqueezeNet 1.1: fire modules, a narrow convolution before two wide ones side by side; no
# normalization, no residual.
#
#     x (N, 3, H, W) → 3×3 conv, stride 2 → pool → fire ×2 → pool → fire ×2 → pool → fire ×4
#                    → 1×1 conv → mean → (N, 1000)
#     fire:  s = relu(squeeze(x)),  y = [relu(expand₁ₓ₁(s)), relu(expand₃ₓ₃(s))]
#
# The stride-2 convolution pads as TensorFlow's 'SAME' does on an even side: behind alone. Pools of
# 3 × 3 by 2 drop what is left at the end. Source: Iandola et al., SqueezeNet (2016), section 3.2
# and table 1; version 1.1: the authors' repository.

_SIDE = 224
_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""Channels of each fire module: squeezed, and of either expansion."""
_POOLED = (2, 4)
"""Fire modules that a pool follows, counted from 1."""


def build_squeezenet(arrays: Mapping[str, npt.NDArray[Any]]) -> ir.Model:
    """The float graph ``x`` (N, 3, H, W), blue first, → ``logits`` (N, 1000).

    Args:
        arrays: of each layer ``<layer>.0``, the weight (height, width, inputs, outputs), and
            ``<layer>.1``, the bias.

    Raises:
        InputError: an array is missing, has another shape, or belongs to no layer.
    """
    parameters, graph = Parameters("squeezenet", arrays), GraphBuilder("squeezenet")
    layers = _SqueezenetLayers(graph, parameters)
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


class _SqueezenetLayers:
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
        weight = np.ascontiguousarray(
            self._take(f"{name}.0", (kernel, kernel, inputs, outputs)).transpose(3, 2, 0, 1)
        )
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


# The digits network as a graph: twice conv → batch norm → ReLU, then max pooling, dense → ReLU →
# dense.
#
# Batch normalization is kept as a node of its own, as a training framework exports it: folding it
# is a pass's work.

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DigitsWeights:
    """Trained numbers, all float32.

    Args:
        convolutions: (O, I, 3, 3) each.
        norms: gamma, beta, mean, variance (O,) of each convolution's result.
        dense: (w (inputs, outputs), b (outputs,)) each.
        epsilon: added to a variance before its root.
    """

    convolutions: tuple[Array, ...]
    norms: tuple[tuple[Array, Array, Array, Array], ...]
    dense: tuple[tuple[Array, Array], ...]
    epsilon: float


def digits_network(weights: DigitsWeights) -> ir.Model:
    """``x`` (N, 1, 8, 8) in 0 … 1 → ``logits`` (N, 10)."""
    graph = GraphBuilder("digits_cnn")
    value = graph.input("x", ("N", 1, 8, 8))
    for index, (kernel, norm) in enumerate(
        zip(weights.convolutions, weights.norms, strict=True), start=1
    ):
        inputs = [value, graph.constant(f"conv{index}.weight", kernel)]
        value = graph.node(
            "Conv", inputs, f"conv{index}", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        )
        parts = [
            graph.constant(f"norm{index}.{part}", array)
            for part, array in zip(("gamma", "beta", "mean", "variance"), norm, strict=True)
        ]
        value = graph.node(
            "BatchNormalization", [value, *parts], f"norm{index}", {"epsilon": weights.epsilon}
        )
        value = graph.node("Relu", [value], f"relu{index}")
    value = graph.node("MaxPool", [value], "pool", {"kernel_shape": [2, 2], "strides": [2, 2]})
    value = graph.node("Flatten", [value], "flatten")
    for index, (weight, bias) in enumerate(weights.dense, start=1):
        parts = [
            graph.constant(f"dense{index}.weight", weight),
            graph.constant(f"dense{index}.bias", bias),
        ]
        value = graph.node("Gemm", [value, *parts], f"dense{index}")
        if index < len(weights.dense):
            value = graph.node("Relu", [value], f"relu_dense{index}")
    return graph.model({"logits": value})
