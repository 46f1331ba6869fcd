"""A few samples of a few nodes as arrays, within a budget of time."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from qbench.backends import (
    Array,
    Closing,
    Executor,
    Feeds,
    Timeout,
    get_backend,
    in_slices,
    isolated,
    no_timeout,
)
from qbench.calibration import Rows
from qbench.diagnosis.engine.client import filled_up
from qbench.diagnosis.target import Target
from qbench.diagnosis.unit_runs import FLOAT_BACKEND, UnitRunner, Units, random_batch
from qbench.diagnosis.units import Captured, QuantizedUnit, Replay
from qbench.errors import InputError
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
        target: what is examined.
        units: of its graph.
        nodes: the numbers of the nodes that ``of`` may capture.
        feeds: a few samples of the float graph.
        timeout: of one run of a unit on the target's backend.

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
        wanted, size = {node.codes for node in nodes}, fixed_batch(target.original)
        chosen = [unit for unit in units.units if unit.value in wanted]
        around = {name for unit in chosen for name in (unit.value, *unit.feeds)}
        inputs = {str(value.name) for value in target.original.graph.inputs}
        outputs = {str(value.name) for value in target.original.graph.outputs}
        floats = (
            {units.represents[name] for name in around if name in units.aligned} - inputs - outputs
        )
        codes = sorted(name for name in around if name in units.by_value and name not in outputs)
        with ExitStack() as stack:
            float_run = stack.enter_context(
                get_backend(FLOAT_BACKEND).prepare(target.original, taps=sorted(floats))
            )
            watched = stack.enter_context(
                isolated(target.watched).prepare(target.quantized, taps=codes)
            )
            whole = in_slices(float_run, target.original), in_slices(watched, target.quantized)
            self._exact, self._seen = _both_runs(target, whole, feeds, {*floats, *codes})
        self._target, self._units, self._size = target, units, size
        self._timeout, self._stack = timeout, ExitStack()

    @property
    def runs_in_parts(self) -> bool:
        """Whether the samples are those of several runs of a graph with a fixed batch."""
        return self._size is not None and self._size > 1

    def of(self, node: NodeErrors, *, one_run: bool = False) -> Captured:
        """Inputs and results of ``node``, one of the given nodes.

        Args:
            node: one of them.
            one_run: of a graph with a fixed batch the samples of one run alone, which show a sample
                whose values are in all others of its run.

        Raises:
            QbenchError: a backend does not run its unit.
        """
        target, units, exact, seen = self._target, self._units, self._exact, self._seen
        unit = units.by_value[node.codes]
        runner = UnitRunner(target, unit, units.floats.get(unit.value), self._stack, self._timeout)
        own, there = {name: seen[name] for name in unit.feeds}, seen[unit.value]
        real = runner.steps(own)
        kept = _kept(unit, [*own.values(), there, real], self._size, one_run=one_run)
        own = {name: kept(array) for name, array in own.items()}
        there, real = map(kept, (there, real))
        again = runner.counted(own)
        aligned = all(
            name in units.aligned or name not in units.by_value
            for name in (unit.value, *unit.feeds)
        )
        fed = (
            {name: kept(array) for name, array in units.rounded(unit, exact).items()}
            if aligned
            else own
        )
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
            replays=_replays(runner, own, again, self._size),
            probed=partial(_probed, runner, node, own),
        )

    def close(self) -> None:
        """Close the engines."""
        self._stack.close()


def _both_runs(
    target: Target, whole: Sequence[Executor], feeds: Feeds, names: Collection[str]
) -> tuple[Mapping[str, Array], ...]:
    """The values of each of the ``whole`` graphs: of all samples, or of one run where a value
    has no row for each.
    """
    size, rows = fixed_batch(target.original), Rows.of(target.original)
    if size is not None and rows.count(feeds) != size:
        with suppress(InputError):  # the results of several runs do not fit together
            found = tuple({**feeds, **one.run(feeds)} for one in whole)
            if _by_sample(found, names, rows.count(feeds)):
                return found
        feeds = filled_up(target.original, feeds)
    return tuple({**feeds, **one.run(feeds)} for one in whole)


_HOLDS_BATCH = frozenset({"Reshape", "Expand", "Tile", "ConstantOfShape"})
"""Operators whose constants may hold the batch size, so that their unit runs no other one."""


def _by_sample(runs: Sequence[Mapping[str, Array]], names: Collection[str], count: int) -> bool:
    """Whether the values ``names`` have a row for each of ``count`` samples."""
    return all(run[name].shape[:1] == (count,) for run in runs for name in names if name in run)


def _kept(
    unit: QuantizedUnit, arrays: Sequence[Array], size: int | None, *, one_run: bool = False
) -> Callable[[Array], Array]:
    """A function that selects samples of an array: of a large value the first, and those with
    most errors.

    Args:
        unit: whose values.
        arrays: its inputs, its result, and the values before rounding.
        size: the fixed batch; None: it is free.
        one_run: only the samples of one run of it.
    """
    *_, found, real = arrays
    count = found.shape[0] if found.ndim else 0
    most = max(2, _ELEMENTS * count // found.size) if found.size > _ELEMENTS else count
    single = (
        size is not None and count > size and (one_run or bool(_HOLDS_BATCH & set(unit.operators)))
    )
    if ((count < 3 or most >= count) and not single) or any(
        not a.ndim or a.shape[0] != count for a in arrays
    ):
        return lambda array: array
    off = (unit.rounded(real.reshape(found.shape)) != found).reshape(count, -1).sum(axis=1)
    if single:
        assert size is not None
        start = size * int(
            np.argmax([off[at : at + size].sum() for at in range(0, count - size + 1, size)])
        )
        rows = np.arange(start, start + size)
    else:
        off[0] = found.size
        rows = np.sort(np.argsort(-off, kind="stable")[:most])
    return lambda array: array[rows] if array.shape[:1] == (count,) else array


_PROBED = 200_000
"""Elements of the results on random inputs."""
_ROUNDS = 32


def _probed(runner: UnitRunner, node: NodeErrors, own: Mapping[str, Array]) -> Captured | None:
    """The unit on random inputs like ``own``; None: its arrays have no axis of samples in common.

    Every other round takes the values of the samples at other places, the rest any codes between
    their ends.
    """
    random, unit = np.random.default_rng(0), runner.unit
    made = [random_batch(own, random, is_any=False)]
    first = runner.counted(made[0])
    if first is None or any(
        not one.ndim or len(one) != len(first) for one in (first, *made[0].values())
    ):
        return None
    rounds = min(_ROUNDS, _PROBED // max(first.size, 1))
    made += [random_batch(own, random, is_any=place % 2 == 0) for place in range(rounds)]
    joined = {name: np.concatenate([one[name] for one in made]) for name in own}
    codes = runner.counted(joined)  # in one batch, as some mistakes are of batches
    if codes is None:
        return None
    return Captured(
        unit=unit,
        errors=node,
        feeds=joined,
        found=codes,
        again=codes,
        real=runner.steps(joined).astype(np.float64),
        fed=joined,
        isolated=codes,
        expected=unit.reals(codes),
    )


def _replays(
    runner: UnitRunner, own: Mapping[str, Array], again: Array | None, size: int | None
) -> tuple[Replay, ...]:
    """Runs on ``own`` after a run on its samples in reverse order: they show values left over
    from a run, and races.

    Of a graph with a fixed batch of ``size`` those of one run, after those of another.
    """
    rows = slice(size)
    turned = {
        name: np.ascontiguousarray(array[::-1][rows]) if array.ndim else array
        for name, array in own.items()
    }
    own = {name: array[rows] if array.ndim else array for name, array in own.items()}
    if all(np.array_equal(turned[name], own[name]) for name in own):  # a single sample, say
        turned = {name: np.ascontiguousarray(np.flip(array)) for name, array in own.items()}
    first, once, twice = runner.counted(turned), runner.counted(own), runner.counted(own)
    if first is None or once is None or twice is None or again is None:
        return ()
    before = again[: len(once)] if once.ndim else again
    return Replay(codes=once, before=first, first=before), Replay(
        codes=twice, before=once, first=before
    )


# The samples on which suspects are captured: the largest of the first batches, and further batches
# of its shape.
#
# In a decoding loop the inputs grow with every step, so the first batches hold little. Images all
# have one shape, so several batches are joined.

_BATCHES = 8
"""How many first batches are compared; the largest of them is kept."""
_KEPT_FEEDS_ELEMENTS = 1 << 18
"""Elements that joined batches may have; a larger batch is kept alone."""


@dataclass(slots=True)
class KeptFeeds:
    """Batches of one graph; ``rows`` says how they are split into samples."""

    rows: Rows
    _seen: int = 0
    _batches: list[dict[str, Array]] = field(default_factory=list)

    def add(self, feeds: Feeds) -> None:
        """Add a batch: it replaces the others if it is larger, and joins them if it has their
        shape.
        """
        self._seen += 1
        if not self._batches or (
            self._seen <= _BATCHES and _shapes(feeds, self.rows) != self._shapes
        ):
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
            seconds: None: no limit.
            timer: a monotonic clock, in seconds.
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
        return Budget.begin(
            None if self.seconds is None else max(0.0, part * self.left), self.timer
        )


def samples_that_passes_move(
    targets: Mapping[str, Target], task: Task, samples: Samples, *, count: int, budget: Budget
) -> tuple[str, ...]:
    """Names of up to ``count`` of ``samples`` whose outputs the passes of a cell change, in
    their order.

    Only few of many samples may change, so they are examined first. Empty where no pass ran, or a
    graph fails.

    Args:
        targets: of the cell, by the names of their graphs.
        task: runs them.
        budget: for this search.
    """
    if count < 1 or not any(_promises(one) for one in targets.values()):
        return ()
    moved = _Moved(count, budget)
    with ExitStack() as stack, suppress(Exception):
        # without its passes a graph may not run at all, nor a task
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
    models = (target.quantized, target.written or target.quantized)
    backend = isolated(target.backend)
    ours, theirs = (
        in_slices(stack.enter_context(backend.prepare(model, threads=target.threads)), model)
        for model in models
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
