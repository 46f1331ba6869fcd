"""What runs a graph: a backend prepares a model and hands back an executor."""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError, QbenchError, UnsupportedError, nearest
from qbench.graph import AnyModel, Capabilities, as_model, fixed_batch, node_key, values_by_name, with_shapes
from qbench.host import package_versions

if TYPE_CHECKING:
    from qbench.interpreter import Counters
    from qbench.numerics import Arithmetic


# Whatever runs a graph: a backend prepares a model and hands back an executor, fp32 and QDQ by the same door.

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Executed:
    """How a node was run.

    Args:
        precision: the type of its first input, such as ``uint8`` or ``float32``; empty: not known.
        device: what ran it, ``cpu`` or the name of a device.
    """

    precision: str
    device: str


@runtime_checkable
class Executor(AbstractContextManager["Executor"], Protocol):
    """One prepared graph. A context manager: leaving it frees the engine's memory."""

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            InputError: an input is missing, unknown, or has a shape or dtype the graph does not take.
        """
        ...

    def executed(self) -> Mapping[str, Executed]:
        """Node of the graph that the engine really runs (fused nodes by the engine's names) → how it runs it.

        Nodes of which this is not known are left out; ``executed_by`` asks executors that do not define this, too.
        """
        return {}

    def close(self) -> None:
        """Free what the engine holds; running afterwards is an error."""
        ...


@runtime_checkable
class Backend(Protocol):
    """A named way to run graphs; a frozen value whose fields are its options.

    ``packages`` names the distributions whose version legitimately changes its numbers: they go into the environment
    class of every result.

    A class that does not inherit from this protocol may leave ``arithmetic`` out: ``arithmetic_of`` asks for it. What a
    backend may offer besides is a protocol of its own: ``HasRuleDigests``, ``RemoteBackend``, ``Unoptimized``,
    ``HasLevels``, ``ManySessions`` and ``CountsEvents``.
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
    def arithmetic(self) -> "Arithmetic | str | None":
        """The arithmetic by which it computes quantized graphs on this computer, or its name; None: not known.

        Localization compares the backend with an integer interpreter of this arithmetic, node by node.
        """
        return None

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
class HasRuleDigests(Protocol):
    """A backend that counts by rules which are data, not code of a package; most have none."""

    @property
    def digests(self) -> Mapping[str, str]:
        """What the rules are called → their digest, for every measurement: another digest may mean other numbers."""
        ...


@runtime_checkable
class Unoptimized(Protocol):
    """A backend that can run a graph as it is written, so that taps change no number."""

    def unoptimized(self) -> "Backend | None":
        """The same engine without graph optimizations; itself where it has none; None: it cannot do without."""
        ...


@runtime_checkable
class HasLevels(Protocol):
    """A backend whose graph optimizations have levels."""

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels, the lowest first."""
        ...

    def at_level(self, level: str) -> "Backend":
        """The same at ``level``, under a name that ends with it."""
        ...


@runtime_checkable
class ManySessions(Protocol):
    """A backend that can hold many prepared graphs at a time at less memory."""

    def for_many_sessions(self) -> "Backend":
        """The same with no memory kept between runs; its numbers are equal."""
        ...


@runtime_checkable
class CountsEvents(Protocol):
    """A backend that can count what happens at its nodes, slower."""

    def counting_events(self) -> "Backend":
        """The same with executors that are ``Counting``; its numbers are equal."""
        ...


@runtime_checkable
class RemoteBackend(Protocol):
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


def arithmetic_of(backend: Backend) -> "Arithmetic | None":
    """The arithmetic by which ``backend`` computes quantized graphs here; None: it declares none.

    Raises:
        InputError: it names an arithmetic that does not exist.
    """
    from qbench.numerics import get_arithmetic

    declared = getattr(backend, "arithmetic", None)  # a backend from before this was declared has no such attribute
    return get_arithmetic(declared) if isinstance(declared, str) else declared


def executed_by(executor: Executor) -> Mapping[str, Executed]:
    """How ``executor`` runs its nodes, as far as it is known."""
    ask = getattr(executor, "executed", None)  # an executor from before this was declared has no such method
    return {} if ask is None else ask()


def runs_as_written(backend: Backend) -> bool:
    """Whether ``backend`` fuses nothing, so that a tap changes no number."""
    return isinstance(backend, Unoptimized) and backend.unoptimized() is backend


def for_many_sessions(backend: Backend) -> Backend:
    """``backend`` for as many sessions at once as there are nodes, each without memory that it keeps."""
    return backend.for_many_sessions() if isinstance(backend, ManySessions) else backend


def executed_as_written(model: ir.Model, device: str) -> dict[str, Executed]:
    """Every node of ``model``'s main graph as ``device`` runs it when it runs the graph as it is."""
    typed = with_shapes(model)
    return {node_key(node): Executed(_precision(node), device) for node in typed.graph}


def _precision(node: ir.Node) -> str:
    first = next((value for value in node.inputs if value is not None), None)
    return "" if first is None or first.dtype is None else np.dtype(first.dtype.numpy()).name


__all__ = ["Array", "Backend", "Counting", "Executed", "Executor", "Feeds", "HasRuleDigests", "RemoteBackend"]


# Leaving a ``with`` block closes what it holds: the half of every executor that is the same for all.


class Closing:
    """A context manager over ``close``, which a subclass defines."""

    def close(self) -> None:
        """Free what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# Checking one batch against a graph's inputs before an engine sees it, so that the error is ours and one sentence.


@dataclass(frozen=True, slots=True)
class InputFact:
    """What one graph input takes: a dtype and a shape with None for every free dimension; None: not declared."""

    dtype: np.dtype[np.generic] | None
    shape: tuple[int | None, ...] | None

    def problem(self, array: Array) -> str | None:
        """Why ``array`` does not fit, or None when it does."""
        if self.dtype is not None and array.dtype != self.dtype:
            return f"dtype {array.dtype} where the graph takes {self.dtype}"
        if self.shape is None:
            return None
        fits = len(array.shape) == len(self.shape) and all(
            want in (None, have) for want, have in zip(self.shape, array.shape, strict=True)
        )
        wanted = "×".join("?" if dim is None else str(dim) for dim in self.shape) or "a scalar"
        return (
            None if fits else f"shape {'×'.join(map(str, array.shape)) or 'of a scalar'} where the graph takes {wanted}"
        )


@dataclass(frozen=True, slots=True)
class FeedCheck:
    """The inputs of one graph; ``required`` excludes those that have an initializer, their default.

    ``constants`` are the initializers that are not inputs: in canonical and quantized graphs, what once was a default.
    """

    graph: str
    backend: str
    inputs: Mapping[str, InputFact]
    required: tuple[str, ...]
    constants: frozenset[str] = frozenset()

    @classmethod
    def of(cls, model: ir.Model, backend: str) -> "FeedCheck":
        """The check for ``model`` on ``backend``."""
        graph = model.graph
        facts = {str(value.name): _fact(value) for value in graph.inputs}
        required = tuple(name for name in facts if name not in graph.initializers)
        constants = frozenset(graph.initializers) - facts.keys()
        return cls(graph.name or "model", backend, facts, required, constants)

    def checked(self, feeds: Feeds) -> dict[str, Array]:
        """``feeds`` as arrays.

        Raises:
            InputError: an input is missing, unknown, or has a dtype, rank or shape that the graph does not take.
        """
        for name in self.required:
            if name not in feeds:
                raise self._error(f"no input '{name}'", f"Feed it; the graph's inputs are {self._listed()}.")
        arrays = {}
        for name, given in feeds.items():
            if name in self.constants or f"{name}_quantized" in self.constants:
                raise self._error(f"a feed for '{name}', a constant here", f"Feed only {self._listed()}.")
            if name not in self.inputs:
                close = nearest(name, self.inputs)
                hint = f"Did you mean '{close}'?" if close else f"The graph's inputs are {self._listed()}."
                raise self._error(f"an unknown input '{name}'", hint)
            arrays[name] = np.asarray(given)
            if problem := self.inputs[name].problem(arrays[name]):
                raise self._error(f"input '{name}' with {problem}", "Check that the data fits the model.")
        return arrays

    def _listed(self) -> str:
        return ", ".join(f"'{name}'" for name in self.inputs)

    def _error(self, found: str, remedy: str) -> InputError:
        return InputError(
            f"Running '{self.graph}' on '{self.backend}'", found=found, expected="what the graph takes", remedy=remedy
        )


def _fact(value: ir.Value) -> InputFact:
    dtype = None if value.dtype is None or value.dtype is ir.DataType.STRING else np.dtype(value.dtype.numpy())
    shape = None if value.shape is None else tuple(dim if isinstance(dim, int) else None for dim in value.shape)
    return InputFact(dtype, shape)


# What every backend does to a model before its engine sees it: load it from a path, and turn taps into outputs.


def loaded(model: AnyModel) -> ir.Model:
    """``model`` itself, or what the message or the file holds.

    Raises:
        InputError: it is no model, or the file is no ONNX model.
    """
    return as_model(model)


def with_taps(model: ir.Model, taps: Sequence[str]) -> ir.Model:
    """A copy of ``model`` that returns the values named in ``taps`` after its own outputs; itself without taps.

    Raises:
        InputError: a tap names no value of the main graph.
    """
    outputs = {value.name for value in model.graph.outputs}
    wanted = [name for name in dict.fromkeys(taps) if name not in outputs]
    if not wanted:
        return model
    known = values_by_name(model)
    typed = all(name in known and known[name].type is not None for name in wanted)
    tapped = model.clone() if typed else with_shapes(model)  # a graph output must carry a dtype
    values = values_by_name(tapped)
    for name in wanted:
        if name not in values:
            close = nearest(name, values)
            raise InputError(
                f"Tapping '{model.graph.name}'",
                found=f"no value '{name}'",
                expected="the name of a graph input, constant or node output",
                remedy=f"Did you mean '{close}'?" if close else "Look the names up in the graph.",
            )
        tapped.graph.outputs.append(values[name])
    return tapped


# With which versions a backend counts: those of this Python, unless it is a ``RemoteBackend``.


def versions_of(backend: Backend) -> dict[str, str]:
    """Package → version of what ``backend`` counts with, for the environment class of its results."""
    if isinstance(backend, RemoteBackend):
        return dict(backend.package_versions())
    return package_versions(backend.packages)


# What an engine's own words about a model it did not load mean: not supported, or a graph that is wrong.
#
# The difference matters: an unsupported cell is skipped, and a quantizer that writes nonsense must not be.

_LACKING = (
    "is not a registered function/op",
    "No Op registered for",
    "Could not find an implementation",
    "ONNX Runtime only *guarantees* support",
    "Unsupported model IR version",
)
"""How messages of a general failure say that the engine, not the graph, is at fault."""


def refusal(kind: str, message: str, *, graph: str, backend: str, version: str) -> QbenchError:
    """The error for a model that onnxruntime ``version`` did not load.

    Args:
        kind, message: type and text of what the engine raised. graph, backend: what was loaded into what.
    """
    doing, found = f"Preparing '{graph}' on '{backend}'", engine_sentence(message)
    if kind == "NotImplemented" or any(words in found for words in _LACKING):
        return UnsupportedError(
            doing,
            found=found,
            expected=f"operators and an opset that onnxruntime {version} has",
            remedy="Choose another backend, or export the model with operators it has.",
        )
    return InputError(
        doing, found=found, expected="a valid graph", remedy="Export the model again, or report what rewrote it."
    )


def batch_refusal(message: str, *, graph: str, backend: str) -> InputError:
    """The error for a batch that the engine did not compute, by its ``message``."""
    return InputError(
        f"Running '{graph}' on '{backend}'",
        found=engine_sentence(message),
        expected="a batch that the graph can compute",
        remedy="Check that the data fits the model.",
    )


def engine_sentence(message: str) -> str:
    """The telling part of an engine's message, without its status number, source file and function signature."""
    text = " ".join(message.split())
    text = re.sub(r"^\[ONNXRuntimeError\] : (\d+ : )?", "", text)
    return re.sub(r"/onnxruntime_src/\S+:\d+ .*\) (?=[A-Z])", "", text)[:300]


# Batches of any size for graphs of a fixed one: n samples run as ⌈n / b⌉ slices of b, and come back as one batch.
#
# The last slice is filled up with its last sample, and the surplus rows of its results are dropped. A result's first
# axis runs over samples where it has b rows, which is what can be known without asking what the graph means; other
# results are those of all slices, whole, one after the other, so that no number is lost to who watches them.


def in_slices(executor: Executor, model: ir.Model) -> Executor:
    """``executor``, which runs ``model``, for batches of any size: itself where the graph leaves its batch free."""
    size = fixed_batch(model)
    return executor if size is None else _Slicing(executor, model, size)


class _Slicing(Closing):
    """An executor of a graph for ``size`` samples; closing it closes the one inside."""

    def __init__(self, executor: Executor, model: ir.Model, size: int) -> None:
        self._executor = executor
        self._graph = model.graph.name or "model"
        self._size = size
        self._ranks = {str(value.name): len(value.shape) for value in model.graph.inputs if value.shape is not None}
        self._first = next(name for name in self._ranks if name not in model.graph.initializers)
        self._sliced = {
            str(value.name)
            for value in model.graph.inputs
            if value.shape and (not isinstance(value.shape[0], int) or value.shape[0] == size)
        }

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            InputError: an input does not fit the graph, or the slices' results do not fit together.
        """
        first = feeds.get(self._first)
        rows = len(first) if first is not None and np.ndim(first) == self._ranks[self._first] else 0
        if rows in (0, self._size):  # it fits as it is; or it never will, and the engine's own check says why
            return self._executor.run(feeds)
        parts: dict[str, list[Array]] = {}
        for start in range(0, rows, self._size):
            count = min(self._size, rows - start)
            results = self._executor.run({name: self._part(name, feeds[name], rows, start) for name in feeds})
            for name, result in results.items():
                by_sample = result.ndim > 0 and len(result) == self._size
                parts.setdefault(name, []).append(result[:count] if by_sample else np.atleast_1d(result))
        return {name: self._joined(name, arrays) for name, arrays in parts.items()}

    def _part(self, name: str, feed: Array, rows: int, start: int) -> Array:
        """The slice of ``feed`` from row ``start``, filled up; a feed that does not run over samples stays whole."""
        if name not in self._sliced or not np.ndim(feed) or len(feed) != rows:
            return feed
        part = feed[start : start + self._size]
        missing = self._size - len(part)
        return part if not missing else np.concatenate([part, np.repeat(part[-1:], missing, axis=0)])

    def _joined(self, name: str, parts: list[Array]) -> Array:
        try:
            return np.concatenate(parts)
        except ValueError as error:
            raise InputError(
                f"Running '{self._graph}' in slices of {self._size}",
                found=f"'{name}' of the shapes {', '.join(sorted({str(part.shape) for part in parts}))}",
                expected="slices that differ in their first axis only",
                remedy="Export the model with a free batch.",
            ) from error

    def executed(self) -> Mapping[str, Executed]:
        """As the executor inside."""
        return executed_by(self._executor)

    def close(self) -> None:
        """Close the executor inside."""
        self._executor.close()
