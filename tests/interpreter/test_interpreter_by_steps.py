"""Registers that saturate at every product, along K, in the order that is stated;
judged by plain integers.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from qbench.errors import UnsupportedError
from qbench.interpreter import Counters, Program, counting_means
from qbench.numerics import Accumulator, SumShape, get_arithmetic
from qbench.numerics.accumulator import Overflow, Saturates
from tests.interpreter.one_node import counted, levels_of, model_of

Array = np.ndarray[Any, Any]
STEPS = Accumulator(bits=16, overflow=Overflow.SATURATE, saturates=Saturates.EACH)
MACHINE = replace(get_arithmetic("ideal"), accumulator=STEPS)
AT_THE_END = replace(MACHINE, accumulator=replace(STEPS, saturates=Saturates.END))
GRIDS = {"s": np.float32(1), "t": np.float32(1), "z": np.uint8(0), "v": np.int8(0)}


def by_hand(left: Array, right: Array, bits: int = 16) -> tuple[Array, int]:
    """Plain integers, one product after another: what the register holds,
    and how often it was full.
    """
    half, events = 1 << (bits - 1), 0
    sums = np.zeros((len(left), right.shape[1]), np.int64)
    for m, n in np.ndindex(*sums.shape):
        total = 0
        for one, other in zip(left[m].tolist(), right[:, n].tolist(), strict=True):
            wanted = total + one * other
            total = max(-half, min(wanted, half - 1))
            events += total != wanted
        sums[m, n] = total
    return sums, events


def events(model: Any, machine: Any, feeds: dict[str, Array]) -> Counters:
    program = Program(ir.from_proto(model), machine, means=counting_means())
    program.run(feeds)
    (counters,) = program.counters.values()
    return counters


def product(a: Array, b: Array, *, constant: bool) -> tuple[Any, dict[str, Array]]:
    feeds = {"a": a} if constant else {"a": a, "b": b}
    known = GRIDS | ({"b": b} if constant else {})
    return model_of(
        "QGemm", ("a", "s", "z", "b", "t", "v"), feeds, known, domain="com.microsoft"
    ), feeds


@pytest.mark.parametrize("constant", [False, True])
def test_what_a_full_register_lost_does_not_come_back(constant: bool) -> None:
    a, b = np.full((1, 8), 255, np.uint8), np.array([[127]] * 4 + [[-127]] * 4, np.int8)
    model, feeds = product(a, b, constant=constant)
    assert counted(model, AT_THE_END, feeds)[0].tolist() == [[0]]
    assert events(model, AT_THE_END, feeds).overflowed == 0
    (found,) = counted(model, MACHINE, feeds)
    expected, full = by_hand(a.astype(np.int64), b.astype(np.int64))
    assert found.tolist() == expected.tolist()
    assert events(model, MACHINE, feeds).overflowed == full > 0


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_products_are_summed_one_by_one(seed: int, constant: bool) -> None:
    a, b = levels_of(seed, "uint8", 5, 23), levels_of(seed + 9, "int8", 23, 4)
    za, zb = levels_of(seed + 5, "uint8"), levels_of(seed + 6, "int8", 4)
    feeds = {"a": a} if constant else {"a": a, "b": b}
    known = GRIDS | {"z": za, "v": zb, "t": np.ones(4, np.float32)} | ({"b": b} if constant else {})
    model = model_of("QGemm", ("a", "s", "z", "b", "t", "v"), feeds, known, domain="com.microsoft")
    expected, full = by_hand(a.astype(np.int64) - int(za), b.astype(np.int64) - zb)
    np.testing.assert_array_equal(counted(model, MACHINE, feeds)[0], expected.astype(np.float32))
    assert full > 0
    assert events(model, MACHINE, feeds).overflowed == full


@pytest.mark.parametrize("groups", [1, 3])
def test_a_convolution_sums_along_its_window_channels_fastest(groups: int) -> None:
    channels, filters = 3, 6
    x, w = (
        levels_of(0, "uint8", 2, channels, 3, 3),
        levels_of(1, "int8", filters, channels // groups, 3, 3),
    )
    grids = {"sx": np.float32(0.02), "zx": np.uint8(7), "sw": np.float32(0.01), "zw": np.int8(0)}
    grids |= {"sy": np.float32(0.06), "zy": np.uint8(128), "w": w}
    order = ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy")
    model = model_of("QLinearConv", order, {"x": x}, grids, group=groups)
    each, per = filters // groups, channels // groups
    sums, full = np.zeros((2, filters), np.int64), 0
    for group in range(groups):
        rows = (
            np.moveaxis(x[:, group * per : (group + 1) * per], 1, -1)
            .reshape(2, -1)
            .astype(np.int64)
            - 7
        )
        own = (
            np.moveaxis(w[group * each : (group + 1) * each], 1, -1)
            .reshape(each, -1)
            .astype(np.int64)
        )
        sums[:, group * each : (group + 1) * each], more = by_hand(rows, own.T)
        full += more
    exact = np.round(sums * (0.02 * 0.01 / 0.06))
    assert full > 0
    expected = np.clip(exact + 128, 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(
        counted(model, MACHINE, {"x": x})[0].reshape(2, filters), expected
    )
    assert events(model, MACHINE, {"x": x}).overflowed == full


def test_a_register_that_holds_every_sum_counts_as_ever() -> None:
    a, b = levels_of(3, "uint8", 4, 40), levels_of(4, "int8", 40, 3)
    model, feeds = product(a, b, constant=True)
    wide = replace(MACHINE, accumulator=replace(STEPS, bits=32))
    np.testing.assert_array_equal(counted(model, wide, feeds)[0], counted(model, "ideal", feeds)[0])
    assert events(model, wide, feeds).overflowed == 0


def test_a_transposed_convolution_has_no_one_order() -> None:
    x, w = levels_of(0, "uint8", 1, 9, 2, 2), levels_of(1, "int8", 9, 2, 2, 2)
    grids = {"s": np.float32(0.02), "z": np.uint8(7), "w": w, "v": np.int8(0)}
    order = ("x", "s", "z", "w", "s", "v", "s", "z")
    model = model_of("QLinearConvTranspose", order, {"x": x}, grids, domain="qbench.integer")
    counted(model, AT_THE_END, {"x": x})
    with pytest.raises(UnsupportedError, match="saturate at each step"):
        counted(model, MACHINE, {"x": x})


def test_the_word_is_of_saturating_registers_without_pairs() -> None:
    with pytest.raises(ValueError, match="'overflow' saturates"):
        Accumulator(bits=16, saturates=Saturates.EACH)
    with pytest.raises(ValueError, match="sums no pairs"):
        replace(STEPS, pair_bits=16)
    assert STEPS.pairs(SumShape()) == 0
    assert 'saturates = "each"' in str(MACHINE)
    assert MACHINE.digest != AT_THE_END.digest
