"""The smallest input on which an engine leaves its arithmetic: fewer channels, a part of the picture, few levels.

Each step keeps what still fails: first the outputs of a dense layer and the place in space, then its inputs, then all
levels that can be the zero point without the difference going away. What is left is seldom more than a window.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend
from qbench.diagnosis.engine.cropping import Cutter, channel_cut, cropped, spatial_axes, with_free_sizes, with_sizes
from qbench.diagnosis.engine.delta_debugging import Trials, smallest_failing
from qbench.diagnosis.engine.partings import Parting, differing
from qbench.errors import QbenchError
from qbench.graph import constant_value
from qbench.judging import Cause

USUAL_TRIALS = 600
_TRIALS_OF_A_CRASH = 24
"""Each starts a process anew."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FailingCase:
    """A graph and an input on which an engine is not its arithmetic.

    Args:
        node: the operator by its name in fp32. operators: of the piece. cause: what kind of fault it is.
        model: the piece, cut. feeds: its input.
        expected: by the arithmetic. found: the engine's answer; None: it gives none, ``crash`` says why.
        engine, machine: names of both. trials: how many inputs were tried. changed: levels that are no zero point.
        is_smallest: whether the search came to its end.
    """

    node: str
    operators: tuple[str, ...]
    cause: Cause
    model: ir.Model
    feeds: Mapping[str, Array]
    expected: Mapping[str, Array]
    found: Mapping[str, Array] | None
    crash: str
    engine: str
    machine: str
    trials: int
    changed: int
    is_smallest: bool

    @property
    def sentence(self) -> str:
        """What the case shows."""
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in self.feeds.items())
        what = f"'{self.node}' ({', '.join(self.operators) or 'QuantizeLinear'}) on {shapes}"
        if self.found is None:
            return f"'{self.engine}' fails on {what}: {self.crash}"
        ((name, expected),) = self.expected.items()
        found = self.found[name]
        apart = int(np.count_nonzero(found != expected)) if found.shape == expected.shape else expected.size
        return (
            f"'{self.engine}' answers {apart} of {expected.size} numbers otherwise than '{self.machine}' for {what}, "
            f"{self.changed} of whose levels are not the zero point"
        )


def smallest_case(
    parting: Parting, engine: Backend, machine: Backend, *, trials: int = USUAL_TRIALS, threads: int = 1
) -> FailingCase:
    """A small input of the parting's unit on which ``engine`` still is not ``machine``.

    Args:
        parting: with the feeds on which it was seen. engine: contained, where it may end its process.
        machine: of the arithmetic that the engine claims. trials: how many inputs may be tried.

    Raises:
        QbenchError: the machine does not run the unit alone.
    """
    return _Shrinking(parting, engine, machine, trials, threads).case()


