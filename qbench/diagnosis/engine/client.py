"""A worker process, so that an engine crash does not end ours."""

import functools
import math
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends import (
    FIRST_MESSAGE_S,
    Array,
    Backend,
    Child,
    ChildError,
    Closing,
    EngineError,
    Executed,
    Executor,
    Feeds,
    RemoteBackend,
    arithmetic_of,
    executed_by,
    for_many_sessions,
    in_slices,
    own_environment,
    own_python,
)
from qbench.calibration import Rows
from qbench.diagnosis.target import watches_itself
from qbench.diagnosis.units import QuantizedUnit
from qbench.errors import QbenchError
from qbench.graph import Capabilities, as_model, fixed_batch, model_bytes
from qbench.numerics import Arithmetic
from qbench.storage import current_factor

# The one room of a process of ours in which an engine may end its process: a worker, started on first use.
#
#     question → worker → answer       worker dead, or silent for longer than it may take → EngineCrashError, a new life
#
# Every unit that runs alone runs there: sessions of several engines are in one process. After a crash the next
# question starts a new worker, and each session is prepared again (``life`` counts the crashes). A worker
# costs a second of imports, so it is kept for the next one who asks, for as long as modules are found in the same
# places.

_WORKER = "qbench.diagnosis.engine.worker"
_LONGEST = 200
"""Characters of a strange error that are quoted."""


class EngineCrashError(QbenchError):
    """An engine ended its process, gave no answer in time, or raised what no backend of ours raises."""


class NotReceivedError(Exception):
    """No worker can take the backend: its modules are not found over there, or no worker starts."""


def engine_worker() -> "EngineWorker":
    """That of this process."""
    return _engine_worker(tuple(path or os.getcwd() for path in sys.path))


@functools.lru_cache(maxsize=1)
def _engine_worker(paths: tuple[str, ...]) -> "EngineWorker":
    """One for each way in which modules are found: a name must not be another module over there."""
    return EngineWorker(paths)


class EngineWorker:
    """A worker, which dies with this value; ``paths`` are where it looks for modules. ``life`` counts its deaths."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._child: Child | None = None
        self._keys = 0
        self.life = 0

    def new_key(self) -> int:
        """A number that no other session has."""
        self._keys += 1
        return self._keys

    def ask(
        self, question: Mapping[str, Any], arrays: Mapping[str, Array], doing: str, seconds: float
    ) -> tuple[Mapping[str, Any], dict[str, Array]]:
        """The answer of the worker.

        Args:
            question, arrays: the message. doing: for errors. seconds: how long to wait for it; may be endless.

        Raises:
            EngineCrashError: the worker died at it or gave no answer in time, or an engine raised what is no error of
                ours.
            NotReceivedError: no worker starts, it cannot take the backend, or no message holds an array.
            QbenchError: what the backend raises.
        """
        child = self._started()
        try:
            message = {**question, "factor": current_factor()}
            return child.ask(message, arrays, seconds=seconds, since=child.printed_bytes)
        except ChildError as error:
            self.close()
            silent = f"no answer in {seconds:.3g} s, and its process was ended"
            found = silent if error.silent else f"a process that {error.found}"
            raise EngineCrashError(
                doing,
                found=found + (f" ({error.said})" if error.said else ""),
                expected="an engine that goes on",
                remedy="Report it to the engine's authors, with the test case that can be saved of it.",
            ) from error
        except EngineError as error:
            if error.kind in _NOT_TAKEN:
                raise NotReceivedError(str(error)) from error
            if len(error.parts) == _PARTS:
                doing, found, expected, remedy = error.parts
                raise _kind(error.kind)(doing, found=found, expected=expected, remedy=remedy) from error
            raise EngineCrashError(
                doing,
                found=f"{error.kind}: {' '.join(str(error).split())[:_LONGEST]}",
                expected="an answer, or an error of qbench",
                remedy="Mend the backend.",
            ) from error
        except BaseException:  # an interrupt, which has ended the process
            self.close()
            raise

    def _started(self) -> Child:
        if self._child is not None:
            return self._child
        try:
            child = Child(own_python(_WORKER), own_environment(self._paths))
        except OSError as error:
            raise NotReceivedError(str(error)) from error
        self._child = child
        try:
            child.receive(FIRST_MESSAGE_S)
        except (ChildError, EngineError) as error:
            said = child.last_line() if isinstance(error, EngineError) else error.said
            self.close()
            raise NotReceivedError(said) from error
        except BaseException:  # an interrupt, which has ended the process
            self.close()
            raise
        return child

    def close(self) -> None:
        """End the worker, whatever it does; the next question starts another."""
        if self._child is not None:
            self._child.close()
        self._child = None
        self.life += 1


_NOT_TAKEN = frozenset({"NotReceivedError", "UnsendableError"})
"""Errors over there after which the backend runs here."""
_PARTS = 4
"""Of an error of qbench's: doing, found, expected and remedy."""


