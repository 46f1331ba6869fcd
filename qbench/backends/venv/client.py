"""The parent's end of a worker process."""

import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx_ir as ir

from qbench.backends.protocol import Array, Closing
from qbench.backends.venv import worker
from qbench.errors import InputError, UnavailableError
from qbench.graph import MESSAGE_LIMIT, constant_bytes, model_bytes, save_model

_SCRIPT = Path(worker.__file__)
_COUNTS = {"numpy", "onnxruntime"}
"""Packages whose versions a worker must report."""
FIRST_MESSAGE_S = 120
"""Timeout for starting a process and importing its packages, on a busy computer."""
_LAST_WORDS_S = 5
"""Timeout for the end of a process that closed its pipe."""
_CRASHED = (
    "The engine crashed or was killed, perhaps for lack of memory: "
    "try a smaller batch, or another version."
)
_QUOTED = 200
"""Bytes of the end of a process's output that are read."""
_LONGEST = 4000
"""Characters of a child's error that are passed on."""
_SILENCE_S = 3600
"""Timeout without any byte read or written: longer than a batch of any network takes."""


class EngineError(Exception):
    """An error that the child raised: ``kind`` is its type, ``parts`` are the four parts of a
    ``QbenchError``.
    """

    def __init__(self, kind: str, text: str, parts: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.kind = kind
        self.parts = tuple(parts)


class ChildError(Exception):
    """A child process gives no reply, and was killed.

    Args:
        found: how it ended or broke the protocol.
        said: the last line that it printed.
        silent, garbled: whether it timed out, or broke the protocol; neither: it ended.
    """

    def __init__(
        self, found: str, said: str, *, silent: bool = False, garbled: bool = False
    ) -> None:
        super().__init__(found)
        self.found, self.said, self.silent, self.garbled = found, said, silent, garbled


class Child(Closing):
    """A child process that replies to messages (``worker.serve``); it ends with this value.

    Args:
        command: its program; the descriptors of its pipes and of the shared memory are appended.
        environment: its variables; None: those of this process.
        shares: whether large arrays of its messages travel through shared memory; else through the
            pipes.

    Raises:
        OSError, ValueError: it does not start.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        shares: bool = False,
    ) -> None:
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        memory = (
            [os.memfd_create(name) for name in ("qbench-feeds", "qbench-results")] if shares else []
        )
        passed = (theirs_in, theirs_out, *memory)
        try:
            self._process = subprocess.Popen(
                [*command, *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                pass_fds=passed,
                env=environment,
            )
        except BaseException:
            for one in (ours_in, ours_out, *memory):
                os.close(one)
            self._printed.close()
            raise
        finally:
            for one in (theirs_in, theirs_out):
                os.close(one)
        self._out, self._in = _TimedPipe(ours_out, "wb"), _TimedPipe(ours_in, "rb")
        self._feeds = worker.SharedMemory(memory[0]) if memory else None
        self._results = worker.SharedMemory(memory[1]) if memory else None
        self._end = weakref.finalize(
            self, _end, self._process, memory, self._out, self._in, self._printed
        )

    def receive(self, seconds: float, *, since: int = 0) -> worker.Message:
        """The next message, with a timeout of ``seconds``; an error quotes the output after
        byte ``since``.

        Raises:
            EngineError: the child raised an error; it continues.
            ChildError: it gives no reply, and was killed.
        """
        return self._exchanged(None, seconds, since)

    def ask(
        self,
        header: Mapping[str, Any],
        arrays: Mapping[str, Array],
        *,
        seconds: float,
        since: int = 0,
    ) -> worker.Message:
        """Send one message and wait for its reply, as ``receive`` does."""
        return self._exchanged((header, arrays), seconds, since)

    def _exchanged(
        self, sent: tuple[Mapping[str, Any], Mapping[str, Array]] | None, seconds: float, since: int
    ) -> worker.Message:
        self._in.seconds = self._out.seconds = seconds
        try:
            if sent is not None:
                worker.write_message(self._out, *sent, shared=self._feeds)
            answer, results = worker.read_message(self._in, self._results)
            problem = _error_in(answer)
        except worker.UnsendableError as error:
            raise EngineError(type(error).__name__, str(error)) from error
        except (EOFError, OSError) as error:
            raise self._ended(since, silent=isinstance(error, TimeoutError)) from error
        except worker.GarbledError as error:
            said = self.last_line(since)
            self.close()
            raise ChildError(str(error), said, garbled=True) from error
        except BaseException:
            # an interrupt: the reply to this message would be taken for the next one
            self.close()
            raise
        if problem is not None:
            raise problem
        if self._results is not None:  # the next message overwrites what lies in shared memory
            results = {name: array.copy() for name, array in results.items()}
        return answer, results

    def _ended(self, since: int, *, silent: bool) -> ChildError:
        if silent:
            self._process.kill()
        try:
            found = f"ended with {_ending(self._process.wait(_LAST_WORDS_S))}"
        except subprocess.TimeoutExpired:
            found = "closed its pipe and went on"
        said = self.last_line(since)
        self.close()
        return ChildError(found, said, silent=silent)

    @property
    def printed_bytes(self) -> int:
        """The number of bytes that it printed."""
        return self._printed.seek(0, os.SEEK_END)

    def printed(self) -> str:
        """All that it has printed."""
        self._printed.seek(0)
        return self._printed.read().decode("utf-8", errors="replace")

    def last_line(self, since: int = 0) -> str:
        """The last line that it printed after byte ``since``."""
        self._printed.seek(max(since, self.printed_bytes - _QUOTED))
        lines = self._printed.read().decode("utf-8", errors="replace").split("\n")
        return next((" ".join(line.split()) for line in reversed(lines) if line.strip()), "")

    def close(self) -> None:
        """Kill the process."""
        self._end()


def own_python(module: str) -> list[str]:
    """The command that runs ``module`` under this Python; ``own_environment`` belongs to it."""
    # -P: the search path is that of this process, without the working folder
    return [
        sys.executable,
        "-P",
        "-m",
        module,
    ]


def own_environment(paths: Sequence[str] | None = None) -> dict[str, str]:
    """The variables of this process, with ``paths`` as the search path for modules; None: that
    of this process.
    """
    found = [path or os.getcwd() for path in sys.path] if paths is None else paths
    return {**os.environ, "PYTHONPATH": os.pathsep.join(found)}


class Worker(Closing):
    """A worker process with one ONNX Runtime session; ``versions`` are those of its packages.

    Args:
        python: a Python with numpy and onnxruntime; None: this one.

    Raises:
        InputError: the Python does not exist.
        UnavailableError: it does not start, or numpy or onnxruntime is missing there or broken.
    """

    def __init__(self, python: Path | None = None) -> None:
        self._python = Path(sys.executable) if python is None else python
        # -I: variables, the user folder and the working folder do not change what is imported there
        command = (
            own_python(worker.__name__)
            if python is None
            else [os.fspath(python), "-I", os.fspath(_SCRIPT)]
        )
        try:
            # another Python may be older than files in memory, and is not trusted
            shares = python is None
            self._child = Child(command, own_environment() if shares else None, shares=shares)
        except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
            raise _no_python(self._python, error) from error
        try:
            self.versions: Mapping[str, str] = self._greeting()
        except BaseException:
            self.close()
            raise

    def ask(
        self,
        header: Mapping[str, Any],
        arrays: Mapping[str, Array],
        *,
        doing: str,
        seconds: float | None = None,
    ) -> worker.Message:
        """Send one message and wait for its reply.

        Args:
            header, arrays: the message.
            doing: for the error.
            seconds: timeout without any byte; None: an hour.

        Raises:
            EngineError: the worker raised an error; it continues.
            UnavailableError: the worker died; it is closed.
        """
        seconds = _SILENCE_S if seconds is None else seconds
        try:
            return self._child.ask(header, arrays, seconds=seconds)
        except ChildError as error:
            raise _unavailable(doing, error, f"does nothing for {seconds} s") from error

    def load(
        self,
        model: ir.Model,
        settings: Mapping[str, object],
        *,
        doing: str,
        seconds: float | None = None,
    ) -> None:
        """Make its session of ``model``, sent as bytes, or beyond 2 GB as a temporary file.

        Args:
            settings: ``OrtBackend.session_settings``.

        Raises:
            EngineError, UnavailableError: as ``ask``.
        """
        question = {"do": "prepare", **settings}
        if constant_bytes(model) < MESSAGE_LIMIT:
            data = np.frombuffer(model_bytes(model), np.uint8)
            self.ask({**question, "path": None}, {"model": data}, doing=doing, seconds=seconds)
            return
        with tempfile.TemporaryDirectory(prefix="qbench-") as folder:
            path = Path(folder) / "model.onnx"
            save_model(model, path)
            self.ask({**question, "path": os.fspath(path)}, {}, doing=doing, seconds=seconds)

    def printed(self) -> str:
        """All that it has printed."""
        return self._child.printed()

    def close(self) -> None:
        """Kill the worker."""
        self._child.close()

    def _greeting(self) -> Mapping[str, str]:
        doing = f"Starting the Python '{self._python}'"
        try:
            greeting, _ = self._child.receive(FIRST_MESSAGE_S)
        except EngineError as error:
            raise UnavailableError(
                doing,
                found=f"{error.kind}: "
                f"{' '.join(str(error).split())[:_QUOTED] or self._child.last_line()}",
                expected="compatible versions of numpy and onnxruntime",
                remedy=f"Install them there: {self._python} -m pip install onnxruntime; a release "
                "from before numpy 2 also needs 'numpy<2'.",
            ) from error
        except ChildError as error:
            if error.silent:
                raise UnavailableError(
                    doing,
                    found=f"no message in {FIRST_MESSAGE_S} s",
                    expected="a worker that replies",
                    remedy="Start it by hand: is it a Python?",
                ) from error
            raise _unavailable(
                doing, error, "", "Start it by hand: is it a Python 3.8 or later?"
            ) from error
        versions = greeting.get("versions")
        if not isinstance(versions, dict) or not versions.keys() >= _COUNTS:
            said = self._child.last_line()
            wrong = ChildError(
                "a greeting without the versions of numpy and onnxruntime", said, garbled=True
            )
            raise _unavailable(doing, wrong)
        return {name: str(version)[:_QUOTED] for name, version in versions.items()}


def _unavailable(
    doing: str, error: ChildError, silent: str = "", remedy: str = _CRASHED
) -> UnavailableError:
    last = f"; its last words: {error.said}" if error.said else ""
    if error.garbled:
        return UnavailableError(
            doing,
            found=f"an answer that breaks the protocol: {error.found}{last}",
            expected="a message of qbench's worker",
            remedy="Check which program that is, and that nothing else in it writes "
            "to the worker's pipe.",
        )
    how = f"that it {silent}" if error.silent else f"that its worker {error.found}"
    return UnavailableError(doing, found=how + last, expected="an answer", remedy=remedy)


class _TimedPipe:
    """One end of a pipe, with a timeout of ``seconds`` without any byte."""

    def __init__(self, descriptor: int, mode: str) -> None:
        os.set_blocking(descriptor, False)
        self._file: Any = os.fdopen(descriptor, mode, buffering=0)
        self.seconds: float = _SILENCE_S

    def readinto(self, view: memoryview) -> int:
        """Read some bytes; their count, 0 at the end.

        Raises:
            TimeoutError: no byte came.
        """
        while True:
            if not select.select([self._file], [], [], _limit(self.seconds))[0]:
                raise TimeoutError
            count = self._file.readinto(view)
            if count is not None:
                return int(count)

    def write(self, data: Any) -> None:  # noqa: ANN401 - whatever has a buffer of bytes
        """Write all of ``data``.

        Raises:
            TimeoutError: the other end reads no byte. BrokenPipeError: it was closed.
        """
        view = memoryview(data)
        while view:
            if not select.select([], [self._file], [], _limit(self.seconds))[1]:
                raise TimeoutError
            view = view[self._file.write(view) or 0 :]

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Close the pipe."""
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
    parts = error.get("parts", [])
    if not isinstance(parts, list) or any(not isinstance(part, str) for part in parts):
        raise worker.GarbledError("an error whose parts are not texts")
    return EngineError(kind[:_QUOTED], text[:_LONGEST], [part[:_LONGEST] for part in parts])


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    known = {one.value: one.name for one in signal.Signals}
    return f"signal {known.get(-status, -status)}"


def _limit(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds


def _end(
    process: "subprocess.Popen[bytes]", memory: Sequence[int], *files: "IO[bytes] | _TimedPipe"
) -> None:
    """Kill the process, which has nothing to save, and close the files."""
    process.kill()
    process.wait()
    for descriptor in memory:
        os.close(descriptor)
    for file in files:
        try:
            file.close()
        except OSError:  # unsent data
            continue


def _no_python(python: Path, error: OSError | ValueError) -> InputError:
    return InputError(
        f"Starting the Python '{python}'",
        found=(error.strerror if isinstance(error, OSError) else None) or str(error),
        expected="the program of a Python, or the folder of a virtual environment",
        remedy="Check the path; 'python -m venv FOLDER' makes one.",
    )
