"""Data sets by a line of text: a name, a folder, a file of arrays, or a file that lists samples.

imagenet_photos                          a name of qbench or of an extension
PATH?labels=instances.json&resize=640    a folder of pictures with the boxes of a COCO file
PATH?resize=256&crop=224&mean=0.485,0.456,0.406
                                         a folder of pictures; settings that are absent are
                                         torchvision's
PATH                                     a folder of .npz files, one per sample
PATH.npz                                 ready feeds by input (or a lone ``x``), and classes ``y``
PATH.jsonl                               one sample in each line: its files or numbers, and its
                                         label

``folder:PATH`` is the folder also where a data set has its name. ``?classes=labels.txt`` numbers
the names of classes by the lines of that file. ``?sources=`` says which samples belong together
(``clusters.py``): ``folder``, a column of the samples, or a .csv file. ``?labels=`` names a folder
of masks or a .csv file of values (``label_files.py``).
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from qbench.errors import InputError, nearest, require_type
from qbench.extension import known_extensions
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
    read_array,
    too_large,
)
from qbench.subjects.catalogue import dataset_catalogue
from qbench.subjects.detection import Fit, FramedPicture, read_coco
from qbench.subjects.label_files import labels_from_files
from qbench.subjects.pictures import Interpolation, Layout, Picture, Pixels, decode_picture
from qbench.subjects.source_tables import (
    FOLDER,
    columns_in_table,
    folder_of,
    is_table,
    named,
    sources_in_table,
)
from qbench.subjects.subject import Array, ClassNames, Dataset, Preprocess

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

_ENDINGS = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
)


def _read_folder(folder: Path, listed: Sequence[str] | None, sources: str, doing: str) -> Dataset:
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
    name = f"{_FOLDER}{folder.name}"
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
    classes = _numbered([entry.name for entry in folders], listed, doing) if of_classes else None
    labels = (
        None if classes is None else tuple((classes.numbers[label],) for _, label in of_classes)
    )
    paths = loose or [path for path, _ in of_classes]
    return _in_folders(_pictures(name, folder, paths, (labels, classes), doing), sources)


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
    return _ready(name, ids, load, (tuple((label,) for label in labels) or None, None), doing)


def _pictures(
    name: str,
    folder: Path,
    paths: Sequence[Path],
    labels: tuple[Labels | ArrayLabels | None, ClassNames | None],
    doing: str,
) -> Dataset:
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


def _ready(
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
    return path.suffix.lower() in _ENDINGS and _shown(path) and path.is_file()


def _shown(path: Path) -> bool:
    return not path.name.startswith(".")


def _numbered(names: Sequence[str], listed: Sequence[str] | None, doing: str) -> ClassNames:
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


def _listed_classes(path: Path, text: str) -> tuple[str, ...]:
    """The lines of the file that ``?classes=`` names."""
    doing = f"Reading the classes '{path}' of '{text}'"
    remedy = "Check the path; it is relative to the current folder."
    lines = (
        _read_text(path, doing, "a file with a class in each line", remedy).rstrip().splitlines()
    )
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


def _read_text(path: Path, doing: str, expected: str, remedy: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = "no text" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
        raise InputError(doing, found=found, expected=expected, remedy=remedy) from error


# A .jsonl file: one sample in each line, its files relative to the folder of the file.
#
# {"path": "a.png", "label": 3}                     a picture, an .npy of a lone input, or an .npz
#                                                   by inputs
# {"image": "a.npy", "meta": [0.5, 2], "label": 1}  each input of the graph: an .npy file, or
#                                                   numbers
#
# A label is a class, or its name, which is numbered as the name of a folder is, or values (2.5, or
# a list of numbers). All lines have one or none has. ?sources=photo&columns=light: {"path":
# "a.png", "label": 3, "photo": "p12", "light": "dim"}

_PATH, _LABEL = "path", "label"
_EXAMPLE = (
    'Write one object per line, such as {"path": "a.png", "label": 3} or {"image": "a.npy", '
    '"label": 3}.'
)


@dataclass(frozen=True, slots=True)
class _Line:
    """One sample: ``label`` and ``source`` as written; ``fields`` by name, texts are paths."""

    doing: str
    name: str
    label: int | str | float | list[float] | None
    fields: Mapping[str, Any]
    source: int | str = ""
    facts: tuple[str, ...] = ()

    def refuse(self, found: str, expected: str, remedy: str = _EXAMPLE) -> NoReturn:
        raise InputError(self.doing, found=found, expected=expected, remedy=remedy)


def _read_lines(
    path: Path, listed: Sequence[str] | None, sources: str, columns: Sequence[str]
) -> Dataset:
    """The samples of the lines of ``path``, empty ones skipped.

    ``sources`` is the name of a field, or empty; ``columns`` are those of others that are not an
    input.

    Raises:
        InputError: no such file, a line that is not a sample (its number is named), or one unlike
            the first.
    """
    doing = f"Reading the data file '{path}'"
    text = _read_text(path, doing, "a sample in each line", _EXAMPLE)
    numbered = ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())
    lines = [
        _line(
            line, f"Reading line {number} of '{path}'", f"line {number}", (sources, tuple(columns))
        )
        for number, line in numbered
    ]
    if not lines:
        raise InputError(doing, found="no line", expected="a sample in each line", remedy=_EXAMPLE)
    if any(isinstance(line.label, float) for line in lines):  # 3 and 2.5 are of one kind
        lines = [
            replace(line, label=float(line.label)) if isinstance(line.label, int) else line
            for line in lines
        ]
    for line in lines:
        if _keys(line) != _keys(lines[0]):
            line.refuse(_keys(line), f"{_keys(lines[0])}, as in the first line")
    labels = _labels_of(lines, listed, doing)
    found = _of_lines(path, lines, labels, doing)
    facts = zip(columns, zip(*(line.facts for line in lines), strict=True), strict=True)
    found = found.with_columns(**dict(facts)) if columns else found
    return found.with_sources([line.source for line in lines]) if sources else found


def _of_lines(
    path: Path,
    lines: Sequence[_Line],
    labels: tuple[Labels | ArrayLabels | None, ClassNames | None],
    doing: str,
) -> Dataset:
    if isinstance(lines[0].fields.get(_PATH), str):
        return _of_paths(path, lines, labels, doing)
    whole = [
        key
        for key in lines[0].fields
        if all(_numbers(line, key).dtype.kind in "iub" for line in lines)
    ]

    def arrays(index: int) -> dict[str, Array]:
        found = {key: _numbers(lines[index], key, path.parent) for key in lines[index].fields}
        # 1 and 1.5 are of one input: a file in which some number of it is not an integer has floats
        return {
            key: one
            if key in whole or isinstance(lines[index].fields[key], str)
            else one.astype(np.float64)
            for key, one in found.items()
        }

    return _ready(path.name, [line.name for line in lines], arrays, labels, doing)


def _line(text: str, doing: str, name: str, asked: tuple[str, tuple[str, ...]]) -> _Line:
    sources, columns = asked
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        found = f"broken JSON ({error})" if isinstance(error, ValueError) else "too many brackets"
        raise InputError(doing, found=found, expected="an object", remedy=_EXAMPLE) from error
    line = _Line(doing, name, None, {})
    if not isinstance(table, dict):
        line.refuse(f"a {type(table).__name__}", "an object")
    label = table.pop(_LABEL, None)
    if label is not None and not _is_label(label):
        expected = "a class from 0 on, the name of one, or finite values, such as 2.5 or [1.0, 2.5]"
        line.refuse(f"the label {json.dumps(label)[:40]}", expected)
    facts = tuple(_fact_of(line, table, column) for column in columns)
    source = _source_of(line, table, sources) if sources else ""
    for column in columns:
        table.pop(column, None)
    if not table:
        line.refuse("no sample", f"'{_PATH}', or the inputs of the graph")
    path = table.get(_PATH)
    if isinstance(path, str) and len(table) > 1:
        line.refuse(
            f"'{_PATH}' with {', '.join(key for key in table if key != _PATH)}", f"'{_PATH}' alone"
        )
    return _Line(doing, path if isinstance(path, str) else name, label, table, source, facts)


def _fact_of(line: _Line, table: Mapping[str, Any], column: str) -> str:
    fact = table.get(column)
    if isinstance(fact, bool) or not isinstance(fact, int | str) or not str(fact).strip():
        found = (
            f"no '{column}'" if fact is None else f"the value {json.dumps(fact)[:40]} of '{column}'"
        )
        line.refuse(found, f"'{column}' with a text or a whole number", "Add it to every line.")
    return str(fact)


def _source_of(line: _Line, table: dict[str, Any], sources: str) -> int | str:
    """The source that the field ``sources`` names, taken out of ``table``; of ``folder`` that
    of its path, if none.
    """
    if sources == FOLDER and FOLDER not in table and isinstance(table.get(_PATH), str):
        return folder_of(table[_PATH], line.name, levels=0)
    source = table.pop(sources, None)
    if isinstance(source, bool) or not isinstance(source, int | str) or not str(source).strip():
        found = f"no '{sources}'" if source is None else f"the source {json.dumps(source)[:40]}"
        line.refuse(
            found, f"'{sources}' with the name or the number of the source", "Add it to every line."
        )
    return source


def _is_label(label: object) -> bool:
    """Whether it is a class, the name of one, or values."""
    if isinstance(label, list):
        return bool(label) and all(_is_value(one) for one in label)
    if isinstance(label, int):
        return not isinstance(label, bool) and label >= 0
    return bool(label) if isinstance(label, str) else _is_value(label)


def _is_value(label: object) -> bool:
    return isinstance(label, int | float) and not isinstance(label, bool) and math.isfinite(label)


def _keys(line: _Line) -> str:
    kinds = {int: ["a number as label"], str: ["a name as label"], float: ["a value as label"]}
    if isinstance(line.label, list):
        kinds[list] = [f"{counted(len(line.label), 'value')} as label"]
    path = "the path of a file" if isinstance(line.fields.get(_PATH), str) else ""
    return " and ".join(
        [path or ", ".join(sorted(line.fields)), *kinds.get(type(line.label), ["no label"])]
    )


def _labels_of(
    lines: Sequence[_Line], listed: Sequence[str] | None, doing: str
) -> tuple[Labels | ArrayLabels | None, ClassNames | None]:
    written = [line.label for line in lines]
    if isinstance(written[0], float | list) and listed is None:
        return tuple(np.atleast_1d(np.array(label, np.float64)) for label in written), None
    if not isinstance(written[0], str):
        if listed is not None:
            remedy = "Leave classes= out, or write names as labels."
            raise InputError(
                doing, found="no names of classes", expected="them with ?classes=", remedy=remedy
            )
        return (
            None
            if written[0] is None
            else tuple((int(label),) for label in written if isinstance(label, int))
        ), None
    classes = _numbered(sorted({str(label) for label in written}), listed, doing)
    return tuple((classes.numbers[str(label)],) for label in written), classes


def _of_paths(
    path: Path,
    lines: Sequence[_Line],
    labels: tuple[Labels | ArrayLabels | None, ClassNames | None],
    doing: str,
) -> Dataset:
    paths = [_inside(line, _PATH, path.parent) for line in lines]
    kinds = {one.suffix.lower() for one in paths}
    if kinds <= _ENDINGS:
        return _pictures(path.name, path.parent, paths, labels, doing)
    for line, one in zip(lines, paths, strict=True):
        if one.suffix.lower() not in (".npy", ".npz"):
            line.refuse(f"'{one.name}'", "pictures alone, or .npy and .npz files alone")

    def arrays(index: int) -> Mapping[str, Array]:
        one = paths[index]
        return (
            read_arrays(one) if one.suffix.lower() == ".npz" else {"x": _array(one, lines[index])}
        )

    return _ready(path.name, [line.name for line in lines], arrays, labels, doing)


def _inside(line: _Line, key: str, folder: Path) -> Path:
    """The file that ``key`` names, in ``folder``."""
    path = Path(line.fields[key])
    if path.is_absolute() or ".." in path.parts:
        line.refuse(
            f"'{path}', outside the folder of the .jsonl file",
            "a path inside it",
            "Move the .jsonl file up.",
        )
    if not (folder / path).is_file():
        line.refuse(f"no file '{path}'", "a file relative to that of the line", "Correct the path.")
    return folder / path


def _numbers(line: _Line, key: str, folder: Path | None = None) -> Array:
    """The numbers of ``key``, or of its file in ``folder``; None: files are not read, and count
    as integers.
    """
    value = line.fields[key]
    if isinstance(value, str):
        if folder is None:
            return np.zeros(0, np.int64)
        path = _inside(line, key, folder)
        if path.suffix.lower() != ".npy":
            line.refuse(f"'{value}' of input '{key}'", "an .npy file, or numbers")
        return _array(path, line)
    try:
        found = np.asarray(value)
    except ValueError:
        found = np.asarray(None)
    if found.dtype.kind not in "fiub":
        line.refuse(
            f"'{key}' without numbers, or with rows of different length",
            "numbers, or the path of an .npy file",
        )
    return found


def _array(path: Path, line: _Line) -> Array:
    try:
        return read_array(path, most=current_limits().tensor_bytes)
    except TooLargeError as error:
        raise too_large(line.doing, "arrays", error.size, "tensor_bytes") from error
    except (ArchiveError, OSError) as error:
        found = f"'{path.name}' with {error}"
        raise InputError(
            line.doing, found=found, expected="an array of numbers", remedy="Save it again."
        ) from error


_FOLDER = "folder:"


def dataset_from_text(text: str) -> tuple[Dataset, Preprocess | None]:
    """The data that ``text`` names, and its preprocessing; None: the model's own.

    Raises:
        InputError: no such name, file or folder; an unknown or impossible setting; and as the
            readers of each form.
    """
    remedy = (
        "Name it as 'qbench list' shows it, or give the path of a folder, an .npz or a .jsonl file."
    )
    require_type(
        "Looking for data", text, str, expected="the name of a data set, as a text", remedy=remedy
    )
    where, _, query = text.removeprefix(_FOLDER).partition("?")
    path, is_folder = Path(where), text.startswith(_FOLDER)
    if not is_folder and path.suffix not in (".npz", ".jsonl"):
        names = dataset_catalogue(known_extensions())
        if text in names.names():
            return names.get(text), None
        if not path.is_dir():
            _refuse_name(text, path, names.names())
    settings = _settings(query, text)
    listed = _listed_classes(Path(settings.pop("classes")), text) if "classes" in settings else None
    sources, columns = settings.pop("sources", ""), settings.pop("columns", "")
    column = "" if is_table(sources) else sources
    facts = (
        [] if is_table(columns) else [name.strip() for name in columns.split(",") if name.strip()]
    )
    has_boxes = Path(settings.get("labels", "")).suffix == ".json"
    if has_boxes:
        found = _labelled_boxes(path, Path(settings.pop("labels")), listed, column)
    elif path.suffix == ".npz" and not is_folder:
        found = arrays_from_npz(path, column, facts)
    elif path.suffix == ".jsonl" and not is_folder:
        found = _read_lines(path, listed, column, facts)
    else:
        _refuse_columns_of_folder(facts, text)
        found = _read_folder(path, listed, column, f"Reading the folder '{path}'")
    found = _with_tables(found, sources, columns)
    files = settings.pop("labels", "")
    picture = (
        _preprocessing(settings, text, is_framed=has_boxes) if found.kind == "picture" else None
    )
    if files:
        if isinstance(picture, FramedPicture):
            found_text = f"labels={files} with fit="
            remedy = "Give a .json file of COCO's form, or leave fit= out."
            raise InputError(
                f"Reading the settings in '{text}'",
                found=found_text,
                expected="boxes",
                remedy=remedy,
            )
        found = replace(found, labels=labels_from_files(Path(files), found, picture), classes=None)
    if picture is not None:
        return found, picture
    if settings or (listed is not None and found.classes is None):
        raise InputError(
            f"Reading the settings in '{text}'",
            found=f"'{next(iter(settings), 'classes')}' with arrays",
            expected="no settings but sources, columns and labels: arrays are fed as they are",
            remedy="Leave it out.",
        )
    return found, ReadyArray()


def _refuse_columns_of_folder(columns: Sequence[str], text: str) -> None:
    if columns:
        raise InputError(
            f"Reading the settings in '{text}'",
            found=f"columns={','.join(columns)} for a folder",
            expected="the path of a .csv file",
            remedy="Write a .csv file with a line for every sample.",
        )


def _with_tables(data: Dataset, sources: str, columns: str) -> Dataset:
    """``data`` with the sources and columns of the .csv files that these settings name, if they
    do.
    """
    if is_table(sources):
        data = data.with_sources(sources_in_table(Path(sources), data.sample_ids))
    return (
        data.with_columns(**columns_in_table(Path(columns), data.sample_ids))
        if is_table(columns)
        else data
    )


def _refuse_name(text: str, path: Path, names: Sequence[str]) -> NoReturn:
    doing = f"Looking for the data '{text}'"
    forms = "a folder, an .npz or a .jsonl file"
    found = (
        f"a file that ends in '{path.suffix}'"
        if path.is_file()
        else "no data set, no folder and no file there"
    )
    if path.is_file() or len(path.parts) > 1:
        raise InputError(doing, found=found, expected=forms, remedy="Check the path.")
    close = nearest(text, names)
    raise InputError(
        doing,
        found=found,
        expected=f"{forms}, or one of: {', '.join(names)}",
        remedy=f"Did you mean '{close}'?" if close else "Choose one of these.",
    )


def _labelled_boxes(
    folder: Path, labels: Path, listed: Sequence[str] | None, sources: str
) -> Dataset:
    """The pictures in ``folder`` that the COCO file ``labels`` lists.

    Raises:
        InputError: as ``read_coco`` does, or no such folder.
    """
    doing = f"Reading the folder '{folder}'"
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing at that path"
        raise InputError(
            doing, found=found, expected="a folder of pictures", remedy="Check the path."
        )
    coco = read_coco(labels, folder, listed)
    data = _pictures(
        f"{_FOLDER}{folder.name}",
        folder,
        [folder / name for name in coco.names],
        (coco.labels, coco.classes),
        doing,
    )
    return (
        data.with_sources([folder_of(one, data.id, levels=0) for one in data.sample_ids])
        if sources
        else data
    )


def _preprocessing(
    settings: dict[str, Any], text: str, *, is_framed: bool
) -> Picture | FramedPicture:
    return _framed(settings, text) if is_framed or "fit" in settings else _picture(settings, text)


def _framed(settings: dict[str, Any], text: str) -> FramedPicture:
    """How a detector takes pictures: ``resize`` is the side of its frame."""
    side = settings.pop("resize", FramedPicture().width)
    try:
        return FramedPicture(width=side, height=side, **settings)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"Reading the settings in '{text}'",
            found="crop for a detector" if "crop" in settings else str(error),
            expected="settings of a detector, such as resize=640&fit=letterbox",
            remedy="Correct them.",
        ) from error


def _triple(text: str) -> tuple[float, float, float]:
    values = [float(part) for part in text.split(",")]
    if len(values) not in (1, 3):
        raise ValueError("not one number or three")
    first, second, third = values if len(values) == 3 else values * 3
    return (first, second, third)


_SETTINGS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "resize": (int, "a whole number of pixels"),
    "crop": (int, "a whole number of pixels"),
    "interpolation": (
        Interpolation,
        f"one of: {', '.join(choice.value for choice in Interpolation)}",
    ),
    "divisor": (float, "a number"),
    "mean": (_triple, "three numbers, as in 0.485,0.456,0.406"),
    "std": (_triple, "three numbers, as in 0.229,0.224,0.225"),
    "layout": (Layout, f"one of: {', '.join(choice.value for choice in Layout)}"),
    "input": (str, "the name of the graph's input"),
    "classes": (str, "a file with a class in each line"),
    "labels": (named, "a folder of masks, a .csv file, or a .json file of COCO's form"),
    "fit": (Fit, f"one of: {', '.join(choice.value for choice in Fit)}"),
    "sources": (named, "folder, the name of a column, or a .csv file"),
    "columns": (named, "names of columns, or a .csv file"),
}


def _settings(query: str, text: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, _, written = part.partition("=")
        doing = f"Reading the setting '{key}' in '{text}'"
        if key not in _SETTINGS:
            close = nearest(key, _SETTINGS)
            remedy = f"Did you mean '{close}'?" if close else "Remove it."
            raise InputError(
                doing,
                found="no such setting",
                expected=f"one of: {', '.join(_SETTINGS)}",
                remedy=remedy,
            )
        if key in settings:
            raise InputError(
                doing, found="it twice", expected="it once", remedy="Remove one of the two."
            )
        convert, expected = _SETTINGS[key]
        try:
            settings[key] = convert(written)
        except ValueError:
            raise InputError(
                doing, found=f"'{written}'", expected=expected, remedy="Correct the value."
            ) from None
    return settings


def _picture(settings: Mapping[str, Any], text: str) -> Picture:
    try:
        return Picture(**settings)
    except ValueError as error:
        raise InputError(
            f"Reading the settings in '{text}'",
            found=str(error),
            expected="settings that fit together, such as resize=256&crop=224",
            remedy="Correct them.",
        ) from error
