"""LiteRT's convolutions and fully connected layers, by each of its three sets of kernels: every
level as we count it.

A layer whose data are all at the zero point gives round(bias · M) + z_y: so accumulators are chosen
one by one.
"""

import numpy as np
import pytest
from litert_models import MACHINES, Kernels, Tensor, run
from qdq_models import counted, grid

from qbench.numerics import QParams, clip_codes, requantize

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("litert")]
every_engine = pytest.mark.parametrize("kernels", list(Kernels))
DYADIC = [(0.25, 0.125, 4.0), (0.25, 0.125, 0.5), (0.0625, 0.25, 8.0), (0.5, 0.25, 0.125)]
ORDINARY = [
    (0.05, 0.013, 0.4),
    (0.033, 0.0071, 0.9),
    (0.0231, 0.0042, 0.0107),
    (0.41, 0.0009, 0.0511),
]


def accumulators(multipliers: np.ndarray, seed: int) -> np.ndarray:
    """An int32 for every multiplier, every second one as near to a tie as there is;
    and the ends of int32.
    """
    random = np.random.default_rng(seed)
    near = (random.integers(-140, 140, multipliers.shape) + 0.5) / multipliers
    anywhere = random.uniform(-140, 140, multipliers.shape) / multipliers
    acc = np.where(
        random.integers(0, 2, multipliers.shape) > 0, near + random.integers(-1, 2), anywhere
    )
    acc[:4] = -(2**31), 2**31 - 1, 0, -1
    return np.clip(np.rint(acc), -(2**31), 2**31 - 1).astype(np.int32)


def bias_grid(x: QParams, weight: QParams) -> QParams:
    """s_x · s_w, per tensor or channel."""
    return grid(
        np.asarray(x.scale) * np.asarray(weight.scale),
        0,
        "int32",
        axis=None if weight.axis is None else 0,
    )


