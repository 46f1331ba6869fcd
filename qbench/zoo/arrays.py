"""Data that is a feed already: the arrays ``x`` and ``y`` of an ``.npz`` file.

    x (n, …) numbers, one row a sample;   y (n,) integers, the right classes (may be left out)

Nothing in the file is unpickled. A row's source is the digest of its numbers, so that two files that share a row
overlap whatever the files are called.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbench.errors import InputError
from qbench.metrics import Labels
from qbench.storage import (
    ArchiveError,
    TooLargeError,
    array_names,
    current_limits,
    digest_arrays,
    read_archive,
    too_large,
)
from qbench.zoo.dataset import Dataset
from qbench.zoo.preprocess import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyArray:
    """The preprocessing that does nothing; ``input`` is the graph's input."""

    input: str = "x"

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return f"array(input={self.input})"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Ready feeds."""
        return ("array",)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - an array, by the data's kind
        """The sample under the input's name."""
        return {self.input: np.asarray(sample)}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """The batch as it is."""
        return batch


def arrays_from_npz(path: Path) -> Dataset:
    """The samples in the file at ``path``; float64 and float16 become float32, which is what networks take.

    Raises:
        InputError: no such file, no ``.npz``, no ``x``, objects instead of numbers, NaN (the sample is named), or a
            ``y`` that does not fit.
    """
    doing = f"Reading the data file '{path}'"
    arrays = read_arrays(path, ["x"], optional=["y"])
    x, y = arrays["x"], arrays.get("y")
    if x.ndim == 0 or not len(x) or x.dtype.kind not in "fiub":
        raise InputError(
            f"{doing}, its array 'x'",
            found=f"shape {x.shape} of {x.dtype}",
            expected="(n, …) numbers, one row a sample, n at least 1",
            remedy="Save the feeds stacked along the first axis.",
        )
    if x.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what is too large for float32 becomes Inf, and is named below
            x = x.astype(np.float32, copy=False)
        _refuse_non_finite(x, doing)
    ids = tuple(f"x[{index}]" for index in range(len(x)))
    return Dataset(
        id=path.name,
        kind="array",
        sample_ids=ids,
        sources=tuple(digest_arrays({"x": row}) for row in x),
        labels=None if y is None else _labels(y, len(x), doing),
        content=digest_arrays({"x": x}),
        load=lambda index: x[index],
    )


def read_arrays(path: Path, needed: Sequence[str], *, optional: Sequence[str] = ()) -> dict[str, Array]:
    """The arrays of these names in the ``.npz`` file at ``path``, as they stand there; nothing is unpickled.

    Raises:
        InputError: no such file, no ``.npz``, objects instead of numbers, more than the limit, or one that is
            ``needed`` is not in it.
    """
    try:
        listed = array_names(path)
        if set(needed) <= set(listed):
            return read_archive(path, {*needed, *optional}, most=current_limits().tensor_bytes)
        found = f"the arrays {', '.join(listed) or '(none)'}"
    except OSError as error:
        found = error.strerror or str(error)
    except TooLargeError as error:
        raise too_large(f"Reading the data file '{path}'", "arrays", error.size, "tensor_bytes") from error
    except ArchiveError as error:
        found = str(error)
    raise InputError(
        f"Reading the data file '{path}'",
        found=found,
        expected=f"an .npz file of numbers with {' and '.join(map(repr, needed))}",
        remedy=f"Write one with numpy.savez(path, {', '.join(f'{name}=…' for name in needed)}).",
    )


def _refuse_non_finite(x: Array, doing: str) -> None:
    finite = np.isfinite(x.reshape(len(x), -1)).all(axis=1)
    if not finite.all():
        raise InputError(
            f"{doing}, sample 'x[{int(np.argmin(finite))}]'",
            found=f"NaN or Inf (in {int((~finite).sum())} of {len(x)} samples)",
            expected="numbers that float32 holds",
            remedy="Mend or remove the sample.",
        )


def _labels(y: Array, count: int, doing: str) -> Labels:
    if y.shape != (count,) or y.dtype.kind not in "iu" or (y < 0).any():
        raise InputError(
            f"{doing}, its array 'y'",
            found=f"shape {y.shape} of {y.dtype}" + _negative(y),
            expected=f"shape ({count},) of integers from 0, one class for each row of 'x'",
            remedy="Save one class number a sample.",
        )
    return tuple((int(label),) for label in y)


def _negative(y: Array) -> str:
    return f" with a class {int(y.min())}" if y.dtype.kind == "i" and y.size and y.min() < 0 else ""
