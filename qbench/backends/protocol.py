"""The protocols of engines: a backend prepares a model and returns an executor, which runs it."""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph import Capabilities
from qbench.host import package_versions

if TYPE_CHECKING:
    from qbench.interpreter import Counters, KernelWrapper
    from qbench.metrics import AnswerFile
    from qbench.numerics import Arithmetic


CPU = "cpu"
"""The device of a backend that names no other."""

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Executed:
    """How a node runs.

    Args:
        precision: the type that it computes in, such as ``uint8`` or ``float32``: that of its first
            input that is not a condition, except where the kernel itself quantizes it; empty: not
            known.
        device: ``cpu`` or the name of a device.
        rounds_data: whether the graph has reals there, which the engine rounds to that type itself.
        is_summed: whether it is a product of floats of few bits, or of blocks, that is summed in
            the accumulator which an arithmetic declares.
    """

    precision: str
    device: str
    rounds_data: bool = False
    is_summed: bool = False

    @property
    def in_integers(self) -> bool:
        """Whether it computes in integers, by numpy's names of types or the short ones of
        engines (``u8``).
        """
        return _INTEGER_TYPE.fullmatch(self.precision) is not None


_INTEGER_TYPE = re.compile(r"(u|i|int|uint)\d+")


@runtime_checkable
class Executor(AbstractContextManager["Executor"], Protocol):
    """One prepared graph; a context manager that frees the engine's memory."""

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            InputError: an input is missing, unknown, or has a shape or dtype that the graph does
                not accept.
        """
        ...

    def executed(self) -> Mapping[str, Executed]:
        """Node of the prepared graph → how the engine runs it.

        A node that the engine made is listed under the node that it stems from, else under the
        engine's name for it. Nodes for which this is not known are omitted. ``executed_by`` also
        accepts executors without this method.
        """
        return {}

    def close(self) -> None:
        """Free the engine's memory; running afterwards is an error."""
        ...


@runtime_checkable
class Backend(Protocol):
    """A named way to run graphs; a frozen value whose fields are its options.

    ``packages`` names the distributions whose versions may change its numbers. They are part of the
    environment class of every result.

    A class that does not inherit from this protocol may omit ``arithmetic``; ``arithmetic_of``
    handles that. Optional features of a backend are protocols of their own: ``OnDevice``,
    ``HasRuleDigests``, ``RemoteBackend``, ``Unoptimized``, ``HasLevels``, ``ManySessions``,
    ``CountsEvents``, ``Recording``, ``Recorded``, ``Watchable``, ``MayCrash`` and
    ``KnowsMistakes``.
    """

    @property
    def name(self) -> str:
        """Its name in suites and results."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Which graphs it accepts."""
        ...

    @property
    def arithmetic(self) -> "Arithmetic | str | None":
        """The arithmetic by which it computes quantized graphs on this computer, or its name;
        None: not known.

        Localization compares the backend with an integer interpreter of this arithmetic, node by
        node.
        """
        return None

    @property
    def packages(self) -> tuple[str, ...]:
        """The distributions whose versions may change its numbers."""
        ...

    def prepare(
        self, model: "ir.Model | Path | str", *, taps: Sequence[str] = (), threads: int = 1
    ) -> Executor:
        """Load ``model``; ``taps`` are further values to return from every run.

        Raises:
            UnsupportedError: the engine has no kernel or no opset for it.
            UnavailableError: the engine is not installed.
            InputError: the file is not an ONNX model, or a tap names no value.
        """
        ...


@runtime_checkable
class Counting(Protocol):
    """An executor that counts events at its nodes, such as saturations."""

    @property
    def counters(self) -> "Mapping[str, Counters]":
        """Node of the lowered graph → its events so far; also after ``close``."""
        ...


