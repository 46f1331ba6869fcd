"""The other process: prepares and runs what its parent sends until standard input ends, and may die at it.

A frame is a length of 8 bytes and a pickle. Both ends are one program on one machine: the parent starts this file and
nobody else writes to it.
"""

import os
import pickle
import struct
import sys
from collections.abc import Sequence
from typing import IO, Any

import onnx
import onnx_ir as ir

from qbench.backends import Backend, Executor
from qbench.errors import QbenchError

HEADER = struct.Struct("<Q")
_LONGEST = 200
"""Characters of a strange error that are told."""


def send_frame(stream: IO[bytes], value: Any) -> None:  # noqa: ANN401 - whatever can be pickled
    """Write ``value``."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(HEADER.pack(len(data)) + data)
    stream.flush()


def receive_frame(stream: IO[bytes]) -> Any:  # noqa: ANN401 - whatever was pickled
    """What was written.

    Raises:
        EOFError: the other end has gone.
    """
    header = stream.read(HEADER.size)
    data = stream.read(HEADER.unpack(header)[0]) if len(header) == HEADER.size else b""
    if len(header) < HEADER.size or len(data) < HEADER.unpack(header)[0]:
        raise EOFError
    return pickle.loads(data)


class _Desk:
    """What is prepared here."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._executors: dict[int, Executor] = {}

    def prepare(self, key: int, model: bytes, taps: Sequence[str], threads: int) -> None:
        """Keep an executor of ``model`` under ``key``."""
        graph = ir.from_proto(onnx.ModelProto.FromString(model))
        self._executors[key] = self._backend.prepare(graph, taps=taps, threads=threads)

    def run(self, key: int, feeds: Any) -> Any:  # noqa: ANN401 - arrays by name, both ways
        """One batch."""
        return self._executors[key].run(feeds)

    def close(self, key: int) -> None:
        """Let an executor go; one that is not there is gone already."""
        executor = self._executors.pop(key, None)
        if executor is not None:
            executor.close()


def main() -> None:
    """Answer until the parent goes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an engine prints must not come between frames
    questions = sys.stdin.buffer
    try:
        desk = _Desk(receive_frame(questions))
        while True:
            name, arguments = receive_frame(questions)
            try:
                answer = (True, getattr(desk, name)(*arguments))
            except QbenchError as error:
                answer = (False, (type(error), error.doing, error.found, error.expected, error.remedy))
            except Exception as error:  # an engine of any making
                said = " ".join(str(error).split())[:_LONGEST]
                answer = (False, (None, "", f"{type(error).__name__}: {said}", "", ""))
            send_frame(answers, answer)
    except EOFError:
        return


if __name__ == "__main__":
    main()
