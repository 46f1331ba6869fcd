"""Engines in a process of their own, so that a crash or a hang of an engine does not end this
process.
"""

import functools
import math
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from qbench.backends.output_check import CheckedExecutor, OutputCheck
from qbench.backends.protocol import (
    Array,
    Backend,
    Closing,
    Executed,
    Executor,
    Feeds,
    MayCrash,
    Watchable,
    arithmetic_of,
    device_of,
    executed_by,
    kernels_of,
)
from qbench.backends.venv.client import (
    FIRST_MESSAGE_S,
    Child,
    ChildError,
    EngineError,
    own_environment,
    own_python,
)
from qbench.errors import QbenchError
from qbench.graph import MESSAGE_LIMIT, Capabilities, as_model, constant_bytes, model_bytes
from qbench.numerics import Arithmetic
from qbench.storage import current_factor

# The worker: a child process in which an engine may crash; started on first use.
#
#     request → worker → reply
#
# Where the worker is dead, or no reply comes in time: EngineCrashError, then a new worker.
#
# Cells of engines that may crash run there, and every unit that localization runs alone. One worker
# holds sessions of several engines. After a crash, each session is prepared again in the new worker
# (``generation`` counts the crashes). Starting a worker costs a second of imports, so it is kept
# for later requests as long as ``sys.path`` stays the same.

_WORKER = "qbench.backends.venv.engine_worker"
_LONGEST = 200
"""Characters of an unexpected error that are quoted."""


class EngineCrashError(QbenchError):
    """An engine ended its process, gave no reply in time, or raised a foreign error."""


class NotReceivedError(Exception):
    """The backend cannot run in a worker: the worker does not find its modules, or does not
    start.
    """


def engine_worker() -> "EngineWorker":
    """The worker of this process."""
    return _engine_worker(tuple(path or os.getcwd() for path in sys.path))


@functools.lru_cache(maxsize=1)
def _engine_worker(paths: tuple[str, ...]) -> "EngineWorker":
    """One worker per search path: a module name must mean the same module in the worker."""
    return EngineWorker(paths)


