"""The largest size of a model or an array that is opened, and the one factor that raises all
limits.

The defaults admit every model that fits into the memory of a usual computer; they reject small
files that would take gigabytes or hours. ``--size-limits`` and ``--qbench-size-limits`` set the
factor.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Literal

from qbench.errors import InputError

_FACTOR: ContextVar[int] = ContextVar("factor of the size limits", default=1)

LimitName = Literal[
    "file_bytes",
    "data_bytes",
    "tensor_bytes",
    "made_bytes",
    "kept_bytes",
    "nodes",
    "depth",
    "iterations",
    "pixels",
]

_MOST = MappingProxyType({"file_bytes": (2 << 30) - 1, "depth": 60})
"""Limits that no factor raises: protobuf reads no larger message, and Python's stack has no
more levels.
"""

_WITHOUT_FACTOR = MappingProxyType(
    {
        "file_bytes": (
            "Save the model with its constants in external files: no factor admits a larger "
            "message."
        ),
        "depth": "Export the model with fewer levels: no factor admits more than 60.",
    }
)
_UNITS = MappingProxyType(
    {"nodes": "nodes", "depth": "levels", "iterations": "iterations", "pixels": "pixels"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLimits:
    """What one file may hold.

    Args:
        file_bytes: of the model's file itself; one protobuf message holds less than 2 GB.
        data_bytes: of all constants together, those in external files too.
        tensor_bytes: of one tensor: a constant, a value whose shape is known without data, all
            arrays of an .npz file.
        made_bytes: of all values that operators such as ConstantOfShape make out of constants
            alone, in any graph: an engine computes them when it prepares the model, whether they
            are read or not.
        kept_bytes: of the answers to one data set in a line of a run file, beyond 32 times their
            packed size (of masks 1,032 times).
        nodes: of all graphs, where every call of a function counts as the nodes of its body.
        depth: of graphs inside attributes, and of functions that call functions.
        iterations: of a Loop.
        pixels: of one picture, as its file holds it or as it is resized.
    """

    file_bytes: int = (2 << 30) - 1
    data_bytes: int = 32 << 30
    tensor_bytes: int = 4 << 30
    made_bytes: int = 1 << 30
    kept_bytes: int = 8 << 20
    nodes: int = 200_000
    depth: int = 25
    iterations: int = 1_000_000
    pixels: int = 64_000_000

    def times(self, factor: int) -> "SizeLimits":
        """These limits, ``factor`` times as large, but for those that no factor raises."""
        raised = {one.name: getattr(self, one.name) * factor for one in fields(self)}
        return SizeLimits(
            **{name: min(size, _MOST.get(name, size)) for name, size in raised.items()}
        )


_DEFAULTS = SizeLimits()


def current_limits() -> SizeLimits:
    """The limits that hold now."""
    return _DEFAULTS.times(_FACTOR.get())


def current_factor() -> int:
    """The factor that holds now; pass it to processes that are started here."""
    return _FACTOR.get()


@contextmanager
def limits_times(factor: int) -> Iterator[None]:
    """Inside the block, every limit is ``factor`` times the default.

    Args:
        factor: a whole number from 1.
    """
    token = _FACTOR.set(factor)
    try:
        yield
    finally:
        _FACTOR.reset(token)


def factor_admitting(size: int, limit: LimitName) -> int | None:
    """The smallest factor that admits ``size``; None: no factor does."""
    factor = max(1, -(-size // getattr(_DEFAULTS, limit)))
    return factor if size <= getattr(_DEFAULTS.times(factor), limit) else None


def too_large(doing: str, what: str, size: int, limit: LimitName) -> InputError:
    """The error for ``what`` of ``size`` beyond ``limit``, with the factor that admits it."""
    factor = factor_admitting(size, limit)
    return InputError(
        doing,
        found=f"{what} of {_shown(size, limit)}",
        expected=f"at most {_shown(getattr(current_limits(), limit), limit)}",
        remedy=_WITHOUT_FACTOR[limit]
        if factor is None
        else (
            f"If you trust the file, raise the limits: --size-limits {factor} (pytest: "
            "--qbench-size-limits)."
        ),
    )


def _shown(size: int, limit: LimitName) -> str:
    if limit in _UNITS:
        return f"{size:,} {_UNITS[limit]}"
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size:,} bytes"
