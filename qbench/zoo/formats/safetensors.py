"""The safetensors format: a table of names, types, shapes and places, and behind it the numbers.

    length of the table (int64) · table (JSON) · numbers, little-endian, from the end of the table on

Nothing in it can be run; what is checked is that every array lies inside the file, and holds what its shape says.
Source: the format's own description, huggingface/safetensors.
"""

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError

_TYPES: Mapping[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "|u1"}


def read_safetensors(data: bytes, name: str) -> dict[str, npt.NDArray[Any]]:
    """Name → array of all that the file ``data`` holds; ``name`` is how errors call it.

    Raises:
        InputError: it is no such file, is cut short, or has an array of a type or in a place that cannot be.
    """
    try:
        (length,) = struct.unpack_from("<Q", data)
        table, numbers = json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :]
        return {key: _array(entry, numbers) for key, entry in table.items() if key != "__metadata__"}
    except (struct.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"Reading the safetensors file '{name}'",
            found=str(error) or "no table",
            expected="a whole file of arrays of known types",
            remedy="Get the file again.",
        ) from error


def _array(entry: Mapping[str, Any], numbers: memoryview) -> npt.NDArray[Any]:
    if entry["dtype"] not in _TYPES:
        raise ValueError(f"numbers of type '{entry['dtype']}'")
    dtype, shape, (start, end) = np.dtype(_TYPES[entry["dtype"]]), tuple(entry["shape"]), entry["data_offsets"]
    if not 0 <= start <= end <= len(numbers) or end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array of shape {shape} at {start} to {end} of {len(numbers)} bytes")
    return np.frombuffer(numbers, dtype, math.prod(shape), start).reshape(shape)
