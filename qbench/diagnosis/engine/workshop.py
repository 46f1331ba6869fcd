"""The one room of a process of ours in which an engine may end its process: a worker, started on first use.

    question → worker → answer        worker dead, or silent for longer than it may take → EngineCrashError, a new life

All that is run alone goes there, whoever asks: sessions of several engines live side by side. After a death a new
worker is started by the next question, and whoever asks has his session prepared anew (``life`` tells). A worker costs
a second of imports, so it is kept for the next one who asks, for as long as modules are found in the same places.
"""

import functools
import math
import os
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import IO, Any

from qbench.diagnosis.engine.replay_worker import receive_frame, send_frame
from qbench.errors import QbenchError
from qbench.storage import current_factor

_WORKER = "qbench.diagnosis.engine.replay_worker"
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


def workshop() -> "Workshop":
    """That of this process."""
    return _workshop(tuple(path or os.getcwd() for path in sys.path))


@functools.lru_cache(maxsize=1)
def _workshop(paths: tuple[str, ...]) -> "Workshop":
    """One for each way in which modules are found: a name must not be another module over there."""
    return Workshop(paths)


class Workshop:
    """A worker, which dies with this value; ``paths`` are where it looks for modules. ``life`` counts its deaths."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._end: weakref.finalize[..., Workshop] | None = None
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