@runtime_checkable
class OnDevice(Protocol):
    """A backend that names the device on which it computes; without it this is the CPU.

    The device is part of the environment class of every result (``device_of``).
    """

    @property
    def device(self) -> str:
        """``cpu``, or a short word such as ``cuda`` or ``h100``: results of two words are never
        compared sample by sample.
        """
        ...


@runtime_checkable
class ChoosesKernels(Protocol):
    """A backend whose engine has other kernels, with other results, on some computers of one class
    of processor.

    They are part of the environment class of every result (``kernels_of``).
    """

    @property
    def unusual_kernels(self) -> Mapping[str, str]:
        """Library → its kernels here, such as ``{"onednn": "amx"}``; the usual ones are left
        out.
        """
        ...


@runtime_checkable
class HasRuleDigests(Protocol):
    """A backend that computes by rules which are data, not code of a package."""

    @property
    def digests(self) -> Mapping[str, str]:
        """Name of the rules → their digest, for every measurement: with another digest the
        numbers may differ.
        """
        ...


@runtime_checkable
class Unoptimized(Protocol):
    """A backend that can run a graph without optimizations, so that taps change no number."""

    def unoptimized(self) -> "Backend | None":
        """The same engine without graph optimizations; itself if it has none; None: it cannot
        disable them.
        """
        ...


