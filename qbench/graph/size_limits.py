"""How large a model or an array that is opened may be, and the one factor that raises all limits.

The defaults let every model pass that fits into the memory of a usual computer; they stop files of a few bytes that ask
for gigabytes or for hours. ``--size-limits`` and ``--qbench-size-limits`` set the factor.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from qbench.errors import InputError

_FACTOR: ContextVar[int] = ContextVar("factor of the size limits", default=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLimits:
    """What one file may hold.

    Args:
        file_bytes: of the model's file itself; one protobuf message holds 2 GB at most.
        data_bytes: of all constants together, those in external files too.
        tensor_bytes: of one tensor: a constant, a value whose shape is known without data, an array of an .npz file.
        nodes: of all graphs, where every call of a function counts as the nodes of its body.
        depth: of graphs inside attributes, and of functions that call functions.
        iterations: of a Loop.
    """

    file_bytes: int = 2 << 30
    data_bytes: int = 32 << 30
    tensor_bytes: int = 4 << 30
    nodes: int = 200_000
    depth: int = 25
    iterations: int = 1_000_000

    def times(self, factor: int) -> "SizeLimits":
        """These limits, ``factor`` times as large; those of depth stay below what Python's stack holds."""
        return SizeLimits(
            file_bytes=self.file_bytes * factor,
            data_bytes=self.data_bytes * factor,
            tensor_bytes=self.tensor_bytes * factor,
            nodes=self.nodes * factor,
            depth=min(self.depth * factor, 60),
            iterations=self.iterations * factor,
        )


def current_limits() -> SizeLimits:
    """The limits that hold now."""
    return SizeLimits().times(_FACTOR.get())


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


def too_large(doing: str, what: str, size: int, limit: int, *, unit: str = "") -> InputError:
    """The error for ``size`` of ``what`` where ``limit`` is allowed, with the factor that would allow it."""
    factor = -(-size * _FACTOR.get() // limit)
    return InputError(
        doing,
        found=f"{what} of {_shown(size, unit)}",
        expected=f"at most {_shown(limit, unit)}",
        remedy=f"If you trust the file, raise the limits: --size-limits {factor} (pytest: --qbench-size-limits).",
    )


def _shown(size: int, unit: str) -> str:
    if unit != "bytes":
        return f"{size:,} {unit}".strip()
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size:,} bytes"
