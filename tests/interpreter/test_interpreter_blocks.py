"""Channels beyond the last whole block of vector code: which they are, and that they alone are
scaled otherwise.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from one_node import counted, levels_of, model_of

from qbench.numerics import Accumulator, Arithmetic, Remainder, get_arithmetic

BUILT_IN = get_arithmetic("litert-x64")
VECTORS = replace(BUILT_IN, remainder=None)
"""As ``litert-x64`` counts the channels of whole blocks."""
SCALARS = BUILT_IN.beyond_blocks
"""As it counts those beyond."""


def conv(
    arithmetic: Arithmetic, filters: int, depth: int, groups: int, *, own: bool = False
) -> np.ndarray:
    """A convolution's result, channels last, the same with all means; sums are often ties.
    ``own``: scales differ.
    """
    random = np.random.default_rng(filters)
    scales = np.exp2(random.integers(-5, -2, filters) if own else np.full(filters, -3.0)).astype(
        np.float32
    )
    feeds = {"x": levels_of(filters, "int8", 4, groups * depth, 24, 24)}
    constants = {
        "s": np.float32(0.25),
        "z": np.int8(3),
        "w": levels_of(depth, "int8", filters, depth, 3, 3) >> 2,
        "ws": scales if own else scales[0],
        "wz": np.zeros(filters if own else (), np.int8),
        "ys": np.float32(4),
        "yz": np.int8(-21),
        "b": random.integers(-9000, 9000, filters).astype(np.int32),
    }
    order = ["x", "s", "z", "w", "ws", "wz", "ys", "yz", "b"]
    (found,) = counted(
        model_of("QLinearConv", order, feeds, constants, group=groups), arithmetic, feeds
    )
    return np.moveaxis(found, 1, -1)


def mean(arithmetic: Arithmetic, channels: int, *, last: bool = False) -> np.ndarray:
    """A global mean, channels last; sums are often ties."""
    codes = levels_of(channels, "int8", 5, 8, 8, channels) >> 2
    feeds = {"x": codes if last else np.ascontiguousarray(np.moveaxis(codes, -1, 1))}
    constants = {
        "s": np.float32(0.25),
        "z": np.int8(3),
        "ys": np.float32(0.125),
        "yz": np.int8(-21),
    }
    order = ["x", "s", "z", "ys", "yz"]
    model = model_of(
        "QLinearGlobalAveragePool",
        order,
        feeds,
        constants,
        domain="com.microsoft",
        channels_last=int(last),
    )
    (found,) = counted(model, arithmetic, feeds)
    return found if last else np.moveaxis(found, 1, -1)


@pytest.mark.slow_but(5)
@pytest.mark.parametrize("own", [False, True], ids=["one scale", "many scales"])
@pytest.mark.parametrize(
    ("filters", "depth", "groups", "left"),
    [
        (2, 1, 2, 2),  # depthwise: blocks of 8
        (7, 1, 7, 7),
        (8, 1, 8, 0),
        (11, 1, 11, 3),
        (16, 1, 16, 0),
        (15, 1, 5, 7),  # three filters a channel: a block is of filters
        (24, 1, 3, 0),
        (6, 4, 3, 6),  # grouped: every filter
        (16, 2, 2, 16),
        (5, 3, 1, 0),  # dense: none
        (3, 1, 1, 0),  # one channel: dense
    ],
)
def test_the_filters_that_are_left(filters, depth, groups, left, own) -> None:
    found, vectors, scalars = (
        conv(one, filters, depth, groups, own=own) for one in (BUILT_IN, VECTORS, SCALARS)
    )
    assert np.any((vectors != scalars)[..., filters - left if left else 0 :])
    np.testing.assert_array_equal(found[..., : filters - left], vectors[..., : filters - left])
    np.testing.assert_array_equal(found[..., filters - left :], scalars[..., filters - left :])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("channels", "left"), [(1, 1), (15, 15), (16, 0), (21, 5), (32, 0), (40, 8)]
)
def test_the_channels_of_a_mean_that_are_left(channels, left, last) -> None:
    found, vectors, scalars = (
        mean(one, channels, last=last) for one in (BUILT_IN, VECTORS, SCALARS)
    )
    assert channels == 1 or np.any(vectors != scalars)
    np.testing.assert_array_equal(found[..., : channels - left], vectors[..., : channels - left])
    np.testing.assert_array_equal(found[..., channels - left :], scalars[..., channels - left :])


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 9),
    st.integers(0, 9),
    st.booleans(),
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_which_are_left_is_the_rest_of_a_division(
    depthwise, planes, grouped, groups, depth, each
) -> None:
    assume(depthwise or planes or grouped)
    rule, filters = (
        Remainder(scaling=BUILT_IN.scaling, depthwise=depthwise, planes=planes, grouped=grouped),
        groups * each,
    )
    wanted = 0
    if groups > 1 and depth == 1 and depthwise:
        wanted = filters % depthwise
    if groups > 1 and depth > 1 and grouped:
        wanted = filters
    assert rule.of_convolution(filters, depth, groups) == wanted
    assert rule.of_planes(filters) == (filters % planes if planes else 0)


def test_a_remainder_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="'depthwise', 'planes' or 'grouped'"):
        Remainder(scaling=BUILT_IN.scaling)
    with pytest.raises(ValueError, match="blocks of -8 channels"):
        Remainder(scaling=BUILT_IN.scaling, depthwise=-8)


def test_its_multiplier_fits_the_sums_too() -> None:
    rule = Remainder(scaling=BUILT_IN.scaling, depthwise=8)
    with pytest.raises(ValueError, match="do not fit a product of 64"):
        replace(get_arithmetic("ideal"), accumulator=Accumulator(bits=40), remainder=rule)


def test_another_multiplier_is_that_of_all_channels() -> None:
    assert BUILT_IN.with_multiplier(get_arithmetic("ideal").scaling).remainder is None
    assert BUILT_IN.digest != VECTORS.digest