@every_engine
@pytest.mark.parametrize("operator", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("seed", range(3))
def test_requantize_is_what_follows_a_convolution(operator, kernels, seed) -> None:
    random, channels = np.random.default_rng(seed), 8192
    weights = (
        np.exp(random.uniform(-9, -1, channels))
        if seed
        else 2.0 ** random.integers(-9, -1, channels)
    )
    x, y = (
        grid(0.0625 if not seed else 0.0717, 3),
        grid(0.5 if not seed else 0.313, int(random.integers(-128, 128))),
    )
    depthwise = operator == "DEPTHWISE_CONV_2D"
    weight = grid(weights, 0, axis=3 if depthwise else 0)
    acc = accumulators(np.float64(x.scale) * np.float64(weight.scale) / np.float64(y.scale), seed)
    shape = (1, 1, 1, channels) if depthwise else (channels, 1, 1, 1)
    constants = [
        Tensor(random.integers(-127, 128, shape, np.int8), weight, constant=True),
        Tensor(acc, bias_grid(x, weight), constant=True),
    ]
    data = Tensor(np.full((1, 1, 1, channels if depthwise else 1), 3, np.int8), x)
    options = {"strideW": 1, "strideH": 1} | ({"depthMultiplier": 1} if depthwise else {})
    table = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
    theirs = run(
        operator,
        (table, options),
        [data, *constants],
        Tensor(np.empty((1, 1, 1, channels), np.int8), y),
        kernels,
    )
    scales = (x.scale, np.asarray(weight.scale), y.scale)
    ours = requantize(
        np.zeros(channels, np.int64), scales, int(y.zero_point), "int8", MACHINES[kernels], bias=acc
    )
    np.testing.assert_array_equal(ours, theirs.reshape(-1))


@every_engine
@pytest.mark.parametrize("scales", DYADIC + ORDINARY)
@pytest.mark.parametrize("activation", [None, "RELU", "RELU6"])
def test_fully_connected(scales, activation, kernels) -> None:
    random = np.random.default_rng(5)
    x, weight, y = (grid(scale, zero) for scale, zero in zip(scales, (3, 0, -5), strict=True))
    multiplier = np.float64(x.scale) * np.float64(weight.scale) / np.float64(y.scale)
    acc = accumulators(np.full(4096, multiplier), 5)
    data = np.concatenate([np.full((1, 4), 3), random.integers(-128, 128, (7, 4))]).astype(np.int8)
    constants = [
        Tensor(random.integers(-127, 128, (4096, 4), np.int8), weight, constant=True),
        Tensor(
            np.where(np.abs(acc.astype(np.int64)) < 2**30, acc, 0).astype(np.int32),
            bias_grid(x, weight),
            constant=True,
        ),
    ]
    options = ("FullyConnectedOptions", {"fusedActivationFunction": _activation(activation)})
    out = Tensor(np.empty((8, 4096), np.int8), y)
    theirs = run("FULLY_CONNECTED", options, [Tensor(data, x), *constants], out, kernels)
    clip = limits(activation, y, kernels)
    ours = counted(
        MACHINES[kernels], "Gemm", [Tensor(data, x), *constants], y, {"transB": 1}, clip=clip
    )
    np.testing.assert_array_equal(ours, theirs)


@every_engine
@pytest.mark.parametrize(
    "window",
    [
        {"strides": (1, 1), "dilations": (1, 1), "same": True},
        {"strides": (2, 2), "dilations": (1, 1), "same": True},
        {"strides": (2, 1), "dilations": (1, 1), "same": False},
        {"strides": (1, 1), "dilations": (2, 3), "same": True},
    ],
    ids=["same", "strided", "valid", "dilated"],
)
@pytest.mark.parametrize("depthwise", [False, True], ids=["dense", "depthwise"])
@pytest.mark.parametrize("activation", [None, "RELU", "RELU6"])
def test_convolutions_of_any_window(window, depthwise, activation, kernels) -> None:
    random, channels, filters = np.random.default_rng(2), 24, 24 if depthwise else 20
    x, y = grid(0.0417, 3), grid(0.0714, -21)
    weight = grid(random.uniform(0.001, 0.01, filters), 0, axis=3 if depthwise else 0)
    shape = (1, 3, 3, channels) if depthwise else (filters, 3, 3, channels)
    taps, bias = (
        random.integers(-127, 128, shape, np.int8),
        random.integers(-9000, 9000, filters, np.int32),
    )
    levels = random.integers(-128, 128, (2, 11, 13, channels), np.int8)
    levels[1] = np.where(random.integers(0, 2, levels[1].shape), 127, -128)
    added = Tensor(bias, bias_grid(x, weight), constant=True)

    across = _ours(taps, depthwise=depthwise)
    onto = grid(np.asarray(weight.scale), 0, axis=0)
    attributes = {
        "strides": window["strides"],
        "dilations": window["dilations"],
        "auto_pad": "SAME_UPPER" if window["same"] else "VALID",
        "group": channels if depthwise else 1,
    }
    clip = limits(activation, y, kernels)
    inputs = [Tensor(np.moveaxis(levels, 3, 1), x), Tensor(across, onto, constant=True), added]
    ours = np.moveaxis(counted(MACHINES[kernels], "Conv", inputs, y, attributes, clip=clip), 1, 3)

    options = {
        "strideH": window["strides"][0],
        "strideW": window["strides"][1],
        "dilationHFactor": window["dilations"][0],
        "dilationWFactor": window["dilations"][1],
        "padding": 0 if window["same"] else 1,
        "fusedActivationFunction": _activation(activation),
    } | ({"depthMultiplier": 1} if depthwise else {})
    operator, table = (
        ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions")
        if depthwise
        else ("CONV_2D", "Conv2DOptions")
    )
    fed = [Tensor(levels, x), Tensor(taps, weight, constant=True), added]
    theirs = run(operator, (table, options), fed, Tensor(np.empty(ours.shape, np.int8), y), kernels)
    np.testing.assert_array_equal(ours, theirs)


@every_engine
@pytest.mark.parametrize("multiplier", [1, 2, 3])
def test_depthwise_convolutions_of_any_number_of_channels(multiplier, kernels) -> None:
    """Built-in kernels count filters in blocks of 8; scales whose sums are often ties show
    where a block ends.
    """
    x, y = grid(0.25, 3), grid(4.0, -21)
    for channels in range(2, 41):
        random, filters = np.random.default_rng(channels), channels * multiplier
        weight = grid(np.full(filters, 0.125), 0, axis=3)
        taps = random.integers(-127, 128, (1, 3, 3, filters), np.int8)
        bias = Tensor(
            random.integers(-9000, 9000, filters, np.int32), bias_grid(x, weight), constant=True
        )
        levels = random.integers(-128, 128, (1, 11, 13, channels), np.int8)
        onto = grid(np.asarray(weight.scale), 0, axis=0)
        inputs = [
            Tensor(np.moveaxis(levels, 3, 1), x),
            Tensor(_ours(taps, depthwise=True), onto, constant=True),
            bias,
        ]
        attributes = {"auto_pad": "SAME_UPPER", "group": channels}
        ours = np.moveaxis(counted(MACHINES[kernels], "Conv", inputs, y, attributes), 1, 3)
        options = {"strideH": 1, "strideW": 1, "padding": 0, "depthMultiplier": multiplier}
        options |= {"dilationHFactor": 1, "dilationWFactor": 1}
        fed = [Tensor(levels, x), Tensor(taps, weight, constant=True), bias]
        out = Tensor(np.empty(ours.shape, np.int8), y)
        theirs = run("DEPTHWISE_CONV_2D", ("DepthwiseConv2DOptions", options), fed, out, kernels)
        np.testing.assert_array_equal(ours, theirs, f"{channels} channels")


@every_engine
@pytest.mark.parametrize(("groups", "each"), [(2, 3), (2, 8), (3, 1), (4, 4)])
def test_convolutions_of_several_groups(groups, each, kernels) -> None:
    """CONV_2D of fewer channels than it is given:
    built-in kernels leave it to the reference kernel.
    """
    random, depth, filters = np.random.default_rng(groups), 4, groups * each
    x, y, weight = grid(0.25, 3), grid(4.0, -21), grid(np.full(filters, 0.125), 0, axis=0)
    taps = random.integers(-127, 128, (filters, 3, 3, depth), np.int8)
    bias = Tensor(
        random.integers(-9000, 9000, filters, np.int32), bias_grid(x, weight), constant=True
    )
    levels = random.integers(-128, 128, (2, 11, 13, groups * depth), np.int8)
    inputs = [
        Tensor(np.moveaxis(levels, 3, 1), x),
        Tensor(_ours(taps, depthwise=False), weight, constant=True),
        bias,
    ]
    attributes = {"auto_pad": "SAME_UPPER", "group": groups}
    ours = np.moveaxis(counted(MACHINES[kernels], "Conv", inputs, y, attributes), 1, 3)
    options = {"strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1, "padding": 0}
    fed = [Tensor(levels, x), Tensor(taps, weight, constant=True), bias]
    theirs = run(
        "CONV_2D",
        ("Conv2DOptions", options),
        fed,
        Tensor(np.empty(ours.shape, np.int8), y),
        kernels,
    )
    np.testing.assert_array_equal(ours, theirs)


def _ours(taps: np.ndarray, *, depthwise: bool) -> np.ndarray:
    """(filters, depth, height, width) of LiteRT's (1, height, width, filters) or (filters,
    height, width, depth).
    """
    return np.moveaxis(taps, 3, 0) if depthwise else np.moveaxis(taps, 3, 1)


def limits(activation: str | None, y: QParams, kernels: Kernels) -> tuple[int, int] | None:
    """Levels to which a fused activation clips:
    XNNPACK adds the zero point before it rounds, half to even.
    """
    if activation is None:
        return None
    low, high = clip_codes(0.0, 6.0 if activation == "RELU6" else np.inf, y)
    if kernels is Kernels.XNNPACK and activation == "RELU6":
        high = int(np.clip(np.rint(6.0 / np.float32(y.scale) + float(y.zero_point)), low, 127))
    return low, high


def _activation(name: str | None) -> int:
    return {None: 0, "RELU": 1, "RELU6": 3}[name]
