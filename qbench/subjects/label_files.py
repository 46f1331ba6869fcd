"""Labels that are arrays, from files of their own: masks and right pictures of a folder, values
of a table.

?labels=masks/          masks/<sample without ending>.png: class numbers in grey or by a palette,
                        255 where a pixel does not count; or the right picture, in colour. Or .npy:
                        any array of numbers
?labels=values.csv      lines ``sample,value`` or ``sample,value,value,…`` after a line of headings

Both are paths from the current folder, and ``sample`` is its name in qbench: its path in the folder
of the data, or ``x[0]`` in an .npz file. A mask is resized and cut as its picture is, each pixel
the nearest one.
"""

import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from qbench.errors import InputError
from qbench.metrics import ArrayLabels
from qbench.number_text import counted
from qbench.storage import ArchiveError, TooLargeError, current_limits, read_array, too_large
from qbench.subjects.dataset import Array, Dataset
from qbench.subjects.pictures import Picture, require_pixels
from qbench.subjects.source_tables import is_table, lines_of_samples

_ENDINGS = (".png", ".npy")
_VALUES = "Write a line 'sample,value' for every sample, after one of headings."


def labels_from_files(path: Path, data: Dataset, picture: Picture | None) -> ArrayLabels:
    """The label of each sample of ``data`` in the folder or the table at ``path``.

    Args:
        path: a folder, or a .csv file.
        data: its samples.
        picture: how pictures are prepared; None: samples are arrays, and labels are as large as
            their files say.

    Raises:
        InputError: no such folder or file; a sample without a label; one that cannot be read or is
            not a number; a mask of another size than its picture; a line of an unknown sample, or
            of one that has had a line.
    """
    samples = data.sample_ids
    if is_table(str(path)):
        return _values(path, samples)
    doing = f"Reading the labels in '{path}'"
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing at that path"
        remedy = "Check the path; it is relative to the current folder."
        raise InputError(
            doing,
            found=found,
            expected="a folder of masks, or a .csv file of values",
            remedy=remedy,
        )
    return tuple(_label(path, data, index, picture) for index in range(len(samples)))


def _values(path: Path, samples: Sequence[str]) -> ArrayLabels:
    doing = f"Reading the values '{path}'"
    lines = lines_of_samples(path, samples, doing, _wrong_values, _VALUES)
    rows = {
        sample: np.array([float(field) for field in fields]) for sample, fields in lines.items()
    }
    other = next((sample for sample in samples if len(rows[sample]) != len(rows[samples[0]])), None)
    if other is not None:
        raise InputError(
            f"{doing}, sample '{other}'",
            found=counted(len(rows[other]), "value"),
            expected=f"{len(rows[samples[0]])}, as of the first sample",
            remedy="Give all samples equally many values.",
        )
    return tuple(rows[sample] for sample in samples)


def _wrong_values(fields: Sequence[str]) -> str:
    try:
        is_right = bool(fields) and all(math.isfinite(float(field)) for field in fields)
    except ValueError:
        is_right = False
    return "" if is_right else f"'{','.join(fields)[:40]}', which is no finite number"


def _label(folder: Path, data: Dataset, index: int, picture: Picture | None) -> Array:
    """The array of a sample: a mask (H, W), a picture (3, H, W), or what an .npy file has."""
    sample = data.sample_ids[index]
    stem = folder / Path(sample).with_suffix("")
    path = next(
        (found for ending in _ENDINGS if (found := stem.with_name(stem.name + ending)).is_file()),
        None,
    )
    doing = f"Reading the label of sample '{sample}' in '{folder}'"
    if path is None:
        missing = Path(sample).with_suffix(".png").as_posix()
        remedy = "Add it, or take the sample out of the data."
        raise InputError(
            doing,
            found=f"no file '{missing}'",
            expected="a mask (.png) or an array (.npy)",
            remedy=remedy,
        )
    if path.suffix == ".npy":
        return _array(path, doing)
    pixels = _decoded(path, doing)
    if picture is None:
        return pixels if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
    if pixels.ndim == 2:
        height, width = np.shape(data.load(index))[:2]
        if pixels.shape != (height, width):
            raise InputError(
                doing,
                found=f"a mask of {pixels.shape[1]} × {pixels.shape[0]} pixels",
                expected=f"{width} × {height}, as its picture has",
                remedy=(
                    "Save the mask in the size of its picture; both are resized and cut together."
                ),
            )
        return picture.mask(pixels)
    return np.ascontiguousarray(picture.prepare(pixels)[picture.input].transpose(2, 0, 1))


def _array(path: Path, doing: str) -> Array:
    try:
        found = read_array(path, most=current_limits().tensor_bytes)
    except TooLargeError as error:
        raise too_large(doing, "arrays", error.size, "tensor_bytes") from error
    except (ArchiveError, OSError) as error:
        remedy = "Save it again."
        raise InputError(
            doing, found=str(error), expected="an array of numbers", remedy=remedy
        ) from error
    if found.dtype.kind not in "fiu" or not np.isfinite(found).all():
        kind = "NaN or Inf" if found.dtype.kind == "f" else f"an array of {found.dtype}"
        raise InputError(doing, found=kind, expected="finite numbers", remedy="Correct the file.")
    return found


def _decoded(path: Path, doing: str) -> Array:
    """(H, W) uint8 or uint16 classes of a picture in grey or by a palette, (H, W, 3) uint8 of
    one in colour.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(path.read_bytes())) as file:
            require_pixels(doing, *file.size)
            if file.mode in ("L", "P"):
                return np.asarray(file, np.uint8)
            if file.mode.startswith("I;16"):
                return np.asarray(file, np.uint16)
            if file.mode in ("1", "RGB"):
                return np.asarray(file, np.uint8)
            found = f"a picture of mode '{file.mode}'"
    except (
        UnidentifiedImageError,
        OSError,
        SyntaxError,
        ValueError,
        Image.DecompressionBombError,
    ) as error:
        found = f"a file that is no picture ({error})"
    raise InputError(
        doing,
        found=found,
        expected=(
            "class numbers in grey or by a palette, or a right picture in colour without "
            "transparency"
        ),
        remedy="Save the mask as grey values, one for each class.",
    )