class _Shrinking:
    """The smallest model and feeds that failed until now."""

    def __init__(self, parting: Parting, engine: Backend, machine: Backend, trials: int, threads: int) -> None:
        self._parting, self._unit = parting, parting.unit
        self._engine, self._machine, self._threads = engine, machine, threads
        self._trials = Trials(min(trials, _TRIALS_OF_A_CRASH) if parting.crash else trials)
        self._model, self._feeds = self._unit.graph, dict(parting.feeds)

    def case(self) -> FailingCase:
        """Shrink, and say what is left."""
        free = with_free_sizes(self._model)
        if self._parting.cause is not Cause.NONDETERMINISM and self._fails(free, self._feeds):
            self._model = free
            self._crop_space()
            self._cut_channels()
            self._crop_space()
            self._reset_levels()
        expected = _answers(self._machine, self._model, self._feeds, self._threads)
        found, crash = self._found()
        return FailingCase(
            node=self._unit.node,
            operators=self._unit.operators,
            cause=self._parting.cause,
            model=with_sizes(self._model, self._feeds, expected),
            feeds=self._feeds,
            expected=expected,
            found=found,
            crash=crash,
            engine=self._engine.name,
            machine=self._machine.name,
            trials=self._trials.made,
            changed=sum(int(np.count_nonzero(array != rest)) for array, rest in self._rests()),
            is_smallest=not self._trials.are_spent,
        )

    def _found(self) -> tuple[Mapping[str, Array] | None, str]:
        try:
            return _answers(self._engine, self._model, self._feeds, self._threads), ""
        except QbenchError as error:
            return None, error.found

    def _fails(self, model: ir.Model, feeds: Mapping[str, Array]) -> bool:
        """Whether the engine is not the machine there; where the machine gives no answer, there is nothing to be."""
        self._trials.spend()
        try:
            expected = _answers(self._machine, model, feeds, self._threads)[self._unit.value]
        except QbenchError:
            return False
        try:
            found = _answers(self._engine, model, feeds, self._threads)[self._unit.value]
        except QbenchError:
            return bool(self._parting.crash)
        return not self._parting.crash and bool(differing(self._unit, found, expected).any())

    def _takes(self, model: ir.Model, feeds: Mapping[str, Array]) -> bool:
        """Go on with ``model`` and ``feeds`` where they fail."""
        if self._trials.are_spent or not self._fails(model, feeds):
            return False
        self._model, self._feeds = model, dict(feeds)
        return True

    def _crop_space(self) -> None:
        for axis in spatial_axes(self._model, self._feeds):
            part = 2
            while (size := next(iter(self._feeds.values())).shape[axis]) > 1 and part <= size:
                feeds = (cropped(self._feeds, axis, *window) for window in _windows(size, part))
                if not any(self._takes(self._model, one) for one in feeds):
                    part *= 2

    def _cut_channels(self) -> None:
        for place in range(len(channel_cut(self._model, self._feeds))):
            cut, count = channel_cut(self._model, self._feeds)[place]
            kept = smallest_failing(range(count), partial(self._fails_with, cut), self._trials)
            if len(kept) < count:
                self._model, self._feeds = cut(self._model, self._feeds, kept)

    def _fails_with(self, cut: Cutter, channels: Sequence[int]) -> bool:
        """Whether it fails with these channels alone; without any there is no layer."""
        return bool(channels) and self._fails(*cut(self._model, self._feeds, channels))

    def _reset_levels(self) -> None:
        """Set to the zero point whatever is not needed."""
        rests = {name: rest for name, (_, rest) in zip(self._feeds, self._rests(), strict=True)}
        places = [
            (name, int(index)) for name, array in self._feeds.items() for index in np.flatnonzero(array != rests[name])
        ]

        def only(kept: Sequence[tuple[str, int]]) -> dict[str, Array]:
            feeds = {name: np.full_like(array, rests[name]) for name, array in self._feeds.items()}
            for name, index in kept:
                feeds[name].reshape(-1)[index] = self._feeds[name].reshape(-1)[index]
            return feeds

        kept = smallest_failing(places, lambda some: self._fails(self._model, only(some)), self._trials)
        self._feeds = only(kept)

    def _rests(self) -> Iterator[tuple[Array, Array]]:
        """Each feed with the level that stands for 0 there."""
        for name, array in self._feeds.items():
            yield array, np.asarray(_zero_level(self._model, name, array))


def _windows(size: int, part: int) -> Iterator[tuple[int, int]]:
    """Where all but one of ``part`` parts of ``size`` stay, cut off at either end: the first parts, the last ones."""
    less = max(size // part, 1)
    yield 0, size - less
    yield less, size


def _zero_level(model: ir.Model, name: str, array: Array) -> Array:
    """The zero point of the DequantizeLinear that reads the feed ``name``; 0 of real numbers."""
    value = next(value for value in model.graph.inputs if value.name == name)
    for use in value.uses():
        if use.node.op_type == "DequantizeLinear" and len(use.node.inputs) > 2:
            point = constant_value(use.node.inputs[2])
            if point is not None and point.size == 1:
                return np.asarray(point.reshape(()), array.dtype)
    return np.zeros((), array.dtype)


def _answers(backend: Backend, model: ir.Model, feeds: Mapping[str, Array], threads: int) -> dict[str, Array]:
    with backend.prepare(model, threads=threads) as executor:
        return executor.run(feeds)
