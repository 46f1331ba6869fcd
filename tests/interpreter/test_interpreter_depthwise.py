"""Convolutions of one filter a channel, which have a loop of their own: sums of plain integers, at grids' ends."""

from typing import Any

import numpy as np
import pytest
from one_node import counted, levels_of, model_of


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize(
    ("data", "weights", "zeros"),
    [
        ("uint8", "int8", (0, 0)), ("uint8", "int8", (255, 0)), ("uint8", "int8", (121, 3)),
        ("int8", "int8", (-128, 0)), ("uint8", "uint8", (7, 0)), ("uint8", "uint8", (128, 128)),
        ("uint16", "int8", (30_000, 0)), ("int16", "int8", (-5, 0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "window",
    [
        {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 0, 1, 2]},
        {"kernel_shape": [1, 5], "dilations": [1, 2], "pads": [0, 3, 0, 4]},
    ],
)
def test_a_filter_a_channel(
    data: str, weights: str, zeros: tuple[int, int], window: dict[str, Any], *, extreme: bool
) -> None:
    channels, (height, width) = 5, window["kernel_shape"]
    x = levels_of(1, data, 2, channels, 7, 11, extreme=extreme)
    w = levels_of(2, weights, channels, 1, height, width, extreme=extreme)
    constants = {
        "w": w, "sx": np.float32(1), "zx": np.asarray(zeros[0], data), "sw": np.float32(1),
        "zw": np.asarray(zeros[1], weights), "sy": np.float32(1), "zy": np.asarray(0, np.int32),
    }  # fmt: skip
    order = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    (found,) = counted(model_of("QLinearConv", order, {"x": x}, constants, group=channels, **window), "ideal", {"x": x})
    np.testing.assert_array_equal(found, expected(x, w, zeros, window))


def expected(x: np.ndarray, w: np.ndarray, zeros: tuple[int, int], window: dict[str, Any]) -> np.ndarray:
    (top, left, bottom, right), strides = window["pads"], window.get("strides", [1, 1])
    gaps = window.get("dilations", [1, 1])
    data = np.pad(x.astype(np.int64) - zeros[0], ((0, 0), (0, 0), (top, bottom), (left, right)))
    taps = w.astype(np.int64)[:, 0] - zeros[1]
    sizes = [
        (data.shape[2 + axis] - (taps.shape[1 + axis] - 1) * gaps[axis] - 1) // strides[axis] + 1 for axis in (0, 1)
    ]
    sums = np.zeros((*x.shape[:2], *sizes), np.int64)
    for oy, ox in np.ndindex(*sizes):
        seen = data[:, :, oy * strides[0] :: gaps[0], ox * strides[1] :: gaps[1]]
        sums[:, :, oy, ox] = (seen[:, :, : taps.shape[1], : taps.shape[2]] * taps).sum(axis=(2, 3))
    return sums
