"""numpy's archives of arrays (``.npz``), opened so that nothing but arrays of numbers can come out of them.

numpy writes an array of objects as a pickle; ``allow_pickle=False`` makes it refuse to read one.
"""

import io
import zipfile
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError


def read_numpy_archive(data: bytes, name: str) -> dict[str, npt.NDArray[Any]]:
    """Name → array of all that the archive ``data`` holds; ``name`` is how errors call it.

    Raises:
        InputError: it is no such archive, is cut short, or holds anything but arrays of numbers.
    """
    try:
        return _arrays(data)
    # RuntimeError and NotImplementedError: zipfile's words for members that are locked, or packed in unknown ways
    except (
        ValueError,
        TypeError,
        EOFError,
        OSError,
        MemoryError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise InputError(
            f"Reading the archive '{name}'",
            found=(str(error) or "that it ends too soon").partition("\n")[0],
            expected="a whole .npz file of arrays of numbers",
            remedy="Get the file again, from someone you trust.",
        ) from error


def _arrays(data: bytes) -> dict[str, npt.NDArray[Any]]:
    archive = np.load(io.BytesIO(data), allow_pickle=False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise TypeError("one array and no archive")
    with archive:
        return {key: np.asarray(archive[key]) for key in archive.files}
