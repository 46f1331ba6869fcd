"""A unit alone in an engine, in a process that may die at it: until the engine fails, and then why it did.

Every run of a unit by itself in an engine goes this way: those of localisation, of the sides of a difference, and of
an engine beside the arithmetic that it claims.
"""

from dataclasses import replace

from qbench.backends import (
    Array,
    Backend,
    Closing,
    Elsewhere,
    Executor,
    Feeds,
    OrtBackend,
    in_slices,
)
from qbench.diagnosis.engine.contained import Patience, contained, endless
from qbench.diagnosis.quantized_units import QuantizedUnit
from qbench.errors import QbenchError


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
        self._engine = contained(_sparing(backend), patience)
        self._is_kept = not isinstance(backend, Elsewhere)  # there every session is a process
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


def _sparing(backend: Backend) -> Backend:
    """``backend`` for as many sessions as there are units: none may keep memory that it does not need."""
    return replace(backend, arena=False) if isinstance(backend, OrtBackend) else backend
