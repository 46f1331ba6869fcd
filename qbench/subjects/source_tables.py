"""Which samples belong together: as their folders or a table say, and as their names suggest
where nothing says it.

?sources=folder         the folder of a file: below its class folder in a folder of classes, as
                        written in a .jsonl file
?sources=COLUMN         a field of the lines of a .jsonl file, or an array of an .npz file
?sources=TABLE.csv      its lines ``sample,source`` after a line of headings; samples as qbench
                        names them. Of more columns, the one called ``source``
?columns=NAME,NAME      further fields or arrays, as names of parts of the data; ?columns=TABLE.csv:
                        all of the table
"""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from qbench.errors import InputError, nearest
from qbench.metrics import Labels
from qbench.number_text import counted
from qbench.subjects.dataset import Dataset

FOLDER = "folder"
"""The setting that takes the folder of a file as its source."""

_COLUMNS_REMEDY = (
    "Write a line of headings, 'sample' first, and a line of as many fields for every sample."
)
_REMEDY = "Write a line 'sample,source' for every sample, after one of headings."
_SOURCE = "source"
"""The column of sources in a table of several."""


def named(text: str) -> str:
    """``text``, the value of a setting.

    Raises:
        ValueError: it is empty.
    """
    if not text.strip():
        raise ValueError("nothing")
    return text


def is_table(sources: str) -> bool:
    """Whether ``?sources=`` names a file and no column."""
    return sources.lower().endswith(".csv")


def folder_of(sample: str, where: str, *, levels: int) -> str:
    """The folder of the file ``sample`` without its first ``levels`` parts, which are a class.

    The same folder below two classes is one source: a person may have samples of both.

    Raises:
        InputError: the file lies in no folder below those.
    """
    parts = PurePosixPath(sample.replace("\\", "/")).parent.parts[levels:]
    if not parts:
        raise InputError(
            f"Looking for the source of '{sample}' in '{where}'",
            found=f"it directly in the folder of its {'class' if levels else 'list'}",
            expected="it in a folder below, named after its source, because of sources=folder",
            remedy=(
                "Put the samples of each source into a folder of their own, or leave "
                "sources=folder out."
            ),
        )
    return "/".join(parts)


def sources_in_table(path: Path, samples: Sequence[str]) -> list[str]:
    """The sources of ``samples`` in the .csv file at ``path``: its second column, of several
    the one called ``source``.

    Raises:
        InputError: as ``columns_in_table`` does, or the table has several columns and none of that
            name.
    """
    doing = f"Reading the sources '{path}'"
    columns = columns_in_table(path, samples, doing, _REMEDY)
    if len(columns) > 1 and _SOURCE not in columns:
        expected = f"two columns, or one of them called '{_SOURCE}'"
        raise InputError(
            doing,
            found=f"the columns sample, {', '.join(columns)}",
            expected=expected,
            remedy=_REMEDY,
        )
    return columns[_SOURCE] if len(columns) > 1 else next(iter(columns.values()))


def columns_in_table(
    path: Path, samples: Sequence[str], doing: str = "", remedy: str = _COLUMNS_REMEDY
) -> dict[str, list[str]]:
    """Column → its values for ``samples`` in the .csv file at ``path``, whose line of headings
    names it.

    ``doing`` and ``remedy`` are for errors.

    Raises:
        InputError: the file cannot be read, a line has other fields than the first, a heading is
            there twice, or a sample is missing, unknown or in it twice.
    """

    def wrong(fields: Sequence[str]) -> str:
        widths.setdefault(len(fields))
        if not fields or len(widths) > 1:
            return counted(len(fields) + 1, "field")
        return "" if all(field.strip() for field in fields) else "an empty field"

    widths: dict[int, None] = {}
    doing = doing or f"Reading the columns '{path}'"
    found = lines_of_samples(path, samples, doing, wrong, remedy)
    names = next(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"))))[1:]
    if widths and len(names) not in widths:
        found_names = counted(len(names) + 1, "heading")
        raise InputError(doing, found=found_names, expected="one for each field", remedy=remedy)
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise InputError(
            doing,
            found=f"the heading '{repeated[0]}' {names.count(repeated[0])} times",
            expected="every heading once",
            remedy="Give each column a name of its own.",
        )
    return {name: [found[sample][place] for sample in samples] for place, name in enumerate(names)}


def lines_of_samples(
    path: Path,
    samples: Sequence[str],
    doing: str,
    wrong: Callable[[Sequence[str]], str],
    remedy: str,
) -> Mapping[str, list[str]]:
    """Sample → what follows it in its line of the .csv file at ``path``, the first of which is
    one of headings.

    ``wrong`` says what is wrong with that, if anything; ``doing`` and ``remedy`` are for errors.

    Raises:
        InputError: the file cannot be read, a line is ``wrong``, or a sample is missing, unknown or
            in it twice.
    """
    try:
        lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig")), strict=True))[1:]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        found = (
            (error.strerror or str(error)) if isinstance(error, OSError) else f"no table ({error})"
        )
        raise InputError(
            doing, found=found, expected="a .csv file with a line for each sample", remedy=remedy
        ) from error
    known = set(samples)
    found_in: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 2):
        if not line:
            continue
        at = f"{doing}, line {number}"
        sample, *fields = line
        if found := wrong(fields):
            raise InputError(
                at, found=found, expected="a sample, and what the table says of it", remedy=remedy
            )
        if sample not in known:
            close = nearest(sample, samples)
            meant = f"Is '{close}' meant?" if close else "Take the line away."
            raise InputError(
                at, found=f"no sample '{sample}'", expected="a sample of the data", remedy=meant
            )
        if sample in found_in:
            raise InputError(
                at,
                found=f"'{sample}' again",
                expected="each sample once",
                remedy="Remove one of the two.",
            )
        found_in[sample] = fields
    missing = [sample for sample in samples if sample not in found_in]
    if missing:
        found = f"no line for {counted(len(missing), 'sample')}, such as '{missing[0]}'"
        raise InputError(doing, found=found, expected="one for every sample", remedy=remedy)
    return found_in


