"""The program of the worker process: it prepares and runs the graphs that its parent sends."""

import os
import pickle
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
import onnx

from qbench.lazy import defer_sympy

defer_sympy()  # before onnx_ir is imported here: every start of this program waits for it

import onnx_ir as ir  # noqa: E402

from qbench.backends.protocol import Array, Backend, Executor, Feeds, executed_by  # noqa: E402
from qbench.backends.venv.worker import serve, write_message  # noqa: E402
from qbench.errors import QbenchError  # noqa: E402
from qbench.storage import limits_times  # noqa: E402

_Message = tuple[dict[str, Any], dict[str, Array]]


class NotReceivedError(Exception):
    """The worker cannot load what was pickled, or its work cannot be done here."""


class Handler:
    """The prepared graphs of this process; every request names the method that handles it.

    Args:
        running: is called before each batch of ``apply``.
    """

    def __init__(self, running: Callable[[], None] = lambda: None) -> None:
        self._executors: dict[int, Executor] = {}
        self._running = running

    def answer(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> _Message:
        """The reply to ``header``, under the parent's size limits."""
        try:
            with limits_times(header["factor"]):
                found: _Message = getattr(self, header["do"])(header, arrays)
                return found
        except QbenchError as error:
            kind = f"{type(error).__module__}:{type(error).__qualname__}"
            parts = [error.doing, error.found, error.expected, error.remedy]
            return {"error": {"kind": kind, "text": str(error), "parts": parts}}, {}

    def prepare(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> _Message:
        """Keep an executor under ``key``; ``backend`` is the pickled backend."""
        try:
            backend: Backend = pickle.loads(arrays["backend"].tobytes())
        except Exception as error:  # importing a user's module may raise anything
            raise NotReceivedError(f"{type(error).__name__}: {error}") from error
        graph = ir.from_proto(onnx.ModelProto.FromString(arrays["model"].tobytes()))
        executor = backend.prepare(graph, taps=header["taps"], threads=header["threads"])
        self._executors[header["key"]] = executor
        return {}, {}

    def run(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> _Message:
        """One batch."""
        return {}, self._executors[header["key"]].run(arrays)

    def apply(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> _Message:
        """The pickled result of the pickled ``work``, a function of executors by name, whose
        keys are ``keys``.
        """
        try:
            work = pickle.loads(arrays["work"].tobytes())
            runners = {
                name: _Reported(self._executors[key], self._running)
                for name, key in header["keys"].items()
            }
            result = pickle.dumps(work(runners))
        except QbenchError:
            raise
        except Exception as error:
            # of a user's task: it is raised again where its trace can be seen
            raise NotReceivedError(f"{type(error).__name__}: {error}") from error
        return {}, {"result": np.frombuffer(result, np.uint8)}

    def executed(self, header: Mapping[str, Any], _: Mapping[str, Array]) -> _Message:
        """How the nodes of a prepared graph run."""
        found = executed_by(self._executors[header["key"]])
        return {"executed": {node: list(astuple(one)) for node, one in found.items()}}, {}

    def close(self, header: Mapping[str, Any], _: Mapping[str, Array]) -> _Message:
        """Close an executor; do nothing if it is not there."""
        executor = self._executors.pop(header["key"], None)
        if executor is not None:
            executor.close()
        return {}, {}


class _Reported:
    """An executor whose batches are reported before they run, so that the parent sees one that
    hangs.
    """

    def __init__(self, executor: Executor, running: Callable[[], None]) -> None:
        self.reported, self._running = executor, running

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch."""
        self._running()
        return self.reported.run(feeds)


if __name__ == "__main__":
    # a crash is expected
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    replies = os.fdopen(os.dup(int(sys.argv[2])), "wb", buffering=0)
    handler = Handler(lambda: write_message(replies, {"running": True}, {}))
    serve(sys.argv[1:], lambda: ({}, {}), handler.answer)
