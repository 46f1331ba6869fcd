"""225 labelled photographs of four sources: what the zoo's ImageNet networks are scored on at night.

    20  of ImageNet's own validation set         4  of cats        149  cut out, on white        52  of a game

One picture is 0.44 points, and of a score of 75 % the standard error 2.9: what is judged here is judged in pairs.
"""

import functools
import io
import tarfile
from collections.abc import Callable

from qbench.storage import digest_plain
from qbench.zoo.assets import open_member
from qbench.zoo.dataset import Dataset
from qbench.zoo.game_photos import GAME_PHOTOS, game_photo_pixels, labelled_paths
from qbench.zoo.packages import CATS, FOOLBOX
from qbench.zoo.photos import imagenet_photos
from qbench.zoo.pictures import Pixels, decode_picture
from qbench.zoo.stamps import LABELS, STAMPS, stamp_pixels

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
    assert imagenet.labels is not None
    places: list[Place] = [
        (f"foolbox.{name}", source, labels, functools.partial(imagenet.load, index))
        for index, (name, source, labels) in enumerate(
            zip(imagenet.sample_ids, imagenet.sources, imagenet.labels, strict=True)
        )
    ]
    places += [
        (f"cats.{name}", f"{CATS.requirement}/{name}", (label,), functools.partial(_cat, f"{name}.jpg"))
        for name, label in _CATS
    ]
    places += [
        (f"stamps.{path}", f"{STAMPS.requirement}/{path}", labels, functools.partial(stamp_pixels, path))
        for path, labels in LABELS.items()
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
    with tarfile.open(fileobj=io.BytesIO(open_member(CATS, "alibi/data/cats.tar.gz")), mode="r:gz") as archive:
        content = archive.extractfile(file)
        assert content is not None
        return decode_picture(content.read(), file)