def _kind(spelled: str) -> type[QbenchError]:
    """The class ``module:name``, where this process knows it."""
    module, _, name = spelled.partition(":")
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, QbenchError) else QbenchError


# A backend whose sessions live in another process, so that an engine that ends its process does not end ours.
#
# Our own machines stay here: they raise what they have to say. So does a backend that cannot be sent to another
# process.

Patience = Callable[[], float]
"""Seconds that an engine may take for an answer from now on."""


def endless() -> float:
    """The patience that never ends."""
    return math.inf


def contained(backend: Backend, patience: Patience = endless) -> Backend:
    """``backend`` with its sessions in the engine worker; itself where it is an integer interpreter, or cannot be sent.

    Args:
        backend: to be contained. patience: how long an answer is waited for.
    """
    if watches_itself(backend) or isinstance(backend, ContainedBackend):
        return backend
    try:
        sent = pickle.dumps(backend)
        pickle.loads(sent)
    except Exception:  # whatever a class of anybody's raises when it cannot be pickled
        return backend
    return ContainedBackend(backend, sent, patience)


class ContainedBackend:
    """A backend whose sessions live in the engine worker.

    Args:
        engine: the backend inside. sent: the same as it is sent. patience: how long an answer is waited for.
    """

    def __init__(self, engine: Backend, sent: bytes, patience: Patience) -> None:
        self.engine = engine
        self._sent, self._patience = sent, patience

    @property
    def name(self) -> str:
        """Of the backend inside."""
        return self.engine.name

    @property
    def capabilities(self) -> Capabilities:
        """Of the backend inside."""
        return self.engine.capabilities

    @property
    def arithmetic(self) -> Arithmetic | None:
        """Of the backend inside."""
        return arithmetic_of(self.engine)

    @property
    def packages(self) -> tuple[str, ...]:
        """Of the backend inside."""
        return self.engine.packages

    def prepare(self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
        """A session over there, prepared anew where another one has ended the process; here where it cannot be there.

        Raises:
            EngineCrashError: the engine ends its process, gives no answer in time, or raises what is no error of ours.
            QbenchError: what the backend raises.
        """
        graph = as_model(model)
        made_of = (self._sent, model_bytes(graph), tuple(taps), threads)
        here = partial(self.engine.prepare, graph, taps=taps, threads=threads)
        executor = _ContainedExecutor(made_of, here, f"'{graph.graph.name}' on '{self.name}'", self._patience)
        executor.prepare()
        return executor


class _ContainedExecutor(Closing):
    """One session over there; ``here`` prepares the same in this process, for where no worker takes it."""

    def __init__(
        self,
        made_of: tuple[bytes, bytes, tuple[str, ...], int],
        here: Callable[[], Executor],
        what: str,
        patience: Patience,
    ) -> None:
        self._made_of, self._here, self._what, self._patience = made_of, here, what, patience
        self._ours: Executor | None = None
        self._worker: EngineWorker = engine_worker()
        self._key = self._worker.new_key()
        self._life = -1

    def prepare(self) -> None:
        """Have it prepared in the process that there is now, or here from now on."""
        try:
            sent, model, taps, threads = self._made_of
            question = {"do": "prepare", "key": self._key, "taps": taps, "threads": threads}
            arrays = {"backend": np.frombuffer(sent, np.uint8), "model": np.frombuffer(model, np.uint8)}
            self._worker.ask(question, arrays, f"Preparing {self._what}", self._patience())
            self._life = self._worker.life
        except NotReceivedError:  # its modules are found here only, or no worker starts
            self._ours = self._here()

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            EngineCrashError: the engine ends its process, gives no answer in time, or raises what is no error of ours.
            InputError: an input does not fit the graph.
        """
        if self._ours is None and self._life != self._worker.life:  # another session ended the process of this one
            self.prepare()
        if self._ours is not None:
            return self._ours.run(feeds)
        question = {"do": "run", "key": self._key}
        try:
            return self._worker.ask(question, feeds, f"Running {self._what}", self._patience())[1]
        except NotReceivedError:  # numbers of a type that no message holds
            self._ours = self._here()
            return self._ours.run(feeds)

    def executed(self) -> Mapping[str, Executed]:
        """As the executor over there reports it."""
        if self._ours is None and self._life != self._worker.life:
            self.prepare()
        if self._ours is not None:
            return executed_by(self._ours)
        question = {"do": "executed", "key": self._key}
        answer, _ = self._worker.ask(question, {}, f"Asking {self._what} how it runs", self._patience())
        return {node: Executed(*how) for node, how in answer["executed"].items()}

    def close(self) -> None:
        """Let the session go."""
        if self._ours is not None:
            self._ours.close()
        elif self._life == self._worker.life:
            try:
                question = {"do": "close", "key": self._key}
                self._worker.ask(question, {}, f"Closing {self._what}", self._patience())
            except QbenchError:  # it is gone with its process
                self._life = -1


__all__ = ["ContainedBackend", "Patience", "contained", "endless"]


# A unit alone in an engine, in a process that may die at it: until the engine fails, and then why it did.
#
# Every run of a unit by itself in an engine goes this way: those of localisation, of the sides of a difference, and of
# an engine compared with the arithmetic that it claims.


class Alone(Closing):
    """``unit`` in an engine; a context manager that frees the engine's memory.

    Args:
        unit: to be run. backend: the engine. threads: of it.
        patience: how long an answer is waited for.

    ``crash`` is a sentence about how the engine failed; empty: it did not.
    """

    def __init__(
        self, unit: QuantizedUnit, backend: Backend, *, threads: int = 1, patience: Patience = endless
    ) -> None:
        self.crash = ""
        self.unit, self._threads = unit, threads
        self._engine = contained(for_many_sessions(backend), patience)
        self._is_kept = not isinstance(backend, RemoteBackend)  # there every session is a process
        self._executor: Executor | None = None

    def run(self, feeds: Feeds) -> Array | None:
        """What the engine makes of ``feeds``; None: it fails, now or before."""
        if self.crash:
            return None
        try:
            if self._executor is None:
                executor = self._engine.prepare(self.unit.graph, threads=self._threads)
                self._executor = in_slices(executor, self.unit.graph)
            return self._executor.run(feeds)[self.unit.value]
        except QbenchError as error:
            self.crash = error.found
            return None
        finally:
            if self.crash or not self._is_kept:
                self.close()

    def close(self) -> None:
        """Free the engine's memory; a later run takes it again."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None


# Batches of the size that a graph of a fixed one takes, since its pieces take no other.
#
# A batch that is too short is filled up with its last sample, which then counts as often as it is repeated.


def filled_up(model: ir.Model, feeds: Feeds) -> dict[str, Array]:
    """``feeds`` of as many samples as ``model`` takes: as they are where it takes any number, else the first of them.

    Args:
        model: the graph. feeds: its inputs by name, of one sample or more.
    """
    size = fixed_batch(model)
    if size is None:
        return dict(feeds)
    rows = Rows.of(model)
    count = rows.count(feeds)
    if count == size or not count:
        return dict(feeds)
    places = np.minimum(np.arange(size), count - 1)
    return {name: _taken(array, rows.inputs.get(name), places, count) for name, array in feeds.items()}


def _taken(array: Array, axis: int | None, places: Array, count: int) -> Array:
    if axis is None or array.ndim <= axis or array.shape[axis] != count:
        return array
    return np.ascontiguousarray(np.take(array, places, axis=axis))
