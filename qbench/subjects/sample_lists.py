"""A .jsonl file: one sample in each line, its files relative to the folder of the file.

{"path": "a.png", "label": 3}                     a picture, an .npy of a lone input, or an .npz
                                                  by inputs
{"image": "a.npy", "meta": [0.5, 2], "label": 1}  each input of the graph: an .npy file, or
                                                  numbers

A label is a class, or its name, which is numbered as the name of a folder is, or values (2.5, or
a list of numbers). All lines have one or none has. What ?sources=photo&columns=light names is in
each line, too: {"path": "a.png", "label": 3, "photo": "p12", "light": "dim"}.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from qbench.errors import InputError
from qbench.metrics import ArrayLabels, Labels
from qbench.number_text import counted
from qbench.storage import (
    ArchiveError,
    TooLargeError,
    current_limits,
    read_array,
    too_large,
)
from qbench.subjects.dataset import Array, ClassNames, Dataset
from qbench.subjects.sample_folders import (
    PICTURE_ENDINGS,
    numbered_classes,
    pictures_of,
    read_arrays,
    read_text,
    ready_feeds,
)
from qbench.subjects.source_tables import (
    FOLDER,
    folder_of,
)

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


def read_lines(
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
    text = read_text(path, doing, "a sample in each line", _EXAMPLE)
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

    return ready_feeds(path.name, [line.name for line in lines], arrays, labels, doing)


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
    classes = numbered_classes(sorted({str(label) for label in written}), listed, doing)
    return tuple((classes.numbers[str(label)],) for label in written), classes


def _of_paths(
    path: Path,
    lines: Sequence[_Line],
    labels: tuple[Labels | ArrayLabels | None, ClassNames | None],
    doing: str,
) -> Dataset:
    paths = [_inside(line, _PATH, path.parent) for line in lines]
    kinds = {one.suffix.lower() for one in paths}
    if kinds <= PICTURE_ENDINGS:
        return pictures_of(path.name, path.parent, paths, labels, doing)
    for line, one in zip(lines, paths, strict=True):
        if one.suffix.lower() not in (".npy", ".npz"):
            line.refuse(f"'{one.name}'", "pictures alone, or .npy and .npz files alone")

    def arrays(index: int) -> Mapping[str, Array]:
        one = paths[index]
        return (
            read_arrays(one) if one.suffix.lower() == ".npz" else {"x": _array(one, lines[index])}
        )

    return ready_feeds(path.name, [line.name for line in lines], arrays, labels, doing)


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
