"""Leaving a ``with`` block closes what it holds: the half of every executor that is the same for all."""

from types import TracebackType
from typing import Self


class Closing:
    """A context manager over ``close``, which whoever inherits it defines."""

    def close(self) -> None:
        """Free what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
