"""The values of one side, batch by batch, by the names that they have in fp32, without disturbing what runs.

An engine that fuses is not tapped. Its units run one after another, each alone on the levels that the engine itself
made before; their last results are its outputs, and whether they equal those of the whole graph is counted.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from qbench.backends import Array, Executor, Feeds, in_slices
from qbench.diagnosis.differences.sides import Side
from qbench.diagnosis.engine.alone import Alone
from qbench.diagnosis.quantized_units import QuantizedUnit
from qbench.diagnosis.unit_runs import Units
from qbench.evaluation import steps_of
from qbench.graph import Form, form_of, node_key, values_by_name
from qbench.judging import Unaligned
from qbench.metrics import Differences, count_differences

Key = tuple[str, int]
"""Name of a value in fp32, and which of the grids that it is put on, one after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A value of a side: the operator that makes it, and its unit; None: it is real."""

    node: str
    unit: QuantizedUnit | None = None


@dataclass(slots=True)
class SideRun:
    """One side, prepared; ``values`` are what can be compared of it, in the order of its graph.

    Args:
        how: in a sentence, where values come from. apart: the outputs of what is watched beside the untouched ones.
    """

    side: Side
    values: Mapping[Key, Watched]
    unaligned: tuple[Unaligned, ...]
    how: str
    apart: Differences = field(default_factory=Differences)
    crashes: dict[str, str] = field(default_factory=dict)
    _whole: Executor | None = None
    _tapped: Executor | None = None
    _units: tuple[Alone, ...] = ()

    def run(self, feeds: Feeds) -> tuple[dict[str, Array], dict[str, Array]]:
        """The untouched outputs of one batch, and the watched values by their names in this graph."""
        if self._tapped is not None and self._whole is None:
            seen = self._tapped.run(feeds)
            return seen, {**feeds, **seen}
        assert self._whole is not None
        outputs = self._whole.run(feeds)
        seen = self._tapped.run(feeds) if self._tapped is not None else self._replayed(feeds)
        for value in self.side.model.graph.outputs:
            name = str(value.name)
            if name in seen and seen[name].shape == outputs[name].shape:
                steps = steps_of(value).broadcast(outputs[name].ndim)
                self.apart = self.apart.joined(count_differences(seen[name], outputs[name], steps))
        return outputs, {**feeds, **seen}

    def _replayed(self, feeds: Feeds) -> dict[str, Array]:
        """What the units make one after another; what an engine fails on is missing, and all that needs it."""
        values: dict[str, Array] = dict(feeds)
        for alone in self._units:
            unit = alone.unit
            if any(name not in values for name in unit.feeds):
                self.crashes.setdefault(unit.value, "a value in front of it is missing")
                continue
            found = alone.run({name: values[name] for name in unit.feeds})
            if found is None:
                self.crashes[unit.value] = alone.crash
            else:
                values[unit.value] = found
        return values


def prepared_side(side: Side, stack: ExitStack, wanted: Mapping[Key, Watched] | None = None) -> SideRun:
    """``side`` at work; ``stack`` closes it.

    Args:
        side: to be run. wanted: of a float side: the values to watch; None: every value that a node gives.

    Raises:
        QbenchError: its backend does not run the graph.
    """
    if side.quantized is None or form_of(side.quantized) is Form.FLOAT:
        values, unaligned = _float_values(side, wanted), ()
        return _tapping(side, stack, values, unaligned, tuple(name for name, _ in values))
    units = Units.of(side.patient)
    values = dict(_keyed(units))
    if side.tapped is not None:
        return _tapping(side, stack, values, units.unaligned, tuple(unit.value for unit in units.units))
    how = f"'{side.backend.name}' is not tapped: its units ran one after another, each alone"
    whole = _whole(side, stack)
    alone = tuple(stack.enter_context(Alone(unit, side.backend, threads=side.threads)) for unit in units.units)
    return SideRun(side, values, units.unaligned, how, _whole=whole, _units=alone)


def _whole(side: Side, stack: ExitStack) -> Executor:
    return in_slices(stack.enter_context(side.backend.prepare(side.model, threads=side.threads)), side.model)


def _tapping(
    side: Side,
    stack: ExitStack,
    values: Mapping[Key, Watched],
    unaligned: tuple[Unaligned, ...],
    names: tuple[str, ...],
) -> SideRun:
    watched = side.tapped or side.backend
    given = {str(value.name) for value in (*side.model.graph.inputs, *side.model.graph.outputs)}
    taps = tuple(name for name in dict.fromkeys(names) if name not in given)
    tapped = in_slices(stack.enter_context(watched.prepare(side.model, taps=taps, threads=side.threads)), side.model)
    if watched is side.backend:
        how = f"'{side.backend.name}' is tapped, which changes nothing there"
        return SideRun(side, values, unaligned, how, _tapped=tapped)
    how = f"'{side.backend.name}' is tapped with its optimizations off"
    return SideRun(side, values, unaligned, how, _tapped=tapped, _whole=_whole(side, stack))


def _keyed(units: Units) -> Iterator[tuple[Key, Watched]]:
    """The aligned values of a quantized graph, numbered where one fp32 value is put on several grids."""
    seen: dict[str, int] = {}
    for unit in units.units:
        if unit.value in units.aligned:
            count = seen.get(unit.stands_for, 0)
            seen[unit.stands_for] = count + 1
            yield (unit.stands_for, count), Watched(node=unit.node, unit=unit)


def _float_values(side: Side, wanted: Mapping[Key, Watched] | None) -> dict[Key, Watched]:
    known = values_by_name(side.original)
    if wanted is not None:
        return {key: Watched(node=one.node) for key, one in wanted.items() if key[0] in known}
    made = ((value, node) for node in side.original.graph for value in node.outputs if value.name)
    return {(str(value.name), 0): Watched(node=node_key(node)) for value, node in made}


def array_of(key: Key, watched: Watched, values: Mapping[str, Array]) -> Array | None:
    """The numbers of a watched value, levels or real; None: the run has none."""
    return values.get(key[0] if watched.unit is None else watched.unit.value)
