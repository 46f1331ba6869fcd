"""Feeds and results of a TFLite file that came as it is, and files that are none;
tests/oracles runs real ones.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from qbench.errors import InputError
from qbench_engines import load_tflite
from qbench_engines.tflite_model import fed, is_first, returned

REALS = arrays.arrays(np.float32, (2, 5), elements=st.floats(-100, 100, width=32))
SCALES = st.sampled_from([2.0**-4, 0.5, 1.0, 3.0])
ZEROS = st.integers(-128, 127)


def detail(shape, dtype, scale=0.0, zero=0):
    return {"shape": np.array(shape), "dtype": dtype, "quantization": (scale, zero)}


@given(REALS, SCALES, ZEROS)
def test_reals_become_codes_with_halves_away_from_zero(real, scale, zero) -> None:
    codes = fed(real, detail((1, 5), np.int8, scale, zero))
    for number, code in zip(real.reshape(-1), codes.reshape(-1), strict=True):
        exact = Fraction(float(np.float32(number) / np.float32(scale)))
        whole = int(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)
        assert code == min(max(whole + zero, -128), 127)


@given(arrays.arrays(np.int8, (2, 3)), SCALES, ZEROS)
def test_codes_become_reals(codes, scale, zero) -> None:
    real = returned(codes, detail((1, 3), np.int8, scale, zero), channels_first=False)
    assert real.dtype == np.float32
    assert real.tolist() == [[scale * (int(code) - zero) for code in row] for row in codes]


def test_pictures_enter_with_channels_last_where_the_file_wants_that() -> None:
    picture = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    assert is_first(picture.shape, (1, 4, 5, 3))
    assert not is_first(picture.shape, (1, 3, 4, 5))
    assert np.array_equal(
        fed(picture, detail((1, 4, 5, 3), np.float32)), np.moveaxis(picture, 1, -1)
    )
    assert np.array_equal(fed(picture, detail((1, 3, 4, 5), np.float32)), picture)
    with pytest.raises(ValueError, match=r"\(3, 4, 5\) a sample where the file takes \(4, 3, 5\)"):
        fed(picture, detail((1, 4, 3, 5), np.float32))
    assert returned(picture, detail((1, 3, 4, 5), np.float32), channels_first=True).shape == (
        2,
        5,
        3,
        4,
    )


@pytest.mark.parametrize("content", [b"", b"abc", b"\x08\x00\x00\x00ONNX not a file of that kind"])
def test_a_file_of_another_kind_is_refused(tmp_path, content) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_tflite(path)
    assert caught.value.found == "another kind of file"


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(InputError) as caught:
        load_tflite(tmp_path / "none.tflite")
    assert "none.tflite" in caught.value.doing
