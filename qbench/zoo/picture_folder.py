"""Pictures that somebody brings, in one folder for each class.

FOLDER/<class>/…/<picture>       labelled: the folder's number where all names are numbers, else its place in order
FOLDER/<picture>                 unlabelled, where there are no class folders
"""

from pathlib import Path

from qbench.errors import InputError
from qbench.metrics import Labels
from qbench.storage import digest_bytes, digest_plain
from qbench.zoo.dataset import Dataset
from qbench.zoo.pictures import Pixels, decode_picture

_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})


def pictures_from_folder(folder: Path) -> Dataset:
    """The pictures under ``folder``, sorted by path; other files and hidden ones are passed over.

    Raises:
        InputError: no such folder, no picture in it, pictures beside class folders, or a file that cannot be read.
    """
    doing = f"Reading the picture folder '{folder}'"
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing at that path"
        raise InputError(doing, found=found, expected="a folder", remedy="Check the path.")
    classes = sorted((entry for entry in folder.iterdir() if entry.is_dir() and _shown(entry)), key=lambda e: e.name)
    loose = [entry for entry in sorted(folder.iterdir()) if _is_picture(entry)]
    numbers = _class_numbers([entry.name for entry in classes])
    found_pictures = [
        (path, numbers[index])
        for index, entry in enumerate(classes)
        for path in sorted(entry.rglob("*"))
        if _is_picture(path) and all(not part.startswith(".") for part in path.relative_to(entry).parts)
    ]
    if bool(found_pictures) == bool(loose):
        raise InputError(
            doing,
            found=f"{len(loose)} pictures right in it and {len(found_pictures)} in its {len(classes)} folders",
            expected="either one folder for each class, or unlabelled pictures and no folders of pictures",
            remedy="Sort the pictures into folders named after their classes.",
        )
    paths = loose or [path for path, _ in found_pictures]
    labels: Labels | None = tuple((number,) for _, number in found_pictures) or None
    return _dataset(folder, paths, labels, doing)


def _dataset(folder: Path, paths: list[Path], labels: Labels | None, doing: str) -> Dataset:
    digests = tuple(digest_bytes(_read(path, doing)) for path in paths)

    def load(index: int) -> Pixels:
        return decode_picture(_read(paths[index], doing), str(paths[index]))

    return Dataset(
        id=f"folder:{folder.name}",
        kind="picture",
        sample_ids=tuple(path.relative_to(folder).as_posix() for path in paths),
        sources=digests,
        labels=labels,
        content=digest_plain(list(digests)),
        load=load,
    )


def _read(path: Path, doing: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            doing,
            found=f"that '{path}' cannot be read ({error.strerror})",
            expected="readable files",
            remedy="Make it readable or take it out.",
        ) from error


def _class_numbers(names: list[str]) -> list[int]:
    """``0003`` is class 3 where every name is a number; else classes are counted in the order of the names."""
    if all(name.isascii() and name.isdecimal() for name in names):
        return [int(name) for name in names]
    return list(range(len(names)))


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in _ENDINGS and _shown(path) and path.is_file()


def _shown(path: Path) -> bool:
    return not path.name.startswith(".")
