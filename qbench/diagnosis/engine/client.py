"""One unit alone in an engine, in a process that may end at it."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from qbench.backends import (
    Array,
    Backend,
    Closing,
    Executor,
    Feeds,
    RemoteBackend,
    Timeout,
    contained,
    for_many_sessions,
    in_slices,
    no_timeout,
)
from qbench.calibration import Rows
from qbench.diagnosis.units import QuantizedUnit
from qbench.errors import QbenchError
from qbench.graph import fixed_batch


class UnitSession(Closing):
    """One unit alone in an engine, in the worker, until the engine fails; a context manager
    that frees its memory.

    Args:
        unit: to be run.
        backend: the engine.
        threads: of it.
        timeout: of one reply.
        keeps_process: keep the session of a remote backend, a process, from run to run; else every
            run starts one, so that as many units as a model has need no more memory than one.

    ``crash`` says in a sentence how the engine failed; empty: it did not.
    """

    def __init__(
        self,
        unit: QuantizedUnit,
        backend: Backend,
        *,
        threads: int = 1,
        timeout: Timeout = no_timeout,
        keeps_process: bool = False,
    ) -> None:
        self.crash = ""
        self.unit, self._threads = unit, threads
        self._engine = contained(for_many_sessions(backend), timeout)
        self._is_kept = keeps_process or not isinstance(backend, RemoteBackend)
        self._executor: Executor | None = None

    def run(self, feeds: Feeds) -> Array | None:
        """The result of the engine for ``feeds``; None: it fails now or has failed before."""
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
        """Free the engine's memory; a later run allocates it again."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None


def rows_of_runs(model: ir.Model) -> Rows:
    """How batches are split for ``model``: of a fixed batch run by run, whatever axes its
    outputs have.
    """
    rows, size = Rows.of(model), fixed_batch(model)
    return rows if size is None else replace(rows, size=size)


def filled_up(model: ir.Model, feeds: Feeds) -> dict[str, Array]:
    """``feeds`` with the batch size that ``model`` declares; unchanged where its batch size is
    free.

    A larger batch is cut. A smaller one repeats its last sample, which is then counted several
    times.

    Args:
        model: the graph.
        feeds: its inputs by name, of at least one sample.
    """
    size = fixed_batch(model)
    if size is None:
        return dict(feeds)
    rows = Rows.of(model)
    count = rows.count(feeds)
    if count == size or not count:
        return dict(feeds)
    places = np.minimum(np.arange(size), count - 1)
    return {
        name: _taken(array, rows.inputs.get(name), places, count) for name, array in feeds.items()
    }


def _taken(array: Array, axis: int | None, places: Array, count: int) -> Array:
    if axis is None or array.ndim <= axis or array.shape[axis] != count:
        return array
    return np.ascontiguousarray(np.take(array, places, axis=axis))
