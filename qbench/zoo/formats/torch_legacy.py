"""Torch's checkpoint format from before version 1.6, read so that nothing but tensors can come out of it.

A file is five pickles and then raw numbers:

    magic · protocol 1001 · system facts · state dict · storage keys · (int64 count, numbers) per key

The pickles are held to short lists before anything is made of them (``torch_tensors.py``).

Source: torch/serialization.py, ``_legacy_save`` (torch 1.5).
"""

import io
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.zoo.formats.torch_tensors import REFUSED, Storage, Tensor, array_of, named_tensors, read_pickle

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001


def load_torch_legacy(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of the state dict in the checkpoint at ``path``; see ``read_torch_legacy``."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _refusal(str(path), error.strerror or str(error), "Check the path.") from error
    return read_torch_legacy(data, str(path))


def read_torch_legacy(data: bytes, name: str, *, entry: str | None = None) -> dict[str, npt.NDArray[Any]]:
    """The state dict in the checkpoint ``data``, parameter name → array, in the file's order.

    Args:
        data: the bytes of the file. name: how errors call it.
        entry: which entry of the file the state dict is, where a training run left its optimizer beside it; what
            stands there besides is held to the same short lists and dropped. None: the file is the state dict.

    Raises:
        InputError: it is no such checkpoint, is cut short, or holds anything but named tensors (what is named).
    """
    try:
        return _read_checkpoint(io.BytesIO(data), entry)
    except (EOFError, struct.error) as error:
        raise _refusal(name, f"that it ends after {len(data)} bytes in the middle", "Get the file again.") from error
    except REFUSED as error:
        remedy = "Use a checkpoint that holds a state dict of tensors alone, from someone you trust."
        raise _refusal(name, str(error), remedy) from error


def _read_checkpoint(stream: BinaryIO, entry: str | None) -> dict[str, npt.NDArray[Any]]:
    if read_pickle(stream)[0] != _MAGIC or read_pickle(stream)[0] != _PROTOCOL:
        raise pickle.UnpicklingError("another magic number or protocol")
    facts, _ = read_pickle(stream)
    if not isinstance(facts, dict) or facts.get("little_endian") is not True:
        raise pickle.UnpicklingError("numbers of a big-endian machine")
    state, declared = read_pickle(stream)
    tensors = named_tensors(state, entry)
    keys, _ = read_pickle(stream)
    storages = _read_storages(stream, keys, declared, tensors)
    return {name: array_of(name, tensor, storages) for name, tensor in tensors.items()}


def _read_storages(
    stream: BinaryIO, keys: object, declared: Mapping[str, Storage], tensors: Mapping[str, Tensor]
) -> dict[str, npt.NDArray[Any]]:
    """The numbers of the storages that ``tensors`` view; those of others are passed over."""
    if not isinstance(keys, list):
        raise pickle.UnpicklingError("no list of storage keys")
    wanted = {tensor.storage.key for tensor in tensors.values()}
    storages: dict[str, npt.NDArray[Any]] = {}
    for key in keys:
        storage = declared.get(key) if isinstance(key, str) else None
        if storage is None:
            raise pickle.UnpicklingError(f"a storage {key!r} that no tensor uses")
        (count,) = struct.unpack("<q", stream.read(8))
        if count != storage.count:
            raise pickle.UnpicklingError(f"{count} numbers in storage '{key}' of {storage.count}")
        raw = stream.read(count * np.dtype(storage.dtype).itemsize)
        if len(raw) != count * np.dtype(storage.dtype).itemsize:
            raise EOFError
        if storage.key in wanted:
            storages[storage.key] = np.frombuffer(raw, storage.dtype)
    if missing := sorted(wanted - set(storages)):
        raise pickle.UnpicklingError(f"no numbers for storage '{missing[0]}'")
    return storages


def _refusal(name: str, found: str, remedy: str) -> InputError:
    expected = "a legacy torch checkpoint of named tensors and nothing else"
    return InputError(f"Reading the checkpoint '{name}'", found=found, expected=expected, remedy=remedy)
