"""Kernels as their authors write them, with plain loops over windows: a right one,
and mistakes to choose from.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Conv:
    """Two dimensions, float32 multipliers. Half to even, or half up;
    padding by the zero point, or by level 0.
    """

    half_up: bool = False
    zero_padding: bool = False
    saturating: bool = False
    wrapping: bool = False
    no_bias: bool = False

    @property
    def __name__(self):
        return "conv"

    def __call__(self, x, weight, bias, parameters):
        (x_grid, w_grid), y_grid, attributes = (
            parameters.inputs,
            parameters.output,
            parameters.attributes,
        )
        zero, groups = int(x_grid.zero_point), attributes.get("group", 1)
        top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))
        padded = np.pad(
            x.astype(np.int64),
            ((0, 0), (0, 0), (top, bottom), (left, right)),
            constant_values=0 if self.zero_padding else zero,
        )
        sums = self.sums(padded, weight.astype(np.int64), zero, groups, attributes)
        sums = sums if self.no_bias else sums + bias.reshape(-1, 1, 1)
        multiplier = (x_grid.scale * w_grid.scale / y_grid.scale).reshape(-1, 1, 1)
        real = sums.astype(np.float32) * multiplier
        levels = (np.floor(real + np.float32(0.5)) if self.half_up else np.rint(real)) + int(
            y_grid.zero_point
        )
        if self.wrapping:
            return levels.astype(np.int64).astype(x.dtype)
        return np.clip(levels, y_grid.qmin, y_grid.qmax).astype(x.dtype)

    def sums(self, x, weight, zero, groups, attributes):
        strides, dilations = attributes.get("strides", (1, 1)), attributes.get("dilations", (1, 1))
        (height, width), depth, each = weight.shape[2:], weight.shape[1], len(weight) // groups
        rows = (x.shape[2] - dilations[0] * (height - 1) - 1) // strides[0] + 1
        columns = (x.shape[3] - dilations[1] * (width - 1) - 1) // strides[1] + 1
        sums = np.zeros((len(x), len(weight), rows, columns), np.int64)
        for channel, filters in enumerate(weight):
            first = channel // each * depth
            products = []
            for i in range(height):
                for j in range(width):
                    down, right = i * dilations[0], j * dilations[1]
                    taps = x[:, first : first + depth, down:, right:]
                    taps = taps[
                        :,
                        :,
                        : (rows - 1) * strides[0] + 1 : strides[0],
                        : (columns - 1) * strides[1] + 1 : strides[1],
                    ]
                    products += [taps[:, c] * filters[c, i, j] for c in range(depth)]
            if self.saturating:
                whole = [
                    first + second
                    for first, second in zip(products[::2], products[1::2], strict=False)
                ]
                whole = [np.clip(pair, -32768, 32767) for pair in whole] + products[
                    len(products) // 2 * 2 :
                ]
                sums[:, channel] = sum(whole) - zero * int(filters.sum())
            else:
                sums[:, channel] = sum(products) - zero * int(filters.sum())
        return sums


def add_half_up(left, right, parameters):
    """Both dequantized in float64, rounded half up."""
    (a, b), y = parameters.inputs, parameters.output
    real = (left.astype(np.int64) - a.zero_point) * float(a.scale) + (
        right.astype(np.int64) - b.zero_point
    ) * float(b.scale)
    levels = np.floor(real / float(y.scale) + 0.5) + y.zero_point
    return np.clip(levels, y.qmin, y.qmax).astype(left.dtype)
