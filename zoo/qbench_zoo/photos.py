"""225 labelled photographs of four sources: what the zoo's ImageNet networks are scored on at
night.

    20  of ImageNet's own validation set    4  of cats    149  cut out, on white    52  of a game

One picture is 0.44 points, and of a score of 75 % the standard error 2.9: what is judged here is
judged in pairs.
"""

import functools
import io
import itertools
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qbench.storage import digest_plain
from qbench.subjects import (
    SCIKIT_LEARN,
    Crop,
    Dataset,
    Package,
    Pixels,
    decode_picture,
    open_member,
)
from qbench_zoo.labelled_pictures import (
    GAME_PHOTOS,
    STAMP_LABELS,
    STAMPS,
    game_photo_pixels,
    labelled_paths,
    stamp_pixels,
)
from qbench_zoo.packages import CATS, FOOLBOX, IMGAUG, MATPLOTLIB, SCIKIT_IMAGE

# Many samples from few pictures: squares cut out on fixed grids at several sizes.
#
#     side = ⌊short · eighths / 8⌋
#     left = ⌊(width − side) · column / (columns − 1)⌋    (one column: the middle)
#
# Crops of one picture overlap and are anything but independent: good for agreement and calibration,
# not for tests of significance. All of them carry the picture as their source.


@dataclass(frozen=True, slots=True)
class Grid:
    """Squares whose side is ``eighths`` / 8 of the picture's shorter side, in ``rows`` ×
    ``columns`` places.
    """

    eighths: int
    rows: int
    columns: int

    def __len__(self) -> int:
        return self.rows * self.columns

    def names(self) -> Iterator[str]:
        """The places' names, row by row: ``e6r0c1``."""
        return (
            f"e{self.eighths}r{row}c{column}"
            for row in range(self.rows)
            for column in range(self.columns)
        )

    def cut(self, picture: Pixels, index: int) -> Pixels:
        """The crop at place ``index`` of ``picture`` (H, W, 3)."""
        row, column = divmod(index, self.columns)
        height, width = picture.shape[:2]
        side = max(1, min(height, width) * self.eighths // 8)
        top = _start(height - side, row, self.rows)
        left = _start(width - side, column, self.columns)
        return picture[top : top + side, left : left + side]


def _start(room: int, index: int, count: int) -> int:
    return room // 2 if count == 1 else room * index // (count - 1)


# The zoo's picture data: labelled photographs, crops of them, and other photographs to calibrate
# on.
#
# Scored pictures come from one package, calibration pictures from others; ``sources`` are the
# files' paths, so that an overlap would be seen.

# The number behind the last underscore of each file's name is its class among ImageNet's 1,000.
_IMAGENET = (
    *(
        "00_243",
        "01_559",
        "02_438",
        "03_990",
        "04_949",
        "05_853",
        "06_609",
        "07_609",
        "08_915",
        "09_455",
    ),
    *(
        "10_541",
        "11_630",
        "12_741",
        "13_471",
        "14_129",
        "15_99",
        "16_251",
        "17_22",
        "18_317",
        "19_305",
    ),
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


SCORED_PHOTOS = tuple(Photo(FOOLBOX, f"foolbox/data/imagenet_{name}.jpg") for name in _IMAGENET)
CALIBRATION_PHOTOS = (
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
    return _whole_pictures("imagenet_photos", SCORED_PHOTOS, labels)


def photo_crops() -> Dataset:
    """500 crops of the same 20 photographs, unlabelled."""
    return _crops("photo_crops", SCORED_PHOTOS, _SCORED_GRIDS)


def photo_crops_128() -> Dataset:
    """The same 500 crops at 128 × 128 pixels: a third of the work for a network that takes
    pictures of any size.
    """
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
    return _whole_pictures("calibration_photos", CALIBRATION_PHOTOS, None)


def calibration_crops() -> Dataset:
    """135 crops of those 9 photographs, unlabelled."""
    return _crops("calibration_crops", CALIBRATION_PHOTOS, _CALIBRATION_GRIDS)


def _resized(pixels: Pixels) -> Pixels:
    from PIL import Image

    small = Image.fromarray(pixels).resize((_SMALL_SIDE, _SMALL_SIDE), Image.Resampling.BILINEAR)
    return np.asarray(small, dtype=np.uint8)


def _whole_pictures(
    title: str, photos: Sequence[Photo], labels: tuple[tuple[int], ...] | None
) -> Dataset:
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
    places: list[tuple[Photo, Grid, int]] = []
    names: list[str] = []
    for photo, grid in itertools.product(photos, grids):
        places += [(photo, grid, place) for place in range(len(grid))]
        names += [f"{photo.name}.{place}" for place in grid.names()]
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
        content=digest_plain(
            [[[photo.package.sha256, photo.path] for photo in photos], list(grids)]
        ),
        load=load,
    )


_CATS = (
    ("n02123045_281_tabby_cat", 281),
    ("n02123394_283_Persian_cat", 283),
    ("n02123597_284_Siamese_cat", 284),
    ("n02124075_285_Egyptian_cat", 285),
)

Place = tuple[str, str, tuple[int, ...], Callable[[], Pixels]]
"""Sample, source, labels, and what loads it."""


def labelled_photos() -> Dataset:
    """225 photographs with 155 first classes, each with all labels that count as right."""
    imagenet = imagenet_photos()
    assert imagenet.whole_labels is not None
    places: list[Place] = [
        (f"foolbox.{name}", source, labels, functools.partial(imagenet.load, index))
        for index, (name, source, labels) in enumerate(
            zip(imagenet.sample_ids, imagenet.sources, imagenet.whole_labels, strict=True)
        )
    ]
    places += [
        (
            f"cats.{name}",
            f"{CATS.requirement}/{name}",
            (label,),
            functools.partial(_cat, f"{name}.jpg"),
        )
        for name, label in _CATS
    ]
    places += [
        (
            f"stamps.{path}",
            f"{STAMPS.requirement}/{path}",
            labels,
            functools.partial(stamp_pixels, path),
        )
        for path, labels in STAMP_LABELS.items()
    ]
    places += [
        (
            f"game.{path}",
            f"{GAME_PHOTOS.requirement}/{file}/{path}",
            labels,
            functools.partial(game_photo_pixels, file, path),
        )
        for (file, path), labels in labelled_paths().items()
    ]
    return Dataset(
        id="labelled_photos",
        kind="picture",
        sample_ids=tuple(name for name, _, _, _ in places),
        sources=tuple(source for _, source, _, _ in places),
        labels=tuple(labels for _, _, labels, _ in places),
        content=digest_plain([package.sha256 for package in (FOOLBOX, CATS, STAMPS, GAME_PHOTOS)]),
        load=lambda index: places[index][3](),
    )


def _cat(file: str) -> Pixels:
    with tarfile.open(
        fileobj=io.BytesIO(open_member(CATS, "alibi/data/cats.tar.gz")), mode="r:gz"
    ) as archive:
        content = archive.extractfile(file)
        assert content is not None
        return decode_picture(content.read(), file)
