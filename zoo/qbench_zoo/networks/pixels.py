"""Networks that answer with numbers: a class or a grey value for each pixel, or one number for
a row of a table.
"""

import numpy as np
import onnx_ir as ir

from qbench.subjects import GraphBuilder
from qbench_zoo.networks.parameters import TrainedArrays

_EPSILON = 1e-5
_ROLES = (
    ("scale", "weight"),
    ("bias", "bias"),
    ("mean", "running_mean"),
    ("variance", "running_var"),
)


class _Layers:
    """Writes convolutions and linear layers into ``graph``."""

    def __init__(self, graph: GraphBuilder, parameters: TrainedArrays) -> None:
        self.graph = graph
        self._take = parameters.take

    def convolution(
        self, x: ir.Value, name: str, inputs: int, outputs: int, *, kernel: int = 3
    ) -> ir.Value:
        """``x`` convolved with a bias; the size stays."""
        weight = self.graph.constant(
            f"{name}.weight", self._take(f"{name}.weight", (outputs, inputs, kernel, kernel))
        )
        bias = self.graph.constant(f"{name}.bias", self._take(f"{name}.bias", (outputs,)))
        window = {"kernel_shape": [kernel] * 2, "strides": [1, 1], "pads": [kernel // 2] * 4}
        return self.graph.node("Conv", [x, weight, bias], name, window)

    def unit(
        self, x: ir.Value, name: str, inputs: int, outputs: int, *, stride: int = 1
    ) -> ir.Value:
        """``x`` through a 3×3 convolution, a batch normalization and a Relu."""
        weight = self.graph.constant(
            f"{name}.weight", self._take(f"{name}.weight", (outputs, inputs, 3, 3))
        )
        window = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [1] * 4}
        y = self.graph.node("Conv", [x, weight], name, window)
        parts = [
            self.graph.constant(f"{name}.bn.{ours}", self._take(f"{name}.bn.{theirs}", (outputs,)))
            for ours, theirs in _ROLES
        ]
        y = self.graph.node("BatchNormalization", [y, *parts], f"{name}.bn", {"epsilon": _EPSILON})
        return self.graph.node("Relu", [y], f"{name}.relu")

    def doubled(self, x: ir.Value, name: str) -> ir.Value:
        """``x`` with twice as many rows and columns, each pixel four times."""
        scales = self.graph.constant("doubled.scales", np.array([1, 1, 2, 2], np.float32))
        settings = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        return self.graph.node("Resize", [x, None, scales], name, settings)

    def linear(self, x: ir.Value, name: str, inputs: int, outputs: int) -> ir.Value:
        """``x`` (N, inputs) through a linear layer."""
        weight = self.graph.constant(
            f"{name}.weight", self._take(f"{name}.weight", (outputs, inputs))
        )
        bias = self.graph.constant(f"{name}.bias", self._take(f"{name}.bias", (outputs,)))
        return self.graph.node("Gemm", [x, weight, bias], name, {"transB": 1})


# A small U-Net: what is seen coarsely is doubled in size and laid next to what was seen finely.
#
#     down:  12 channels of 48 × 48, 24 of 24 × 24, 40 of 12 × 12, 64 of 6 × 6
#            two 3×3 units each, one at first
#     up:    unit([doubled(coarse), fine]) to 40, 24 and 12 channels, then a 1×1 convolution: a
#            score for each class
#
# Source: Ronneberger, Fischer and Brox, U-Net (2015), figure 1, with pads and nearest neighbours
# instead of transposed convolutions.

_WIDTHS = (12, 24, 40, 64)


def build_segmenter(parameters: TrainedArrays, name: str, classes: int) -> ir.Model:
    """The float graph ``x`` (N, 1, 48, 48) in 0 … 1 → ``logits`` (N, classes, 48, 48).

    Raises:
        InputError: a parameter is missing, or has another shape.
    """
    layers = _Layers(GraphBuilder(name), parameters)
    x = layers.unit(layers.graph.input("x", ("N", 1, 48, 48)), "down0.unit1", 1, _WIDTHS[0])
    fine = [x]
    for level in range(1, len(_WIDTHS)):
        x = layers.unit(x, f"down{level}.unit1", _WIDTHS[level - 1], _WIDTHS[level], stride=2)
        x = layers.unit(x, f"down{level}.unit2", _WIDTHS[level], _WIDTHS[level])
        fine.append(x)
    for level in reversed(range(len(_WIDTHS) - 1)):
        doubled = layers.doubled(x, f"up{level}.doubled")
        x = layers.graph.node("Concat", [doubled, fine[level]], f"up{level}.concat", {"axis": 1})
        x = layers.unit(x, f"up{level}.unit", _WIDTHS[level + 1] + _WIDTHS[level], _WIDTHS[level])
    return layers.graph.model(
        {"logits": layers.convolution(x, "scores", _WIDTHS[0], classes, kernel=1)}
    )


# A residual denoiser: the network estimates what has to be added to a noisy picture.
#
#     y = x + conv(relu(bn(conv( … relu(conv(x)) … ))))          six 3×3 convolutions of 16 channels
#
# Source: Zhang et al., "Beyond a Gaussian denoiser" (2017), figure 1, with fewer and narrower
# layers.

_DENOISER_WIDTH = 16
_DENOISER_UNITS = 5


def build_denoiser(parameters: TrainedArrays, name: str) -> ir.Model:
    """The float graph ``x`` (N, 1, 48, 48) in 0 … 1 → ``clean`` of the same shape.

    Raises:
        InputError: a parameter is missing, or has another shape.
    """
    layers = _Layers(GraphBuilder(name), parameters)
    noisy = layers.graph.input("x", ("N", 1, 48, 48))
    y = noisy
    for index in range(_DENOISER_UNITS):
        y = layers.unit(y, f"unit{index}", _DENOISER_WIDTH if index else 1, _DENOISER_WIDTH)
    y = layers.convolution(y, "residual", _DENOISER_WIDTH, 1)
    return layers.graph.model({"clean": layers.graph.node("Add", [noisy, y], "clean")})


# A regressor of a table's rows: two hidden layers.

_HIDDEN = (32, 16)


def build_regressor(parameters: TrainedArrays, name: str, columns: int) -> ir.Model:
    """The float graph ``x`` (N, columns) → ``value`` (N, 1).

    Raises:
        InputError: a parameter is missing, or has another shape.
    """
    layers = _Layers(GraphBuilder(name), parameters)
    y = layers.graph.input("x", ("N", columns))
    width = columns
    for index, hidden in enumerate(_HIDDEN, start=1):
        y = layers.graph.node(
            "Relu", [layers.linear(y, f"hidden{index}", width, hidden)], f"hidden{index}.relu"
        )
        width = hidden
    return layers.graph.model({"value": layers.linear(y, "value", width, 1)})


# A network that points: convolutions at falling sizes, then a linear layer over all that is left.
#
#     16 channels of 24 × 24, 24 of 12 × 12, 40 of 6 × 6, 40 of 3 × 3,
#     dense to x and y of each point

_POINTING_WIDTHS = (16, 24, 40, 40)


def build_pointer(parameters: TrainedArrays, name: str, points: int) -> ir.Model:
    """The float graph ``x`` (N, 1, 48, 48) in 0 … 1 → ``points`` (N, 2 · points), as shares of
    the side.

    Raises:
        InputError: a parameter is missing, or has another shape.
    """
    layers = _Layers(GraphBuilder(name), parameters)
    y, width = layers.graph.input("x", ("N", 1, 48, 48)), 1
    for index, channels in enumerate(_POINTING_WIDTHS):
        y = layers.unit(y, f"stage{index}.unit1", width, channels, stride=2)
        y = layers.unit(y, f"stage{index}.unit2", channels, channels)
        width = channels
    rows = layers.graph.node("Flatten", [y], "flatten", {"axis": 1})
    return layers.graph.model({"points": layers.linear(rows, "points", 9 * width, 2 * points)})
