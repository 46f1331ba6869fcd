"""A few samples of a few nodes as arrays, within a budget of time."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import numpy as np

from qbench.backends import Array, Closing, Executor, Feeds, get_backend, in_slices
from qbench.calibration import Rows
from qbench.diagnosis.engine.client import Timeout, filled_up, no_timeout
from qbench.diagnosis.target import Target
from qbench.diagnosis.unit_runs import FLOAT_BACKEND, UnitRunner, Units
from qbench.diagnosis.units import Captured, QuantizedUnit, Replay
from qbench.evaluation import NotedSamples
from qbench.graph import fixed_batch
from qbench.judging import NodeErrors
from qbench.metrics import unequal
from qbench.passes import EffectKind
from qbench.subjects import Samples, Task

_ELEMENTS = 200_000
"""Elements of a value; of a larger value fewer samples are kept."""


class Capturing(Closing):
    """Runs of a target in which nodes are captured; a context manager that closes its engines.

    Args:
        target: what is examined. units: of its graph. nodes: the numbers of the nodes that ``of`` may capture.
        feeds: a few samples of the float graph. timeout: of one run of a unit on the target's backend.

    Raises:
        QbenchError: a backend does not run the graph.
    """

    def __init__(
        self,
        target: Target,
        units: Units,
        nodes: Collection[NodeErrors],
        feeds: Feeds,
        timeout: Timeout = no_timeout,
    ) -> None:
        feeds = filled_up(target.original, feeds)
        wanted = {node.levels for node in nodes}
        chosen = [unit for unit in units.units if unit.value in wanted]
        around = {name for unit in chosen for name in (unit.value, *unit.feeds)}
        inputs = {str(value.name) for value in target.original.graph.inputs}
        outputs = {str(value.name) for value in target.original.graph.outputs}
        floats = {units.represents[name] for name in around if name in units.aligned} - inputs - outputs
        levels = sorted(name for name in around if name in units.by_value and name not in outputs)
        with ExitStack() as stack:
            float_run = stack.enter_context(get_backend(FLOAT_BACKEND).prepare(target.original, taps=sorted(floats)))
            watched = stack.enter_context(target.watched.prepare(target.quantized, taps=levels))
            self._exact = {**feeds, **in_slices(float_run, target.original).run(feeds)}
            self._seen = {**feeds, **in_slices(watched, target.quantized).run(feeds)}
        self._target, self._units, self._is_fixed = target, units, fixed_batch(target.original) is not None
        self._timeout, self._stack = timeout, ExitStack()

    def of(self, node: NodeErrors) -> Captured:
        """Inputs and results of ``node``, one of the given nodes.

        Raises:
            QbenchError: a backend does not run its unit.
        """
        target, units, exact, seen = self._target, self._units, self._exact, self._seen
        unit = units.by_value[node.levels]
        runner = UnitRunner(target, unit, units.floats.get(unit.value), self._stack, self._timeout)
        own, there = {name: seen[name] for name in unit.feeds}, seen[unit.value]
        real = runner.steps(own)
        # a unit of a graph with a fixed batch runs no smaller batch
        kept = (lambda array: array) if self._is_fixed else _kept(unit, [*own.values(), there, real])
        own, (there, real) = {name: kept(array) for name, array in own.items()}, map(kept, (there, real))
        again = runner.counted(own)
        aligned = all(name in units.aligned or name not in units.by_value for name in (unit.value, *unit.feeds))
        fed = {name: kept(array) for name, array in units.rounded(unit, exact).items()} if aligned else own
        isolated = runner.counted(fed)
        return Captured(
            unit=unit,
            errors=node,
            feeds=own,
            found=there if target.is_watched_itself or again is None else again,
            again=again,
            crash=runner.crash,
            real=real.astype(np.float64),
            fed=fed,
            isolated=isolated,
            expected=kept(exact[unit.represents]) if aligned else unit.reals(there),
            replays=_replays(runner, own),
        )

    def close(self) -> None:
        """Close the engines."""
        self._stack.close()


def _kept(unit: QuantizedUnit, arrays: Sequence[Array]) -> Callable[[Array], Array]:
    """A function that selects samples of an array: of a large value the first, and those with most errors.

    Args:
        unit: whose values. arrays: its inputs, its result, and the values before rounding.
    """
    *_, found, real = arrays
    count = found.shape[0] if found.ndim else 0
    if found.size <= _ELEMENTS or count < 3 or any(not a.ndim or a.shape[0] != count for a in arrays):
        return lambda array: array
    off = (unit.rounded(real.reshape(found.shape)) != found).reshape(count, -1).sum(axis=1)
    off[0] = found.size
    worst = np.argsort(-off, kind="stable")[: max(2, _ELEMENTS * count // found.size)]
    rows = np.sort(worst)
    return lambda array: array[rows] if array.shape[:1] == (count,) else array


def _replays(runner: UnitRunner, own: Mapping[str, Array]) -> tuple[Replay, ...]:
    """Runs on ``own`` after a run on its samples in reverse order: they show values left over from a run, and races."""
    turned = {name: np.ascontiguousarray(array[::-1]) if array.ndim else array for name, array in own.items()}
    first, once, twice = runner.counted(turned), runner.counted(own), runner.counted(own)
    if first is None or once is None or twice is None:
        return ()
    return Replay(levels=once, before=first), Replay(levels=twice, before=once)


# The samples on which suspects are captured: the largest of the first batches, and further batches of its shape.
#
# In a decoding loop the inputs grow with every step, so the first batches hold little. Images all have one shape, so
# several batches are joined.

_BATCHES = 8
"""Number of first batches of which the largest is kept."""
_KEPT_FEEDS_ELEMENTS = 1 << 18
"""Elements that joined batches may have; a larger batch is kept alone."""


@dataclass(slots=True)
class KeptFeeds:
    """Batches of one graph; ``rows`` says how they are split into samples."""

    rows: Rows
    _seen: int = 0
    _batches: list[dict[str, Array]] = field(default_factory=list)

    def add(self, feeds: Feeds) -> None:
        """Add a batch: it replaces the others if it is larger, and joins them if it has their shape."""
        self._seen += 1
        if not self._batches or (self._seen <= _BATCHES and _shapes(feeds, self.rows) != self._shapes):
            if _size(feeds) > max((_size(one) for one in self._batches), default=0):
                self._batches = [_copy(feeds)]
        elif self._goes_with(feeds):
            self._batches.append(_copy(feeds))

    @property
    def joined(self) -> dict[str, Array]:
        """The kept batches as one batch; empty if there were none."""
        if len(self._batches) < 2:
            return dict(self._batches[0]) if self._batches else {}
        return {
            name: np.concatenate([one[name] for one in self._batches], axis=self.rows.inputs[name])
            for name in self._batches[0]
        }

    @property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return _shapes(self._batches[0], self.rows)

    def _goes_with(self, feeds: Feeds) -> bool:
        held = sum(map(_size, self._batches)) + _size(feeds)
        return (
            held <= _KEPT_FEEDS_ELEMENTS
            and feeds.keys() <= self.rows.inputs.keys()
            and _shapes(feeds, self.rows) == self._shapes
        )


def _shapes(feeds: Feeds, rows: Rows) -> dict[str, tuple[int, ...]]:
    """Shapes without the axes that run over samples."""
    return {
        name: tuple(size for axis, size in enumerate(array.shape) if axis != rows.inputs.get(name))
        for name, array in feeds.items()
    }


def _copy(feeds: Feeds) -> dict[str, Array]:
    return {name: array.copy() for name, array in feeds.items()}


def _size(feeds: Feeds) -> int:
    return sum(array.size for array in feeds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A time limit of ``seconds`` from ``started`` on ``timer``; ``seconds`` None: no limit."""

    seconds: float | None
    timer: Callable[[], float]
    started: float

    @classmethod
    def begin(cls, seconds: float | None, timer: Callable[[], float]) -> "Budget":
        """A budget that starts now.

        Args:
            seconds: None: no limit. timer: a monotonic clock, in seconds.
        """
        return cls(seconds=seconds, timer=timer, started=timer())

    @property
    def spent(self) -> float:
        """Seconds since it started."""
        return self.timer() - self.started

    @property
    def left(self) -> float:
        """Seconds until it ends; negative after that."""
        return float("inf") if self.seconds is None else self.seconds - self.spent

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.left <= 0

    def share(self, part: float) -> "Budget":
        """A budget that starts now, of a share ``part`` (0 … 1) of the time that is left."""
        return Budget.begin(None if self.seconds is None else max(0.0, part * self.left), self.timer)


