"""PyTorch's files of weights, zip and before, read without PyTorch."""

import io
import math
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench_zoo.readers.pickles import inspect_pickle

# What a checkpoint's pickle may hold: tensors by name, as inert values of ours that views into
# storages are made of.
#
#     tensor = storage, offset, shape, strides (in elements)
#     element i of it: storage[offset + Σ iₖ·strideₖ]
#
# A pickle is a program. It is read twice: once as text, where every instruction and every name it
# would look up must be on a short list, and only then by an unpickler that knows those names alone.
#
# Source: torch/_utils.py, ``_rebuild_tensor_v2``; torch/serialization.py, ``persistent_id``.

_DTYPES: Mapping[str, str] = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "|i1",
    "ByteStorage": "|u1",
    "BoolStorage": "|b1",
}


@dataclass(frozen=True, slots=True)
class _Kind:
    """A storage class of torch by name; nothing can be made with it."""

    dtype: str


@dataclass(frozen=True, slots=True)
class Storage:
    """``count`` numbers that stand elsewhere in the file, under ``key``."""

    key: str
    dtype: str
    count: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view into a storage: element offset, shape, strides in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Rebuild:
    """In the place of ``torch._utils._rebuild_tensor_v2``; a slotted value, which a pickle
    cannot alter.
    """

    def __call__(
        self, storage: object, offset: object, shape: object, strides: object, *_: object
    ) -> Tensor:
        if not (
            isinstance(storage, Storage)
            and isinstance(offset, int)
            and _whole(shape)
            and _whole(strides)
        ):
            raise pickle.UnpicklingError("a tensor without storage, offset, shape and strides")
        return Tensor(storage, offset, tuple(shape), tuple(strides))  # type: ignore[arg-type]


_NAMES: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _Rebuild(),
    **{("torch", name): _Kind(dtype) for name, dtype in _DTYPES.items()},
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream, encoding="utf-8")
        self.storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - the signature of the standard library
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"the name '{module}.{name}'")
        return _NAMES[module, name]

    def persistent_load(self, pid: Any) -> Storage:  # noqa: ANN401 - the signature of the standard library
        match pid:
            case ("storage", _Kind(dtype), str(key), str(), int(count), *view) if (
                count >= 0 and view in ([], [None])
            ):
                return self.storages.setdefault(key, Storage(key, dtype, count))
        raise pickle.UnpicklingError("a persistent id that is no storage")


REFUSED = (
    pickle.UnpicklingError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    # what Python says where it writes or compares values that are nested too deeply
    RecursionError,
)
"""What reading a pickle and its tensors may raise, in addition to the ``EOFError`` of an
incomplete one.
"""


def read_pickle(stream: BinaryIO) -> tuple[Any, dict[str, Storage]]:
    """What is written there, plain values and tensors, and the storages it speaks of by key.

    Raises:
        EOFError: it is cut short. Those in ``REFUSED``: it is no pickle, or holds what is on no
            list.
    """
    inspect_pickle(stream, _NAMES)
    unpickler = _Unpickler(stream)
    return unpickler.load(), unpickler.storages


def named_tensors(checkpoint: object, entry: str | None) -> dict[str, Tensor]:
    """The state dict that ``checkpoint`` is, or that its ``entry`` is: parameter name → tensor.

    Raises:
        pickle.UnpicklingError: it is none.
    """
    state = checkpoint if entry is None else _entry(checkpoint, entry)
    if not isinstance(state, dict):
        raise pickle.UnpicklingError(f"a {type(state).__name__} where the state dict should be")
    if not state:
        raise pickle.UnpicklingError("a state dict without a tensor")
    for name, value in state.items():
        if not isinstance(name, str):
            raise pickle.UnpicklingError(
                f"a {type(name).__name__} where a parameter's name should be"
            )
        if not isinstance(value, Tensor):
            raise pickle.UnpicklingError(
                f"an entry {name!r} that is a {type(value).__name__} and no tensor"
            )
    return dict(state)


def array_of(
    name: str, tensor: Tensor, storages: Mapping[str, npt.NDArray[Any]]
) -> npt.NDArray[Any]:
    """The numbers of ``tensor``, which is called ``name``, out of ``storages`` (key → flat array).

    Raises:
        pickle.UnpicklingError: it is empty, or lies outside its storage.
    """
    flat = storages[tensor.storage.key]
    shape, strides = tensor.shape, tensor.strides
    last = tensor.offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    count = math.prod(shape)
    inside = (
        tensor.offset >= 0
        and min(strides, default=0) >= 0
        and last < len(flat)
        and count <= len(flat)
    )
    if min(shape, default=1) < 1 or not inside or np.dtype(tensor.storage.dtype) != flat.dtype:
        raise pickle.UnpicklingError(
            f"a tensor '{name}' of shape {shape} that lies outside its storage"
        )
    view = np.lib.stride_tricks.as_strided(
        flat[tensor.offset :],
        shape,
        tuple(step * flat.itemsize for step in strides),
        writeable=False,
    )
    return np.array(view, dtype=view.dtype.newbyteorder("="), order="C")


def _entry(checkpoint: object, name: str) -> object:
    if not isinstance(checkpoint, dict) or name not in checkpoint:
        raise pickle.UnpicklingError(f"no entry '{name}'")
    return checkpoint[name]


