"""The zoo's picture data: labelled photographs, crops of them, and other photographs to calibrate on.

Scored pictures come from one package, calibration pictures from others; ``sources`` are the files' paths, so that
an overlap would be seen.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qbench.storage import digest_plain
from qbench.zoo.assets import open_member
from qbench.zoo.crops import Grid
from qbench.zoo.dataset import Dataset
from qbench.zoo.package_client import Package
from qbench.zoo.packages import FOOLBOX, IMGAUG, MATPLOTLIB, SCIKIT_IMAGE, SCIKIT_LEARN
from qbench.zoo.pictures import Crop, Pixels, decode_picture

# The number behind the last underscore of each file's name is its class among ImageNet's 1,000.
_IMAGENET = (
    *("00_243", "01_559", "02_438", "03_990", "04_949", "05_853", "06_609", "07_609", "08_915", "09_455"),
    *("10_541", "11_630", "12_741", "13_471", "14_129", "15_99", "16_251", "17_22", "18_317", "19_305"),
)
_SCORED_GRIDS = (Grid(6, 3, 3), Grid(5, 4, 4))
_CALIBRATION_GRIDS = (Grid(6, 2, 3), Grid(4, 3, 3))
_SMALL_SIDE = 128


@dataclass(frozen=True, slots=True)
class Photo:
    """One picture file in a package."""

    package: Package
    path: str

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.rpartition("/")[2].partition(".")[0]

    @property
    def source(self) -> str:
        """The package and the path."""
        return f"{self.package.requirement}/{self.path}"

    def pixels(self) -> Pixels:
        """(H, W, 3) uint8."""
        return decode_picture(open_member(self.package, self.path), self.source)


_SCORED = tuple(Photo(FOOLBOX, f"foolbox/data/imagenet_{name}.jpg") for name in _IMAGENET)
_CALIBRATION = (
    Photo(SCIKIT_IMAGE, "skimage/data/astronaut.png"),
    Photo(SCIKIT_IMAGE, "skimage/data/chelsea.png"),
    Photo(SCIKIT_IMAGE, "skimage/data/coffee.png"),
    Photo(SCIKIT_IMAGE, "skimage/data/motorcycle_left.png"),
    Photo(SCIKIT_IMAGE, "skimage/data/rocket.jpg"),
    Photo(SCIKIT_LEARN, "sklearn/datasets/images/china.jpg"),
    Photo(SCIKIT_LEARN, "sklearn/datasets/images/flower.jpg"),
    Photo(MATPLOTLIB, "matplotlib/mpl-data/sample_data/grace_hopper.jpg"),
    Photo(IMGAUG, "imgaug/quokka.jpg"),
)


def imagenet_photos() -> Dataset:
    """20 photographs of ImageNet's validation set, 512 × 512 but for one, each with its class."""
    labels = tuple((int(name.partition("_")[2]),) for name in _IMAGENET)
    return _whole_pictures("imagenet_photos", _SCORED, labels)


def photo_crops() -> Dataset:
    """500 crops of the same 20 photographs, unlabelled."""
    return _crops("photo_crops", _SCORED, _SCORED_GRIDS)


def photo_crops_128() -> Dataset:
    """The same 500 crops at 128 × 128 pixels: a third of the work for a network that takes pictures of any size."""
    crops = photo_crops()
    return replace(
        crops,
        id="photo_crops_128",
        kind="crop",
        content=digest_plain([crops.content, _SMALL_SIDE]),
        load=lambda index: Crop(_resized(crops.load(index))),
    )


def calibration_photos() -> Dataset:
    """9 other colour photographs of packages' sample data, unlabelled."""
    return _whole_pictures("calibration_photos", _CALIBRATION, None)


def calibration_crops() -> Dataset:
    """135 crops of those 9 photographs, unlabelled."""
    return _crops("calibration_crops", _CALIBRATION, _CALIBRATION_GRIDS)


def _resized(pixels: Pixels) -> Pixels:
    from PIL import Image

    small = Image.fromarray(pixels).resize((_SMALL_SIDE, _SMALL_SIDE), Image.Resampling.BILINEAR)
    return np.asarray(small, dtype=np.uint8)


def _whole_pictures(title: str, photos: Sequence[Photo], labels: tuple[tuple[int], ...] | None) -> Dataset:
    return Dataset(
        id=title,
        kind="picture",
        sample_ids=tuple(photo.name for photo in photos),
        sources=tuple(photo.source for photo in photos),
        labels=labels,
        content=digest_plain([[photo.package.sha256, photo.path] for photo in photos]),
        load=lambda index: photos[index].pixels(),
    )


def _crops(title: str, photos: Sequence[Photo], grids: Sequence[Grid]) -> Dataset:
    places = [(photo, grid, place) for photo in photos for grid in grids for place in range(len(grid))]
    names = [f"{photo.name}.{place}" for photo in photos for grid in grids for place in grid.names()]
    # Crops are asked for picture by picture: the last picture decoded serves the next crops too.
    pixels = functools.lru_cache(maxsize=1)(Photo.pixels)

    def load(index: int) -> Pixels:
        photo, grid, place = places[index]
        return grid.cut(pixels(photo), place)

    return Dataset(
        id=title,
        kind="picture",
        sample_ids=tuple(names),
        sources=tuple(photo.source for photo, _, _ in places),
        labels=None,
        content=digest_plain([[[photo.package.sha256, photo.path] for photo in photos], list(grids)]),
        load=load,
    )
