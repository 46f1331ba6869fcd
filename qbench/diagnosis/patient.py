"""What localisation examines: a quantized graph on a backend, the float graph it was written from, and who is watched.

Taps change what an engine runs, so the engine itself is never tapped: an integer machine that counts as it does is
watched in its place, once their outputs were seen to be equal, or how far apart they are.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import onnx_ir as ir

from qbench.backends import Backend
from qbench.evaluation import Rewriting
from qbench.interpreter import Around


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Patient:
    """One quantized graph on one backend.

    Args:
        model: what people call it. graph: which graph of the model. schema: by which it was quantized, in a word.
        original: the float graph that ``quantized`` was written into: its values keep their names there.
        quantized: in QDQ form.
        backend: what runs it.
        watched: runs it with taps that change nothing; ``backend`` itself where that is an integer machine.
        claims: a machine that counts as ``backend`` should, where that is known and another one than ``watched``.
        threads: of one engine.
        written, rewriting: the graph that the quantizer wrote, and what made ``quantized`` of it; None: nothing did.
    """

    model: str
    graph: str = "model"
    schema: str = ""
    original: ir.Model
    quantized: ir.Model
    backend: Backend
    watched: Backend
    claims: Backend | None = None
    threads: int = 1
    written: ir.Model | None = None
    rewriting: Rewriting | None = None

    @property
    def is_watched_itself(self) -> bool:
        """Whether taps of the backend itself change nothing."""
        return self.watched is self.backend


@runtime_checkable
class Watchable(Protocol):
    """A backend whose taps change nothing, and whose kernels can be stood around: our integer machines."""

    def surrounded(self, around: Around) -> Backend:
        """The same with ``around`` about every kernel."""
        ...


def watches_itself(backend: Backend) -> bool:
    """Whether taps of ``backend`` change nothing: it is one of our integer machines."""
    return isinstance(backend, Watchable)
