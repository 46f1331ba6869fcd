"""Whether a watched machine answers what the untouched engine answers: bit for bit, or within a bound that is said.

Both run the same batches, neither is tapped; sums only are kept.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field

import onnx_ir as ir

from qbench.backends import Backend, Feeds, in_slices
from qbench.diagnosis.patient import Patient
from qbench.evaluation import steps_of
from qbench.judging import rough_percent
from qbench.metrics import Differences, count_differences

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


def match_outputs(patient: Patient, batches: Iterable[Feeds]) -> Matched:
    """How the outputs of the patient's watched run relate to those of its untouched engine.

    Raises:
        QbenchError: one of the two does not run the graph.
    """
    engine, watched = patient.backend.name, patient.watched.name
    if patient.is_watched_itself:
        return Matched(engine=engine, watched=watched)
    found, samples = compare_outputs(patient.quantized, (patient.watched, patient.backend), batches, patient.threads)
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
