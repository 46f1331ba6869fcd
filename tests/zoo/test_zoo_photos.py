"""The zoo's picture data: as many as it says, labelled rightly,
and calibration never cut from what is scored.
"""

import numpy as np
import pytest
from PIL import Image

from qbench.subjects import Dataset, Picture, get_dataset

COUNTS = {
    "imagenet_photos": (20, 20),
    "photo_crops": (500, 20),
    "calibration_photos": (9, 9),
    "calibration_crops": (135, 9),
}


@pytest.fixture(params=sorted(COUNTS))
def data(request: pytest.FixtureRequest) -> Dataset:
    return get_dataset(request.param)


def test_the_number_of_samples_and_sources(data: Dataset) -> None:
    assert (len(data), len(set(data.sources))) == COUNTS[data.id]
    assert data.kind == "picture"


def test_samples_are_colour_pictures_and_the_same_each_time(data: Dataset) -> None:
    for index in (0, len(data) // 2, len(data) - 1):
        picture = data.load(index)
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[2] == 3
        assert min(picture.shape[:2]) >= 128
        np.testing.assert_array_equal(picture, get_dataset(data.id).load(index))
    assert data.digest == get_dataset(data.id).digest


@pytest.mark.parametrize("scored", ["imagenet_photos", "photo_crops"])
@pytest.mark.parametrize("calibration", ["calibration_photos", "calibration_crops"])
def test_calibration_shares_no_source_with_what_is_scored(scored: str, calibration: str) -> None:
    assert not {*get_dataset(scored).sources} & {*get_dataset(calibration).sources}


def test_labels_are_those_of_the_file_names() -> None:
    data = get_dataset("imagenet_photos")
    assert data.labels is not None
    for name, source, label in zip(data.sample_ids, data.sources, data.labels, strict=True):
        assert source.endswith(f"/{name}.jpg")
        assert label == (int(name.rpartition("_")[2]),)


def test_a_crop_is_a_piece_of_its_picture() -> None:
    crops, photos = get_dataset("photo_crops"), get_dataset("imagenet_photos")
    assert crops.labels is None
    whole = photos.load(1)
    for index, name in enumerate(crops.sample_ids):
        photo, _, place = name.partition(".")
        if photo != photos.sample_ids[1]:
            continue
        crop = crops.load(index)
        eighths, row, column = int(place[1]), int(place[3]), int(place[5])
        side = 64 * eighths
        step = (512 - side) // {6: 2, 5: 3}[eighths]
        top, left = row * step, column * step
        np.testing.assert_array_equal(crop, whole[top : top + side, left : left + side])
        assert crop.shape == (side, side, 3)


def test_small_crops_are_the_same_crops_resized_and_taken_as_they_are() -> None:
    crops, small = get_dataset("photo_crops"), get_dataset("photo_crops_128")
    assert (small.sample_ids, small.sources) == (crops.sample_ids, crops.sources)
    assert small.digest != crops.digest
    expected = Image.fromarray(crops.load(7)).resize((128, 128), Image.Resampling.BILINEAR)
    prepared = Picture().prepare(small.load(7))
    np.testing.assert_array_equal(prepared["x"], np.asarray(expected))


def test_a_few_spread_over_all_pictures() -> None:
    few = get_dataset("calibration_crops").take(27)
    assert len(set(few.sources)) == 9
