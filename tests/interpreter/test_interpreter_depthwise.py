"""Convolutions of one filter a channel, which have a loop of their own:
sums of plain integers, at grids' ends.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from one_node import counted, levels_of, model_of, product_of

from qbench.numerics import Accumulator, get_arithmetic


@pytest.mark.slow_but(1)
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
        pytest.param(
            {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 0, 1, 2]},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"kernel_shape": [1, 5], "dilations": [1, 2], "pads": [0, 3, 0, 4]},
            marks=pytest.mark.slow,
        ),
        {"kernel_shape": [3, 6], "strides": [1, 2], "dilations": [2, 1], "pads": [0, 2, 1, 3]},
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
    (found,) = counted(
        model_of("QLinearConv", order, {"x": x}, constants, group=channels, **window),
        "ideal",
        {"x": x},
    )
    np.testing.assert_array_equal(found, expected(x, w, zeros, window))


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "window",
    [
        [3, 3],
        *(pytest.param(w, marks=pytest.mark.slow) for w in ([1, 5], [2, 2], [1, 1], [1, 7])),
        [6, 2],
    ],
)
@pytest.mark.parametrize("zero", [0, 7])
def test_neighbouring_taps_saturate(window: list[int], zero: int) -> None:
    """Rows first, the last of an odd number alone, raw products; with a zero point of the
    weights by another road.
    """
    channels, (height, width) = 4, window
    x, w = (
        levels_of(3, "uint8", 2, channels, 6, 7, extreme=True),
        levels_of(4, "int8", channels, 1, *window, extreme=True),
    )
    constants = {
        "w": w, "sx": np.float32(1), "zx": np.uint8(201), "sw": np.float32(1), "zw": np.int8(zero),
        "sy": np.float32(1), "zy": np.asarray(0, np.int32),
    }  # fmt: skip
    order = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    machine = replace(get_arithmetic("ideal"), accumulator=Accumulator(pair_bits=16))
    (found,) = counted(
        model_of("QLinearConv", order, {"x": x}, constants, group=channels), machine, {"x": x}
    )
    lost = 0
    for n, c, oy, ox in np.ndindex(found.shape):
        seen = x[n, c, oy : oy + height, ox : ox + width].reshape(-1, 1).T
        plain = product_of(seen, w[c].reshape(-1, 1), (201, zero), 16)
        assert found[n, c, oy, ox] == plain[0, 0]
        lost += plain[0, 0] != product_of(seen, w[c].reshape(-1, 1), (201, zero))[0, 0]
    assert (lost > 0) == (window != [1, 1])


def expected(
    x: np.ndarray, w: np.ndarray, zeros: tuple[int, int], window: dict[str, Any]
) -> np.ndarray:
    (top, left, bottom, right), strides = window["pads"], window.get("strides", [1, 1])
    gaps = window.get("dilations", [1, 1])
    data = np.pad(x.astype(np.int64) - zeros[0], ((0, 0), (0, 0), (top, bottom), (left, right)))
    taps = w.astype(np.int64)[:, 0] - zeros[1]
    sizes = [
        (data.shape[2 + axis] - (taps.shape[1 + axis] - 1) * gaps[axis] - 1) // strides[axis] + 1
        for axis in (0, 1)
    ]
    sums = np.zeros((*x.shape[:2], *sizes), np.int64)
    for oy, ox in np.ndindex(*sizes):
        seen = data[:, :, oy * strides[0] :: gaps[0], ox * strides[1] :: gaps[1]]
        sums[:, :, oy, ox] = (seen[:, :, : taps.shape[1], : taps.shape[2]] * taps).sum(axis=(2, 3))
    return sums
