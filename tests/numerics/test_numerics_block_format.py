"""Scales of blocks by the OCP text and by NVIDIA's rule, one block at a time in plain numbers."""

import math

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench.numerics import BLOCK_FORMATS, FLOAT_FORMATS, QParams, QType, choose_qparams, quantize

ELEMENTS = {
    "mxfp8e4m3": (ml_dtypes.float8_e4m3fn, 8),
    "mxfp8e5m2": (ml_dtypes.float8_e5m2, 15),
    "mxfp6e2m3": (ml_dtypes.float6_e2m3fn, 2),
    "mxfp6e3m2": (ml_dtypes.float6_e3m2fn, 4),
    "mxfp4": (ml_dtypes.float4_e2m1fn, 2),
}
"""Type, and emax of table 1 of the OCP text."""


def blocks(seed: int, size: int) -> npt.NDArray[np.float32]:
    """(64, 4 · size): blocks of very different reach, one of zeros, one with a power of two."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((64, 4, size)) * np.exp2(rng.integers(-40, 40, (64, 4, 1)))
    x[0, 0] = 0
    x[0, 1, 0] = np.abs(x[0, 1]).max() * 0 + 2.0 ** math.ceil(math.log2(np.abs(x[0, 1]).max()))
    return x.reshape(64, 4 * size).astype(np.float32)


def cast(values: npt.NDArray[np.float32], dtype: type, largest: float) -> npt.NDArray[np.uint8]:
    return np.clip(values, -largest, largest).astype(dtype).view(np.uint8)


@pytest.mark.parametrize("name", ELEMENTS)
def test_a_shared_exponent_is_that_of_the_largest_less_that_of_the_type(name: str) -> None:
    form, (dtype, emax) = BLOCK_FORMATS[name], ELEMENTS[name]
    x = blocks(1, form.block_size)
    codes, qparams = form.encode(x)
    real = form.decode(codes, qparams)
    assert qparams.scale_type is FLOAT_FORMATS["float8e8m0"]
    for row in range(len(x)):
        for block in range(4):
            part = slice(block * 32, (block + 1) * 32)
            largest = float(np.abs(x[row, part]).max())
            exponent = math.floor(math.log2(largest)) - emax if largest else 0
            assert qparams.scale[row, block] == 2.0**exponent
            assert qparams.scale_codes[row, block] == exponent + 127
            limit = float(ml_dtypes.finfo(dtype).max)
            expected = cast(x[row, part] / np.float32(2.0**exponent), dtype, limit)
            np.testing.assert_array_equal(codes[row, part], expected)
            numbers = expected.view(dtype).astype(np.float64) * 2.0**exponent
            np.testing.assert_array_equal(real[row, part], numbers)


def test_nvfp4_has_a_scale_of_the_tensor_and_one_of_each_block() -> None:
    form, x = BLOCK_FORMATS["nvfp4"], blocks(2, 16)
    codes, qparams = form.encode(x)
    whole = np.float32(float(np.abs(x).max()) / (6 * 448))
    assert qparams.tensor_scale == whole
    for row in range(len(x)):
        for block in range(4):
            part = slice(block * 16, (block + 1) * 16)
            ratio = np.float32(float(np.abs(x[row, part]).max()) / 6) / whole
            stored = ratio.astype(ml_dtypes.float8_e4m3fn)
            stored = max(stored, ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).smallest_subnormal)
            scale = np.float32(stored) * whole
            assert qparams.scale[row, block] == scale
            expected = cast(x[row, part] / scale, ml_dtypes.float4_e2m1fn, 6.0)
            np.testing.assert_array_equal(codes[row, part], expected)
    np.testing.assert_array_equal(
        FLOAT_FORMATS["float8e4m3fn"].decode(qparams.scale_codes) * whole, qparams.scale
    )


@pytest.mark.parametrize("name", ["int2", "int4", "int8"])
def test_blocks_of_integers_reach_their_largest(name: str) -> None:
    form = BLOCK_FORMATS[name]
    x = np.abs(blocks(3, form.block_size))
    codes, qparams = form.encode(x)
    assert qparams.scale_type is None
    reach = codes.reshape(64, 4, 32).max(axis=2)
    assert set(reach[1:].reshape(-1).tolist()) == {QType.parse(name).qmax}


@pytest.mark.parametrize("name", BLOCK_FORMATS)
@given(seed=st.integers(0, 1 << 20), power=st.integers(-60, 60))
def test_encoding_again_changes_nothing(name: str, seed: int, power: int) -> None:
    form = BLOCK_FORMATS[name]
    x = np.random.default_rng(seed).standard_normal((2, 2 * form.block_size)).astype(np.float32)
    codes, qparams = form.encode(np.ldexp(x, power))
    np.testing.assert_array_equal(quantize(form.decode(codes, qparams), qparams), codes)


def test_the_ends_of_float32_have_scales_and_zeros_stay_zero() -> None:
    for form in (one for one in BLOCK_FORMATS.values() if one.kind.qtype.is_float):
        for x in (0.0, 1e-45, 2.0**-126, np.finfo(np.float32).max):
            codes, qparams = form.encode(np.full((1, form.block_size), x, np.float32))
            real = form.decode(codes, qparams)
            assert np.isfinite(real).all()
            assert not real.any() or x


def test_blocks_run_along_any_axis() -> None:
    form, x = BLOCK_FORMATS["mxfp4"], blocks(4, 32)
    codes, qparams = form.encode(x)
    turned, other = form.encode(x.T, axis=0)
    np.testing.assert_array_equal(turned.T, codes)
    np.testing.assert_array_equal(other.scale.T, qparams.scale)
    assert other.axis == 0


@pytest.mark.parametrize("shape", [(2, 33), (32, 1), (0, 32), ()])
def test_blocks_that_do_not_divide_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError) as refused:
        BLOCK_FORMATS["mxfp4"].choose(np.ones(shape, np.float32))
    assert "multiple of 32" in refused.value.expected


def test_numbers_without_an_end_are_refused() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(InputError, match="finite"):
            BLOCK_FORMATS["nvfp4"].choose(np.full((1, 16), bad, np.float32))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("float8e4m3fn", {"symmetry": "asymmetric"}),
        ("float8e4m3fn", {"symmetry": "symmetric", "narrow_range": True}),
        ("float8e4m3fn", {"symmetry": "symmetric", "scale_kind": "e8m0"}),
        ("int8", {"symmetry": "symmetric", "scale_kind": "e4m3"}),
    ],
)
def test_kinds_that_floats_do_not_have_are_refused(kind: str, settings: dict[str, object]) -> None:
    with pytest.raises(InputError):
        choose_qparams(-1.0, 1.0, kind, **settings)  # type: ignore[arg-type]


def test_scales_that_their_type_does_not_have_are_refused() -> None:
    e8m0 = FLOAT_FORMATS["float8e8m0"]
    with pytest.raises(ValueError, match="no number of float8e8m0"):
        QParams([[3.0]], 0, "float4e2m1", axis=1, block_size=32, scale_type=e8m0)
    with pytest.raises(ValueError, match="positive and finite"):
        QParams([[np.nan]], 0, "float4e2m1", axis=1, block_size=32, scale_type=e8m0)
    with pytest.raises(ValueError, match="scale of the tensor"):
        QParams([[1.0]], 0, "float4e2m1", axis=1, block_size=16, tensor_scale=0.0)
    with pytest.raises(ValueError, match="zero points"):
        QParams(1.0, 1, "float8e4m3fn")


@pytest.mark.parametrize("name", [name for name in BLOCK_FORMATS if not name.startswith("int")])
def test_the_name_of_a_block_format_as_that_of_a_type_says_where_it_is(name: str) -> None:
    with pytest.raises(InputError) as refused:
        QType.parse(name)
    assert f"qbench.numerics.BLOCK_FORMATS['{name}'], a BlockFormat" in str(refused.value)
