"""LiteRT's pools, means, softmax and concatenation: every level as we count it."""

from dataclasses import replace

import numpy as np
import pytest
from litert_models import BUILT_IN, MACHINES, Kernels, Tensor, is_delegated, run
from qdq_models import counted, grid

from qbench.numerics import averager, get_arithmetic

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("litert")]
every_engine = pytest.mark.parametrize("kernels", list(Kernels))
built_in = pytest.mark.parametrize(("kernels", "machine"), BUILT_IN)


def pictures(seed: int, channels: int = 64, height: int = 9, width: int = 10) -> np.ndarray:
    """(2, height, width, channels): levels all over, and few levels, which make ties of means."""
    random = np.random.default_rng(seed)
    levels = random.integers(-128, 128, (2, height, width, channels), np.int8)
    levels[1] >>= random.integers(0, 7)
    return levels


@built_in
@pytest.mark.parametrize("same", [False, True], ids=["valid", "same"])
@pytest.mark.parametrize("window", [2, 3])
@pytest.mark.parametrize("zero", [0, -128, 37])
def test_average_pools(window, same, zero, kernels, machine) -> None:
    x, levels = grid(0.05, zero), pictures(zero + 200)
    attributes = {"kernel_shape": [window, window], "strides": [2, 1], "auto_pad": "SAME_UPPER" if same else "VALID"}
    ours = np.moveaxis(counted(machine, "AveragePool", [Tensor(np.moveaxis(levels, 3, 1), x)], x, attributes), 1, 3)
    np.testing.assert_array_equal(ours, _pool("AVERAGE_POOL_2D", levels, x, ours.shape, window, same, kernels))


@every_engine
@pytest.mark.parametrize("same", [False, True], ids=["valid", "same"])
def test_max_pools(same, kernels) -> None:
    x, levels = grid(0.05, 5), pictures(3)
    attributes = {"kernel_shape": [3, 3], "strides": [2, 1], "auto_pad": "SAME_UPPER" if same else "VALID"}
    ours = np.moveaxis(
        counted(MACHINES[kernels], "MaxPool", [Tensor(np.moveaxis(levels, 3, 1), x)], x, attributes), 1, 3
    )
    np.testing.assert_array_equal(ours, _pool("MAX_POOL_2D", levels, x, ours.shape, 3, same, kernels))


def _pool(operator, levels, x, shape, window, same, kernels) -> np.ndarray:
    options = {"padding": 0 if same else 1, "strideH": 2, "strideW": 1, "filterHeight": window, "filterWidth": window}
    return run(operator, ("Pool2DOptions", options), [Tensor(levels, x)], Tensor(np.empty(shape, np.int8), x), kernels)


@every_engine
@pytest.mark.parametrize("axes", [(1, 2), (1,), (3,), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("scales", [(0.05, 0.05), (0.25, 0.5), (0.25, 0.125), (0.0417, 0.0151)], ids=str)
def test_means(axes, scales, kernels) -> None:
    x, y = grid(scales[0], 7), grid(scales[1], 7 if scales[0] == scales[1] else -31)
    levels = pictures(11, height=8)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(levels.shape))
    over = Tensor(np.array(axes, np.int32), constant=True)
    out = Tensor(np.empty(shape, np.int8), y)
    theirs = run("MEAN", ("ReducerOptions", {"keepDims": True}), [Tensor(levels, x), over], out, kernels)
    data, operator = Tensor(np.moveaxis(levels, 3, 1), x), "ReduceMean"
    operands = [data, Tensor(np.array([(0, 2, 3, 1)[axis] for axis in axes], np.int64), constant=True)]
    if axes == (1, 2):  # LiteRT's kernel of its own for these is what GlobalAveragePool stands for
        operator, operands = "GlobalAveragePool", [data]
    np.testing.assert_array_equal(np.moveaxis(counted(MACHINES[kernels], operator, operands, y), 1, 3), theirs)


def test_means_of_channels_beyond_a_block_of_16_round_as_the_reference_kernel_does() -> None:
    x, y, levels = grid(0.0417, 7), grid(0.0151, -31), pictures(12, channels=27, height=8)[1:]
    over = Tensor(np.array((1, 2), np.int32), constant=True)
    out = Tensor(np.empty((1, 1, 1, 27), np.int8), y)
    theirs = run("MEAN", ("ReducerOptions", {"keepDims": True}), [Tensor(levels, x), over], out, Kernels.OPTIMIZED)
    machine = get_arithmetic("litert-x64").at("GlobalAveragePool", "")
    sums = levels.astype(np.int64).sum(axis=(1, 2), keepdims=True) - 80 * 7
    whole, beyond = (
        np.clip(averager(machine.mean, x, y, np.array(80), replace(machine, scaling=scaling))(sums), -128, 127)
        for scaling in (machine.scaling, get_arithmetic("gemmlowp").scaling)
    )
    assert np.any(whole != beyond)
    np.testing.assert_array_equal(theirs[..., :16], whole[..., :16])
    np.testing.assert_array_equal(theirs[..., 16:], beyond[..., 16:])


@built_in
@pytest.mark.parametrize("scale", [0.01, 0.0625, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("length", [3, 10, 250])  # the reference kernel ends the process where Σ exp exceeds 512
def test_softmax(length, scale, kernels, machine) -> None:
    x, y = grid(scale, 4), grid(1 / 256, -128)
    levels = np.random.default_rng(length).integers(-128, 128, (64, length), np.int8)
    levels[32:] >>= 3
    theirs = run("SOFTMAX", ("SoftmaxOptions", {"beta": 1.0}), [Tensor(levels, x)], Tensor(levels, y), kernels)
    ours = counted(machine, "Softmax", [Tensor(levels, x)], y, {"axis": -1})
    np.testing.assert_array_equal(ours, theirs)


@every_engine
def test_concatenation_is_a_copy(kernels) -> None:
    x, parts = grid(0.05, 5), [pictures(seed) for seed in (1, 2)]
    inputs = [Tensor(part, x) for part in parts]
    whole = np.concatenate(parts, axis=3)
    theirs = run("CONCATENATION", ("ConcatenationOptions", {"axis": 3}), inputs, Tensor(whole, x), kernels)
    ours = counted(MACHINES[kernels], "Concat", inputs, x, {"axis": 3})
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(theirs, whole)


@pytest.mark.parametrize("operator", ["AVERAGE_POOL_2D", "SOFTMAX", "HARD_SWISH"])
def test_what_the_delegate_leaves_to_built_in_kernels(operator) -> None:
    x, y = grid(0.05, 5), grid(1 / 256, -128)
    options, levels = {
        "AVERAGE_POOL_2D": (("Pool2DOptions", {"strideH": 1, "strideW": 1, "filterHeight": 1, "filterWidth": 1}), 4),
        "SOFTMAX": (("SoftmaxOptions", {"beta": 1.0}), 2),
        "HARD_SWISH": (("HardSwishOptions", {}), 2),
    }[operator]
    data = (
        np.arange(64, dtype=np.int8).reshape(1, 8, 4, 2) if levels == 4 else np.arange(64, dtype=np.int8).reshape(8, 8)
    )
    out = Tensor(data, x if operator == "AVERAGE_POOL_2D" else y)
    assert not is_delegated(operator, options, [Tensor(data, x)], out)
    assert is_delegated("ADD", ("AddOptions", {}), [Tensor(data, x)] * 2, Tensor(data, y))
