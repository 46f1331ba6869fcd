"""PyTorch's quantized operators without products of matrices against ours: sums, functions,
means, quantizing.

Its vectors round before they add the zero point; what is left over at the end of an array is
rounded behind. Arrays here are whole vectors, but where that end is what is looked at.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import helper
from torch_products import Array, grid, run, tensor

from qbench.graph import INTEGER_DOMAIN
from qbench.numerics import QType, add_quantized, get_arithmetic, quantize, softmax_of_codes

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore:.*torch.quantize_per_tensor.*:UserWarning"),
]

ENGINE = "com.microsoft"
ENGINES = ("fbgemm", "qnnpack", "onednn")
LEVELS = np.arange(256, dtype=np.uint8)
LEFT, RIGHT = np.repeat(LEVELS, 256), np.tile(LEVELS, 256)


@pytest.fixture(autouse=True)
def one_thread(torch: ModuleType) -> Iterator[None]:
    before, engine = torch.get_num_threads(), torch.backends.quantized.engine
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch.backends.quantized.engine = engine


def drawn_grids(random: np.random.Generator, count: int, *, ties: bool) -> list[tuple[float, int]]:
    """Scales, powers of two where there shall be ``ties``, and zero points."""
    found = []
    for _ in range(count):
        scale = (
            2.0 ** -int(random.integers(3, 8))
            if ties
            else float(np.float32(random.uniform(0.005, 0.08)))
        )
        found.append((scale, int(random.integers(0, 256))))
    return found


def alone(
    operator: str,
    feeds: dict[str, Array],
    grids: dict[str, tuple[float, int]],
    machine: str,
    **attributes: Any,
) -> Array:
    """An operator of ours on the grids (name → scale, zero point) in the order of its inputs,
    which ``feeds`` name.
    """
    domain = (
        ENGINE
        if operator in ("QLinearMul", "QLinearLeakyRelu", "QLinearSigmoid")
        else INTEGER_DOMAIN
    )
    domain = ENGINE if "Pool" in operator or operator == "QLinearConcat" else domain
    names, constants = [], {}
    for name, (scale, zero) in grids.items():
        constants |= {f"s{name}": np.float32(scale), f"z{name}": np.uint8(zero)}
        names += [name] * (name in feeds) + [f"s{name}", f"z{name}"]
    node = helper.make_node(operator, names, ["y"], domain=domain, **attributes)
    return run(node, constants, feeds, get_arithmetic(machine))


@pytest.mark.parametrize("ties", [False, True], ids=["any", "ties"])
@pytest.mark.parametrize("engine", ENGINES)
def test_sums_of_two(engine: str, ties: bool, torch: ModuleType) -> None:
    torch.backends.quantized.engine = engine
    random, operators = np.random.default_rng(21), torch.ops.quantized
    for _ in range(6):
        a, b, y = drawn_grids(random, 3, ties=ties)
        ours = add_quantized(LEFT, RIGHT, grid(*a), grid(*b), grid(*y), engine)
        pair = tensor(torch, LEFT, *a), tensor(torch, RIGHT, *b)
        np.testing.assert_array_equal(ours, operators.add(*pair, *y).int_repr().numpy())
        np.testing.assert_array_equal(
            np.maximum(ours, y[1]), operators.add_relu(*pair, *y).int_repr().numpy()
        )


def test_sums_of_signed_levels_are_pytorchs_own(torch: ModuleType) -> None:
    torch.backends.quantized.engine = "qnnpack"
    random, int8 = np.random.default_rng(22), QType.parse("int8")
    left, right = ((one ^ 128).view(np.int8) for one in (LEFT, RIGHT))
    for ties in (False, True):
        a, b, y = ((scale, zero - 128) for scale, zero in drawn_grids(random, 3, ties=ties))
        theirs = (
            torch.ops.quantized.add(tensor(torch, left, *a), tensor(torch, right, *b), *y)
            .int_repr()
            .numpy()
        )
        ours = add_quantized(left, right, grid(*a, int8), grid(*b, int8), grid(*y, int8), "fbgemm")
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("engine", ENGINES)
def test_products_of_two(engine: str, torch: ModuleType) -> None:
    torch.backends.quantized.engine = engine
    random, operators = np.random.default_rng(23), torch.ops.quantized
    for _ in range(6):
        a, b, y = drawn_grids(random, 3, ties=False)
        y = (
            float(
                np.float32(
                    a[0] * b[0] * int(random.integers(1, 300)) * 2 / int(random.integers(1, 9))
                )
            ),
            y[1],
        )
        ours = alone("QLinearMul", {"a": LEFT, "b": RIGHT}, {"a": a, "b": b, "y": y}, engine)
        pair = tensor(torch, LEFT, *a), tensor(torch, RIGHT, *b)
        np.testing.assert_array_equal(ours, operators.mul(*pair, *y).int_repr().numpy())
        np.testing.assert_array_equal(
            np.maximum(ours, y[1]), operators.mul_relu(*pair, *y).int_repr().numpy()
        )


@pytest.mark.parametrize("ties", [False, True], ids=["any", "ties"])
@pytest.mark.parametrize("engine", ENGINES)
def test_functions_of_one(engine: str, ties: bool, torch: ModuleType) -> None:
    torch.backends.quantized.engine = engine
    random, operators = np.random.default_rng(24), torch.ops.quantized
    for _ in range(12):
        x, y = drawn_grids(random, 2, ties=ties)
        levels = tensor(torch, LEVELS, *x)
        fixed = {"QLinearSigmoid": (1 / 256, 0), "QLinearTanh": (2 / 256, 128)}
        theirs = {
            "QLinearHardSwish": operators.hardswish(levels, *y),
            "QLinearLeakyRelu": operators.leaky_relu(levels, 0.1, False, *y),
            "QLinearElu": operators.elu(levels, *y, 1.0, 1.0, 1.0),
            "QLinearSigmoid": torch.sigmoid(levels),
            "QLinearTanh": torch.tanh(levels),
        }
        for operator, result in theirs.items():
            attributes = {"QLinearLeakyRelu": {"alpha": 0.1}, "QLinearElu": {"alpha": 1.0}}.get(
                operator, {}
            )
            ours = alone(
                operator, {"x": LEVELS}, {"x": x, "y": fixed.get(operator, y)}, engine, **attributes
            )
            np.testing.assert_array_equal(ours, result.int_repr().numpy(), err_msg=operator)


@pytest.mark.parametrize("engine", ENGINES)
def test_concatenated_channels(engine: str, torch: ModuleType) -> None:
    torch.backends.quantized.engine = engine
    random = np.random.default_rng(25)
    parts = [np.broadcast_to(LEVELS.reshape(4, 64, 1, 1), (4, 64, 2, 1)).copy() for _ in range(2)]
    for ties in (False, True) * 6:
        a, b, y = drawn_grids(random, 3, ties=ties)
        last = [
            tensor(torch, part, *one).contiguous(memory_format=torch.channels_last)
            for part, one in zip(parts, (a, b), strict=True)
        ]
        ours = alone(
            "QLinearConcat",
            {"a": parts[0], "b": parts[1]},
            {"y": y, "a": a, "b": b},
            engine,
            axis=1,
        )
        np.testing.assert_array_equal(ours, torch.ops.quantized.cat(last, 1, *y).int_repr().numpy())
        # With channels first every part is dequantized and quantized.
        first = [tensor(torch, part, *one) for part, one in zip(parts, (a, b), strict=True)]
        whole = np.concatenate(
            [quantize(one.dequantize().numpy(), grid(*y), engine) for one in first], axis=1
        )
        np.testing.assert_array_equal(
            whole, torch.ops.quantized.cat(first, 1, *y).int_repr().numpy()
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_means_of_windows(engine: str, torch: ModuleType) -> None:
    torch.backends.quantized.engine = engine
    random, functional = np.random.default_rng(26), torch.nn.functional
    for window, stride, pad, counted_in in (
        ((2, 2), 2, 0, True),
        ((3, 3), 2, 1, True),
        ((3, 3), 2, 1, False),
        ((2, 3), 1, 0, True),
    ):
        x = drawn_grids(random, 1, ties=False)[0]
        levels = random.integers(0, 256, (2, 64, 8, 8)).astype(np.uint8)
        last = tensor(torch, levels, *x).contiguous(memory_format=torch.channels_last)
        theirs = (
            functional.avg_pool2d(last, window, stride, pad, False, counted_in).int_repr().numpy()
        )
        # QNNPACK's counts what it pads with, asked to or not.
        included = counted_in or engine == "qnnpack"
        ours = alone(
            "QLinearAveragePool", {"x": levels}, {"x": x, "y": x}, engine, kernel_shape=window,
            strides=[stride] * 2, pads=[pad] * 4, count_include_pad=int(included),
        )  # fmt: skip
        np.testing.assert_array_equal(ours, theirs, err_msg=str((window, counted_in)))


@pytest.mark.parametrize("engine", ENGINES)
def test_means_of_all(engine: str, torch: ModuleType) -> None:
    torch.backends.quantized.engine = engine
    random = np.random.default_rng(27)
    for shape in ((4, 96, 8, 8), (4, 96, 7, 7), (4, 67, 6, 4)):
        x = drawn_grids(random, 1, ties=False)[0]
        levels = random.integers(0, 256, shape).astype(np.uint8)
        ours = alone("QLinearGlobalAveragePool", {"x": levels}, {"x": x, "y": x}, engine)
        first = tensor(torch, levels, *x)
        last = first.contiguous(memory_format=torch.channels_last)
        for one in (first, last):
            theirs = torch.nn.functional.adaptive_avg_pool2d(one, 1).int_repr().numpy()
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(
            ours, torch.mean(first, (2, 3), keepdim=True).int_repr().numpy()
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_quantizing(engine: str, torch: ModuleType) -> None:
    torch.backends.quantized.engine = engine
    random = np.random.default_rng(28)
    for ties in (False, True) * 6:
        (scale, zero), *channels = drawn_grids(random, 6, ties=ties)
        real = ((random.integers(-600, 600, 997) + 0.5) * scale / (2 if ties else 1)).astype(
            np.float32
        )
        real[:4] = [np.inf, -np.inf, np.nan, 1e38]
        theirs = (
            torch.quantize_per_tensor(torch.from_numpy(real), scale, zero, torch.quint8)
            .int_repr()
            .numpy()
        )
        np.testing.assert_array_equal(quantize(real, grid(scale, zero), engine), theirs)
        scales, zeros = (np.array(part) for part in zip(*channels, strict=True))
        each = ((random.integers(-300, 300, (5, 400)) + 0.5) * scales[:, None]).astype(np.float32)
        by_channel = grid(1.0, 0).__class__(
            scales.astype(np.float32), zeros, QType.parse("uint8"), axis=0
        )
        told = torch.tensor(scales), torch.tensor(zeros), 0, torch.quint8
        theirs = torch.quantize_per_channel(torch.from_numpy(each), *told).int_repr().numpy()
        np.testing.assert_array_equal(quantize(each, by_channel, engine), theirs)
        # Not a number per channel is level 0, whatever the grid; per tensor it is the highest.
        assert (
            not torch.quantize_per_channel(torch.full((5, 2), float("nan")), *told).int_repr().any()
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_softmax(engine: str, torch: ModuleType) -> None:
    torch.backends.quantized.engine = engine
    random = np.random.default_rng(29)
    for ties in (False, True) * 6:
        (x, y), machine = drawn_grids(random, 2, ties=ties), get_arithmetic(engine)
        levels = random.integers(0, 256, (16, 64)).astype(np.uint8)
        for target in (y, (1 / 256, 0)):
            ours, _ = softmax_of_codes(grid(*x), grid(*target), 64, machine)(levels)
            theirs = (
                torch.ops.quantized.softmax(tensor(torch, levels, *x), -1, *target)
                .int_repr()
                .numpy()
            )
            np.testing.assert_array_equal(ours, theirs)


def test_means_of_channels_last_are_taken_in_floats(torch: ModuleType) -> None:
    """torch.mean dequantizes there and sums in an order of its own:
    ties of Σ x / 64 go either way.
    """
    torch.backends.quantized.engine = "fbgemm"
    random, differing, size = np.random.default_rng(30), 0, 0
    for _ in range(10):
        x = drawn_grids(random, 1, ties=False)[0]
        levels = random.integers(0, 256, (2, 64, 8, 8)).astype(np.uint8)
        ours = alone("QLinearGlobalAveragePool", {"x": levels}, {"x": x, "y": x}, "fbgemm")
        last = tensor(torch, levels, *x).contiguous(memory_format=torch.channels_last)
        theirs = torch.mean(last, (2, 3), keepdim=True).int_repr().numpy()
        assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1
        differing, size = differing + np.count_nonzero(ours != theirs), size + ours.size
    assert size == 1280
    assert differing == 2 or torch.backends.cpu.get_cpu_capability() != "AVX512"


def test_the_end_of_an_array_is_rounded_behind_the_zero_point(torch: ModuleType) -> None:
    """The rest of every thread's part of an array that fills no vector."""
    torch.backends.quantized.engine = "fbgemm"
    if torch.backends.cpu.get_cpu_capability() not in ("AVX512", "AVX2"):
        pytest.skip("vectors of another length")
    vector = 64  # of levels, on both
    size = 70_001
    half, zero = (
        tensor(torch, np.full(size, 1, np.uint8), 0.5, 0),
        tensor(torch, np.zeros(size, np.uint8), 1.0, 0),
    )
    ends = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        theirs = (
            torch.ops.quantized.add(half, zero, 1.0, 1).int_repr().numpy()
        )  # 0.5 and a zero point of 1
        assert set(theirs.tolist()) == {1, 2}
        ends[threads] = np.flatnonzero(theirs == 2)
    np.testing.assert_array_equal(ends[1], np.arange(size - size % vector, size))
    part = -(-size // 2)
    rests = [np.arange(part - part % vector, part), np.arange(size - (size - part) % vector, size)]
    np.testing.assert_array_equal(ends[2], np.concatenate(rests))
    assert int(add_quantized(1, 0, grid(0.5, 0), grid(1.0, 0), grid(1.0, 1), "fbgemm")) == 1
