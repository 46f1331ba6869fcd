"""Pickles of arrays, inspected before anything of them is run."""

import io
import math
import pickle
import pickletools
import warnings
from collections.abc import Container, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError

# A pickle read as text before any of it is run: it is a program, and most of its instructions are
# not needed here.
#
# Whoever unpickles afterwards knows the same names alone, as inert values of ours.

# What pickles of plain values, tensors, arrays and persistent ids need, up to protocol 3. Absent on
# purpose: every instruction that calls or finds something by another road (INST, OBJ, NEWOBJ,
# STACK_GLOBAL, EXT*).
_INSTRUCTIONS = frozenset(
    {
        *(
            "PROTO",
            "STOP",
            "MARK",
            "POP",
            "POP_MARK",
            "DUP",
            "BINPUT",
            "LONG_BINPUT",
            "BINGET",
            "LONG_BINGET",
        ),
        *(
            "NONE",
            "NEWTRUE",
            "NEWFALSE",
            "BININT",
            "BININT1",
            "BININT2",
            "LONG1",
            "BINFLOAT",
            "BINUNICODE",
        ),
        *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS"),
        *("EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL", "REDUCE", "BUILD", "BINPERSID"),
        *("SHORT_BINBYTES", "BINBYTES"),
    }
)

_MOST_TUPLES = 30_000
"""A tensor needs five. Python hashes tuples in tuples by unguarded recursion: a million deep
ends the process.
"""


def inspect_pickle(stream: BinaryIO, names: Container[tuple[str, str]]) -> None:
    """Refuse the pickle at the position of ``stream``, which stays there, unless it is made of
    known parts.

    Args:
        stream: can be sought in.
        names: (module, name) of all that it may look up.

    Raises:
        pickle.UnpicklingError: an instruction or a name that is on no list, or too many tuples.
        EOFError: nothing is there.
    """
    start = stream.tell()
    size = stream.seek(0, io.SEEK_END)
    stream.seek(start)
    if start == size:
        raise EOFError
    tuples = 0
    for instruction, argument in _instructions(stream):
        if instruction.name not in _INSTRUCTIONS:
            raise pickle.UnpicklingError(f"the pickle instruction {instruction.name}")
        if instruction.name == "GLOBAL":
            module, _, title = str(argument).partition(" ")
            if (module, title) not in names:
                raise pickle.UnpicklingError(f"the name '{module}.{title}'")
        tuples += instruction.name.startswith("TUPLE")
        if tuples > _MOST_TUPLES:
            raise pickle.UnpicklingError(f"more than {_MOST_TUPLES} tuples")
        # The memo is an array as long as its largest index: one short instruction could claim all
        # memory.
        if instruction.name in ("BINPUT", "LONG_BINPUT") and int(argument or 0) > size:
            raise pickle.UnpicklingError(f"the memo index {argument}")
    stream.seek(start)


def _instructions(stream: BinaryIO) -> Iterator[tuple[pickletools.OpcodeInfo, Any]]:
    """The instructions of the pickle at the position of ``stream``, with their arguments."""
    read = pickletools.genops(stream)
    while True:
        # A name with a backslash is decoded with Python's escapes, and an unknown escape is a
        # DeprecationWarning. It must not reach the user: such a name is on no list, and refused.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            found = next(read, None)
        if found is None:
            return
        yield found[0], found[1]


# A pickled dictionary of lists of numpy arrays, read so that nothing but float arrays can come out
# of it.
#
#     {"layer": [array, …], …}      →      {"layer.0": array, …}
#
# The pickle is inspected as text first, and then unpickled with three names of numpy, which stand
# for inert values here: an array's bytes, shape and number format. numpy itself makes the arrays,
# from the bytes.
#
# Source: numpy/core/multiarray.py, ``ndarray.__reduce__`` and ``dtype.__reduce__`` (numpy 1).

_FORMATS = frozenset({"f2", "f4", "f8"})


class _Format:
    """In the place of a dtype: its code, little-endian."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in _FORMATS:
            raise pickle.UnpicklingError(f"numbers of type {code!r}")
        self.code = f"<{code}"

    def __setstate__(self, state: tuple[object, ...]) -> None:
        if len(state) < 2 or state[1] != "<":
            raise pickle.UnpicklingError("numbers of a big-endian machine")


class _Array:
    """In the place of an array, empty until its state is set."""

    value: npt.NDArray[Any] | None = None

    def __setstate__(self, state: tuple[object, ...]) -> None:
        match state:
            case (1, tuple(shape), _Format(code=code), False, bytes(data)) if all(
                isinstance(n, int) for n in shape
            ):
                if (
                    math.prod(shape) * np.dtype(code).itemsize != len(data)
                    or min(shape, default=1) < 1
                ):
                    raise pickle.UnpicklingError(f"{len(data)} bytes for an array of shape {shape}")
                self.value = np.frombuffer(data, code).reshape(shape)
            case _:
                raise pickle.UnpicklingError("an array that is not of numbers in the order of C")


class _ArrayType:
    """In the place of ``numpy.ndarray`` where it is only named."""


def _reconstruct(kind: object, *_: object) -> _Array:
    if kind is not _ArrayType:
        raise pickle.UnpicklingError("a subclass of numpy's array")
    return _Array()


_NAMES: Mapping[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): _Format,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - the signature of the standard library
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"the name '{module}.{name}'")
        return _NAMES[module, name]


def read_numpy_pickle(data: bytes, name: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays in the pickle ``data``, a key and its place in the list each; ``name`` is how
    errors call the file.

    Raises:
        InputError: it is no such pickle, is cut short, or holds anything but lists of float arrays
            (what is named).
    """
    try:
        stream = io.BytesIO(data)
        inspect_pickle(stream, _NAMES)
        return _arrays(_Unpickler(stream).load())
    except EOFError as error:
        raise _refusal(name, f"that it ends after {len(data)} bytes in the middle") from error
    except (
        pickle.UnpicklingError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise _refusal(name, str(error)) from error


def _arrays(content: object) -> dict[str, npt.NDArray[Any]]:
    if not isinstance(content, dict):
        raise pickle.UnpicklingError(
            f"a {type(content).__name__} where the dictionary of layers should be"
        )
    found: dict[str, npt.NDArray[Any]] = {}
    for key, entries in content.items():
        if not isinstance(key, str):
            raise pickle.UnpicklingError(f"a {type(key).__name__} where a layer's name should be")
        for place, entry in enumerate(entries if isinstance(entries, list) else [entries]):
            if not isinstance(entry, _Array) or entry.value is None:
                raise pickle.UnpicklingError(
                    f"an entry {key!r} that is a {type(entry).__name__} and no array"
                )
            found[f"{key}.{place}"] = entry.value
    if not found:
        raise pickle.UnpicklingError("no array")
    return found


def _refusal(name: str, found: str) -> InputError:
    return InputError(
        f"Reading the pickle '{name}'",
        found=found,
        expected="a pickled dictionary of numpy arrays and nothing else",
        remedy="Get the file again, from someone you trust.",
    )