@runtime_checkable
class HasLevels(Protocol):
    """A backend whose graph optimizations have levels."""

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels, the lowest first."""
        ...

    def at_level(self, level: str) -> "Backend":
        """The same at ``level``, with a name that ends with it."""
        ...


@runtime_checkable
class ManySessions(Protocol):
    """A backend that can hold many prepared graphs at once with less memory."""

    def for_many_sessions(self) -> "Backend":
        """The same without memory that is kept between runs; its numbers are equal."""
        ...


@runtime_checkable
class CountsEvents(Protocol):
    """A backend that can count events at its nodes, slower."""

    def counting_events(self) -> "Backend":
        """The same with executors that are ``Counting``; its numbers are equal."""
        ...


@runtime_checkable
class Recording(Protocol):
    """A backend that learns how its engine runs a graph while it prepares it, for little more
    time.
    """

    def recording(self) -> "Backend":
        """The same with executors whose ``executed`` costs nothing; its numbers are equal."""
        ...


@runtime_checkable
class Watchable(Protocol):
    """A backend whose taps change no number and whose kernels can be wrapped."""

    def surrounded(self, around: "KernelWrapper") -> "Backend":
        """The same backend with every kernel wrapped by ``around``."""
        ...


HANG_S = 600.0
"""Seconds after which an engine that gives no answer is taken to hang, unless its backend knows
better.
"""


@runtime_checkable
class MayCrash(Protocol):
    """A backend whose engine may end its process or hang: cells run it in a process of its own."""

    @property
    def hang_s(self) -> float:
        """Seconds without an answer, to one batch or to a model, after which the engine is
        taken to hang.
        """
        ...


@dataclass(frozen=True, slots=True)
class Miscomputed:
    """What an engine computes wrong without a word.

    Args:
        pattern: its name.
        node: at which it is.
        why: in words.
        engine: by its own name.
        arithmetics: by which it counts, by name: it is meant where one of these is.
    """

    pattern: str
    node: str
    why: str
    engine: str = ""
    arithmetics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineNote:
    """What an engine does with a node that the file does not say, without computing it wrong.

    Args:
        engine: by its own name.
        pattern: its name.
        effect: what it does, as the predicate of a sentence: ``runs this in float``.
        node: at which it is.
        why: in words.
    """

    engine: str
    pattern: str
    effect: str
    node: str
    why: str


@runtime_checkable
class NotesGraphs(Protocol):
    """A backend that knows what its engine does with a graph beyond what its file says."""

    def notes(self, model: "ir.Model") -> tuple[EngineNote, ...]:
        """What a session of a user does with ``model``, node by node; empty: nothing is known.

        Raises:
            InputError: an invalid Q or DQ.
        """
        ...


@runtime_checkable
class KnowsMistakes(Protocol):
    """A backend that knows graphs which its engine computes wrong without a word: it refuses them,
    or prepares them so that they are right.
    """

    def miscomputed(self, model: "ir.Model") -> tuple[Miscomputed, ...]:
        """The nodes of ``model`` that the engine computes wrong, with the reason; empty: none
        is known.

        Raises:
            InputError: an invalid Q or DQ.
        """
        ...


@runtime_checkable
class RemoteBackend(Protocol):
    """A backend with the packages of another Python, whose sessions are processes of their own."""

    @property
    def has_started(self) -> bool:
        """Whether the versions are known, so that ``package_versions`` starts no program."""
        ...

    def package_versions(self) -> Mapping[str, str]:
        """The versions of those ``packages`` that are installed there.

        This is a method, because before Python 3.12 ``isinstance`` reads the properties of a
        protocol, and this one may start a program.
        """
        ...


@runtime_checkable
class Recorded(Protocol):
    """A backend that runs no model: it gives recorded answers, sample by sample."""

    def recorded(self) -> "AnswerFile":
        """The answers, opened.

        Raises:
            InputError: they cannot be read.
        """
        ...


def arithmetic_of(backend: Backend) -> "Arithmetic | None":
    """The arithmetic of ``backend`` for quantized graphs on this computer; None: it declares none.

    Raises:
        InputError: it names an arithmetic that does not exist.
    """
    from qbench.numerics import get_arithmetic

    declared = getattr(backend, "arithmetic", None)  # optional: a third-party backend may lack it
    return get_arithmetic(declared) if isinstance(declared, str) else declared


_DEVICE_WORD = re.compile(r"[a-z0-9]([a-z0-9._-]{0,30}[a-z0-9])?")


def device_of(backend: Backend) -> str:
    """The device on which ``backend`` computes: ``cpu`` unless it names another.

    Raises:
        InputError: the device that it names is not a short word.
    """
    if not isinstance(backend, OnDevice):
        return CPU
    device: object = backend.device  # of any type: it is a guest's
    if isinstance(device, str) and _DEVICE_WORD.fullmatch(device):
        return device
    raise InputError(
        f"Reading on which device the backend '{backend.name}' computes",
        found=f"device = {device!r:.60}",
        expected="a word of up to 32 letters a-z, digits, '.', '_' and '-', such as 'cuda'",
        remedy="Correct the attribute 'device' of the backend, or leave it out for the CPU.",
    )


def kernels_of(backend: Backend) -> dict[str, str]:
    """Library → the unusual kernels that ``backend`` runs here; empty: it names none."""
    return dict(backend.unusual_kernels) if isinstance(backend, ChoosesKernels) else {}


def executed_by(executor: Executor) -> Mapping[str, Executed]:
    """How ``executor`` runs its nodes; empty: not known."""
    ask = getattr(executor, "executed", None)  # optional: a third-party executor may lack it
    return {} if ask is None else ask()


def recording(backend: Backend) -> Backend:
    """``backend`` with executors that know how their nodes run, where it has such a form."""
    return backend.recording() if isinstance(backend, Recording) else backend


def runs_as_written(backend: Backend) -> bool:
    """Whether ``backend`` fuses nothing, so that a tap changes no number."""
    return isinstance(backend, Unoptimized) and backend.unoptimized() is backend


def for_many_sessions(backend: Backend) -> Backend:
    """``backend`` without memory that is kept between runs, for one session per node at once."""
    return backend.for_many_sessions() if isinstance(backend, ManySessions) else backend


def versions_of(backend: Backend) -> dict[str, str]:
    """Package → version for the environment class of results.

    They are those of this Python, unless it is a ``RemoteBackend``.
    """
    if isinstance(backend, RemoteBackend):
        return dict(backend.package_versions())
    return package_versions(backend.packages)


class Closing:
    """A context manager that calls ``close``, which a subclass defines."""

    def close(self) -> None:
        """Free the held resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
