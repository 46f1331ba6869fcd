"""EfficientNet-Lite0, 1 and 2: EfficientNets without squeeze-and-excitation, with ReLU6 in place of swish.

    x (N, 3, H, W) → stem → inverted residual blocks → 1×1 conv to 1,280 → mean → linear → logits (N, 1000)

A larger net has ⌈depth · blocks⌉ blocks in all stages but the first and the last, and width · channels, rounded to
eights, in all stages; stem and head keep theirs. Trained in TensorFlow, so padding is its 'SAME': out = ⌈in / stride⌉,
and of the padding that this needs the smaller half goes before. With stride 2 on an even side that is one-sided, unlike
torch's. The pads written here are those of the net's own side; for Lite0 they are right for every side that 32 divides.
Source: Tan and Le, EfficientNet (2019), table 1; the Lite changes: TensorFlow's ``efficientnet_lite_builder.py``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from qbench.zoo.networks.building import GraphBuilder
from qbench.zoo.networks.inverted_residual import Layers, Unit
from qbench.zoo.networks.parameters import Parameters

_STAGES = (
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
        """``plain`` channels scaled to the nearest multiple of 8, never by more than a tenth down."""
        wanted = plain * self.width
        nearest = max(8, int(wanted + 4) // 8 * 8)
        return nearest + 8 if nearest < 0.9 * wanted else nearest

    def blocks(self, stage: int) -> int:
        """How many blocks stage ``stage`` has."""
        plain = _STAGES[stage][3]
        return plain if stage in (0, len(_STAGES) - 1) else math.ceil(self.depth * plain)


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
    for stage, (expansion, kernel, plain, _, first_stride) in enumerate(_STAGES):
        outputs = size.channels(plain)
        for repeat in range(size.blocks(stage)):
            stride = first_stride if repeat == 0 else 1
            pads = same_pads(side, kernel, stride)
            units = _block(index, width, outputs, expansion, kernel, stride, pads)
            x = layers.block(x, f"blocks.{index}", units)
            width, side, index = outputs, -(-side // stride), index + 1
    x = layers.unit(x, Unit(name="head", convolution="_conv_head", normalization="_bn1", inputs=width, outputs=1280))
    logits = layers.head(x, "_fc", 1280, 1000)
    parameters.finish(unused=".num_batches_tracked")  # counts training steps; inference has no use for it
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


def _block(  # noqa: PLR0917 - one row of the table and where it stands
    index: int, inputs: int, outputs: int, expansion: int, kernel: int, stride: int, pads: tuple[int, int, int, int]
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
