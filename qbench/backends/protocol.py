"""The protocols of what runs a graph: a backend prepares a model and returns an executor."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError, NotFetchedError, QbenchError, UnsupportedError, nearest
from qbench.graph import (
    AnyModel,
    Capabilities,
    as_model,
    fixed_batch,
    node_key,
    origin_of,
    values_by_name,
    with_shapes,
)
from qbench.host import package_versions

if TYPE_CHECKING:
    from qbench.interpreter import Counters, KernelWrapper
    from qbench.metrics import AnswerFile
    from qbench.numerics import Arithmetic


Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Executed:
    """How a node runs.

    Args:
        precision: the type that it computes in, such as ``uint8`` or ``float32``: that of its first input
            that is no condition, except where the kernel itself quantizes it; empty: not known.
        device: ``cpu`` or the name of a device.
    """

    precision: str
    device: str

    @property
    def in_integers(self) -> bool:
        """Whether it computes in integers, by numpy's names of types or the short ones of engines (``u8``)."""
        return _INTEGER_TYPE.fullmatch(self.precision) is not None


_INTEGER_TYPE = re.compile(r"(u|i|int|uint)\d+")


@runtime_checkable
class Executor(AbstractContextManager["Executor"], Protocol):
    """One prepared graph; a context manager that frees the engine's memory."""

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            InputError: an input is missing, unknown, or has a shape or dtype that the graph does not accept.
        """
        ...

    def executed(self) -> Mapping[str, Executed]:
        """Node of the prepared graph → how the engine runs it.

        A node that the engine made is listed under the node that it stems from, else under the engine's name for it.
        Nodes for which this is not known are omitted. ``executed_by`` also accepts executors without this method.
        """
        return {}

    def close(self) -> None:
        """Free the engine's memory; running afterwards is an error."""
        ...


@runtime_checkable
class Backend(Protocol):
    """A named way to run graphs; a frozen value whose fields are its options.

    ``packages`` names the distributions whose versions may change its numbers. They are part of the environment class
    of every result.

    A class that does not inherit from this protocol may omit ``arithmetic``; ``arithmetic_of`` handles that. Optional
    features of a backend are protocols of their own: ``HasRuleDigests``, ``RemoteBackend``, ``Unoptimized``,
    ``HasLevels``, ``ManySessions``, ``CountsEvents``, ``Recording``, ``Recorded``, ``Watchable`` and ``MayCrash``.
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
        """The arithmetic by which it computes quantized graphs on this computer, or its name; None: not known.

        Localization compares the backend with an integer interpreter of this arithmetic, node by node.
        """
        return None

    @property
    def packages(self) -> tuple[str, ...]:
        """The distributions whose versions may change its numbers."""
        ...

    def prepare(self, model: "ir.Model | Path | str", *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
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
class HasRuleDigests(Protocol):
    """A backend that computes by rules which are data, not code of a package."""

    @property
    def digests(self) -> Mapping[str, str]:
        """Name of the rules → their digest, for every measurement: with another digest the numbers may differ."""
        ...


@runtime_checkable
class Unoptimized(Protocol):
    """A backend that can run a graph without optimizations, so that taps change no number."""

    def unoptimized(self) -> "Backend | None":
        """The same engine without graph optimizations; itself if it has none; None: it cannot disable them."""
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
    """A backend that learns how its engine runs a graph while it prepares it, for little more time."""

    def recording(self) -> "Backend":
        """The same with executors whose ``executed`` costs nothing; its numbers are equal."""
        ...


@runtime_checkable
class Watchable(Protocol):
    """A backend whose taps change no number and whose kernels can be wrapped, such as the integer interpreter."""

    def surrounded(self, around: "KernelWrapper") -> "Backend":
        """The same backend with every kernel wrapped by ``around``."""
        ...


HANG_S = 600.0
"""Seconds after which an engine that gives no answer is taken to hang, unless its backend knows better."""


@runtime_checkable
class MayCrash(Protocol):
    """A backend whose engine may end its process or hang: cells run it in a process of its own."""

    @property
    def hang_s(self) -> float:
        """Seconds without an answer, to one batch or to a model, after which the engine is taken to hang."""
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

        This is a method, because before Python 3.12 ``isinstance`` reads the properties of a protocol, and this one may
        start a program.
        """
        ...


@runtime_checkable
class Recorded(Protocol):
    """A backend that runs no model: it gives answers that were recorded elsewhere, sample by sample."""

    def recorded(self) -> "AnswerFile":
        """The answers, opened.

        Raises:
            InputError: they cannot be read.
        """
        ...


def arithmetic_of(backend: Backend) -> "Arithmetic | None":
    """The arithmetic by which ``backend`` computes quantized graphs on this computer; None: it declares none.

    Raises:
        InputError: it names an arithmetic that does not exist.
    """
    from qbench.numerics import get_arithmetic

    declared = getattr(backend, "arithmetic", None)  # optional: a third-party backend may lack it
    return get_arithmetic(declared) if isinstance(declared, str) else declared


