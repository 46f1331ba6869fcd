"""Dynamic quantization: ranges of a batch, and convolutions whose zero point comes with it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_node import Array, counted, engine, levels_of, model_of, product_of, register_of

from qbench.interpreter.gemm import Pairs, pairs_here
from qbench.interpreter.windows import Windows, channels_last
from qbench.numerics import Quantizing, Rounding, get_arithmetic

HERE = "ort-x64-avx2" if pairs_here() is Pairs.SATURATE else "ort-x64"
RESULTS = ("q", "s", "z")
BATCHES = {
    "both signs": np.random.default_rng(0).normal(size=(3, 50)),
    "above 0": np.random.default_rng(1).normal(size=(3, 50)) + 9,
    "below 0": -np.random.default_rng(2).random((2, 4, 4)),
    "nothing but 0": np.zeros((2, 2)),
    "one number": np.full(2, 5.0),
    "a scale below the normal ones": np.array([1e-40, 0]),
    "empty": np.zeros((0, 3)),
    "ties": np.array([-127.5, 0.5, 1.5, 2.5, 126.5, 127.5]),
    "a NaN": np.array([np.nan, 1, 2]),
}


@pytest.mark.parametrize("name", BATCHES)
def test_the_range_of_a_batch_is_the_engines(name: str) -> None:
    x = BATCHES[name].astype(np.float32)
    model = model_of("DynamicQuantizeLinear", ["x"], {"x": x}, {}, RESULTS)
    for ours, theirs in zip(
        counted(model, "ort-x64", {"x": x}), engine(model, {"x": x}), strict=True
    ):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(ours, theirs)


def test_the_levels_are_the_machines_the_parameters_are_not() -> None:
    x = BATCHES["ties"].astype(np.float32)
    away = replace(get_arithmetic("ort-x64"), quantizing=Quantizing(rounding=Rounding.HALF_AWAY))
    model = model_of("DynamicQuantizeLinear", ["x"], {"x": x}, {}, RESULTS)
    (even, scale, zero), (found, *parameters) = (
        counted(model, machine, {"x": x}) for machine in ("ort-x64", away)
    )
    assert (scale, zero) == (1, 128) == tuple(parameters)
    np.testing.assert_array_equal(even, [0, 128, 130, 130, 254, 255])
    np.testing.assert_array_equal(found, [0, 129, 130, 131, 255, 255])


@pytest.mark.parametrize("x", [[3e38, -3e38], [np.inf, 1]])
def test_a_range_without_a_scale_is_told(x: list[float]) -> None:
    real = np.array(x, np.float32)
    model = model_of("DynamicQuantizeLinear", ["x"], {"x": real}, {}, RESULTS)
    with pytest.raises(ValueError, match="has no scale in float32"):
        counted(model, "ideal", {"x": real})


@st.composite
def convolutions(draw: Any) -> tuple[Array, Array, dict[str, Any]]:
    """Data, weights and attributes, of any groups, strides, dilations and pads."""
    data, weights = (
        draw(st.sampled_from(["uint8", "int8"])),
        draw(st.sampled_from(["uint8", "int8"])),
    )
    groups, depth, each = draw(
        st.sampled_from([(1, 3, 5), (2, 2, 3), (4, 1, 1), (3, 1, 2), (1, 1, 1)])
    )
    size, seed, extreme = draw(st.integers(1, 3)), draw(st.integers(0, 99)), draw(st.booleans())
    x = levels_of(seed, data, 2, groups * depth, 7, 6, extreme=extreme)
    w = levels_of(seed + 1, weights, groups * each, depth, size, size, extreme=extreme)
    small = st.integers(0, 2)
    attributes = {
        "group": groups,
        "pads": draw(st.lists(small, min_size=4, max_size=4)),
        "strides": draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)),
        "dilations": draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)),
    }
    return x, w, attributes


@pytest.mark.slow
@settings(max_examples=20)
@given(convolutions())
def test_convolutions_of_computed_zero_points_are_the_engines(
    given: tuple[Array, Array, dict[str, Any]],
) -> None:
    x, w, attributes = given
    feeds = {"x": x, "zx": levels_of(2, x.dtype.name)}
    constants = {"w": w, "zw": levels_of(3, w.dtype.name)}
    model = model_of("ConvInteger", ("x", "w", "zx", "zw"), feeds, constants, **attributes)
    theirs = engine(model, feeds, precise=False)[0]
    ours = counted(model, HERE, feeds)[0]
    assert ours.dtype == np.int32
    np.testing.assert_array_equal(ours, theirs)


def by_windows(x: Array, w: Array, zero: int, points: Array, pairs: int = 0) -> Array:
    """One group of a convolution in plain integers: weights on the left,
    channels slowest along the window.
    """
    model = model_of("Conv", ("x",), {}, {}, pads=[1, 1, 1, 1])
    from onnx_ir import from_proto

    windows = Windows.of(next(iter(from_proto(model).graph)), w.shape[2:])
    rows, counts = windows.rows(channels_last(x), zero)
    slowest = rows.reshape(len(rows), -1, x.shape[1]).swapaxes(1, 2).reshape(len(rows), -1)
    sums = product_of(w.reshape(len(w), -1), slowest.T, (points[:, None], zero), pairs)
    return np.moveaxis(sums.T.reshape(len(x), *counts, len(w)), -1, 1)


@pytest.mark.parametrize("machine", ["ort-x64-avx2", "nvdla", "ideal"])
@pytest.mark.parametrize(
    ("data", "weights"), [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8")]
)
def test_machines_count_them_as_plain_integers_do(data: str, weights: str, machine: str) -> None:
    x, w = (
        levels_of(0, data, 1, 3, 4, 3, extreme=True),
        levels_of(1, weights, 2, 3, 3, 3, extreme=True),
    )
    zx, zw = levels_of(2, data), levels_of(3, weights, 2)
    model = model_of(
        "ConvInteger",
        ("x", "w", "zx", "zw"),
        {"x": x, "zx": zx},
        {"w": w, "zw": zw},
        pads=[1, 1, 1, 1],
    )
    accumulator = get_arithmetic(machine).accumulator
    exact = by_windows(x, w, int(zx), zw)
    expected = by_windows(x, w, int(zx), zw, accumulator.pair_bits)
    assert (exact != expected).any() == (
        machine == "ort-x64-avx2" and (data, weights) == ("int8", "uint8")
    )
    found = counted(model, machine, {"x": x, "zx": zx})[0]
    np.testing.assert_array_equal(found, register_of(expected, accumulator, 32))


def test_a_narrow_register_wraps_them() -> None:
    machine = replace(
        get_arithmetic("ideal"), accumulator=replace(get_arithmetic("ideal").accumulator, bits=16)
    )
    x, w = (
        levels_of(0, "uint8", 1, 3, 4, 3, extreme=True),
        levels_of(1, "int8", 2, 3, 3, 3, extreme=True),
    )
    model = model_of("ConvInteger", ("x", "w"), {"x": x}, {"w": w}, pads=[1, 1, 1, 1])
    exact = by_windows(x, w, 0, np.zeros(2, np.int64))
    expected = register_of(exact, machine.accumulator)
    assert (expected != exact).any()
    np.testing.assert_array_equal(counted(model, machine, {"x": x})[0], expected)
