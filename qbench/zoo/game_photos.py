"""Photographs out of a children's game, labelled with ImageNet's classes by the names of their files.

They lie in Qt resource files; of a file that starts with a word of the table the labels are the word's, the first the
best, any right. Drawings, and photographs of what ImageNet has no class for, are left out by the table.
"""

import functools
from typing import TYPE_CHECKING

from qbench.zoo.assets import open_member
from qbench.zoo.debian_client import DebianPackage
from qbench.zoo.formats.qt_resources import read_qt_resources

if TYPE_CHECKING:  # the catalogue reads this file, and loads no numpy
    from qbench.zoo.pictures import Pixels

_FOLDER = "usr/share/gcompris-qt/rcc/"
LABELS: dict[str, dict[str, tuple[int, ...]]] = {
    "categorization.rcc": {
        "hammer": (587,),
        "screwDriver": (784,),
        "dam": (525,),
        "solar": (807,),
        "baseball": (429,),
        "volleyball": (890,),
        "pillow": (721,),
        "pan": (567,),
        "plate": (923,),
        "cup": (968, 504),
        "bucket": (463,),
        "erasers": (767,),
    },
    "explore_farm_animals.rcc": {
        "cow": (345,),
        "cat": (281, 282, 285),
        "chicken": (8, 7),
        "horse": (339,),
        "duck": (97,),
        "pig": (341,),
        "sheep": (348,),
    },
    "explore_world_animals.rcc": {
        "crocodile": (49, 50),
        "koala": (105,),
        "bison": (347,),
        "dragon": (48,),
        "jaguar": (290,),
        "kangaroo": (104,),
        "panda": (388,),
        "chameleon": (47,),
        "lemur": (383,),
        "polar_bear": (296,),
        "scarlet_macaw": (88,),
    },
}
"""Resource file → first word of a picture's name → classes."""

GAME_PHOTOS = DebianPackage(
    name="gcompris-qt-data",
    version="3.1-2",
    sha256="2c1a5f65a1eb46b227a15ae49c2e090844f9954e2c4ba786d8848435df9c1489",
    size=44_196_292,
    wanted=tuple(f"{_FOLDER}{name}" for name in LABELS),
)
"""One by one CC-BY, CC-BY-SA, CC0, public domain or GPL-3."""


def labelled_paths() -> dict[tuple[str, str], tuple[int, ...]]:
    """(resource file, path in it) of every labelled photograph, in order → classes."""
    return {
        (file, path): labels
        for file, words in LABELS.items()
        for path in sorted(_resources(file))
        if path.endswith(".webp") and (labels := _labels(path, words)) is not None
    }


def game_photo_pixels(file: str, path: str) -> "Pixels":
    """(H, W, 3) uint8."""
    from qbench.zoo.pictures import decode_picture

    return decode_picture(_resources(file)[path], f"{file}:{path}")


def _labels(path: str, words: dict[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    name = path.rpartition("/")[2]
    return next((labels for word, labels in words.items() if name.startswith(word)), None)


@functools.cache
def _resources(file: str) -> dict[str, bytes]:
    return read_qt_resources(open_member(GAME_PHOTOS, f"{_FOLDER}{file}"), file)