def executed_by(executor: Executor) -> Mapping[str, Executed]:
    """How ``executor`` runs its nodes; empty: not known."""
    ask = getattr(executor, "executed", None)  # optional: a third-party executor may lack it
    return {} if ask is None else ask()


def recording(backend: Backend) -> Backend:
    """``backend`` with executors that already know how their nodes run, where it has such a form."""
    return backend.recording() if isinstance(backend, Recording) else backend


def runs_as_written(backend: Backend) -> bool:
    """Whether ``backend`` fuses nothing, so that a tap changes no number."""
    return isinstance(backend, Unoptimized) and backend.unoptimized() is backend


def for_many_sessions(backend: Backend) -> Backend:
    """``backend`` without memory that sessions keep between runs, for one session per node at once."""
    return backend.for_many_sessions() if isinstance(backend, ManySessions) else backend


def executed_as_written(model: ir.Model, device: str) -> dict[str, Executed]:
    """How ``device`` runs every node of the main graph of ``model``, if it runs the graph unchanged."""
    is_typed = all(value.dtype is not None for node in model.graph for value in node.inputs if value is not None)
    typed = model if is_typed else with_shapes(model)
    found = {node_key(node): Executed(_precision(node), device) for node in typed.graph}
    products = {origin_of(node): found[node_key(node)] for node in typed.graph if node.op_type in INTEGER_PRODUCTS}
    return found | products


INTEGER_PRODUCTS = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    }
)
"""Operators that compute the product of another node, which is their origin, in integers."""


def _precision(node: ir.Node) -> str:
    given = [value for value in node.inputs if value is not None]
    first = next((value for value in given if value.dtype is not ir.DataType.BOOL), next(iter(given), None))
    return "" if first is None or first.dtype is None else np.dtype(first.dtype.numpy()).name


class Closing:
    """A context manager that calls ``close``, which a subclass defines."""

    def close(self) -> None:
        """Free the held resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class InputFact:
    """Dtype and shape of one graph input, with None for every free dimension; None: not declared."""

    dtype: np.dtype[np.generic] | None
    shape: tuple[int | None, ...] | None

    def problem(self, array: Array) -> str | None:
        """Why ``array`` does not fit; None: it fits."""
        if self.dtype is not None and array.dtype != self.dtype:
            return f"dtype {array.dtype} where the graph takes {self.dtype}"
        if self.shape is None:
            return None
        fits = len(array.shape) == len(self.shape) and all(
            want in (None, have) for want, have in zip(self.shape, array.shape, strict=True)
        )
        if fits:
            return None
        wanted = "×".join("?" if dim is None else str(dim) for dim in self.shape) or "a scalar"
        # the size of the batch is none that a user chose: free axes are shown as such
        free = [dim is None for dim in self.shape] if len(self.shape) == len(array.shape) else [False] * array.ndim
        found = "×".join("?" if any_ else str(have) for any_, have in zip(free, array.shape, strict=True))
        return f"shape {found or 'of a scalar'} where the graph takes {wanted}"


@dataclass(frozen=True, slots=True)
class FeedCheck:
    """A check of batches against the inputs of a graph, before an engine runs them.

    ``required`` excludes inputs with an initializer, which is their default. ``constants`` are the initializers that
    are not inputs: in canonical and quantized graphs these include former defaults.
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
            InputError: an input is missing, unknown, or has a dtype, rank or shape that the graph does not accept.
        """
        for name in self.required:
            if name not in feeds:
                raise self._error(f"no input '{name}'", f"Feed it; the graph's inputs are {self._listed()}.")
        arrays = {}
        for name, given in feeds.items():
            if name in self.constants or f"{name}_quantized" in self.constants:
                raise self._error(f"a feed for '{name}', which is a constant", f"Feed only {self._listed()}.")
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
            f"Running '{self.graph}' on '{self.backend}'", found=found, expected="inputs of the graph", remedy=remedy
        )


def _fact(value: ir.Value) -> InputFact:
    dtype = None if value.dtype is None or value.dtype is ir.DataType.STRING else np.dtype(value.dtype.numpy())
    shape = None if value.shape is None else tuple(dim if isinstance(dim, int) else None for dim in value.shape)
    return InputFact(dtype, shape)


def loaded(model: AnyModel) -> ir.Model:
    """``model`` itself, or the model in the message or the file.

    Raises:
        InputError: it is not an ONNX model.
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
    require_taps(wanted, values, doing=f"Tapping '{model.graph.name}'", where="the graph")
    tapped.graph.outputs.extend(values[name] for name in wanted)
    return tapped


