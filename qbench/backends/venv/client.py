"""The parent's end of a worker process."""

import os
import select
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from qbench.backends.protocol import Array, Closing
from qbench.backends.venv import worker
from qbench.errors import InputError, UnavailableError

_SCRIPT = Path(worker.__file__)
_COUNTS = {"numpy", "onnxruntime"}
"""What a worker names the versions of."""
_FIRST_WORD_S = 120
"""How long a Python may take until its packages are imported."""
_LAST_WORDS_S = 5
"""How long a worker that closed its pipe may take to be gone."""
_CRASHED = (
    "The engine over there crashed or was killed, for want of memory perhaps: try a smaller batch, or another version."
)
_QUOTED = 200
"""Bytes of the end of what a worker printed that are looked at."""
_LONGEST = 4000
"""Characters of an error over there that are passed on."""
_SILENCE_S = 3600
"""How long a worker may neither read nor write: longer than a batch of any network takes."""


class EngineError(Exception):
    """What was raised over there: ``kind`` is its type there."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Worker(Closing):
    """A running worker of the Python ``python``; ``versions`` says what counts there.

    Raises:
        InputError: there is no such Python.
        UnavailableError: it does not start, or numpy or onnxruntime is missing there or broken.
    """

    def __init__(self, python: Path) -> None:
        self._python = python
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        try:
            self._process = subprocess.Popen(
                # -I: no variable, no user folder and no working folder of ours decides what is imported there
                [os.fspath(python), "-I", os.fspath(_SCRIPT), str(theirs_in), str(theirs_out)],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=(theirs_in, theirs_out),
            )
        except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
            for one in (ours_in, ours_out):
                os.close(one)
            self._said.close()
            raise _no_python(python, error) from error
        finally:
            for one in (theirs_in, theirs_out):
                os.close(one)
        self._out, self._in = _Patient(ours_out, "wb"), _Patient(ours_in, "rb")
        self._end = weakref.finalize(self, _end, self._process, self._out, self._in, self._said)
        try:
            self.versions: Mapping[str, str] = self._greeting()
        except BaseException:
            self.close()
            raise

    def ask(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array], *, doing: str
    ) -> tuple[Mapping[str, Any], dict[str, Array]]:
        """Send one message and wait for its answer; ``doing`` is for the error.

        Raises:
            EngineError: something was raised over there; the worker goes on.
            UnavailableError: the worker died, which closes it.
        """
        try:
            worker.write_message(self._out, header, arrays)
            answer, results = worker.read_message(self._in)
            problem = _error_in(answer)
        except (EOFError, OSError) as error:
            raise self._died(doing, silent=isinstance(error, TimeoutError)) from error
        except worker.GarbledError as error:
            raise self._garbled(doing, str(error)) from error
        except BaseException:  # an interrupt: the answer that is under way would be taken for the next one
            self.close()
            raise
        if problem is not None:
            raise problem
        return answer, results

    def close(self) -> None:
        """End the worker now, whatever it does."""
        self._end()

    def _greeting(self) -> Mapping[str, str]:
        doing = f"Starting the Python '{self._python}'"
        self._in.seconds = _FIRST_WORD_S
        try:
            greeting, _ = worker.read_message(self._in)
            problem = _error_in(greeting)
        except TimeoutError as error:
            raise UnavailableError(
                doing,
                found=f"that it says nothing in {_FIRST_WORD_S} s",
                expected="a worker that answers",
                remedy="Try it by hand: is it a Python?",
            ) from error
        except (EOFError, OSError) as error:
            raise self._died(doing, "Try it by hand: is it a Python, of 3.8 or later?") from error
        except worker.GarbledError as error:
            raise self._garbled(doing, str(error)) from error
        self._in.seconds = _SILENCE_S
        if problem is not None:
            raise UnavailableError(
                doing,
                found=f"{problem.kind}: {' '.join(str(problem).split())[:_QUOTED] or self._last_line()}",
                expected="numpy and onnxruntime that go together",
                remedy=f"Install them there: {self._python} -m pip install onnxruntime; a release from before numpy 2 "
                "needs 'numpy<2' beside it.",
            )
        versions = greeting.get("versions")
        if not isinstance(versions, dict) or not _COUNTS <= versions.keys():
            raise self._garbled(doing, "a greeting without the versions of numpy and onnxruntime")
        return {name: str(version)[:_QUOTED] for name, version in versions.items()}

    def _garbled(self, doing: str, found: str) -> UnavailableError:
        said = self._last_line()
        self.close()
        return UnavailableError(
            doing,
            found=f"an answer that breaks the protocol: {found}" + (f"; its last words: {said}" if said else ""),
            expected="a message as qbench's worker writes it",
            remedy="Check what program that is, and that nothing in it writes to the pipe of the worker.",
        )

    def _died(self, doing: str, remedy: str = _CRASHED, *, silent: bool = False) -> UnavailableError:
        if silent:
            self._process.kill()
        try:
            status = self._process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            found = "a worker that closed its pipe and went on"
        else:
            found = f"that it does nothing for {_SILENCE_S} s" if silent else f"its worker ended {_by(status)}"
        said = self._last_line()
        self.close()
        return UnavailableError(
            doing,
            found=found + (f"; its last words: {said}" if said else ""),
            expected="an answer",
            remedy=remedy,
        )

    def _last_line(self) -> str:
        """The end of what was printed there."""
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _QUOTED))
        lines = self._said.read().decode("utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


class _Patient:
    """One end of a pipe; what takes longer than ``seconds`` without a byte is an error."""

    def __init__(self, descriptor: int, mode: str) -> None:
        os.set_blocking(descriptor, False)
        self._file: Any = os.fdopen(descriptor, mode, buffering=0)
        self.seconds: float = _SILENCE_S

    def readinto(self, view: memoryview) -> int:
        """Some bytes; their count, 0 at the end.

        Raises:
            TimeoutError: none came.
        """
        while True:
            if not select.select([self._file], [], [], self.seconds)[0]:
                raise TimeoutError
            count = self._file.readinto(view)
            if count is not None:
                return int(count)

    def write(self, data: Any) -> None:  # noqa: ANN401 - whatever has a buffer of bytes
        """All of ``data``.

        Raises:
            TimeoutError: the other end takes none. BrokenPipeError: it was closed.
        """
        view = memoryview(data)
        while view:
            if not select.select([], [self._file], [], self.seconds)[1]:
                raise TimeoutError
            view = view[self._file.write(view) or 0 :]

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """Close it."""
        self._file.close()


def _error_in(answer: Mapping[str, Any]) -> EngineError | None:
    """The error that the worker reported in ``answer``; None: it reported none.

    Raises:
        GarbledError: the entry has another form.
    """
    error = answer.get("error")
    if error is None:
        return None
    kind, text = (error.get("kind"), error.get("text")) if isinstance(error, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(text, str):
        raise worker.GarbledError("an error without its kind or text")
    return EngineError(kind[:_QUOTED], text[:_LONGEST])


def _by(status: int) -> str:
    if status >= 0:
        return f"with status {status}"
    known = {one.value: one.name for one in signal.Signals}
    return f"by {known.get(-status, f'signal {-status}')}"


def _end(process: "subprocess.Popen[bytes]", *files: "IO[bytes] | _Patient") -> None:
    """Nothing of a worker is worth waiting for: it writes nothing but answers."""
    process.kill()
    process.wait()
    for file in files:
        try:
            file.close()
        except OSError:  # what was still to be sent to it
            continue


def _no_python(python: Path, error: OSError | ValueError) -> InputError:
    return InputError(
        f"Starting the Python '{python}'",
        found=(error.strerror if isinstance(error, OSError) else None) or str(error),
        expected="the program of a Python, or the folder of a virtual environment",
        remedy="Check the path; 'python -m venv FOLDER' makes one.",
    )
