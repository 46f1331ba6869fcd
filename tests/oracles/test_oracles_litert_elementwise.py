"""LiteRT's sums, products, conversions and functions of one value: every pair of levels,
every level.
"""

import numpy as np
import pytest
from litert_models import BUILT_IN, MACHINES, Kernels, Tensor, run
from qdq_models import counted, grid

from qbench.numerics import QParams, add_quantized, get_arithmetic, quantize, rescale_quantized

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("litert")]
every_engine = pytest.mark.parametrize("kernels", list(Kernels))
built_in = pytest.mark.parametrize(("kernels", "machine"), BUILT_IN)
LEVELS = np.arange(-128, 128).astype(np.int8)
LEFT, RIGHT = (np.ascontiguousarray(side) for side in np.meshgrid(LEVELS, LEVELS, indexing="ij"))
FUSED = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}
OPERATORS = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul"}


def three_grids(seed: int) -> tuple[QParams, QParams, QParams]:
    """Powers of two, which make ties, for even seeds; anything for odd ones;
    zero points anywhere.
    """
    random = np.random.default_rng(seed)
    tidy = seed % 2 == 0
    first = 0.125 if tidy else np.exp(random.uniform(-5, 0))
    ratios = 2.0 ** random.integers(-2, 3, 2) if tidy else np.exp(random.uniform(-1.5, 1.5, 2))
    zeros = random.integers(-128, 128, 3)
    first, second, third = (
        grid(s, int(z)) for s, z in zip((first, *(first * ratios)), zeros, strict=True)
    )
    return first, second, third


