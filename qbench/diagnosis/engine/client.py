"""A worker process, so that an engine crash does not end ours."""

import functools
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx_ir as ir

from qbench.backends import (
    Array,
    Backend,
    Closing,
    Executed,
    Executor,
    Feeds,
    RemoteBackend,
    arithmetic_of,
    executed_by,
    for_many_sessions,
    in_slices,
)
from qbench.calibration import Rows
from qbench.diagnosis.engine.worker import receive_frame, send_frame
from qbench.diagnosis.target import watches_itself
from qbench.diagnosis.units import QuantizedUnit
from qbench.errors import QbenchError
from qbench.graph import Capabilities, as_model, fixed_batch, model_bytes
from qbench.numerics import Arithmetic
from qbench.storage import current_factor

# The one room of a process of ours in which an engine may end its process: a worker, started on first use.
#
#     question → worker → answer        worker dead, or silent for longer than it may take → EngineCrashError, a new
# life
#
# All that is run alone goes there, whoever asks: sessions of several engines live side by side. After a death a new
# worker is started by the next question, and whoever asks has his session prepared anew (``life`` tells). A worker
# costs a second of imports, so it is kept for the next one who asks, for as long as modules are found in the same
# places.

_WORKER = "qbench.diagnosis.engine.worker"
_FIRST_WORD_S = 120
"""Seconds until a worker has imported what it needs, on a machine that is busy."""
_LAST_WORDS_S = 5
"""Seconds that a worker that closed its pipe may take to be gone."""
_LONGEST = 200
"""Characters of a worker's last words."""


class EngineCrashError(QbenchError):
    """An engine ended its process, gave no answer in time, or raised what no backend of ours raises."""


class NotReceivedError(Exception):
    """No worker can take the backend: its modules are not found over there, or no worker starts."""


def workshop() -> "EngineWorker":
    """That of this process."""
    return _workshop(tuple(path or os.getcwd() for path in sys.path))


@functools.lru_cache(maxsize=1)
def _workshop(paths: tuple[str, ...]) -> "EngineWorker":
    """One for each way in which modules are found: a name must not be another module over there."""
    return EngineWorker(paths)


class EngineWorker:
    """A worker, which dies with this value; ``paths`` are where it looks for modules. ``life`` counts its deaths."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._end: weakref.finalize[..., EngineWorker] | None = None
        self._said = self._keys = 0
        self.life = 0

    def new_key(self) -> int:
        """A number that no other session has."""
        self._keys += 1
        return self._keys

    def ask(self, name: str, arguments: tuple[Any, ...], doing: str, seconds: float) -> Any:  # noqa: ANN401 - as the question is
        """The answer of the worker.

        Args:
            name, arguments: the question. doing: for errors. seconds: how long to wait for it; may be endless.

        Raises:
            EngineCrashError: the worker died at it or gave no answer in time, or an engine raised what is no error of
                ours.
            NotReceivedError: no worker starts, or it cannot take the backend.
            QbenchError: what the backend raises.
        """
        answer: Any
        child = self._started()
        assert self._errors is not None
        self._said = self._errors.seek(0, os.SEEK_END)
        try:
            send_frame(_pipe(child.stdin), (name, arguments, current_factor()))
            spoke = _speaks(child, seconds)
            kind, answer = receive_frame(_pipe(child.stdout)) if spoke else ("silence", "")
        except (EOFError, BrokenPipeError) as error:
            raise self._crash(doing, "", child) from error
        except BaseException:  # an interrupt: the answer that is under way would be taken for the next one
            self.close()
            raise
        if kind == "silence":
            child.kill()
            raise self._crash(doing, f"no answer in {seconds:.3g} s, and its process was ended", child)
        if kind == "answer":
            return answer
        if kind == "refused":
            raise NotReceivedError(answer)
        if kind == "error":
            its, *words = answer
            raise its(words[0], found=words[1], expected=words[2], remedy=words[3])
        raise EngineCrashError(
            doing, found=answer, expected="an answer, or an error of qbench", remedy="Mend the backend."
        )

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._child is not None:
            return self._child
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the worker
        try:
            child = subprocess.Popen(
                # -P: the working folder comes before all others only where it does so here
                [sys.executable, "-P", "-m", _WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(self._paths),
            )
        except OSError as error:
            errors.close()
            raise NotReceivedError(str(error)) from error
        self._child, self._errors = child, errors
        self._end = weakref.finalize(self, _end, child, errors)
        try:
            if _speaks(child, _FIRST_WORD_S):
                receive_frame(_pipe(child.stdout))
                return child
        except EOFError:
            pass
        except BaseException:  # an interrupt: its first word would be taken for an answer
            self.close()
            raise
        said = _tail(errors, 0)
        self.close()
        raise NotReceivedError(said)

    def _crash(self, doing: str, found: str, child: "subprocess.Popen[bytes]") -> EngineCrashError:
        """How the worker ended, and what it said last; it is forgotten."""
        with suppress(subprocess.TimeoutExpired):
            child.wait(_LAST_WORDS_S)
        said = _tail(self._errors, self._said)
        self.close()
        return EngineCrashError(
            doing,
            found=(found or f"a process that ended with {_ending(child.returncode)}") + (f" ({said})" if said else ""),
            expected="an engine that goes on",
            remedy="Report it to the engine's authors, with the test case that can be saved of it.",
        )

    def close(self) -> None:
        """End the worker, whatever it does; the next question starts another."""
        if self._end is not None:
            self._end()
        self._child = self._errors = self._end = None
        self.life += 1


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _speaks(child: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether it says anything in that time; its end is a word, too."""
    return bool(wait([_pipe(child.stdout).fileno()], None if math.isinf(seconds) else seconds))