def require_taps(taps: Iterable[str], names: Iterable[str], *, doing: str, where: str) -> None:
    """Refuse ``taps`` that are not among ``names``, the values in ``where``.

    Raises:
        InputError: one of them is not; the nearest name is suggested.
    """
    known = frozenset(names)
    for name in taps:
        if name not in known:
            close = nearest(name, known)
            raise InputError(
                doing,
                found=f"no value '{name}' in {where}",
                expected="a value that is computed there",
                remedy=f"Did you mean '{close}'?" if close else "Look up the names of its values.",
            )


def versions_of(backend: Backend) -> dict[str, str]:
    """Package → version for the environment class of results: of this Python, unless it is a ``RemoteBackend``."""
    if isinstance(backend, RemoteBackend):
        return dict(backend.package_versions())
    return package_versions(backend.packages)


@contextmanager
def importing_engine(*, extra: str, backend: str) -> Iterator[None]:
    """Import an engine in this block; ``extra``: of qbench, which installs it.

    Raises:
        NotFetchedError: it is not installed or does not load; cells of ``backend`` are skipped with the reason.
    """
    try:
        yield
    except Exception as error:  # a wheel for another processor, system or numpy raises errors of any type
        raise not_installed(error, extra=extra, backend=backend) from error


def not_installed(error: Exception, *, extra: str, backend: str) -> NotFetchedError:
    """The error for an engine whose import failed with ``error``; cells of ``backend`` are skipped with it.

    Args:
        error: an ImportError where it is absent. extra: of qbench, which installs the engine.
    """
    if not isinstance(error, ImportError):
        error = ImportError(f"{type(error).__name__}: {error}")
    return NotFetchedError(
        f"Preparing a model on '{backend}'",
        found=" ".join(str(error).split())[:300],
        expected="its engine to be installed",
        remedy=f"Install it: pip install 'pytest-qbench[{extra}]'.",
    )


# Messages of an engine that does not load a model: it is unsupported, or the graph is invalid. The difference matters:
# an unsupported cell is skipped, and a quantizer that writes an invalid graph must fail.

_LACKING = (
    "is not a registered function/op",
    "No Op registered for",
    "Could not find an implementation",
    "ONNX Runtime only *guarantees* support",
    "Unsupported model IR version",
)
"""Parts of general error messages that mean that the engine does not support the model."""


def refusal(kind: str, message: str, *, graph: str, backend: str, version: str) -> QbenchError:
    """The error for a model that onnxruntime ``version`` did not load.

    Args:
        kind, message: type and text of the engine's error. graph, backend: names of the graph and the backend.
    """
    doing, found = f"Preparing '{graph}' on '{backend}'", engine_sentence(message)
    if kind == "NotImplemented" or any(words in found for words in _LACKING):
        return UnsupportedError(
            doing,
            found=found,
            expected=f"operators and an opset that onnxruntime {version} has",
            remedy="Choose another backend, or export the model with supported operators.",
        )
    return InputError(
        doing,
        found=found,
        expected="a valid graph",
        remedy="Export the model again, or report the pass or quantizer that wrote it.",
    )


def batch_refusal(message: str, *, graph: str, backend: str) -> InputError:
    """The error for a batch that the engine did not compute, with its ``message``."""
    return InputError(
        f"Running '{graph}' on '{backend}'",
        found=engine_sentence(message),
        expected="a batch that the graph can compute",
        remedy="Check that the data fits the model.",
    )


def engine_sentence(message: str) -> str:
    """An engine's message without its status number, source file and function signature."""
    text = " ".join(message.split())
    text = re.sub(r"^\[ONNXRuntimeError\] : (\d+ : )?", "", text)
    return re.sub(r"/onnxruntime_src/\S+:\d+ .*\) (?=[A-Z])", "", text)[:300]


# Batches of any size for a graph with a fixed batch size b: n samples run as ⌈n / b⌉ slices of b, joined to one batch.
#
# The last slice is filled with copies of its last sample, and the surplus rows of its results are removed. The first
# axis of a result is assumed to run over samples if it has b rows. Other results are concatenated over all slices, so
# that taps lose no number.


def in_slices(executor: Executor, model: ir.Model) -> Executor:
    """``executor`` of ``model`` for batches of any size: itself if the batch size of the graph is free."""
    size = fixed_batch(model)
    return executor if size is None else _Slicing(executor, model, size)


class _Slicing(Closing):
    """An executor that splits batches for the executor of a graph with ``size`` samples, and closes that."""

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
        if rows in (0, self._size):  # it fits; or it cannot fit, and the executor reports why
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
        """The slice of ``feed`` from row ``start``, filled up; a feed without an axis over samples stays whole."""
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
                expected="results of slices that differ in their first axis only",
                remedy="Export the model with a free batch size.",
            ) from error

    def executed(self) -> Mapping[str, Executed]:
        """As the inner executor."""
        return executed_by(self._executor)

    def close(self) -> None:
        """Close the inner executor."""
        self._executor.close()