# Names that suggest pieces of one thing, where no sources are given.
#
#     photo12_crop03.png, clip4/frame_0001.jpg    a word for a piece and its number, after a name
#     00012_00000.png, 00012_00001.png            two numbers, of which the last counts from 0 or 1
#                                                 within the first
#
# Few false alarms matter more than finding all: a name that is the same for all samples of a class
# (ImageNet's n01440764_18.JPEG), one name for the whole set (ILSVRC2012_val_00000001.JPEG) and a
# last number that does not count without a gap say nothing.

_PIECE = re.compile(
    r"(?P<whole>.*[0-9._/ "
    r"-])(?P<word>crops?|tiles?|patch(?:es)?|frames?|slices?|windows?|augs?|augmented|views?)"
    r"[._ rcxy-]*[0-9]+(?:[._ rcxy-]+[0-9]+)*",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"(?P<whole>.*[0-9])[._-](?P<number>[0-9]+)")
_SHARE = 0.8
"""Of the samples, whose names have to suggest it."""
_EACH = 2
"""Samples of one thing on average, and things, at least."""


def pieces_note(data: Dataset) -> str:
    """What the names of samples without sources suggest; empty: nothing."""
    if data.drawn_from != data.sample_ids:
        return ""
    names = [str(PurePosixPath(one.replace("\\", "/")).with_suffix("")) for one in data.sample_ids]
    for wholes in (_worded(names), _numbered(names)):
        count = len(set(wholes.values()))
        few = len(wholes) < max(_SHARE * len(data), _EACH * count)
        if few or count < _EACH or _are_classes(wholes, data.whole_labels):
            continue
        return (
            f"'{data.id}': names such as '{data.sample_ids[next(iter(wholes))]}' suggest that its "
            f"{len(data)} samples come from about {count} sources, and none are given: intervals "
            "take every sample for independent; say which belong together with ?sources= (folder, "
            "a column or a .csv file), or with Dataset.with_sources"
        )
    return ""


def _are_classes(wholes: Mapping[int, str], labels: Labels | None) -> bool:
    """Whether each name is that of a class: its samples have one class, and no other name has
    it.
    """
    pairs = (
        {(whole, labels[place]) for place, whole in wholes.items()} if labels is not None else set()
    )
    return bool(pairs) and len(pairs) == len({whole for whole, _ in pairs}) == len(
        {label for _, label in pairs}
    )


def _worded(names: Sequence[str]) -> Mapping[int, str]:
    """Place of a sample → the name in front of the word for a piece."""
    matched = {place: _PIECE.fullmatch(name) for place, name in enumerate(names)}
    wholes = {
        place: one["whole"].rstrip("._/ -") for place, one in matched.items() if one is not None
    }
    return {place: whole for place, whole in wholes.items() if whole}


def _numbered(names: Sequence[str]) -> Mapping[int, str]:
    """Place of a sample → the name in front of its last number, where that counts from 0 or 1
    without a gap.
    """
    matched = {place: _COUNTED.fullmatch(name) for place, name in enumerate(names)}
    groups: dict[str, dict[int, int]] = defaultdict(dict)
    for place, one in matched.items():
        if one is not None:
            groups[one["whole"]][place] = int(one["number"])
    return {
        place: whole
        for whole, numbers in groups.items()
        if len(numbers) >= _EACH
        and sorted(numbers.values()) in (_from(0, numbers), _from(1, numbers))
        for place in numbers
    }


def _from(first: int, numbers: Mapping[int, int]) -> list[int]:
    return list(range(first, first + len(numbers)))
