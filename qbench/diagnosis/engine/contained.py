"""A backend whose sessions live in another process, so that an engine that ends its process does not end ours.

Our own machines stay here: they raise what they have to say. So does a backend that cannot be sent to another process.
"""

import math
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import onnx_ir as ir

from qbench.backends import Array, Backend, Closing, Executor, Feeds
from qbench.diagnosis.engine.workshop import NotReceivedError, Workshop, workshop
from qbench.diagnosis.patient import watches_itself
from qbench.errors import QbenchError
from qbench.graph import Capabilities, as_model, model_bytes

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
        self._workshop: Workshop = workshop()
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
