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
(``source_tables.py``): ``folder``, a column of the samples, or a .csv file. ``?labels=`` names a
folder of masks or a .csv file of values (``label_files.py``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from qbench.errors import InputError, nearest, require_type
from qbench.extension import known_extensions
from qbench.subjects.catalogue import dataset_catalogue
from qbench.subjects.dataset import Dataset, Preprocess
from qbench.subjects.detection import Fit, FramedPicture, read_coco
from qbench.subjects.label_files import labels_from_files
from qbench.subjects.pictures import Interpolation, Layout, Picture
from qbench.subjects.sample_folders import (
    FOLDER_MARK,
    ReadyArray,
    arrays_from_npz,
    listed_classes,
    pictures_of,
    read_folder,
)
from qbench.subjects.sample_lists import read_lines
from qbench.subjects.source_tables import (
    columns_in_table,
    folder_of,
    is_table,
    named,
    sources_in_table,
)


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
    where, _, query = text.removeprefix(FOLDER_MARK).partition("?")
    path, is_folder = Path(where), text.startswith(FOLDER_MARK)
    if not is_folder and path.suffix not in (".npz", ".jsonl"):
        names = dataset_catalogue(known_extensions())
        if text in names.names():
            return names.get(text), None
        if not path.is_dir():
            _refuse_name(text, path, names.names())
    settings = _settings(query, text)
    listed = listed_classes(Path(settings.pop("classes")), text) if "classes" in settings else None
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
        found = read_lines(path, listed, column, facts)
    else:
        _refuse_columns_of_folder(facts, text)
        found = read_folder(path, listed, column, f"Reading the folder '{path}'")
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
    data = pictures_of(
        f"{FOLDER_MARK}{folder.name}",
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
