"""What holds on every grid: all widths of 2 to 16 bits, signed or not, narrow or not, per
tensor, channel and block.

On the grid a round trip is the identity; inside the range it errs by at most half a step; order is
kept; zero is exact. The scalar specification goes element by element and finds each one's
parameters by itself.
"""

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.numerics import QParams, QType, choose_qparams, dequantize, fake_quantize, quantize

Array = np.ndarray[Any, Any]

SHAPE = (3, 7, 4)
AXIS, BLOCK = 1, 3  # seven channels; or blocks of three of them, the last of one
PLACES = ("tensor", "channel", "block")
FLOAT32 = Fraction(1, 2**23)
"""More than what dividing by the scale and multiplying by it lose in float32,
relative to the number.
"""

bits = st.integers(2, 16)
places = st.sampled_from(PLACES)
families = st.sampled_from(["asymmetric", "symmetric", "symmetric_unsigned"])


def parameter_shape(place: str) -> tuple[int, ...]:
    return {
        "tensor": (),
        "channel": (SHAPE[AXIS],),
        "block": (SHAPE[0], -(-SHAPE[AXIS] // BLOCK), SHAPE[2]),
    }[place]


def grid(place: str, qtype: QType, *, narrow: bool, seed: int) -> QParams:
    """Some parameters: scales over five octaves, zero points anywhere."""
    rng, shape = np.random.default_rng(seed), parameter_shape(place)
    return QParams(
        np.exp2(rng.uniform(-4, 1, shape)),
        rng.integers(qtype.qmin + narrow, qtype.qmax + 1, shape),
        qtype,
        axis=None if place == "tensor" else AXIS,
        block_size=BLOCK if place == "block" else None,
        narrow_range=narrow,
    )


def parameters_at(params: QParams, index: tuple[int, ...]) -> tuple[float, int]:
    """Scale and zero point of one element, found one axis at a time."""
    if params.axis is None:
        where: tuple[int, ...] = ()
    elif params.block_size is None:
        where = (index[params.axis],)
    else:
        where = tuple(
            i // params.block_size if axis == params.axis else i for axis, i in enumerate(index)
        )
    return float(params.scale[where]), int(params.zero_point[where])


def everywhere(array: Array, params: QParams) -> Array:
    """One number for every parameter → one for every element of a tensor of ``SHAPE``,
    element by element.
    """
    found = np.empty(SHAPE, np.float32)
    for index in np.ndindex(*SHAPE):
        if params.axis is None:
            found[index] = array
        elif params.block_size is None:
            found[index] = array[index[AXIS]]
        else:
            found[index] = array[index[0], index[AXIS] // BLOCK, index[2]]
    return found


def scalar_level(x: float, params: QParams, index: tuple[int, ...]) -> int:
    """QuantizeLinear of one element: the float32 quotient, rounded half to even, plus zero
    point, into the grid.
    """
    scale, point = parameters_at(params, index)
    ratio = Fraction(float(np.float32(np.float32(x) / np.float32(scale))))
    return max(params.qmin, min(params.qmax, round(ratio) + point))


def every_level(params: QParams, seed: int) -> list[Array]:
    """Tensors of ``SHAPE`` that hold every level of the grid at some place;
    of wide grids the ends and some.
    """
    count = params.qmax - params.qmin + 1
    rng = np.random.default_rng(seed)
    chosen = (
        np.arange(count)
        if count <= 256
        else np.unique(np.r_[0, 1, count - 1, rng.integers(0, count, 300)])
    )
    size = int(np.prod(SHAPE))
    rows = -(-len(chosen) // size)
    padded = np.resize(chosen, rows * size) + params.qmin
    return [
        row.reshape(SHAPE).astype(params.qtype.storage_dtype) for row in padded.reshape(rows, size)
    ]


@given(
    bits=bits,
    signed=st.booleans(),
    narrow=st.booleans(),
    place=places,
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150)
def test_a_round_trip_is_the_identity_on_the_grid(
    bits: int, signed: bool, narrow: bool, place: str, seed: int
) -> None:
    params = grid(place, QType(bits, signed), narrow=narrow, seed=seed)
    for levels in every_level(params, seed):
        real = dequantize(levels, params)
        assert np.array_equal(quantize(real, params), levels)
        assert np.array_equal(fake_quantize(real, params), real)
        for index in ((0, 0, 0), (2, 6, 3), (1, 2, 1), (1, 3, 1)):
            scale, point = parameters_at(params, index)
            assert real[index] == np.float32(Fraction(scale) * (int(levels[index]) - point))


@given(
    bits=bits,
    signed=st.booleans(),
    narrow=st.booleans(),
    place=places,
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_every_element_is_its_scalar_specification(
    bits: int, signed: bool, narrow: bool, place: str, seed: int
) -> None:
    params = grid(place, QType(bits, signed), narrow=narrow, seed=seed)
    rng = np.random.default_rng(seed)
    steps, points = params.expanded(SHAPE)
    levels = rng.uniform(params.qmin - 3, params.qmax + 3, SHAPE)
    levels = np.where(rng.random(SHAPE) < 0.3, np.floor(levels) + 0.5, levels)  # ties, too
    x = ((levels - points) * steps).astype(np.float32)
    got = quantize(x, params)
    assert got.dtype == params.qtype.storage_dtype
    for index in np.ndindex(*SHAPE):
        assert int(got[index]) == scalar_level(float(x[index]), params, index)


@pytest.mark.slow
@given(
    bits=bits,
    signed=st.booleans(),
    narrow=st.booleans(),
    place=places,
    family=families,
    pow2=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150)
def test_a_chosen_grid_errs_by_half_a_step_keeps_order_and_zero(
    bits: int, signed: bool, narrow: bool, place: str, family: Any, pow2: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ends = rng.normal(size=(2, *parameter_shape(place))) * np.exp2(rng.uniform(-8, 8))
    low, high = np.minimum(ends.min(axis=0), 0), np.maximum(ends.max(axis=0), 0)
    if seed % 3 == 0:
        low = np.zeros_like(low)
    params = choose_qparams(
        low,
        high,
        QType(bits, signed),
        symmetry=family,
        narrow_range=narrow,
        scale_kind="pow2" if pow2 else "real",
        axis=None if place == "tensor" else AXIS,
        block_size=BLOCK if place == "block" else None,
    )
    lows, highs = everywhere(low, params), everywhere(high, params)
    x = np.sort((lows + rng.random((4, *SHAPE)) * (highs - lows)).astype(np.float32), axis=0)
    x = np.concatenate([lows[None], x, highs[None]]).astype(np.float32)
    trips = np.stack([fake_quantize(row, params) for row in x])
    for where, real in np.ndenumerate(x):
        scale = Fraction(parameters_at(params, where[1:])[0])
        span = Fraction(float(highs[where[1:]])) - Fraction(float(lows[where[1:]]))
        # At the ends too, where rounding the zero point has moved the grid: by half a step at most.
        assert (
            abs(Fraction(float(trips[where])) - Fraction(float(real))) <= scale / 2 + span * FLOAT32
        )
    assert (np.diff(trips, axis=0) >= 0).all()
    zeros = np.zeros(SHAPE, np.float32)
    assert not fake_quantize(zeros, params).any()
    assert np.array_equal(
        quantize(zeros, params), np.broadcast_to(params.expanded(SHAPE)[1], SHAPE)
    )


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
@pytest.mark.parametrize("place", PLACES)
def test_narrow_types_are_those_of_ml_dtypes(name: str, place: str) -> None:
    """Levels are numbers of the type: they survive it, and nothing beyond them does."""
    qtype = QType.parse(name)
    theirs = np.dtype(getattr(ml_dtypes, name))
    params = grid(place, qtype, narrow=False, seed=3)
    steps, points = params.expanded(SHAPE)
    x = (
        np.random.default_rng(4).uniform(qtype.qmin - 2, qtype.qmax + 2, (50, *SHAPE)) - points
    ) * steps
    info = ml_dtypes.iinfo(theirs)
    for row in x.astype(np.float32):
        levels = quantize(row, params)
        assert np.array_equal(levels.astype(theirs).astype(np.int8), levels)
        exact = (
            np.clip(np.rint(row / steps) + points, info.min, info.max)
            .astype(np.int8)
            .astype(theirs)
        )
        assert np.array_equal(levels.astype(theirs), exact)
        assert np.array_equal(dequantize(exact, params), dequantize(levels, params))
