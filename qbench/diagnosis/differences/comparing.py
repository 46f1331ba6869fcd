"""Two sides fed alike: their untouched outputs, and every value that both have, as sums over small batches.

Values are aligned by the fp32 value that they stand for, across fusions and lowerings. Levels of one grid are compared
as levels; levels of two grids in reals, in steps of the coarser one. What has no partner is listed with the reason.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np

from qbench.backends import Array, Closing, Feeds
from qbench.calibration import Rows
from qbench.diagnosis.differences.side_differences import NodeDifference, SideDifferences
from qbench.diagnosis.differences.side_values import Key, SideRun, Watched, array_of, prepared_side
from qbench.diagnosis.differences.sides import Side
from qbench.diagnosis.engine.matching import bound_of
from qbench.diagnosis.engine.partings import REAL_WIDTH
from qbench.diagnosis.quantized_units import QuantizedUnit
from qbench.diagnosis.tallies import ErrorTally
from qbench.errors import InputError
from qbench.evaluation import OutputSteps, steps_of
from qbench.judging import Unaligned
from qbench.metrics import Differences, count_differences, unequal

AT_ONCE = 8
"""Samples whose values are held at once, where the graph leaves its batch free."""


def compare_sides(left: Side, right: Side, batches: Iterable[Feeds]) -> SideDifferences:
    """What differs between two sides on ``batches``.

    Raises:
        InputError: their outputs have other names or shapes.
        QbenchError: a backend does not run its graph.
    """
    with SideComparison(left, right) as comparison:
        for feeds in batches:
            comparison.run(feeds)
        return comparison.compared()


@dataclass(slots=True)
class _Sums:
    """What is kept of one value."""

    left: Watched
    right: Watched
    reals: ErrorTally = field(default_factory=ErrorTally)
    elements: int = 0
    differing: int = 0
    largest: float = 0.0
    reason: str = ""

    @property
    def step(self) -> float | None:
        """Of the coarser grid; None: both are real."""
        units = (one.unit for one in (self.left, self.right) if _has_grid(one))
        return max((unit.scale for unit in units if unit is not None), default=None)

    @property
    def same_grid(self) -> bool:
        """Whether levels mean the same on both sides."""
        ours, theirs = self.left.unit, self.right.unit
        return _has_grid(self.left) and _has_grid(self.right) and _grid(ours) == _grid(theirs)

    def add(self, ours: Array, theirs: Array) -> None:
        """One batch of both."""
        if ours.shape != theirs.shape:
            self.reason = f"shapes {ours.shape} and {theirs.shape}"
            return
        x, y = _reals(self.left, ours), _reals(self.right, theirs)
        self.elements += ours.size
        self.reals.add(x, y)
        if self.same_grid:
            gaps = np.abs(ours.astype(np.int32) - theirs.astype(np.int32))
            self.differing += int(np.count_nonzero(gaps))
        else:
            gaps = np.abs(x.astype(np.float64) - y) / (self.step or 1.0)
            width = 1.0 if self.step is not None else REAL_WIDTH * float(np.abs(x).max(initial=0))
            self.differing += int(np.count_nonzero(unequal(x, y) & ~(gaps <= width)))
        self.largest = max(self.largest, float(gaps.max(initial=0, where=np.isfinite(gaps))))


def _has_grid(watched: Watched) -> bool:
    return watched.unit is not None and watched.unit.grid is not None


def _grid(unit: QuantizedUnit | None) -> tuple[object, ...]:
    assert unit is not None
    assert unit.grid is not None
    return unit.grid.qtype, unit.scale, unit.zero_point


def _reals(watched: Watched, array: Array) -> Array:
    unit = watched.unit
    return array.astype(np.float32, copy=False) if unit is None or unit.grid is None else unit.reals(array)


class SideComparison(Closing):
    """An executor of the left side whose every batch runs on the right one too; closing it closes both.

    Raises:
        InputError: the sides have other outputs.
        QbenchError: a backend does not run its graph.
    """

    def __init__(self, left: Side, right: Side) -> None:
        _require_same_outputs(left, right)
        self._rows = Rows.of(left.original)
        self._outputs = tuple(steps_of(value) for value in left.model.graph.outputs)
        self._other_steps = {str(value.name): steps_of(value) for value in right.model.graph.outputs}
        self._counted, self._samples, self._flips = Differences(), 0, 0
        self._ranks = len(self._outputs) == 1
        self._stack = ExitStack()
        with ExitStack() as stack:
            self._left, self._right = _prepared(left, right, stack)
            self._stack = stack.pop_all()
        both = (key for key in self._left.values if key in self._right.values)
        self._sums = {key: _Sums(self._left.values[key], self._right.values[key]) for key in both}

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch, as the left side answers it."""
        count = self._rows.count(feeds)
        rows = self._rows if self._rows.size > 1 else replace(self._rows, size=AT_ONCE)
        parts = [self._fold(part, rows.count(part)) for _, _, part in rows.parts(feeds, count)]
        joined: dict[str, Array] = rows.joined(parts, [output.name for output in self._outputs])
        return joined

    def _fold(self, feeds: dict[str, Array], samples: int) -> dict[str, Array]:
        (ours, left), (theirs, right) = self._left.run(feeds), self._right.run(feeds)
        for output in self._outputs:
            one, other = ours[output.name], theirs[output.name]
            steps = _coarser(output, self._other_steps[output.name], one.ndim)
            self._counted = self._counted.joined(count_differences(one, other, steps))
            self._ranks = self._ranks and one.ndim == 2 and len(one) == samples and one.shape[1] > 1
            if self._ranks:
                self._flips += int(np.count_nonzero(one.argmax(axis=1) != other.argmax(axis=1)))
        for key, sums in self._sums.items():
            mine, yours = array_of(key, sums.left, left), array_of(key, sums.right, right)
            if mine is not None and yours is not None:
                sums.add(mine, yours)
        self._samples += samples
        return {output.name: ours[output.name] for output in self._outputs}

    def compared(self) -> SideDifferences:
        """Everything run so far."""
        return SideDifferences(
            left=self._left.side.name,
            right=self._right.side.name,
            samples=self._samples,
            outputs=self._counted,
            flips=self._flips if self._ranks and self._samples else None,
            nodes=tuple(_node(key, sums) for key, sums in self._sums.items() if sums.elements and not sums.reason),
            unaligned=tuple(self._unaligned()),
            how=tuple(f"{run.side.name}: {run.how}{_matched(run)}" for run in (self._left, self._right)),
        )

    def _unaligned(self) -> Iterator[Unaligned]:
        for run, other in ((self._left, self._right), (self._right, self._left)):
            for one in run.unaligned:
                yield Unaligned(value=one.value, reason=f"{run.side.name}: {one.reason}")
            for key in run.values:
                if key not in other.values:
                    yield Unaligned(value=key[0], reason=f"only {run.side.name} {_has(run.values[key], key)}")
            for value, reason in run.crashes.items():
                yield Unaligned(value=value, reason=f"{run.side.name} fails on it alone: {reason}")
        for key, sums in self._sums.items():
            if sums.reason:
                yield Unaligned(value=key[0], reason=sums.reason)

    def close(self) -> None:
        """Close both sides."""
        self._stack.close()


