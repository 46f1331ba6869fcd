"""Torch's checkpoint format from before version 1.6, read so that nothing but tensors can come out of it.

A file is five pickles and then raw numbers:

    magic · protocol 1001 · system facts · state dict · storage keys · (int64 count, numbers) per key

A pickle is a program. This one is read twice: once as text, where every instruction and every name it would look up
must be on a short list, and only then by an unpickler that knows those names alone, as inert values of ours.

Source: torch/serialization.py, ``_legacy_save`` (torch 1.5).
"""

import io
import math
import pickle
import struct
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.zoo.formats.pickle_inspection import inspect_pickle

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
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
class _Storage:
    key: str
    dtype: str
    count: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A view into a storage: element offset, shape, strides in elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Rebuild:
    """Stands for ``torch._utils._rebuild_tensor_v2``; a slotted value, which a pickle cannot alter."""

    def __call__(self, storage: object, offset: object, shape: object, strides: object, *_: object) -> _Tensor:
        if not (isinstance(storage, _Storage) and isinstance(offset, int) and _whole(shape) and _whole(strides)):
            raise pickle.UnpicklingError("a tensor without storage, offset, shape and strides")
        return _Tensor(storage, offset, tuple(shape), tuple(strides))  # type: ignore[arg-type]


_NAMES: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _Rebuild(),
    **{("torch", name): _Kind(dtype) for name, dtype in _DTYPES.items()},
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream, encoding="utf-8")
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - the signature of the standard library
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"the name '{module}.{name}'")
        return _NAMES[module, name]

    def persistent_load(self, pid: Any) -> _Storage:  # noqa: ANN401 - the signature of the standard library
        match pid:
            case ("storage", _Kind(dtype), str(key), str(), int(count), None) if count >= 0:
                return self.storages.setdefault(key, _Storage(key, dtype, count))
        raise pickle.UnpicklingError("a persistent id that is no storage")


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
    except (
        pickle.UnpicklingError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
    ) as error:
        remedy = "Use a checkpoint that holds a state dict of tensors alone, from someone you trust."
        raise _refusal(name, str(error), remedy) from error


def _read_checkpoint(stream: BinaryIO, entry: str | None) -> dict[str, npt.NDArray[Any]]:
    if _read_pickle(stream)[0] != _MAGIC or _read_pickle(stream)[0] != _PROTOCOL:
        raise pickle.UnpicklingError("another magic number or protocol")
    facts, _ = _read_pickle(stream)
    if not isinstance(facts, dict) or facts.get("little_endian") is not True:
        raise pickle.UnpicklingError("numbers of a big-endian machine")
    state, declared = _read_pickle(stream)
    tensors = _named_tensors(state if entry is None else _entry(state, entry))
    keys, _ = _read_pickle(stream)
    storages = _read_storages(stream, keys, declared, tensors)
    return {name: _array(name, tensor, storages) for name, tensor in tensors.items()}


def _read_pickle(stream: BinaryIO) -> tuple[Any, dict[str, _Storage]]:
    """What is written there, plain values and tensors, and the storages it speaks of by key."""
    inspect_pickle(stream, _NAMES)
    unpickler = _Unpickler(stream)
    return unpickler.load(), unpickler.storages


def _entry(checkpoint: object, name: str) -> object:
    if not isinstance(checkpoint, dict) or name not in checkpoint:
        raise pickle.UnpicklingError(f"no entry '{name}'")
    return checkpoint[name]


def _named_tensors(state: object) -> dict[str, _Tensor]:
    if not isinstance(state, dict):
        raise pickle.UnpicklingError(f"a {type(state).__name__} where the state dict should be")
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, _Tensor):
            raise pickle.UnpicklingError(f"an entry {name!r} that is a {type(value).__name__} and no tensor")
    return dict(state)


def _read_storages(
    stream: BinaryIO, keys: object, declared: Mapping[str, _Storage], tensors: Mapping[str, _Tensor]
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


def _array(name: str, tensor: _Tensor, storages: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    flat = storages[tensor.storage.key]
    shape, strides = tensor.shape, tensor.strides
    last = tensor.offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    count = math.prod(shape)
    inside = tensor.offset >= 0 and min(strides, default=0) >= 0 and last < len(flat) and count <= len(flat)
    if min(shape, default=1) < 1 or not inside or np.dtype(tensor.storage.dtype) != flat.dtype:
        raise pickle.UnpicklingError(f"a tensor '{name}' of shape {shape} that lies outside its storage")
    view = np.lib.stride_tricks.as_strided(
        flat[tensor.offset :], shape, tuple(step * flat.itemsize for step in strides), writeable=False
    )
    return np.array(view, dtype=view.dtype.newbyteorder("="), order="C")


def _whole(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(n, int) for n in value)


def _refusal(name: str, found: str, remedy: str) -> InputError:
    expected = "a legacy torch checkpoint of named tensors and nothing else"
    return InputError(f"Reading the checkpoint '{name}'", found=found, expected=expected, remedy=remedy)