def _whole(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(n, int) for n in value)


# Torch's checkpoint format from before version 1.6, read so that nothing but tensors can come out
# of it.
#
# A file is five pickles and then raw numbers:
#
#     magic · protocol 1001 · system facts · state dict · storage keys
#     · (int64 count, numbers) per key
#
# The pickles are checked against short lists before anything is made of them (see above).
#
# Source: torch/serialization.py, ``_legacy_save`` (torch 1.5).

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001


def load_torch_legacy(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of the state dict in the checkpoint at ``path``; see ``read_torch_legacy``."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _refusal(str(path), error.strerror or str(error), "Check the path.") from error
    return read_torch_legacy(data, str(path))


def read_torch_legacy(
    data: bytes, name: str, *, entry: str | None = None
) -> dict[str, npt.NDArray[Any]]:
    """The state dict in the checkpoint ``data``, parameter name → array, in the file's order.

    Args:
        data: the bytes of the file.
        name: how errors call it.
        entry: which entry of the file the state dict is, where a training run saved its optimizer
            too; the rest is checked against the same lists and dropped. None: the file is the state
            dict.

    Raises:
        InputError: it is no such checkpoint, is cut short, or holds anything but named tensors
            (what is named).
    """
    try:
        return _read_checkpoint(io.BytesIO(data), entry)
    except (EOFError, struct.error) as error:
        raise _refusal(
            name, f"that it ends after {len(data)} bytes in the middle", "Get the file again."
        ) from error
    except REFUSED as error:
        remedy = (
            "Use a checkpoint that holds a state dict of tensors alone, from someone you trust."
        )
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
    return InputError(
        f"Reading the checkpoint '{name}'", found=found, expected=expected, remedy=remedy
    )


# Torch's checkpoint format since version 1.6, read so that nothing but tensors can come out of it.
#
# A file is a zip archive of members that are stored as they are:
#
#     <stem>/data.pkl · <stem>/byteorder ("little", or none)
#     · <stem>/data/<key>, the numbers of a storage, per key
#
# The pickle is checked against short lists before anything is made of it (see above). A compressed
# member could unpack to any size, and torch never compresses one.
#
# Source: torch/serialization.py, ``_save``; caffe2/serialize/inline_container.h.

_PICKLE = "/data.pkl"


def read_torch_zip(
    data: bytes, name: str, *, entry: str | None = None
) -> dict[str, npt.NDArray[Any]]:
    """The state dict in the checkpoint ``data``, parameter name → array, in the file's order.

    Args:
        data: the bytes of the file.
        name: how errors call it.
        entry: which entry of the file the state dict is; the rest is checked against the same lists
            and dropped. None: the file is the state dict.

    Raises:
        InputError: it is no such checkpoint, is cut short, or holds anything but named tensors
            (what is named).
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _torch_zip_read_checkpoint(archive, len(data), entry)
    # RuntimeError and NotImplementedError: zipfile's words for members that are locked, or packed
    # in unknown ways
    except (zipfile.BadZipFile, EOFError, RuntimeError, *REFUSED) as error:
        raise InputError(
            f"Reading the checkpoint '{name}'",
            found=str(error) or "that it ends too soon",
            expected="a zip file, as torch.save writes it, of named tensors and nothing else",
            remedy=(
                "Use a checkpoint that holds a state dict of tensors alone, from someone you trust."
            ),
        ) from error


def _torch_zip_read_checkpoint(
    archive: zipfile.ZipFile, size: int, entry: str | None
) -> dict[str, npt.NDArray[Any]]:
    members = {member.filename: member for member in archive.infolist()}
    packed = [
        name for name, member in members.items() if member.compress_type != zipfile.ZIP_STORED
    ]
    if packed or sum(member.file_size for member in archive.infolist()) > size:
        raise pickle.UnpicklingError(
            f"the packed member '{packed[0]}'" if packed else "members that overlap"
        )
    stems = [
        name.removesuffix(_PICKLE)
        for name in members
        if name.endswith(_PICKLE) and name.count("/") == 1
    ]
    if len(stems) != 1:
        raise pickle.UnpicklingError(f"{len(stems)} members called data.pkl")
    stem = stems[0]
    order = f"{stem}/byteorder"
    if order in members and archive.read(order) != b"little":
        raise pickle.UnpicklingError("numbers of a big-endian machine")
    checkpoint, _ = read_pickle(io.BytesIO(archive.read(stem + _PICKLE)))
    tensors = named_tensors(checkpoint, entry)
    wanted = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    storages = {
        key: _numbers(archive, members, f"{stem}/data/{key}", storage)
        for key, storage in wanted.items()
    }
    return {name: array_of(name, tensor, storages) for name, tensor in tensors.items()}


def _numbers(
    archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], name: str, storage: Storage
) -> npt.NDArray[Any]:
    expected = storage.count * np.dtype(storage.dtype).itemsize
    found = members[name].file_size if name in members else None
    if found != expected:
        raise pickle.UnpicklingError(f"{found or 'no'} bytes in member '{name}' of {expected}")
    return np.frombuffer(archive.read(name), storage.dtype)
