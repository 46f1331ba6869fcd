"""A backend in a process of its own, so that an engine that ends its process does not end ours.

Our own machines stay here: they raise what they have to say. So does a backend that cannot be sent to another process.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import onnx_ir as ir

from qbench.backends import Array, Backend, Closing, Executor, Feeds
from qbench.diagnosis.engine.replay_worker import receive_frame, send_frame
from qbench.diagnosis.patient import watches_itself
from qbench.errors import QbenchError
from qbench.graph import Capabilities, as_model, model_bytes

_WORKER = "qbench.diagnosis.engine.replay_worker"
_PATIENCE_S = 10


class EngineCrashError(QbenchError):
    """An engine ended its process, or raised what no backend of ours raises."""


@contextmanager
def contained(backend: Backend) -> Iterator[Backend]:
    """``backend`` in another process, which is started on first use and ended on leaving."""
    if watches_itself(backend) or isinstance(backend, ContainedBackend) or not _can_be_sent(backend):
        yield backend
        return
    process = _Process(backend)
    try:
        yield ContainedBackend(backend, process)
    finally:
        process.end()


def _can_be_sent(backend: Backend) -> bool:
    try:
        pickle.loads(pickle.dumps(backend))
    except Exception:  # whatever a class of anybody's raises when it cannot be pickled
        return False
    return True


class ContainedBackend:
    """A backend whose sessions live in the process that ``contained`` starts."""

    def __init__(self, inner: Backend, process: "_Process") -> None:
        self._inner, self._process = inner, process

    @property
    def engine(self) -> Backend:
        """The backend inside."""
        return self._inner

    @property
    def name(self) -> str:
        """Of the backend inside."""
        return self._inner.name

    @property
    def capabilities(self) -> Capabilities:
        """Of the backend inside."""
        return self._inner.capabilities

    @property
    def packages(self) -> tuple[str, ...]:
        """Of the backend inside."""
        return self._inner.packages

    def prepare(self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
        """A session over there; prepared anew where another one has ended the process.

        Raises:
            EngineCrashError: the engine ends its process, or raises what is no error of ours.
            QbenchError: what the backend raises.
        """
        graph = as_model(model)
        executor = _ContainedExecutor(self._process, (model_bytes(graph), tuple(taps), threads), str(graph.graph.name))
        executor.prepare()
        return executor


class _ContainedExecutor(Closing):
    """One session over there."""

    def __init__(self, process: "_Process", made_of: tuple[bytes, tuple[str, ...], int], graph: str) -> None:
        self._process, self._made_of, self._graph = process, made_of, graph
        self._key = process.new_key()
        self._life = -1

    def prepare(self) -> None:
        """Have it prepared in the process that there is now."""
        self._process.ask("prepare", (self._key, *self._made_of), f"Preparing '{self._graph}'")
        self._life = self._process.life

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            EngineCrashError: the engine ends its process, or raises what is no error of ours.
            InputError: an input does not fit the graph.
        """
        if self._life != self._process.life:  # another session has ended the process that this one was in
            self.prepare()
        found: dict[str, Array] = self._process.ask("run", (self._key, dict(feeds)), f"Running '{self._graph}'")
        return found

    def close(self) -> None:
        """Let the session go."""
        if self._life == self._process.life:
            with suppress(EngineCrashError):
                self._process.ask("close", (self._key,), f"Closing '{self._graph}'")


class _Process:
    """The other process: started when it is asked, and again after it died; ``life`` counts deaths."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._keys = 0
        self.life = 0

    def new_key(self) -> int:
        """A number that no other session has."""
        self._keys += 1
        return self._keys

    def ask(self, name: str, arguments: tuple[Any, ...], doing: str) -> Any:  # noqa: ANN401 - as the question is
        """The answer of the other process."""
        doing = f"{doing} on '{self._backend.name}'"
        child = self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            send_frame(child.stdin, (name, arguments))
            is_fine, answer = receive_frame(child.stdout)
        except (EOFError, BrokenPipeError) as error:
            raise EngineCrashError(
                doing,
                found=self._last_words(child),
                expected="an engine that goes on",
                remedy="Report it to the engine's authors, with the test case that can be saved of it.",
            ) from error
        if is_fine:
            return answer
        kind, _, found, expected, remedy = answer
        if kind is None:
            raise EngineCrashError(
                doing, found=found, expected="an answer, or an error of qbench", remedy="Mend the backend."
            )
        raise kind(answer[1], found=found, expected=expected, remedy=remedy)

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._child is None:
            paths = [path or os.getcwd() for path in sys.path]
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
            self._child = subprocess.Popen(
                [sys.executable, "-m", _WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_environment(paths),
            )
            assert self._child.stdin is not None
            with suppress(BrokenPipeError):  # the first question tells that it died
                send_frame(self._child.stdin, self._backend)
        return self._child

    def _last_words(self, child: "subprocess.Popen[bytes]") -> str:
        """How the process ended, and what it said last; it is forgotten."""
        with suppress(BrokenPipeError):
            self._close_pipes(child)
        code = child.wait()
        said = _tail(self._errors)
        self._forget()
        self.life += 1
        ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"a process that ended with {ended}" + (f" ({said})" if said else "")

    def end(self) -> None:
        """End the process, if it runs."""
        child = self._child
        if child is None:
            return
        with suppress(BrokenPipeError):
            self._close_pipes(child)
        try:
            child.wait(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        self._forget()

    @staticmethod
    def _close_pipes(child: "subprocess.Popen[bytes]") -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.close()
        finally:
            child.stdout.close()

    def _forget(self) -> None:
        if self._errors is not None:
            self._errors.close()
        self._child = self._errors = None


def _environment(paths: Sequence[str]) -> Mapping[str, str]:
    """Ours, so that the child finds the modules that we find."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _tail(stream: IO[bytes] | None) -> str:
    """The last line that was written, cut to a sentence."""
    if stream is None:
        return ""
    stream.seek(0)
    lines = stream.read().decode("utf-8", "replace").split("\n")
    return next((" ".join(line.split())[:200] for line in reversed(lines) if line.strip()), "")
