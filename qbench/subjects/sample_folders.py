"""Samples of a user: the arrays of an .npz file, or a folder of pictures or of arrays."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbench.errors import InputError, nearest
from qbench.metrics import ArrayLabels, Labels
from qbench.number_text import counted
from qbench.storage import (
    ArchiveError,
    TooLargeError,
    array_names,
    current_limits,
    digest_arrays,
    digest_bytes,
    digest_plain,
    read_archive,
    too_large,
)
from qbench.subjects.dataset import Array, ClassNames, Dataset
from qbench.subjects.pictures import Pixels, decode_picture
from qbench.subjects.source_tables import (
    FOLDER,
    folder_of,
)

FOLDER_MARK = "folder:"
"""In front of the path of a folder that has the name of a data set."""

# Ready feeds: the arrays of an ``.npz`` file, one row per sample, by the names of the graph's
# inputs.
#
#     x (n, …) numbers, for a graph of one input;
#     y (n,) integers, the right classes (may be absent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyArray:
    """The preprocessing that does nothing; ``input``: the graph's input of lone arrays."""

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


def arrays_from_npz(path: Path, column: str = "", columns: Sequence[str] = ()) -> Dataset:
    """The samples in the file at ``path``: ``y`` holds labels, every other array is the feed of the
    input of its name.

    ``column``: the array of (n,) texts or whole numbers that are the samples' sources; empty: there
        is none.
    ``columns``: other such arrays, which become columns of the data set. A lone ``x`` is the feed
    of a lone input, whatever its name; its float16 becomes float32.

    Raises:
        InputError: no such file, no ``.npz``, no feed, objects instead of numbers, NaN (the sample
            is named), arrays of different length, a ``y`` that does not fit, or no ``column``.
    """
    doing = f"Reading the data file '{path}'"
    arrays = read_arrays(path)
    facts = {
        name: _column(arrays, name, doing)
        for name in dict.fromkeys(filter(None, (column, *columns)))
    }
    sources = facts[column] if column else None
    labels = arrays.pop("y", None)
    if not arrays:
        raise InputError(
            doing,
            found="the array y" if labels is not None else "the arrays (none)",
            expected=(
                "an .npz file of numbers with 'x', or with an array for each input of the graph"
            ),
            remedy="Write one with numpy.savez(path, x=…, y=…).",
        )
    if list(arrays) == ["x"]:
        x = arrays["x"]
        lone = x.astype(np.float32) if x.dtype == np.float16 else x
        arrays = {"x": lone}
    feeds = arrays["x"] if list(arrays) == ["x"] else arrays
    made = Dataset.from_arrays(path.name, feeds, labels, sources=sources)
    return made.with_columns(**{name: facts[name].tolist() for name in columns})


def _column(arrays: dict[str, Array], column: str, doing: str) -> Array:
    """What ``column`` of ``arrays`` holds, taken out of them."""
    if column not in arrays or arrays[column].ndim != 1:
        found = (
            f"'{column}' of shape {arrays[column].shape}"
            if column in arrays
            else f"no array '{column}'"
        )
        remedy = "Name an array of the file that has one text or whole number for each sample."
        raise InputError(
            doing, found=found, expected="one with a value of each sample", remedy=remedy
        )
    return arrays.pop(column)


def read_arrays(
    path: Path, needed: Sequence[str] = (), *, optional: Sequence[str] = ()
) -> dict[str, Array]:
    """The arrays of these names in the ``.npz`` file at ``path``, or all, as they are; nothing
    is unpickled.

    Raises:
        InputError: no such file, no ``.npz``, objects instead of numbers, more than the limit, or
            one that is ``needed`` is not in it.
    """
    try:
        listed = array_names(path)
        if set(needed) <= set(listed):
            return read_archive(
                path, {*needed, *optional} or set(listed), most=current_limits().tensor_bytes
            )
        found = f"the arrays {', '.join(listed) or '(none)'}"
    except OSError as error:
        found = error.strerror or str(error)
    except TooLargeError as error:
        raise too_large(
            f"Reading the data file '{path}'", "arrays", error.size, "tensor_bytes"
        ) from error
    except ArchiveError as error:
        found = str(error)
    raise InputError(
        f"Reading the data file '{path}'",
        found=found,
        expected=(
            f"an .npz file of numbers{' with ' * bool(needed)}{' and '.join(map(repr, needed))}"
        ),
        remedy=(
            "Write one with numpy.savez(path, "
            f"{', '.join(f'{name}=…' for name in needed or ('x', 'y'))})."
        ),
    )


# A folder of the user: pictures, in one folder for each class or without labels, or one .npz file
# per sample.
#
# FOLDER/<class>/…/<picture>    labelled: the folder's name as a number, else its index in order
#                               (`ClassNames`)
# FOLDER/<picture>              unlabelled, where there are no class folders
# FOLDER/<sample>.npz           arrays without a batch axis, by the graph's inputs, and the class
#                               ``y`` or none

