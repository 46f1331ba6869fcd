"""What localization examines: a quantized graph on a backend, the float graph, and the arithmetic it claims."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import onnx_ir as ir

from qbench.backends import (
    Backend,
    Feeds,
    IntegerBackend,
    arithmetic_of,
    get_backend,
    in_slices,
    runs_as_written,
)
from qbench.errors import InputError
from qbench.evaluation import Quantized, Request, Rewriting, rewrite_quantized, steps_of
from qbench.interpreter import KernelWrapper
from qbench.metrics import Differences, count_differences
from qbench.number_text import rough_percent
from qbench.passes import plannable

# What localisation examines: a quantized graph on a backend, the float graph it was written from, and who is watched.
#
# Taps change what an engine runs, so the engine itself is never tapped: an integer machine that counts as it does is
# watched in its place, once their outputs were seen to be equal, or how far apart they are.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Target:
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

    def surrounded(self, around: KernelWrapper) -> Backend:
        """The same with ``around`` about every kernel."""
        ...


def watches_itself(backend: Backend) -> bool:
    """Whether taps of ``backend`` change nothing: it is one of our integer machines."""
    return isinstance(backend, Watchable)


# Which backend is watched in place of an engine.


def stand_in(backend: Backend) -> Backend | None:
    """What is watched in place of ``backend``: itself where taps change nothing, else an interpreter of its arithmetic.

    None: it declares no arithmetic.
    """
    if watches_itself(backend) or runs_as_written(backend):
        return backend
    arithmetic = arithmetic_of(backend)
    return None if arithmetic is None else IntegerBackend(arithmetic=arithmetic)


# Whether a watched machine answers what the untouched engine answers: bit for bit, or within a bound that is said.
#
# Both run the same batches, neither is tapped; sums only are kept.

_FAR = 0.05
"""Of the largest output: some steps of a grid of 8 bits may be what another order of sums makes of ties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """How the outputs of ``watched`` relate to those of ``engine``.

    Args:
        samples: that both answered; 0: they are one and the same. found: what differs between their outputs.
    """

    engine: str
    watched: str
    samples: int = 0
    found: Differences = field(default_factory=Differences)

    @property
    def is_exact(self) -> bool:
        """Whether no number differs."""
        return not self.found.differing

    @property
    def strays(self) -> bool:
        """Whether they are so far apart that what is seen of the one may not hold for the other."""
        return self.found.unbounded > 0 or self.found.relative > _FAR

    @property
    def sentence(self) -> str:
        """The relation in words, for a report."""
        if not self.samples:
            return f"'{self.watched}' is watched itself: taps change nothing there"
        over = f"{self.found.elements} outputs over {self.samples} {'sample' if self.samples == 1 else 'samples'}"
        if self.is_exact:
            return f"'{self.watched}' is watched in place of '{self.engine}': equal to it bit for bit in {over}"
        return (
            f"'{self.watched}' is watched in place of '{self.engine}': {self.found.differing} of {over} differ, "
            f"{bound_of(self.found)}"
        )


def bound_of(found: Differences) -> str:
    """How far outputs that differ are apart, in words."""
    if found.unbounded:
        return f"{found.unbounded} of them without bound"
    steps = "" if found.steps is None else f"{found.steps:.3g} {'step' if found.steps == 1 else 'steps'}, "
    return f"by at most {steps}{rough_percent(found.relative)} of the largest"


def match_outputs(target: Target, batches: Iterable[Feeds]) -> Matched:
    """How the outputs of the target's watched run relate to those of its untouched engine.

    Raises:
        QbenchError: one of the two does not run the graph.
    """
    engine, watched = target.backend.name, target.watched.name
    if target.is_watched_itself:
        return Matched(engine=engine, watched=watched)
    found, samples = compare_outputs(target.quantized, (target.watched, target.backend), batches, target.threads)
    return Matched(engine=engine, watched=watched, samples=samples, found=found)


def compare_outputs(
    model: ir.Model, backends: tuple[Backend, Backend], batches: Iterable[Feeds], threads: int = 1
) -> tuple[Differences, int]:
    """What differs between the outputs of two backends for one graph, and over how many samples."""
    outputs = tuple(steps_of(value) for value in model.graph.outputs)
    found, samples = Differences(), 0
    with ExitStack() as stack:
        ours, theirs = (
            in_slices(stack.enter_context(backend.prepare(model, threads=threads)), model) for backend in backends
        )
        for feeds in batches:
            one, other = ours.run(feeds), theirs.run(feeds)
            for output in outputs:
                array = one[output.name]
                found = found.joined(count_differences(array, other[output.name], output.broadcast(array.ndim)))
            samples += sample_count(feeds)
    return found, samples


def sample_count(feeds: Feeds) -> int:
    """How many samples a batch has: the length of its longest first axis."""
    return max((len(feed) for feed in feeds.values() if feed.ndim), default=1)


# The targets of a cell: its quantized graphs, each with the float graph that it was written from.

AS_WRITTEN = "ort-cpu-noopt"
"""Is watched in place of an engine that declares no arithmetic: it computes in float32, and fuses nothing."""


def quantized_of(request: Request) -> Quantized:
    """The graphs that the cell of ``request`` runs.

    Raises:
        InputError: the cell runs the float model.
        QbenchError: they cannot be made.
    """
    written = _written(request)
    return written if request.rewriting is None else rewrite_quantized(written, request.rewriting).quantized


def _written(request: Request) -> Quantized:
    """Before any passes of the request."""
    if request.cell.is_given:
        return request.shared.given
    if request.schema is None:
        raise InputError(
            f"Localising '{request.cell}'",
            found="the float model",
            expected="a quantized one: what is looked for is what quantization changes",
            remedy="Name a schema.",
        )
    return request.shared.quantized(request.schema, request.backend.capabilities)


def targets_of(request: Request) -> Mapping[str, Target]:
    """Graph → target, in the order of the model's graphs.

    Raises:
        InputError: the cell runs the float model.
        QbenchError: its graphs cannot be made.
    """
    quantized = quantized_of(request)
    written = {} if request.rewriting is None else _written(request).models
    watched = watched_for(request.backend)
    if request.schema is None:
        originals = {name: plannable(model) for name, model in request.shared.given.models.items()}
    else:
        originals = dict(request.shared.planned(request.schema.canonical))
    return {
        name: Target(
            model=request.cell.model,
            graph=name,
            schema=request.cell.schema,
            original=originals[name],
            quantized=model,
            backend=request.backend,
            watched=watched,
            claims=claimed_by(request),
            threads=request.threads,
            written=written.get(name),
            rewriting=request.rewriting,
        )
        for name, model in quantized.models.items()
    }


def watched_for(backend: Backend) -> Backend:
    """Who is watched in place of ``backend``."""
    return stand_in(backend) or get_backend(AS_WRITTEN)


def claimed_by(request: Request) -> Backend | None:
    """The integer machine that the cell must equal, where it must equal one: as it counts, its backend should."""
    beside = request.comparator
    is_machine = beside is not None and beside.criterion.is_exact and watches_itself(beside.backend)
    return beside.backend if beside is not None and is_machine else None
