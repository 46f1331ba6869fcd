"""Arrays of a baseline on disk: ``.npz`` files beside its ``.json``, and the sentence for one that is damaged."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import StoreError


def read_arrays(path: Path, what: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays in ``path``, by name; ``what`` they are, for the message.

    Raises:
        StoreError: there is no such file, or it is damaged.
    """
    try:
        data = io.BytesIO(path.read_bytes())  # of a path, np.load leaves the file open when it fails
        with np.load(data, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except OSError as error:
        raise damaged(path, error.strerror or str(error), what) from error
    except Exception as error:
        # numpy lets through whatever zipfile, zlib, tokenize and pickle make of damaged bytes: no list is complete
        raise damaged(path, f"a damaged file ({type(error).__name__})", what) from error


def packed_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """``arrays`` as the bytes of an ``.npz``, in their order."""
    buffer = io.BytesIO()
    named: dict[str, Any] = dict(arrays)
    np.savez_compressed(buffer, **named)
    return buffer.getvalue()


def damaged(path: Path, found: str, expected: str) -> StoreError:
    """A file of a baseline that cannot be used."""
    return StoreError(
        f"Reading the baseline '{path}'",
        found=found,
        expected=expected,
        remedy="Restore all its files from version control, or accept the fp32 reference anew (--qbench-accept-fp32).",
    )
