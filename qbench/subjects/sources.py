"""Data sets by a line of text: a name, a folder of pictures, or a file of arrays.

imagenet_photos                                          a name of qbench or of an extension
folder:PATH?resize=256&crop=224&mean=0.485,0.456,0.406   pictures; settings that are absent are torchvision's
PATH.npz                                                 ready feeds by input (or a lone ``x``), and classes ``y``
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbench.errors import InputError, nearest, require_type
from qbench.extension import known_extensions
from qbench.metrics import Labels
from qbench.storage import (
    ArchiveError,
    TooLargeError,
    array_names,
    current_limits,
    digest_bytes,
    digest_plain,
    read_archive,
    too_large,
)
from qbench.subjects.catalogue import dataset_catalogue
from qbench.subjects.pictures import Interpolation, Layout, Picture, Pixels, decode_picture
from qbench.subjects.subject import Array, Dataset, Preprocess

# Ready feeds: the arrays of an ``.npz`` file, one row per sample, by the names of the graph's inputs.
#
#     x (n, …) numbers, for a graph of one input;   y (n,) integers, the right classes (may be absent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyArray:
    """The preprocessing that does nothing; ``input`` is the graph's input where a sample is one array."""

    input: str = "x"

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return f"array(input={self.input})"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Ready feeds."""
        return ("array",)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - an array, or several by input
        """The sample under the input's name, or as it is where it names the inputs."""
        if isinstance(sample, Mapping):
            return {name: np.asarray(one) for name, one in sample.items()}
        return {self.input: np.asarray(sample)}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """The batch as it is."""
        return batch


def arrays_from_npz(path: Path) -> Dataset:
    """The samples in the file at ``path``: ``y`` holds labels, every other array is the feed of the input of its name.

    A lone ``x`` is the feed of a lone input, whatever its name; its float16 becomes float32.

    Raises:
        InputError: no such file, no ``.npz``, no feed, objects instead of numbers, NaN (the sample is named), arrays of
            different length, or a ``y`` that does not fit.
    """
    doing = f"Reading the data file '{path}'"
    arrays = read_arrays(path)
    labels = arrays.pop("y", None)
    if not arrays:
        raise InputError(
            doing,
            found="the array y" if labels is not None else "the arrays (none)",
            expected="an .npz file of numbers with 'x', or with an array for each input of the graph",
            remedy="Write one with numpy.savez(path, x=…, y=…).",
        )
    if list(arrays) == ["x"]:
        x = arrays["x"]
        lone = x.astype(np.float32) if x.dtype == np.float16 else x
        found = Dataset.from_arrays(path.name, lone, labels)
    else:
        found = Dataset.from_arrays(path.name, arrays, labels)
    return found


def read_arrays(path: Path, needed: Sequence[str] = (), *, optional: Sequence[str] = ()) -> dict[str, Array]:
    """The arrays of these names in the ``.npz`` file at ``path``, or all, as they are; nothing is unpickled.

    Raises:
        InputError: no such file, no ``.npz``, objects instead of numbers, more than the limit, or one that is
            ``needed`` is not in it.
    """
    try:
        listed = array_names(path)
        if set(needed) <= set(listed):
            return read_archive(path, {*needed, *optional} or set(listed), most=current_limits().tensor_bytes)
        found = f"the arrays {', '.join(listed) or '(none)'}"
    except OSError as error:
        found = error.strerror or str(error)
    except TooLargeError as error:
        raise too_large(f"Reading the data file '{path}'", "arrays", error.size, "tensor_bytes") from error
    except ArchiveError as error:
        found = str(error)
    raise InputError(
        f"Reading the data file '{path}'",
        found=found,
        expected=f"an .npz file of numbers{' with ' * bool(needed)}{' and '.join(map(repr, needed))}",
        remedy=f"Write one with numpy.savez(path, {', '.join(f'{name}=…' for name in needed or ('x', 'y'))}).",
    )


# Pictures of the user, in one folder for each class.
#
# FOLDER/<class>/…/<picture>       labelled: the folder's name as a number, else its index in order (`_class_numbers`)
# FOLDER/<picture>                 unlabelled, where there are no class folders

_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})


def pictures_from_folder(folder: Path) -> Dataset:
    """The pictures under ``folder``, sorted by path; other files and hidden ones are skipped.

    Raises:
        InputError: no such folder, no picture in it, pictures next to class folders, or a file that cannot be read.
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
            found=f"{len(loose)} pictures directly in it and {len(found_pictures)} in its {len(classes)} folders",
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


_FOLDER = "folder:"


def dataset_from_text(text: str) -> tuple[Dataset, Preprocess | None]:
    """The data that ``text`` names, and how its samples become feeds; None: the model's own preprocessing.

    Raises:
        InputError: no such name, file or folder; an unknown or impossible setting; and as the readers of each form.
    """
    remedy = "Name it as 'qbench list' shows it, or give 'PATH.npz' or 'folder:PATH'."
    require_type("Looking for data", text, str, expected="the name of a data set, as a text", remedy=remedy)
    if text.startswith(_FOLDER):
        path, _, query = text.removeprefix(_FOLDER).partition("?")
        preprocess = _picture(query, text)
        return pictures_from_folder(Path(path)), preprocess
    if text.endswith(".npz"):
        return arrays_from_npz(Path(text)), ReadyArray()
    names = dataset_catalogue(known_extensions())
    if text in names.names():
        return names.get(text), None
    close = nearest(text, names.names())
    raise InputError(
        f"Looking for the data '{text}'",
        found="no data set of that name",
        expected=f"'{_FOLDER}PATH', 'PATH.npz', or one of: {', '.join(names.names())}",
        remedy=f"Did you mean '{close}'?" if close else "Choose one of these.",
    )


def _triple(text: str) -> tuple[float, float, float]:
    values = [float(part) for part in text.split(",")]
    if len(values) not in (1, 3):
        raise ValueError("not one number or three")
    first, second, third = values if len(values) == 3 else values * 3
    return (first, second, third)


_SETTINGS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "resize": (int, "a whole number of pixels"),
    "crop": (int, "a whole number of pixels"),
    "interpolation": (Interpolation, f"one of: {', '.join(choice.value for choice in Interpolation)}"),
    "divisor": (float, "a number"),
    "mean": (_triple, "three numbers, as in 0.485,0.456,0.406"),
    "std": (_triple, "three numbers, as in 0.229,0.224,0.225"),
    "layout": (Layout, f"one of: {', '.join(choice.value for choice in Layout)}"),
    "input": (str, "the name of the graph's input"),
}


def _picture(query: str, text: str) -> Picture:
    settings: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, _, written = part.partition("=")
        doing = f"Reading the setting '{key}' in '{text}'"
        if key not in _SETTINGS:
            close = nearest(key, _SETTINGS)
            remedy = f"Did you mean '{close}'?" if close else "Remove it."
            raise InputError(doing, found="no such setting", expected=f"one of: {', '.join(_SETTINGS)}", remedy=remedy)
        if key in settings:
            raise InputError(doing, found="it twice", expected="it once", remedy="Remove one of the two.")
        convert, expected = _SETTINGS[key]
        try:
            settings[key] = convert(written)
        except ValueError:
            raise InputError(doing, found=f"'{written}'", expected=expected, remedy="Correct the value.") from None
    try:
        return Picture(**settings)
    except ValueError as error:
        raise InputError(
            f"Reading the settings in '{text}'",
            found=str(error),
            expected="settings that fit together, such as resize=256&crop=224",
            remedy="Correct them.",
        ) from error
