"""Whatever runs a graph: a backend prepares a model and hands back an executor, fp32 and QDQ by the same door."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import Capabilities

if TYPE_CHECKING:
    from qbench.interpreter import Counters

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]


@runtime_checkable
class Executor(AbstractContextManager["Executor"], Protocol):
    """One prepared graph. A context manager: leaving it frees the engine's memory."""

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            InputError: an input is missing, unknown, or has a shape or dtype the graph does not take.
        """
        ...

    def close(self) -> None:
        """Free what the engine holds; running afterwards is an error."""
        ...


@runtime_checkable
class Backend(Protocol):
    """A named way to run graphs; a frozen value whose fields are its options.

    ``packages`` names the distributions whose version legitimately changes its numbers: they go into the environment
    class of every result.
    """

    @property
    def name(self) -> str:
        """How suites and results call it."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What graphs it takes."""
        ...

    @property
    def packages(self) -> tuple[str, ...]:
        """The distributions whose versions it counts with."""
        ...

    def prepare(self, model: "ir.Model | Path | str", *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
        """Load ``model``; ``taps`` are further values to return from every run.

        Raises:
            UnsupportedError: the engine has no kernel or no opset for it.
            UnavailableError: the engine is not installed.
            InputError: the file is no ONNX model, or a tap names no value.
        """
        ...


@runtime_checkable
class Counting(Protocol):
    """An executor that counts what happens at its nodes."""

    @property
    def counters(self) -> "Mapping[str, Counters]":
        """Node of the lowered graph → its events until now, after ``close`` too."""
        ...


@runtime_checkable
class Ruled(Protocol):
    """A backend that counts by rules which are data, not code of a package; most have none."""

    @property
    def digests(self) -> Mapping[str, str]:
        """What the rules are called → their digest, for every measurement: another digest may mean other numbers."""
        ...


@runtime_checkable
class Elsewhere(Protocol):
    """A backend whose packages are those of another Python, and whose sessions are processes of their own."""

    @property
    def has_started(self) -> bool:
        """Whether the versions are known, so that asking for them starts no program."""
        ...

    def package_versions(self) -> Mapping[str, str]:
        """Those of ``packages`` that are there, with their versions.

        A method, because ``isinstance`` reads the properties of a protocol before Python 3.12, and this one may start a
        program.
        """
        ...


__all__ = ["Array", "Backend", "Counting", "Elsewhere", "Executor", "Feeds", "Ruled"]
