"""Pictures: sizes, crops and normalization against the plain definition,
and what cannot be decoded.
"""

import io
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from qbench.errors import InputError
from qbench.subjects.pictures import Interpolation, Layout, Picture, decode_picture
from qbench_zoo.photos import Grid


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * 1000 + width).integers(
        0, 256, (height, width, 3), dtype=np.uint8
    )


@given(
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(1, 32),
    st.integers(0, 8),
    st.sampled_from(Interpolation),
)
def test_every_picture_comes_out_as_one_square(
    height: int, width: int, crop: int, more: int, interpolation: Interpolation
) -> None:
    prepared = Picture(resize=crop + more, crop=crop, interpolation=interpolation).prepare(
        noise(height, width)
    )
    assert prepared["x"].shape == (crop, crop, 3)
    assert prepared["x"].dtype == np.uint8


@given(st.integers(8, 40), st.integers(8, 40), st.integers(1, 8))
def test_without_resizing_the_centre_is_cut_out(height: int, width: int, crop: int) -> None:
    picture = noise(height, width)
    found = Picture(resize=min(height, width), crop=crop).prepare(picture)["x"]
    top, left = round(Fraction(height - crop, 2)), round(Fraction(width - crop, 2))
    np.testing.assert_array_equal(found, picture[top : top + crop, left : left + crop])


def test_the_filter_is_the_one_named_and_shrinking_averages() -> None:
    board = np.zeros((64, 64, 3), np.uint8)
    board[::2, ::2] = board[1::2, 1::2] = 255
    averaged = Picture(resize=16, crop=16, interpolation=Interpolation.BILINEAR).prepare(board)["x"]
    picked = Picture(resize=16, crop=16, interpolation=Interpolation.NEAREST).prepare(board)["x"]
    assert abs(averaged[4:12, 4:12].astype(int) - 127).max() <= 2
    assert set(np.unique(picked)) <= {0, 255}


@given(
    st.sampled_from([1.0, 255.0]),
    st.tuples(*[st.floats(-200, 200, width=32)] * 3),
    st.tuples(*[st.floats(0.0625, 200, width=32)] * 3),
    st.sampled_from(Layout),
)
def test_numbers_are_scaled_and_normalized_as_written(
    divisor: float,
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
    layout: Layout,
) -> None:
    picture = Picture(
        resize=4, crop=4, divisor=divisor, mean=mean, std=std, layout=layout, input="image"
    )
    batch = np.stack([noise(4, 4), noise(4, 4)[::-1]])
    found = picture.finish({"image": batch})["image"]
    assert found.dtype == np.float32
    assert found.shape == ((2, 3, 4, 4) if layout is Layout.NCHW else (2, 4, 4, 3))
    assert found.flags.c_contiguous
    for n, row, column, channel in np.ndindex(2, 4, 4, 3):
        value = (
            found[n, channel, row, column]
            if layout is Layout.NCHW
            else found[n, row, column, channel]
        )
        pixel = Fraction(int(batch[n, row, column, channel]))
        m, s = Fraction(float(np.float32(mean[channel]))), Fraction(float(np.float32(std[channel])))
        exact = (pixel / Fraction(divisor) - m) / s
        room = (
            (abs(pixel / Fraction(divisor)) + abs(m)) / s * Fraction(2) ** -22
        )  # three roundings of half a step each
        assert abs(Fraction(float(value)) - exact) <= room + Fraction(2) ** -140


def test_two_settings_that_differ_have_two_names() -> None:
    base = Picture()
    others = [
        Picture(resize=257),
        Picture(crop=223),
        Picture(interpolation=Interpolation.BICUBIC),
        Picture(divisor=1.0),
        Picture(mean=(0.5, 0.456, 0.406)),
        Picture(std=(0.5, 0.224, 0.225)),
        Picture(layout=Layout.NHWC),
        Picture(input="image"),
    ]
    assert len({base.name, *(other.name for other in others)}) == 9
    assert base.name == Picture().name


@pytest.mark.parametrize(
    "settings",
    [
        {"crop": 257},
        {"crop": 0},
        {"divisor": 0.0},
        {"std": (1.0, 0.0, 1.0)},
        {"mean": (math.nan, 0.0, 0.0)},
        {"std": (1.0, 1.0)},
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"crop|finite"):
        Picture(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "CMYK", "1", "LA"])
def test_every_mode_becomes_three_channels(mode: str) -> None:
    stream = io.BytesIO()
    Image.fromarray(noise(5, 7)).convert(mode).save(
        stream, "TIFF" if mode in ("CMYK", "LA") else "PNG"
    )
    found = decode_picture(stream.getvalue(), "a picture")
    assert found.shape == (5, 7, 3)
    assert found.dtype == np.uint8
    if mode == "RGB":
        np.testing.assert_array_equal(found, noise(5, 7))


@pytest.mark.parametrize("data", [b"", b"not a picture", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0"])
def test_what_is_no_picture_is_named(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        decode_picture(data, "cat.png")
    assert "cat.png" in caught.value.doing


def test_a_picture_cut_short_is_refused() -> None:
    stream = io.BytesIO()
    Image.fromarray(noise(64, 64)).save(stream, "JPEG")
    data = stream.getvalue()
    for length in (len(data) // 3, len(data) * 2 // 3):
        with pytest.raises(InputError, match=r"cat\.jpg"):
            decode_picture(data[:length], "cat.jpg")


@given(
    st.integers(8, 50), st.integers(8, 50), st.integers(1, 8), st.integers(1, 4), st.integers(1, 4)
)
def test_a_grid_cuts_squares_from_corner_to_corner(
    height: int, width: int, eighths: int, rows: int, columns: int
) -> None:
    grid = Grid(eighths, rows, columns)
    where = np.stack(
        np.broadcast_arrays(np.arange(height)[:, None], np.arange(width)[None, :], 0), axis=-1
    )
    picture = where.astype(np.uint8)  # every pixel says where it is
    crops = [grid.cut(picture, place) for place in range(len(grid))]
    side = min(height, width) * eighths // 8
    assert {crop.shape for crop in crops} == {(side, side, 3)}
    assert len(set(grid.names())) == len(grid) == len(crops)
    if rows > 1 and columns > 1:
        assert tuple(crops[0][0, 0, :2]) == (0, 0)
        assert tuple(crops[-1][-1, -1, :2]) == (height - 1, width - 1)
    if rows == columns == 1:
        assert tuple(crops[0][0, 0, :2]) == ((height - side) // 2, (width - side) // 2)