def _prepared(left: Side, right: Side, stack: ExitStack) -> tuple[SideRun, SideRun]:
    """Both at work; a float side watches what the other has, and all its values where both are float."""
    if left.quantized is None and right.quantized is not None:
        theirs = prepared_side(right, stack)
        return prepared_side(left, stack, theirs.values), theirs
    ours = prepared_side(left, stack)
    return ours, prepared_side(right, stack, ours.values)


def _has(watched: Watched, key: Key) -> str:
    """What a side has that the other lacks."""
    if watched.unit is None:
        return "computes it"
    return "has levels there; the other keeps it inside a unit" if not key[1] else "puts it on another grid once more"


def _matched(run: SideRun) -> str:
    """How what is watched relates to the untouched run."""
    if not run.apart.elements:
        return ""
    if not run.apart.differing:
        return "; its outputs are those of the untouched graph, bit for bit"
    return (
        f"; {run.apart.differing} of {run.apart.elements} outputs differ from those of the untouched graph, "
        f"{bound_of(run.apart)}"
    )


def _node(key: Key, sums: _Sums) -> NodeDifference:
    errors = sums.reals.errors(None)
    return NodeDifference(
        node=sums.left.node,
        value=key[0],
        same_grid=sums.same_grid,
        elements=sums.elements,
        differing=sums.differing,
        largest=None if sums.step is None else sums.largest,
        sqnr_db=errors.sqnr_db,
        relative=errors.relative,
    )


def _coarser(ours: OutputSteps, theirs: OutputSteps, rank: int) -> Array | None:
    """The larger steps of both; None where neither has any."""
    steps = [found for one in (ours, theirs) if (found := one.broadcast(rank)) is not None]
    return np.maximum.reduce(np.broadcast_arrays(*steps)) if steps else None


def _require_same_outputs(left: Side, right: Side) -> None:
    ours, theirs = ([str(value.name) for value in side.model.graph.outputs] for side in (left, right))
    if ours != theirs:
        raise InputError(
            f"Comparing {left.name} with {right.name}",
            found=f"the outputs {', '.join(ours)} and {', '.join(theirs)}",
            expected="the same outputs: two ways to run one model",
            remedy="Compare models that were made from one float graph.",
        )
