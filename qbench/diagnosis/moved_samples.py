"""The samples whose outputs a cell's passes move, so that these are looked at: they may be few of very many."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import numpy as np

from qbench.backends import Array, Executor, Feeds, in_slices
from qbench.diagnosis.budget import Budget
from qbench.diagnosis.patient import Patient
from qbench.evaluation import NotedSamples
from qbench.metrics import unequal
from qbench.passes import EffectKind
from qbench.zoo import Samples, Task


def samples_that_passes_move(
    patients: Mapping[str, Patient], task: Task, samples: Samples, *, count: int, budget: Budget
) -> tuple[str, ...]:
    """Names of up to ``count`` of ``samples``, in their order; none where no pass ran, or where that cannot be told.

    Args:
        patients: of the cell, by the names of their graphs. task: drives them. budget: for looking.
    """
    if count < 1 or not any(_promises(one) for one in patients.values()):
        return ()
    moved = _Moved(count, budget)
    with ExitStack() as stack, suppress(Exception):  # without its passes a graph may not run at all, nor a task
        pairs = {name: _Pair(moved, *_both(one, stack)) for name, one in patients.items()}
        task.answer(pairs, NotedSamples.of(samples, moved.begin))
    return tuple(moved.names)[:count]


def _promises(patient: Patient) -> bool:
    """Whether a pass ran that may not move every number."""
    if patient.written is None or patient.rewriting is None:
        return False
    return any(one.effect.kind is not EffectKind.LOSSY for one in patient.rewriting.pipeline.passes)


def _both(patient: Patient, stack: ExitStack) -> tuple[Executor, Executor]:
    """With the passes, and without."""
    models = patient.quantized, patient.written or patient.quantized
    ours, theirs = (
        in_slices(stack.enter_context(patient.backend.prepare(model, threads=patient.threads)), model)
        for model in models
    )
    return ours, theirs


class _EnoughError(Exception):
    """There are as many as were asked for, or no time for more; it passes through the task."""


@dataclass(slots=True)
class _Moved:
    """What was found until now."""

    count: int
    budget: Budget
    names: dict[str, None] = field(default_factory=dict)
    batch: Sequence[str] = ()

    def begin(self, batch: Sequence[str]) -> None:
        """Another batch is fed."""
        if len(self.names) >= self.count or self.budget.is_over:
            raise _EnoughError
        self.batch = batch

    def add(self, ours: Array, theirs: Array) -> None:
        """One output of the batch, with the passes and without."""
        moved = unequal(ours, theirs) if ours.shape == theirs.shape else np.ones(ours.shape, bool)
        if ours.ndim and len(ours) == len(self.batch):
            rows = np.flatnonzero(moved.reshape(len(ours), -1).any(axis=1))
            self.names |= dict.fromkeys(self.batch[int(row)] for row in rows)
        elif moved.any():
            self.names |= dict.fromkeys(self.batch)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The executor of one graph; each batch runs without the passes too."""

    moved: _Moved
    ours: Executor
    theirs: Executor

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch, as the cell answers it."""
        ours, theirs = self.ours.run(feeds), self.theirs.run(feeds)
        for name, one in ours.items():
            self.moved.add(one, theirs[name])
        return ours