PICTURE_ENDINGS = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
)


def read_folder(folder: Path, listed: Sequence[str] | None, sources: str, doing: str) -> Dataset:
    """The samples under ``folder``, sorted by path; other files and hidden ones are skipped.

    Args:
        folder: where they are.
        listed: the names of all classes in the order of the model's outputs.
        sources: what ``?sources=`` names.
        doing: for errors.

    Raises:
        InputError: no such folder, no sample in it, samples of several kinds, a file that cannot be
            read, a class folder that is not ``listed``, or ``sources`` that a folder does not have.
    """
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing at that path"
        raise InputError(doing, found=found, expected="a folder", remedy="Check the path.")
    entries = sorted(
        (entry for entry in folder.iterdir() if _shown(entry)), key=lambda entry: entry.name
    )
    folders = [entry for entry in entries if entry.is_dir()]
    loose = [entry for entry in entries if _is_picture(entry)]
    archives = [entry for entry in entries if entry.suffix == ".npz" and entry.is_file()]
    of_classes = [
        (path, entry.name)
        for entry in folders
        for path in sorted(entry.rglob("*"))
        if _is_picture(path)
        and all(not part.startswith(".") for part in path.relative_to(entry).parts)
    ]
    if sum(map(bool, (loose, archives, of_classes))) != 1:
        also = f", {len(archives)} .npz files" if archives else ""
        raise InputError(
            doing,
            found=(
                f"{len(loose)} pictures directly in it{also} and {len(of_classes)} in its "
                f"{len(folders)} folders"
            ),
            expected=(
                "one folder of pictures for each class, or unlabelled pictures alone, or .npz "
                "files alone"
            ),
            remedy="Sort the pictures into folders named after their classes.",
        )
    name = f"{FOLDER_MARK}{folder.name}"
    if listed is not None and not of_classes:
        raise InputError(
            doing,
            found="no class folders",
            expected="them with ?classes=",
            remedy="Leave classes= out.",
        )
    if sources not in ("", FOLDER):
        found = f"sources={sources} for a folder"
        remedy = (
            "Put the samples of each source into a folder below that of the class, or write a .csv "
            "file."
        )
        raise InputError(
            doing, found=found, expected="sources=folder, or a .csv file", remedy=remedy
        )
    if archives:
        return _in_folders(_archives(name, archives, doing), sources)
    classes = (
        numbered_classes([entry.name for entry in folders], listed, doing) if of_classes else None
    )
    labels = (
        None if classes is None else tuple((classes.numbers[label],) for _, label in of_classes)
    )
    paths = loose or [path for path, _ in of_classes]
    return _in_folders(pictures_of(name, folder, paths, (labels, classes), doing), sources)


def _in_folders(data: Dataset, sources: str) -> Dataset:
    """``data`` of a folder, whose sources are the folders below those of classes where
    ``sources`` asks for them.
    """
    return (
        data.with_sources([folder_of(one, data.id, levels=1) for one in data.sample_ids])
        if sources
        else data
    )


def _archives(name: str, paths: Sequence[Path], doing: str) -> Dataset:
    labels: list[int] = []
    for path in paths:
        y = read_arrays(path, optional=("y",)).get("y")
        if y is not None and (y.size != 1 or y.dtype.kind not in "iu" or y.item() < 0):
            remedy = "Save the class of the sample as one integer."
            found = f"y of shape {y.shape} and {y.dtype}"
            raise InputError(
                f"Reading the data file '{path}'",
                found=found,
                expected="one class, from 0",
                remedy=remedy,
            )
        labels += [] if y is None else [int(y.item())]
    if labels and len(labels) != len(paths):
        found = f"{len(labels)} of {len(paths)} files with a class y"
        raise InputError(
            doing,
            found=found,
            expected="one in each file or in none",
            remedy="Save y in every file.",
        )

    def load(index: int) -> dict[str, Array]:
        return {key: array for key, array in read_arrays(paths[index]).items() if key != "y"}

    ids = [path.name for path in paths]
    return ready_feeds(name, ids, load, (tuple((label,) for label in labels) or None, None), doing)


def pictures_of(
    name: str,
    folder: Path,
    paths: Sequence[Path],
    labels: tuple[Labels | ArrayLabels | None, ClassNames | None],
    doing: str,
) -> Dataset:
    """The data set of the pictures ``paths`` of ``folder``."""
    digests = tuple(digest_bytes(_read(path, doing)) for path in paths)

    def load(index: int) -> Pixels:
        return decode_picture(_read(paths[index], doing), str(paths[index]))

    ids = tuple(path.relative_to(folder).as_posix() for path in paths)
    return Dataset(
        id=name,
        kind="picture",
        sample_ids=ids,
        sources=digests,
        clusters=ids,
        labels=labels[0],
        classes=labels[1],
        content=digest_plain(list(digests)),
        load=load,
    )


