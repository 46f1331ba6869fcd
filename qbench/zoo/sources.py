"""Data named by a line of text, so that people can bring their own.

imagenet_photos                                          a name of the zoo or of an extension
folder:PATH?resize=256&crop=224&mean=0.485,0.456,0.406   pictures; what is left out is torchvision's
PATH.npz                                                 ready feeds ``x`` and classes ``y``
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from qbench.errors import InputError, nearest
from qbench.extension import installed_extensions
from qbench.zoo.arrays import ReadyArray, arrays_from_npz
from qbench.zoo.catalogue import dataset_catalogue
from qbench.zoo.dataset import Dataset
from qbench.zoo.picture_folder import pictures_from_folder
from qbench.zoo.pictures import Interpolation, Layout, Picture
from qbench.zoo.preprocess import Preprocess

_FOLDER = "folder:"


def dataset_from_text(text: str) -> tuple[Dataset, Preprocess | None]:
    """The data that ``text`` names, and how its samples become feeds; None: the model's own preprocessing.

    Raises:
        InputError: no such name, file or folder; an unknown or senseless setting; and as the readers of each form.
    """
    if text.startswith(_FOLDER):
        path, _, query = text.removeprefix(_FOLDER).partition("?")
        preprocess = _picture(query, text)
        return pictures_from_folder(Path(path)), preprocess
    if text.endswith(".npz"):
        return arrays_from_npz(Path(text)), ReadyArray()
    names = dataset_catalogue(installed_extensions())
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
            raise InputError(doing, found="it given twice", expected="it once", remedy="Remove one of the two.")
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
            expected="settings that make sense together, such as resize=256&crop=224",
            remedy="Correct them.",
        ) from error