class EngineWorker:
    """A worker process that ends with this value; ``paths`` is its search path, ``generation``
    counts its restarts.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._child: Child | None = None
        self._keys = 0
        self.generation = 0

    def new_key(self) -> int:
        """A key for a new session."""
        self._keys += 1
        return self._keys

    def ask(
        self, question: Mapping[str, Any], arrays: Mapping[str, Array], doing: str, seconds: float
    ) -> tuple[Mapping[str, Any], dict[str, Array]]:
        """The reply of the worker.

        Args:
            question, arrays: the message.
            doing: for errors.
            seconds: how long to wait; may be infinite.

        Raises:
            EngineCrashError: the worker died or gave no reply in time, or the engine raised an
                error that is not a ``QbenchError``.
            NotReceivedError: no worker starts, it cannot load the backend, or a message cannot hold
                an array.
            QbenchError: what the backend raises.
        """
        child = self._started()
        try:
            message = {**question, "factor": current_factor()}
            since = child.printed_bytes
            answer, results = child.ask(message, arrays, seconds=seconds, since=since)
            while "running" in answer:  # another batch of ``apply`` has begun
                answer, results = child.receive(seconds, since=since)
        except ChildError as error:
            self.close()
            silent = f"no answer in {seconds:.3g} s, and its process was killed"
            found = silent if error.silent else f"a process that {error.found}"
            raise EngineCrashError(
                doing,
                found=found + (f" ({error.said})" if error.said else ""),
                expected="an engine that does not crash",
                remedy="Report it to the engine's authors, or choose another backend.",
            ) from error
        except EngineError as error:
            if error.kind in _NOT_TAKEN:
                raise NotReceivedError(str(error)) from error
            if len(error.parts) == _PARTS:
                doing, found, expected, remedy = error.parts
                raise _kind(error.kind)(
                    doing, found=found, expected=expected, remedy=remedy
                ) from error
            raise EngineCrashError(
                doing,
                found=f"{error.kind}: {' '.join(str(error).split())[:_LONGEST]}",
                expected="a result, or a QbenchError",
                remedy="Fix the backend.",
            ) from error
        except BaseException:  # an interrupt, which has ended the process
            self.close()
            raise
        return answer, results

    def _started(self) -> Child:
        if self._child is not None:
            return self._child
        try:
            child = Child(own_python(_WORKER), own_environment(self._paths), shares=True)
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
        """Kill the worker; the next request starts another."""
        if self._child is not None:
            self._child.close()
        self._child = None
        self.generation += 1


_NOT_TAKEN = frozenset({"NotReceivedError", "UnsendableError"})
"""Errors of the worker after which the backend runs in this process."""
_PARTS = 4
"""Number of parts of a ``QbenchError``: doing, found, expected and remedy."""


def _kind(spelled: str) -> type[QbenchError]:
    """The class ``module:name``, if this process has imported it."""
    module, _, name = spelled.partition(":")
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, QbenchError) else QbenchError


# A backend whose sessions run in the worker, so that an engine crash does not end this process.
# Integer interpreters run in this process, since they do not crash. So does a backend that cannot
# be pickled.

Timeout = Callable[[], float]
"""The seconds that the next reply of an engine may take."""


def no_timeout() -> float:
    """No limit."""
    return math.inf


def contained(backend: Backend, timeout: Timeout = no_timeout) -> Backend:
    """``backend`` with its sessions in the worker.

    An integer interpreter, and what cannot be pickled, is returned as it is.

    Args:
        backend: runs in the worker.
        timeout: of one reply.
    """
    if isinstance(backend, Watchable | ContainedBackend):
        return backend
    try:
        sent = pickle.dumps(backend)
        pickle.loads(sent)
    except Exception:  # a user's class may raise anything when it cannot be pickled
        return backend
    return ContainedBackend(backend, sent, timeout)


def isolated(backend: Backend) -> Backend:
    """``backend`` as a cell runs it: in the worker where its engine may crash, else itself."""
    if not isinstance(backend, MayCrash):
        return backend
    found = contained(backend, lambda: backend.hang_s)
    if found is backend:
        _note_unprotected(backend, "it cannot be pickled")
    return found


# Why engines that may crash ran in this process, to be told with the next verdict.

_UNPROTECTED: list[str] = []


def take_unprotected() -> tuple[str, ...]:
    """Notices of engines that may crash and ran in this process since the last call, each once."""
    taken = tuple(dict.fromkeys(_UNPROTECTED))
    _UNPROTECTED.clear()
    return taken


def _note_unprotected(engine: Backend, why: str) -> None:
    if isinstance(engine, MayCrash):
        text = f"'{engine.name}' ran unprotected in this process, which its crash would end: {why}"
        _UNPROTECTED.append(text)
        _tell_once(text)


@functools.cache
def _tell_once(text: str) -> None:
    sys.stderr.write(f"qbench: {text}\n")


T = TypeVar("T")


def run_where_prepared(
    work: Callable[[Mapping[str, Executor]], T], executors: Mapping[str, Executor]
) -> T:
    """``work(executors)``: in the worker as a whole where all of them are sessions there, so
    that no batch is sent.

    In this process, batch by batch, where ``work`` or its result cannot be sent.

    Raises:
        QbenchError: what ``work`` and the executors raise; EngineCrashError as of
            ``ContainedBackend``.
    """
    checks = {
        name: one.check for name, one in executors.items() if isinstance(one, CheckedExecutor)
    }
    inner = {
        name: one.executor if isinstance(one, CheckedExecutor) else one
        for name, one in executors.items()
    }
    contained = {name: one for name, one in inner.items() if isinstance(one, _ContainedExecutor)}
    if contained and len(contained) == len(executors):
        try:
            return next(iter(contained.values())).apply(
                partial(_checked_work, work, checks), contained
            )
        except NotReceivedError:
            pass
    return work(executors)


def _checked_work(
    work: Callable[[Mapping[str, Executor]], T],
    checks: Mapping[str, OutputCheck],
    executors: Mapping[str, Executor],
) -> T:
    """``work`` in the worker, with the results checked there as they are in this process."""
    return work(
        {
            name: CheckedExecutor(one, checks[name]) if name in checks else one
            for name, one in executors.items()
        }
    )


class ContainedBackend:
    """A backend whose sessions run in the worker.

    Args:
        engine: the backend.
        sent: the pickled backend.
        timeout: of one reply.
    """

    def __init__(self, engine: Backend, sent: bytes, timeout: Timeout) -> None:
        self.engine = engine
        self._sent, self._timeout = sent, timeout

    @property
    def name(self) -> str:
        """The name of the backend."""
        return self.engine.name

    @property
    def capabilities(self) -> Capabilities:
        """Those of the backend."""
        return self.engine.capabilities

    @property
    def arithmetic(self) -> Arithmetic | None:
        """That of the backend."""
        return arithmetic_of(self.engine)

    @property
    def packages(self) -> tuple[str, ...]:
        """Those of the backend."""
        return self.engine.packages

    @property
    def device(self) -> str:
        """That of the backend."""
        return device_of(self.engine)

    @property
    def unusual_kernels(self) -> Mapping[str, str]:
        """Those of the backend."""
        return kernels_of(self.engine)

    def prepare(
        self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1
    ) -> Executor:
        """A session in the worker, prepared again after a crash; in this process where the
        worker cannot load it.

        A model beyond the size of a message is prepared in this process too.

        Raises:
            EngineCrashError: the engine crashes, gives no reply in time, or raises an error that is
                not a ``QbenchError``.
            QbenchError: what the backend raises.
        """
        graph = as_model(model)
        if (size := constant_bytes(graph)) >= MESSAGE_LIMIT:
            why = f"its model has {size:,} bytes, and a worker process takes {MESSAGE_LIMIT:,}"
            return self._here(graph, tuple(taps), threads, why)
        here = partial(self._here, graph, tuple(taps), threads)
        made_of = (self._sent, graph, tuple(taps), threads)
        executor = _ContainedExecutor(
            made_of, here, f"'{graph.graph.name}' on '{self.name}'", self._timeout
        )
        executor.prepare()
        return executor

    def _here(self, graph: ir.Model, taps: tuple[str, ...], threads: int, why: str) -> Executor:
        _note_unprotected(self.engine, why)
        return self.engine.prepare(graph, taps=taps, threads=threads)


class _ContainedExecutor(Closing):
    """One session in the worker; ``here`` prepares it in this process, given why, if the worker
    cannot.
    """

    def __init__(
        self,
        made_of: tuple[bytes, ir.Model, tuple[str, ...], int],
        here: Callable[[str], Executor],
        what: str,
        timeout: Timeout,
    ) -> None:
        self._made_of, self._here, self._what, self._timeout = made_of, here, what, timeout
        self._ours: Executor | None = None
        self._worker: EngineWorker = engine_worker()
        self._key = self._worker.new_key()
        self._generation = -1

    def prepare(self) -> None:
        """Prepare the session in the present worker; in this process, if the worker cannot load
        it.
        """
        try:
            sent, model, taps, threads = self._made_of
            question = {"do": "prepare", "key": self._key, "taps": taps, "threads": threads}
            arrays = {
                "backend": np.frombuffer(sent, np.uint8),
                "model": np.frombuffer(model_bytes(model), np.uint8),
            }
            self._worker.ask(question, arrays, f"Preparing {self._what}", self._timeout())
            self._generation = self._worker.generation
        except NotReceivedError as error:  # the worker does not find its modules, or does not start
            self._ours = self._here(
                f"no worker process takes it ({str(error) or 'it ended without a word'})"
            )

    def key_in_worker(self) -> int | None:
        """The key of its session in the worker, which is prepared again after a crash; None: it
        is in this process.
        """
        if self._ours is None and self._generation != self._worker.generation:
            # another session crashed the worker
            self.prepare()
        return self._key if self._ours is None else None

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            EngineCrashError: the engine crashes, gives no reply in time, or raises an error that is
                not a ``QbenchError``.
            InputError: an input does not fit the graph.
        """
        key = self.key_in_worker()
        if self._ours is not None:
            return self._ours.run(feeds)
        try:
            question = {"do": "run", "key": key}
            return self._worker.ask(question, feeds, f"Running {self._what}", self._timeout())[1]
        except NotReceivedError as error:  # a dtype that a message cannot hold
            self._ours = self._here(f"no message to a worker process holds its inputs ({error})")
            return self._ours.run(feeds)

    def apply(
        self,
        work: "Callable[[Mapping[str, Executor]], T]",
        executors: "Mapping[str, _ContainedExecutor]",
    ) -> T:
        """The result of ``work`` for ``executors``, done in the worker.

        Raises:
            NotReceivedError: one of them runs in this process, or ``work`` or its result cannot be
                sent.
            QbenchError: as ``run``, and what ``work`` raises.
        """
        keys = {name: one.key_in_worker() for name, one in executors.items()}
        if None in keys.values():
            raise NotReceivedError("a session in this process")
        try:
            sent = pickle.dumps(work)
        except Exception as error:  # a user's class may raise anything when it cannot be pickled
            raise NotReceivedError(str(error)) from error
        question = {"do": "apply", "keys": keys}
        arrays = {"work": np.frombuffer(sent, np.uint8)}
        _, results = self._worker.ask(question, arrays, f"Running {self._what}", self._timeout())
        result: T = pickle.loads(results["result"].tobytes())
        return result

    def executed(self) -> Mapping[str, Executed]:
        """As the executor in the worker reports it."""
        key = self.key_in_worker()
        if self._ours is not None:
            return executed_by(self._ours)
        question = {"do": "executed", "key": key}
        answer, _ = self._worker.ask(
            question, {}, f"Asking {self._what} how it runs", self._timeout()
        )
        return {node: Executed(*how) for node, how in answer["executed"].items()}

    def close(self) -> None:
        """Release the session."""
        if self._ours is not None:
            self._ours.close()
        elif self._generation == self._worker.generation:
            try:
                question = {"do": "close", "key": self._key}
                self._worker.ask(question, {}, f"Closing {self._what}", self._timeout())
            except QbenchError:  # the worker is gone, and the session with it
                self._generation = -1