def ready_feeds(
    name: str,
    ids: Sequence[str],
    arrays_of: Callable[[int], Mapping[str, Array]],
    labels: tuple[Labels | ArrayLabels | None, ClassNames | None],
    doing: str,
) -> Dataset:
    """Feeds that are read one sample at a time; a lone ``x`` is the feed of a lone input.

    Raises:
        InputError: a sample without feeds, of objects or NaN, or of other names, shapes or types
            than the first.
    """

    def feeds(index: int) -> dict[str, Array]:
        return {
            key: _one_feed(array, key, f"{doing}, sample '{ids[index]}'")
            for key, array in arrays_of(index).items()
        }

    def form(arrays: Mapping[str, Array]) -> str:
        shapes = (
            (key, "×".join(map(str, one.shape)) or "one number", one)
            for key, one in sorted(arrays.items())
        )
        return (
            ", ".join(f"'{key}' {shape} of {one.dtype}" for key, shape, one in shapes) or "no feed"
        )

    first, digests = form(feeds(0)), []
    for index, sample in enumerate(ids):
        if (found := form(arrays := feeds(index))) != first or not arrays:
            raise InputError(
                f"{doing}, sample '{sample}'",
                found=found,
                expected=f"{first}, as of the first sample"
                if index
                else "an array for each input of the graph",
                remedy="Save every sample with the same names, shapes and types.",
            )
        digests.append(digest_arrays(arrays))

    def load(index: int) -> Any:  # noqa: ANN401 - a feed, or several by name
        arrays = feeds(index)
        return arrays["x"] if list(arrays) == ["x"] else arrays

    return Dataset(
        id=name,
        kind="array",
        sample_ids=tuple(ids),
        sources=tuple(digests),
        clusters=tuple(ids),
        labels=labels[0],
        classes=labels[1],
        content=digest_plain(digests),
        load=load,
    )


def _one_feed(array: Array, key: str, doing: str) -> Array:
    """``array`` of one sample as it is fed: float64 as float32, which is what networks take."""
    found = f"'{key}' of {array.dtype}"
    if array.dtype.kind in "fiub":
        with np.errstate(over="ignore"):  # what is too large for float32 becomes Inf
            feed = array.astype(np.float32) if array.dtype == np.float64 else array
        if np.isfinite(feed).all():
            return feed
        found = f"NaN or Inf in '{key}'"
    raise InputError(
        doing,
        found=found,
        expected="numbers that float32 holds",
        remedy="Correct or remove the sample.",
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


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURE_ENDINGS and _shown(path) and path.is_file()


def _shown(path: Path) -> bool:
    return not path.name.startswith(".")


def numbered_classes(names: Sequence[str], listed: Sequence[str] | None, doing: str) -> ClassNames:
    """The number of each class in ``names``: by the list of classes, by the names, or by their
    order.
    """
    unknown = [name for name in names if listed is not None and name not in listed]
    if unknown:
        close = nearest(unknown[0], listed or ())
        raise InputError(
            doing,
            found=(
                f"{counted(len(unknown), 'class', 'classes')} that ?classes= does not list, such "
                f"as '{unknown[0]}'"
            ),
            expected="a line of that file for every class",
            remedy=f"Is '{close}' meant?" if close else "Add the line, at the place of its output.",
        )
    return ClassNames.of(names, listed)


def listed_classes(path: Path, text: str) -> tuple[str, ...]:
    """The lines of the file that ``?classes=`` names."""
    doing = f"Reading the classes '{path}' of '{text}'"
    remedy = "Check the path; it is relative to the current folder."
    lines = read_text(path, doing, "a file with a class in each line", remedy).rstrip().splitlines()
    names = tuple(line.strip() for line in lines)
    found = _unlike_classes(names)
    if found:
        remedy = "List every class once, in the order of the model's outputs."
        raise InputError(doing, found=found, expected="one class in each line", remedy=remedy)
    return names


def _unlike_classes(names: Sequence[str]) -> str:
    """Why the lines ``names`` are not a list of classes; empty when they are."""
    twice = next((name for place, name in enumerate(names) if name in names[:place]), "")
    if twice:
        return f"'{twice}' twice"
    return "" if all(names) else "an empty line"


def read_text(path: Path, doing: str, expected: str, remedy: str) -> str:
    """The text of the file ``path``.

    Raises:
        InputError: it cannot be read as UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = "no text" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
        raise InputError(doing, found=found, expected=expected, remedy=remedy) from error
