"""A state dict that is handed out array by array, and knows at the end whether anything was
left over.

A network written by hand can lack a layer and still run; a parameter that is never used shows it.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError


class TrainedArrays(Protocol):
    """Where a network's arrays come from: a checkpoint, or a random start."""

    def take(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """The float32 array called ``name``, of this shape."""
        ...


class Parameters:
    """The trained arrays of one network by name; ``title`` is their name in errors."""

    def __init__(self, title: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._title = title
        self._arrays = arrays
        self._left = set(arrays)

    def take(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """The float32 array called ``name``.

        Raises:
            InputError: there is none, or it has another shape.
        """
        array = self._arrays.get(name)
        if array is None or array.shape != shape:
            raise InputError(
                f"Building '{self._title}' from its trained parameters",
                found=f"no '{name}'" if array is None else f"'{name}' of shape {array.shape}",
                expected=f"an array '{name}' of shape {shape}",
                remedy="Use the checkpoint that belongs to this network.",
            )
        self._left.discard(name)
        return array.astype(np.float32, copy=False)

    def finish(self, *, unused: str | tuple[str, ...] = ()) -> None:
        """Check that all arrays were taken but those whose names end with ``unused``.

        Raises:
            InputError: some were not.
        """
        left = sorted(name for name in self._left if not name.endswith(unused))
        if left:
            raise InputError(
                f"Building '{self._title}' from its trained parameters",
                found=f"{len(left)} arrays that no layer uses, '{left[0]}' the first of them",
                expected="a layer for every array",
                remedy="Use the checkpoint that belongs to this network.",
            )