def samples_that_passes_move(
    targets: Mapping[str, Target], task: Task, samples: Samples, *, count: int, budget: Budget
) -> tuple[str, ...]:
    """Names of up to ``count`` of ``samples`` whose outputs the passes of a cell change, in their order.

    Only few of many samples may change, so they are examined first. Empty where no pass ran, or a graph fails.

    Args:
        targets: of the cell, by the names of their graphs. task: runs them. budget: for this search.
    """
    if count < 1 or not any(_promises(one) for one in targets.values()):
        return ()
    moved = _Moved(count, budget)
    with ExitStack() as stack, suppress(Exception):  # without its passes a graph may not run at all, nor a task
        pairs = {name: _Pair(moved, *_both(one, stack)) for name, one in targets.items()}
        task.answer(pairs, NotedSamples.of(samples, moved.begin))
    return tuple(moved.names)[:count]


def _promises(target: Target) -> bool:
    """Whether a pass ran whose effect promises to keep some numbers."""
    if target.written is None or target.rewriting is None:
        return False
    return any(one.effect.kind is not EffectKind.LOSSY for one in target.rewriting.pipeline.passes)


def _both(target: Target, stack: ExitStack) -> tuple[Executor, Executor]:
    """Executors of the graph with the passes and without."""
    models = target.quantized, target.written or target.quantized
    ours, theirs = (
        in_slices(stack.enter_context(target.backend.prepare(model, threads=target.threads)), model) for model in models
    )
    return ours, theirs


class _EnoughError(Exception):
    """Enough samples were found, or the time is over; raised through the task to stop it."""


@dataclass(slots=True)
class _Moved:
    """The samples found so far."""

    count: int
    budget: Budget
    names: dict[str, None] = field(default_factory=dict)
    batch: Sequence[str] = ()

    def begin(self, batch: Sequence[str]) -> None:
        """Start a batch."""
        if len(self.names) >= self.count or self.budget.is_over:
            raise _EnoughError
        self.batch = batch

    def add(self, ours: Array, theirs: Array) -> None:
        """Compare one output of the batch with the passes and without."""
        moved = unequal(ours, theirs) if ours.shape == theirs.shape else np.ones(ours.shape, bool)
        if ours.ndim and len(ours) == len(self.batch):
            rows = np.flatnonzero(moved.reshape(len(ours), -1).any(axis=1))
            self.names |= dict.fromkeys(self.batch[int(row)] for row in rows)
        elif moved.any():
            self.names |= dict.fromkeys(self.batch)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The executor of one graph; each batch also runs on the graph without the passes."""

    moved: _Moved
    ours: Executor
    theirs: Executor

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run one batch; the result is that with the passes."""
        ours, theirs = self.ours.run(feeds), self.theirs.run(feeds)
        for name, one in ours.items():
            self.moved.add(one, theirs[name])
        return ours
