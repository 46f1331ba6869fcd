"""A few samples of a few nodes as arrays, for what sums cannot tell."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from qbench.backends import Array, Closing, Feeds, get_backend, in_slices
from qbench.diagnosis.captured import Captured, Replay
from qbench.diagnosis.engine.contained import Patience, endless
from qbench.diagnosis.filled_batches import filled_up
from qbench.diagnosis.patient import Patient
from qbench.diagnosis.quantized_units import QuantizedUnit
from qbench.diagnosis.unit_runs import FLOAT_BACKEND, UnitRunner, Units
from qbench.graph import fixed_batch
from qbench.judging import NodeErrors

_ELEMENTS = 200_000
"""Of a value: of a larger one few samples will do."""


class Capturing(Closing):
    """The runs that nodes are captured in; a context manager that closes its engines.

    Args:
        patient: what is examined. units: its pieces. nodes: what was counted of those that may be asked for.
        feeds: a few samples of its float graph. patience: how long the patient's backend is waited for at a unit alone.

    Raises:
        QbenchError: a backend does not run the graph.
    """

    def __init__(
        self,
        patient: Patient,
        units: Units,
        nodes: Collection[NodeErrors],
        feeds: Feeds,
        patience: Patience = endless,
    ) -> None:
        feeds = filled_up(patient.original, feeds)
        asked = {node.levels for node in nodes}
        chosen = [unit for unit in units.units if unit.value in asked]
        around = {name for unit in chosen for name in (unit.value, *unit.feeds)}
        inputs = {str(value.name) for value in patient.original.graph.inputs}
        outputs = {str(value.name) for value in patient.original.graph.outputs}
        floats = {units.stands_for[name] for name in around if name in units.aligned} - inputs - outputs
        levels = sorted(name for name in around if name in units.by_value and name not in outputs)
        with ExitStack() as stack:
            float_run = stack.enter_context(get_backend(FLOAT_BACKEND).prepare(patient.original, taps=sorted(floats)))
            watched = stack.enter_context(patient.watched.prepare(patient.quantized, taps=levels))
            self._exact = {**feeds, **in_slices(float_run, patient.original).run(feeds)}
            self._seen = {**feeds, **in_slices(watched, patient.quantized).run(feeds)}
        self._patient, self._units, self._is_fixed = patient, units, fixed_batch(patient.original) is not None
        self._patience, self._stack = patience, ExitStack()

    def of(self, node: NodeErrors) -> Captured:
        """``node`` at work: one of those that were named.

        Raises:
            QbenchError: a backend does not run its piece.
        """
        patient, units, exact, seen = self._patient, self._units, self._exact, self._seen
        unit = units.by_value[node.levels]
        runner = UnitRunner(patient, unit, units.fresh.get(unit.value), self._stack, self._patience)
        own, there = {name: seen[name] for name in unit.feeds}, seen[unit.value]
        real = runner.steps(own)
        kept = _whole if self._is_fixed else _kept(unit, [*own.values(), there, real])
        own, (there, real) = {name: kept(array) for name, array in own.items()}, map(kept, (there, real))
        again = runner.counted(own)
        aligned = all(name in units.aligned or name not in units.by_value for name in (unit.value, *unit.feeds))
        fed = {name: kept(array) for name, array in units.rounded(unit, exact).items()} if aligned else own
        isolated = runner.counted(fed)
        return Captured(
            unit=unit,
            errors=node,
            feeds=own,
            found=there if patient.is_watched_itself or again is None else again,
            again=again,
            crash=runner.crash,
            real=real.astype(np.float64),
            fed=fed,
            isolated=isolated,
            expected=kept(exact[unit.stands_for]) if aligned else unit.reals(there),
            replays=_replays(runner, own),
        )

    def close(self) -> None:
        """Close the engines."""
        self._stack.close()


def capture(patient: Patient, units: Units, nodes: Collection[NodeErrors], feeds: Feeds) -> tuple[Captured, ...]:
    """``nodes`` of ``patient`` at work, in their order.

    Args:
        patient: what is examined. units: its pieces. nodes: what was counted of those that are asked for.
        feeds: a few samples of its float graph.

    Raises:
        QbenchError: a backend does not run the graph.
    """
    with Capturing(patient, units, nodes, feeds) as capturing:
        return tuple(capturing.of(node) for node in nodes)


def _whole(array: Array) -> Array:
    """Of a graph of a fixed batch nothing can be left out: its pieces take no other."""
    return array


def _kept(unit: QuantizedUnit, arrays: Sequence[Array]) -> Callable[[Array], Array]:
    """What takes the samples of an array that are kept: of large values the first, and those that are off most.

    Args:
        unit: whose. arrays: what stands in front, levels behind, the number in front of rounding.
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
    """``own`` behind itself in the opposite order: what the run before left is seen, and what chance makes as well."""
    turned = {name: np.ascontiguousarray(array[::-1]) if array.ndim else array for name, array in own.items()}
    first, once, twice = runner.counted(turned), runner.counted(own), runner.counted(own)
    if first is None or once is None or twice is None:
        return ()
    return Replay(levels=once, before=first), Replay(levels=twice, before=once)
