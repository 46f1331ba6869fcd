"""Transposed convolutions: sizes against ONNX Runtime's float operator,
sums against plain integers.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_node import Array, counted, engine, levels_of, model_of, register_of

from qbench.numerics import Accumulator, get_arithmetic, requantize
from qbench.numerics.accumulator import Overflow

ORDER = ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "bias")
DOMAIN = "qbench.integer"


def model(x: Array, constants: dict[str, Any], **attributes: Any) -> Any:
    order = ORDER if "bias" in constants else ORDER[:-1]
    return model_of("QLinearConvTranspose", order, {"x": x}, constants, domain=DOMAIN, **attributes)


def sums_of(
    x: Array, w: Array, zeros: tuple[int, Array], attributes: dict[str, Any], pairs: int = 0
) -> Array:
    """Products of every element and every tap, added where they fall; pairs of channels
    saturate to ``pairs`` bits.
    """
    groups, strides, dilations = (attributes[name] for name in ("group", "strides", "dilations"))
    pads, more, each, depth = (
        attributes["pads"],
        attributes["output_padding"],
        w.shape[1],
        len(w) // attributes["group"],
    )
    sizes = [
        (x.shape[2 + i] - 1) * strides[i]
        + (w.shape[2 + i] - 1) * dilations[i]
        + 1
        + more[i]
        - pads[i]
        - pads[2 + i]
        for i in range(2)
    ]
    sums = np.zeros((len(x), groups * each, *sizes), object)
    for n, group, o, i, j, k, m in np.ndindex(len(x), groups, each, *x.shape[2:], *w.shape[2:]):
        place = (
            i * strides[0] + k * dilations[0] - pads[0],
            j * strides[1] + m * dilations[1] - pads[1],
        )
        if not all(0 <= at < size for at, size in zip(place, sizes, strict=True)):
            continue
        channels = range(group * depth, (group + 1) * depth)
        raw = [int(x[n, c, i, j]) * int(w[c, o, k, m]) for c in channels]
        if pairs:
            half = 1 << (pairs - 1)
            raw = [max(-half, min(sum(raw[at : at + 2]), half - 1)) for at in range(0, depth, 2)]
        point = int(zeros[1].reshape(-1)[o if zeros[1].size > 1 else 0])
        centred = [
            zeros[0] * point - zeros[0] * int(w[c, o, k, m]) - point * int(x[n, c, i, j])
            for c in channels
        ]
        sums[n, group * each + o, *place] += sum(raw) + sum(centred)
    return sums


@st.composite
def transposed(draw: Any) -> tuple[Array, Array, Array, dict[str, Any]]:
    """Data, weights, their zero points and attributes."""
    groups, depth, each = draw(
        st.sampled_from([(1, 3, 2), (2, 2, 3), (3, 1, 1), (1, 1, 1), (1, 4, 1)])
    )
    data, weights = (
        draw(st.sampled_from(["uint8", "int8", "int16"])),
        draw(st.sampled_from(["uint8", "int8"])),
    )
    seed = draw(st.integers(0, 99))
    x = levels_of(seed, data, 2, groups * depth, 3, 2, extreme=draw(st.booleans()))
    w = levels_of(seed + 1, weights, groups * depth, each, draw(st.integers(1, 3)), 2)
    points = levels_of(seed + 2, weights, *draw(st.sampled_from([(), (each,)])))
    strides = draw(st.lists(st.integers(1, 3), min_size=2, max_size=2))
    attributes = {
        "group": groups,
        "strides": strides,
        "dilations": draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)),
        "pads": draw(st.lists(st.integers(0, 1), min_size=4, max_size=4))
        if w.shape[2] > 2
        else [0, 0, 0, 0],
        "output_padding": [draw(st.integers(0, step - 1)) for step in strides],
    }
    return x, w, points, attributes


def scaled(x: Array, w: Array, points: Array, groups: int) -> tuple[dict[str, Any], Array]:
    """The constants of a node, and the scale of each of its output channels."""
    each = np.random.default_rng(3).uniform(0.01, 0.03, points.shape).astype(np.float32)
    bias = np.random.default_rng(4).integers(-9000, 9000, groups * w.shape[1]).astype(np.int32)
    constants = {
        "sx": np.float32(0.02), "zx": levels_of(5, x.dtype.name), "w": w, "sw": each, "zw": points,
        "sy": np.float32(0.04 * (np.iinfo(x.dtype).max / 127)), "zy": np.asarray(7, x.dtype),
        "bias": bias,
    }  # fmt: skip
    return constants, np.resize(each, groups * w.shape[1]).astype(np.float64)


WRAPPING = replace(get_arithmetic("gemmlowp"), accumulator=Accumulator(bits=17))
SATURATING = replace(
    get_arithmetic("ort-x64"),
    accumulator=Accumulator(bits=18, overflow=Overflow.SATURATE, pair_bits=16),
)


@pytest.mark.slow
@settings(max_examples=20)
@given(transposed(), st.sampled_from(["ideal", "gemmlowp", "nvdla", WRAPPING, SATURATING]))
def test_every_machine_counts_as_plain_integers_do(given: tuple[Any, ...], machine: Any) -> None:
    x, w, points, attributes = given
    constants, scales = scaled(x, w, points, attributes["group"])
    arithmetic = get_arithmetic(machine) if isinstance(machine, str) else machine
    pairs = arithmetic.accumulator.pair_bits if (x.dtype, w.dtype) == (np.uint8, np.int8) else 0
    exact = sums_of(x, w, (int(constants["zx"]), points), attributes, pairs)
    held = register_of(
        exact + constants["bias"].astype(object)[:, None, None], arithmetic.accumulator
    )
    real = (
        float(constants["sx"]),
        scales if points.ndim else float(scales[0]),
        float(constants["sy"]),
    )
    expected = requantize(held, real, 7, x.dtype.name, arithmetic, axis=1)
    np.testing.assert_array_equal(
        counted(model(x, constants, **attributes), arithmetic, {"x": x})[0], expected
    )


def in_floats(x: Array, w: Array, **attributes: Any) -> Array:
    real = x.astype(np.float32)
    convolution = model_of(
        "ConvTranspose", ("x", "w"), {"x": real}, {"w": w.astype(np.float32)}, **attributes
    )
    return engine(convolution, {"x": real})[0]


RULES: list[dict[str, Any]] = [
    {},
    {"strides": [3, 2], "pads": [0, 1, 2, 0], "output_padding": [1, 1]},
    {"dilations": [2, 1], "pads": [1, 0, 0, 1]},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "SAME_LOWER", "output_padding": [1, 1]},
    {"strides": [3, 3], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "VALID"},
    {"strides": [2, 2], "output_shape": [10, 9]},
    {"strides": [2, 2], "output_shape": [10, 8], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "output_shape": [9, 8], "output_padding": [1, 1]},
    {"group": 3, "strides": [2, 1]},
]


@pytest.mark.parametrize("attributes", RULES, ids=str)
def test_sizes_and_places_are_those_of_the_float_operator(attributes: dict[str, Any]) -> None:
    """On whole numbers a float32 convolution is exact, and so is one step a level."""
    x = levels_of(0, "uint8", 2, 3, 5, 4) % 4
    w = levels_of(1, "int8", 3, 3 // attributes.get("group", 1), 3, 3) % 5
    one, zero = np.float32(1), np.int8(0)
    constants = {
        "sx": one,
        "zx": np.uint8(0),
        "w": w,
        "sw": one,
        "zw": zero,
        "sy": one,
        "zy": np.uint8(0),
    }
    theirs = in_floats(x, w, **attributes)
    ours = counted(model(x, constants, **attributes), "ideal", {"x": x})[0]
    assert theirs.max() < 255
    np.testing.assert_array_equal(ours, theirs)


def test_one_axis_and_three() -> None:
    one, zero = np.float32(1), np.int8(0)
    for spatial in ((5,), (3, 2, 4)):
        x, w = (
            levels_of(0, "uint8", 2, 3, *spatial) % 4,
            levels_of(1, "int8", 3, 2, *(2,) * len(spatial)) % 5,
        )
        strides = [2] * len(spatial)
        constants = {
            "sx": one,
            "zx": np.uint8(0),
            "w": w,
            "sw": one,
            "zw": zero,
            "sy": one,
            "zy": np.uint8(0),
        }
        theirs = in_floats(x, w, strides=strides)
        np.testing.assert_array_equal(
            counted(model(x, constants, strides=strides), "ideal", {"x": x})[0], theirs
        )