@every_engine
@pytest.mark.parametrize("operator", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize("seed", range(10))
def test_all_pairs_of_levels(operator, seed, kernels) -> None:
    a, b, y = three_grids(seed)
    if operator == "MUL":
        # Products of 16 bits at most: beyond them built-in kernels wrap, as the next test shows. A
        # multiplier of one half in float32 is not quite one in float64: many ties, or none.
        y = grid(max(y.scale, 2 * a.scale * b.scale), int(y.zero_point))
    inputs = [Tensor(LEFT, a), Tensor(RIGHT, b)]
    theirs = run(operator, (FUSED[operator], {}), inputs, Tensor(LEFT, y), kernels)
    np.testing.assert_array_equal(
        counted(MACHINES[kernels], OPERATORS[operator], inputs, y), theirs
    )
    if operator == "ADD":
        machine = get_arithmetic(MACHINES[kernels]).at("Add", "")
        np.testing.assert_array_equal(add_quantized(LEFT, RIGHT, a, b, y, machine), theirs)


def test_products_that_leave_16_bits_wrap_in_the_vector_code_of_built_in_kernels() -> None:
    a, b, y = grid(0.125, 2), grid(0.5, -59), grid(0.03125, -50)
    inputs = [Tensor(LEFT, a), Tensor(RIGHT, b)]
    theirs = run("MUL", ("MulOptions", {}), inputs, Tensor(LEFT, y), Kernels.OPTIMIZED)
    ours = counted("litert-x64", "Mul", inputs, y)
    # The product saturates to 16 bits; the zero point is added to it there, and wraps.
    twice = (
        np.clip(
            2 * (LEFT.astype(np.int64) - 2) * (RIGHT.astype(np.int64) + 59), -(2**15), 2**15 - 1
        )
        - 50
    )
    wrapped = twice < -(2**15)
    assert np.count_nonzero(wrapped) == np.count_nonzero(ours != theirs) == 1483
    assert set(ours[wrapped]) == {-128}
    assert set(theirs[wrapped]) == {127}


@every_engine
@pytest.mark.parametrize("operator", ["ADD", "SUB", "MUL"])
def test_sums_and_products_with_a_fused_relu(operator, kernels) -> None:
    a, b, y = grid(0.031, 3), grid(0.0171, -20), grid(0.0402 if operator != "MUL" else 0.013, -37)
    inputs = [Tensor(LEFT, a), Tensor(RIGHT, b)]
    theirs = run(
        operator,
        (FUSED[operator], {"fusedActivationFunction": 1}),
        inputs,
        Tensor(LEFT, y),
        kernels,
    )
    ours = counted(MACHINES[kernels], OPERATORS[operator], inputs, y, clip=(int(y.zero_point), 127))
    np.testing.assert_array_equal(ours, theirs)


@every_engine
@pytest.mark.parametrize("seed", range(12))
def test_conversions_from_grid_to_grid(seed, kernels) -> None:
    x, _, y = three_grids(seed)
    theirs = run(
        "QUANTIZE", ("QuantizeOptions", {}), [Tensor(LEVELS, x)], Tensor(LEVELS, y), kernels
    )
    np.testing.assert_array_equal(counted(MACHINES[kernels], "", [Tensor(LEVELS, x)], y), theirs)


def reals(y: QParams, seed: int) -> np.ndarray:
    """Ties of the grid, what lies beside them, anything, zeros; up to two grids beyond its ends."""
    random, scale = np.random.default_rng(seed), np.float32(y.scale)
    some = np.concatenate(
        [random.integers(-400, 400, 2000) + 0.5, random.uniform(-400, 400, 2000), [0.0, -0.0]]
    )
    near = some.astype(np.float32) * scale
    return np.concatenate(
        [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    )


@pytest.mark.parametrize("scales", [(0.25, 0.5), (0.25, 1.0), (0.0190, 0.03125)], ids=str)
def test_conversions_beyond_a_block_of_16_elements_round_as_the_reference_kernel_does(
    scales,
) -> None:
    """Not repeated by ``litert-x64``: which elements these are depends on the order of the file."""
    x, y = grid(scales[0], 3), grid(scales[1], -5)
    for count in range(1, 50):
        levels = np.random.default_rng(count).integers(-128, 128, count, np.int8)
        out = Tensor(np.empty(count, np.int8), y)
        theirs = run(
            "QUANTIZE", ("QuantizeOptions", {}), [Tensor(levels, x)], out, Kernels.OPTIMIZED
        )
        vectors, scalars = (
            rescale_quantized(levels, x, y, name) for name in ("litert-x64", "gemmlowp")
        )
        whole = count - count % 16
        np.testing.assert_array_equal(theirs, np.concatenate([vectors[:whole], scalars[whole:]]))


@every_engine
@pytest.mark.parametrize("seed", range(6))
def test_quantizing_reals(seed, kernels) -> None:
    y = three_grids(seed)[0]
    x = reals(y, seed)
    theirs = run(
        "QUANTIZE",
        ("QuantizeOptions", {}),
        [Tensor(x)],
        Tensor(np.empty(x.shape, np.int8), y),
        kernels,
    )
    np.testing.assert_array_equal(quantize(x, y, MACHINES[kernels]), theirs)
    np.testing.assert_array_equal(counted(MACHINES[kernels], "", [Tensor(x)], y), theirs)


@every_engine
def test_reals_beyond_int32_wrap_in_built_in_kernels(kernels) -> None:
    x, y = np.array([1e30, np.inf, -1e30, -np.inf], np.float32), grid(0.1, 3)
    theirs = run(
        "QUANTIZE", ("QuantizeOptions", {}), [Tensor(x)], Tensor(np.empty(4, np.int8), y), kernels
    )
    assert quantize(x, y, MACHINES[kernels]).tolist() == [127, 127, -128, -128]
    # They convert to int32 first, which gives its lowest number whatever the sign: no arithmetic of
    # ours repeats that.
    assert theirs.tolist() == ([127, 127] if kernels is Kernels.XNNPACK else [-128, -128]) + [
        -128,
        -128,
    ]


@every_engine
@pytest.mark.parametrize("scale", [0.0078125, 0.05, 0.03125, 0.11, 0.5])
@pytest.mark.parametrize(
    ("operator", "ours", "y"),
    [("LOGISTIC", "Sigmoid", (1 / 256, -128)), ("TANH", "Tanh", (1 / 128, 0))],
)
def test_functions_on_a_grid_of_their_own(operator, ours, y, scale, kernels) -> None:
    x, onto = grid(scale, 7), grid(*y)
    theirs = run(operator, None, [Tensor(LEVELS, x)], Tensor(LEVELS, onto), kernels)
    np.testing.assert_array_equal(
        counted(MACHINES[kernels], ours, [Tensor(LEVELS, x)], onto), theirs
    )


@every_engine
@pytest.mark.parametrize("slope", [0.1, 0.015625, 0.3])
@pytest.mark.parametrize("seed", range(6))
def test_leaky_relu(seed, slope, kernels) -> None:
    x, _, y = three_grids(seed)
    if seed % 2:  # a multiplier that is a power of two in float32, and in float64 not quite: ties
        y = grid(x.scale * np.float32(slope) * np.float32(2), int(y.zero_point))
    theirs = run(
        "LEAKY_RELU",
        ("LeakyReluOptions", {"alpha": slope}),
        [Tensor(LEVELS, x)],
        Tensor(LEVELS, y),
        kernels,
    )
    ours = counted(MACHINES[kernels], "LeakyRelu", [Tensor(LEVELS, x)], y, {"alpha": slope})
    np.testing.assert_array_equal(ours, theirs)


@built_in
@pytest.mark.parametrize("seed", range(12))
def test_hard_swish(seed, kernels, machine) -> None:
    x, _, y = three_grids(seed)
    theirs = run(
        "HARD_SWISH", ("HardSwishOptions", {}), [Tensor(LEVELS, x)], Tensor(LEVELS, y), kernels
    )
    np.testing.assert_array_equal(counted(machine, "HardSwish", [Tensor(LEVELS, x)], y), theirs)
