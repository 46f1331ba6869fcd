"""The first node at which an engine's values leave those of the arithmetic watched for it: its
graph is cut.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qbench.backends import Array, Feeds, Timeout, in_slices, isolated, no_timeout
from qbench.diagnosis.engine.client import UnitSession, filled_up
from qbench.diagnosis.target import FAR, Target
from qbench.diagnosis.units import QuantizedUnit, whole_unit

# A tap changes what an engine fuses, a cut too, but less: what lies before the cut is compiled as
# in the whole graph.
#
#     graph inputs → … → value    one graph a value, its one output; the same inputs on the watched
#                                 backend
#
# Of the values in the order of the graph, one is searched by halves that departs while an earlier
# one does not. Then its inputs are tried, and theirs, until none of them departs.


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """Where an engine leaves its arithmetic.

    Args:
        unit: the first that does; of several outputs, where no cut shows it, the one that differs
            most.
        differing, elements: values of the engine that are not those of the arithmetic, of how many.
        largest: the largest difference, in steps; of a real value in its own unit.
        is_cut: whether a cut behind the unit shows it; else the whole graph alone does.
    """

    unit: QuantizedUnit
    differing: int
    elements: int
    largest: float
    is_cut: bool = True


@dataclass(slots=True)
class _Cuts:
    """Runs of cut graphs on one batch, each made once."""

    target: Target
    feeds: Feeds
    values: Mapping[str, Array]
    timeout: Timeout
    found: dict[str, Departure | None] = field(default_factory=dict)

    def departs(self, unit: QuantizedUnit) -> bool:
        """Whether the engine's value behind ``unit`` is far from the watched one."""
        if unit.value not in self.found:
            self.found[unit.value] = self._of(unit)
        return self.found[unit.value] is not None

    def _of(self, unit: QuantizedUnit) -> Departure | None:
        piece = whole_unit(self.target.quantized, unit.value)
        if piece is None:
            return None
        with UnitSession(
            piece, self.target.backend, threads=self.target.threads, timeout=self.timeout
        ) as session:
            found = session.run({name: self.feeds[name] for name in piece.feeds})
        return None if found is None else _departure(unit, self.values[unit.value], found)


def first_departure(
    target: Target,
    units: Sequence[QuantizedUnit],
    feeds: Feeds,
    *,
    timeout: Timeout = no_timeout,
    is_over: Callable[[], bool] = lambda: False,
) -> Departure | None:
    """The first of ``units`` at which the engine of ``target`` leaves the watched backend;
    None: it does not.

    Args:
        target: its ``backend`` runs cut graphs.
        units: of its graph, in order.
        feeds: samples of its float graph.
        timeout: of one run.
        is_over: whether there is no time for another cut.

    Raises:
        QbenchError: the watched backend does not run the graph.
    """
    feeds = filled_up(target.original, feeds)
    outputs = {str(value.name) for value in target.quantized.graph.outputs}
    taps = tuple(unit.value for unit in units if unit.value not in outputs)
    with isolated(target.watched).prepare(
        target.quantized, taps=taps, threads=target.threads
    ) as run:
        values = in_slices(run, target.quantized).run(feeds)
    cuts = _Cuts(target, feeds, values, timeout)
    first, last = 0, len(units) - 1
    while first < last and not is_over():
        middle = (first + last) // 2
        first, last = (first, middle) if cuts.departs(units[middle]) else (middle + 1, last)
    if not units or not cuts.departs(units[last]):
        return _in_whole(target, units, feeds, values)
    known = {unit.value: unit for unit in units}
    place = units[last]
    while not is_over():
        before = next(
            (known[name] for name in place.feeds if name in known and cuts.departs(known[name])),
            None,
        )
        if before is None:
            break
        place = before
    return cuts.found[place.value]


def _in_whole(
    target: Target, units: Sequence[QuantizedUnit], feeds: Feeds, values: Mapping[str, Array]
) -> Departure | None:
    """The output of the whole graph that departs most, and the unit that computes it; None:
    none departs.
    """
    with isolated(target.backend).prepare(target.quantized, threads=target.threads) as run:
        theirs = in_slices(run, target.quantized).run(feeds)
    far = [
        one
        for name, found in theirs.items()
        if (one := _of_output(units, name, values, found)) is not None
    ]
    return max(far, key=lambda one: one.differing / max(one.elements, 1), default=None)


def _of_output(
    units: Sequence[QuantizedUnit], name: str, values: Mapping[str, Array], found: Array
) -> Departure | None:
    """The departure of an output; its unit is the one that computes it, or the last whose value
    it dequantizes.
    """
    own = next((unit for unit in units if unit.value == name), None)
    near = own or next(
        (unit for unit in reversed(units) if unit.represents == name), units[-1] if units else None
    )
    if near is None or not _is_far(values[name], found):
        return None
    gap = np.abs(values[name].astype(np.float64) - found)
    return Departure(
        unit=near,
        differing=int((gap > 0).sum()),
        elements=gap.size,
        largest=float(gap.max(initial=0)) / (1.0 if own is not None else near.scale),
        is_cut=False,
    )


def _departure(unit: QuantizedUnit, ours: Array, theirs: Array) -> Departure | None:
    """The difference of two results of ``unit``; None: they are near each other."""
    if ours.shape != theirs.shape:
        return Departure(unit=unit, differing=ours.size, elements=ours.size, largest=float("inf"))
    if not _is_far(unit.reals(ours), unit.reals(theirs)):
        return None
    gap = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    differing = int(np.count_nonzero(~(gap == 0)))
    return Departure(
        unit=unit, differing=differing, elements=gap.size, largest=float(np.nanmax(gap, initial=0))
    )


def _is_far(ours: Array, theirs: Array) -> bool:
    """Whether two real arrays are further apart than ties and other orders of float32 sums
    bring them.
    """
    if ours.shape != theirs.shape:
        return True
    bounded = np.isfinite(ours) & np.isfinite(theirs)
    if not bool((bounded | (ours == theirs)).all()):
        return True
    largest = float(np.abs(ours[bounded]).max(initial=0))
    return float(np.abs(ours[bounded] - theirs[bounded]).max(initial=0)) > FAR * largest