def _end(child: "subprocess.Popen[bytes]", errors: IO[bytes]) -> None:
    """Nothing of a worker is worth waiting for: it writes nothing but answers."""
    child.kill()
    child.wait()
    for file in (child.stdin, child.stdout, errors):
        with suppress(OSError):  # what was still to be sent to it
            _pipe(file).close()


def _ending(code: int | None) -> str:
    if code is None:
        return "its answers, and goes on"
    known = {one.value: one.name for one in signal.Signals}
    return f"signal {known.get(-code, -code)}" if code < 0 else f"exit code {code}"


def _environment(paths: Sequence[str]) -> Mapping[str, str]:
    """Ours, so that the worker finds the modules that we find."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _tail(stream: IO[bytes] | None, start: int) -> str:
    """The last line that was written from ``start`` on, cut to a sentence."""
    if stream is None:
        return ""
    stream.seek(start)
    lines = stream.read().decode("utf-8", "replace").split("\n")
    return next((" ".join(line.split())[:_LONGEST] for line in reversed(lines) if line.strip()), "")


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
    """``backend`` with its sessions in the ``workshop``; itself where it is a machine of ours, or cannot be sent.

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
    """A backend whose sessions live in the workshop.

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
        self._workshop: EngineWorker = workshop()
        self._key = self._workshop.new_key()
        self._life = -1

    def prepare(self) -> None:
        """Have it prepared in the process that there is now, or here from now on."""
        try:
            self._workshop.ask("prepare", (self._key, *self._made_of), f"Preparing {self._what}", self._patience())
            self._life = self._workshop.life
        except NotReceivedError:  # its modules are found here only, or no worker starts
            self._ours = self._here()

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            EngineCrashError: the engine ends its process, gives no answer in time, or raises what is no error of ours.
            InputError: an input does not fit the graph.
        """
        if self._ours is None and self._life != self._workshop.life:  # another session ended the process of this one
            self.prepare()
        if self._ours is not None:
            return self._ours.run(feeds)
        doing = f"Running {self._what}"
        found: dict[str, Array] = self._workshop.ask("run", (self._key, dict(feeds)), doing, self._patience())
        return found

    def executed(self) -> Mapping[str, Executed]:
        """As the executor over there reports it."""
        if self._ours is None and self._life != self._workshop.life:
            self.prepare()
        if self._ours is not None:
            return executed_by(self._ours)
        found: Mapping[str, Executed] = self._workshop.ask(
            "executed", (self._key,), f"Asking {self._what} how it runs", self._patience()
        )
        return found

    def close(self) -> None:
        """Let the session go."""
        if self._ours is not None:
            self._ours.close()
        elif self._life == self._workshop.life:
            try:
                self._workshop.ask("close", (self._key,), f"Closing {self._what}", self._patience())
            except QbenchError:  # it is gone with its process
                self._life = -1


__all__ = ["ContainedBackend", "Patience", "contained", "endless"]


# A unit alone in an engine, in a process that may die at it: until the engine fails, and then why it did.
#
# Every run of a unit by itself in an engine goes this way: those of localisation, of the sides of a difference, and of
# an engine beside the arithmetic that it claims.


class Alone(Closing):
    """``unit`` in an engine; a context manager that frees the engine's memory.

    Args:
        unit: to be run. backend: the engine. threads: of it.
        patience: how long an answer is waited for.

    ``crash`` says in a sentence how the engine failed; empty: it did not.
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
# A batch that is too short is filled up with its last sample, which then counts as often as it stands there.


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
