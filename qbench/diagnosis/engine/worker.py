"""The child process: prepares and runs what its parent sends."""

import os
import pickle
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO, Any

import onnx
import onnx_ir as ir

from qbench.backends import Backend, Executed, Executor, executed_by
from qbench.errors import QbenchError
from qbench.storage import limits_times

_NUMBER = struct.Struct("<Q")
_LONGEST = 200
"""Characters of a strange error that are told."""
_LOOK_AGAIN_S = 0.5
"""Between two looks whether the parent is still there."""


def send_frame(stream: IO[bytes], value: Any) -> None:  # noqa: ANN401 - whatever can be pickled
    """Write ``value``."""
    apart: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=apart.append)
    parts = [memoryview(data), *(one.raw() for one in apart)]
    stream.write(b"".join(_NUMBER.pack(number) for number in (len(parts), *(part.nbytes for part in parts))))
    for part in parts:
        stream.write(part)
    stream.flush()


def receive_frame(stream: IO[bytes]) -> Any:  # noqa: ANN401 - whatever was pickled
    """What was written.

    Raises:
        EOFError: the other end has gone.
    """
    (count,) = _NUMBER.unpack(_exactly(stream, _NUMBER.size))
    sizes = [_NUMBER.unpack(_exactly(stream, _NUMBER.size))[0] for _ in range(count)]
    data, *apart = (_exactly(stream, size) for size in sizes)
    return pickle.loads(data, buffers=apart)


def _exactly(stream: Any, size: int) -> bytearray:  # noqa: ANN401 - IO[bytes] says nothing of readinto
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = stream.readinto(view[done:])
        if not count:
            raise EOFError("the other end of the pipe was closed")
        done += count
    return data


class _NotReceivedError(Exception):
    """The backend cannot be made here of what was sent."""


class _Desk:
    """What is prepared here."""

    def __init__(self) -> None:
        self._executors: dict[int, Executor] = {}

    def prepare(self, key: int, sent: bytes, model: bytes, taps: Sequence[str], threads: int) -> None:
        """Keep an executor of ``model`` under ``key``; ``sent`` is the backend."""
        try:
            backend: Backend = pickle.loads(sent)
        except Exception as error:  # whatever importing somebody's module raises
            raise _NotReceivedError(f"{type(error).__name__}: {error}") from error
        graph = ir.from_proto(onnx.ModelProto.FromString(model))
        self._executors[key] = backend.prepare(graph, taps=taps, threads=threads)

    def run(self, key: int, feeds: Any) -> Any:  # noqa: ANN401 - arrays by name, both ways
        """One batch."""
        return self._executors[key].run(feeds)

    def executed(self, key: int) -> dict[str, Executed]:
        """How its nodes run."""
        return dict(executed_by(self._executors[key]))

    def close(self, key: int) -> None:
        """Let an executor go; one that is not there is gone already."""
        executor = self._executors.pop(key, None)
        if executor is not None:
            executor.close()


def _leave_with(parent: int) -> None:
    """End this process when ``parent`` has gone, in the middle of a unit that hangs too."""
    while os.getppid() == parent:
        time.sleep(_LOOK_AGAIN_S)
    os._exit(1)


def main() -> None:
    """Answer until the parent goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent, which ends us
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # a crash is expected
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an engine prints must not come between frames
    questions = sys.stdin.buffer
    desk = _Desk()
    try:
        send_frame(answers, ("answer", None))
        while True:
            send_frame(answers, _answer(desk, *receive_frame(questions)))
    except (EOFError, BrokenPipeError):
        return


def _answer(desk: _Desk, name: str, arguments: Sequence[Any], factor: int) -> tuple[str, Any]:
    """A word for its kind, and what it is; ``factor`` is that of the parent's size limits."""
    try:
        with limits_times(factor):
            return "answer", getattr(desk, name)(*arguments)
    except QbenchError as error:
        return "error", (type(error), error.doing, error.found, error.expected, error.remedy)
    except _NotReceivedError as error:
        return "refused", str(error)
    except Exception as error:  # an engine of any making
        return "strange", f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"


if __name__ == "__main__":
    main()
