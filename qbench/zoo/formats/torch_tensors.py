"""What a checkpoint's pickle may hold: tensors by name, as inert values of ours that views into storages are made of.

    tensor = storage, offset, shape, strides (in elements)        element i of it: storage[offset + Σ iₖ·strideₖ]

A pickle is a program. It is read twice: once as text, where every instruction and every name it would look up must be
on a short list, and only then by an unpickler that knows those names alone.

Source: torch/_utils.py, ``_rebuild_tensor_v2``; torch/serialization.py, ``persistent_id``.
"""

import math
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from qbench.zoo.formats.pickle_inspection import inspect_pickle

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
    """Stands for ``torch._utils._rebuild_tensor_v2``; a slotted value, which a pickle cannot alter."""

    def __call__(self, storage: object, offset: object, shape: object, strides: object, *_: object) -> Tensor:
        if not (isinstance(storage, Storage) and isinstance(offset, int) and _whole(shape) and _whole(strides)):
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
            case ("storage", _Kind(dtype), str(key), str(), int(count), *view) if count >= 0 and view in ([], [None]):
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
    RecursionError,  # what Python says where it writes or compares values that are nested too deeply
)
"""What reading a pickle and its tensors may raise, beside the ``EOFError`` of one that was cut short."""


def read_pickle(stream: BinaryIO) -> tuple[Any, dict[str, Storage]]:
    """What is written there, plain values and tensors, and the storages it speaks of by key.

    Raises:
        EOFError: it is cut short. Those in ``REFUSED``: it is no pickle, or holds what is on no list.
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
            raise pickle.UnpicklingError(f"a {type(name).__name__} where a parameter's name should be")
        if not isinstance(value, Tensor):
            raise pickle.UnpicklingError(f"an entry {name!r} that is a {type(value).__name__} and no tensor")
    return dict(state)


def array_of(name: str, tensor: Tensor, storages: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The numbers of ``tensor``, which is called ``name``, out of ``storages`` (key → flat array).

    Raises:
        pickle.UnpicklingError: it is empty, or lies outside its storage.
    """
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


def _entry(checkpoint: object, name: str) -> object:
    if not isinstance(checkpoint, dict) or name not in checkpoint:
        raise pickle.UnpicklingError(f"no entry '{name}'")
    return checkpoint[name]


def _whole(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(n, int) for n in value)
