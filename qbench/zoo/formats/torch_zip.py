"""Torch's checkpoint format since version 1.6, read so that nothing but tensors can come out of it.

A file is a zip archive of members that are stored as they are:

    <stem>/data.pkl · <stem>/byteorder ("little", or none) · <stem>/data/<key>, the numbers of a storage, per key

The pickle is held to short lists before anything is made of it (``torch_tensors.py``). A member that is packed could
unfold to any size, and torch never packs one.

Source: torch/serialization.py, ``_save``; caffe2/serialize/inline_container.h.
"""

import io
import pickle
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.zoo.formats.torch_tensors import REFUSED, Storage, array_of, named_tensors, read_pickle

_PICKLE = "/data.pkl"


def read_torch_zip(data: bytes, name: str, *, entry: str | None = None) -> dict[str, npt.NDArray[Any]]:
    """The state dict in the checkpoint ``data``, parameter name → array, in the file's order.

    Args:
        data: the bytes of the file. name: how errors call it.
        entry: which entry of the file the state dict is; what stands beside it is held to the same short lists and
            dropped. None: the file is the state dict.

    Raises:
        InputError: it is no such checkpoint, is cut short, or holds anything but named tensors (what is named).
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _read_checkpoint(archive, len(data), entry)
    # RuntimeError and NotImplementedError: zipfile's words for members that are locked, or packed in unknown ways
    except (zipfile.BadZipFile, EOFError, RuntimeError, *REFUSED) as error:
        raise InputError(
            f"Reading the checkpoint '{name}'",
            found=str(error) or "that it ends too soon",
            expected="a zip file, as torch.save writes it, of named tensors and nothing else",
            remedy="Use a checkpoint that holds a state dict of tensors alone, from someone you trust.",
        ) from error


def _read_checkpoint(archive: zipfile.ZipFile, size: int, entry: str | None) -> dict[str, npt.NDArray[Any]]:
    members = {member.filename: member for member in archive.infolist()}
    packed = [name for name, member in members.items() if member.compress_type != zipfile.ZIP_STORED]
    if packed or sum(member.file_size for member in archive.infolist()) > size:
        raise pickle.UnpicklingError(f"the packed member '{packed[0]}'" if packed else "members that overlap")
    stems = [name.removesuffix(_PICKLE) for name in members if name.endswith(_PICKLE) and name.count("/") == 1]
    if len(stems) != 1:
        raise pickle.UnpicklingError(f"{len(stems)} members called data.pkl")
    stem = stems[0]
    order = f"{stem}/byteorder"
    if order in members and archive.read(order) != b"little":
        raise pickle.UnpicklingError("numbers of a big-endian machine")
    checkpoint, _ = read_pickle(io.BytesIO(archive.read(stem + _PICKLE)))
    tensors = named_tensors(checkpoint, entry)
    wanted = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    storages = {key: _numbers(archive, members, f"{stem}/data/{key}", storage) for key, storage in wanted.items()}
    return {name: array_of(name, tensor, storages) for name, tensor in tensors.items()}


def _numbers(
    archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], name: str, storage: Storage
) -> npt.NDArray[Any]:
    expected = storage.count * np.dtype(storage.dtype).itemsize
    found = members[name].file_size if name in members else None
    if found != expected:
        raise pickle.UnpicklingError(f"{found or 'no'} bytes in member '{name}' of {expected}")
    return np.frombuffer(archive.read(name), storage.dtype)
