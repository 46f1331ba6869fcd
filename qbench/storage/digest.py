"""SHA-256 over content: bytes, files, arrays and plain values."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.storage.serialize import plain

if TYPE_CHECKING:
    import numpy as np

_CHUNK = 1 << 20


def digest_bytes(data: bytes) -> str:
    """The digest of raw bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    """The digest of a file's bytes, read in pieces.

    Raises:
        OSError: the file cannot be read.
    """
    state = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            state.update(piece)
    return state.hexdigest()


def digest_arrays(arrays: "Mapping[str, np.ndarray[Any, Any]]") -> str:
    """The digest of named arrays: names in sorted order, each with dtype, shape and bytes."""
    import numpy as np

    state = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        state.update(f"{name}|{little.dtype.str}|{array.shape}|".encode())
        state.update(little.tobytes())
    return state.hexdigest()


def digest_plain(value: object) -> str:
    """The digest of a plain value (or a dataclass of such): keys sorted, no blanks."""
    text = json.dumps(plain(value), separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
