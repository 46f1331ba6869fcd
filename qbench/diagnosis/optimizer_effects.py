"""What one difference in ONNX Runtime's optimizations changes: the graph, the levels of its values, its outputs.

Two sessions that differ in their ``Optimization`` are compared in three ways:

    graph     operators of the graphs that they leave
    alone     each quantized piece by itself, fed with the levels of a run with no optimizations: what changes here
              changes because of what is done here; no tap lies inside a fused operator
    along     the whole graph, with the levels that both graphs still name as further outputs: what has come down
              from in front is in it. That tapping them leaves the graph as it was is checked, and said where not
    outputs   the whole graph, untapped

Why a level differs is judged by its float value in the run with no optimizations (``step_causes``).
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import Executor, Feeds, Level, Optimization, OrtBackend
from qbench.diagnosis.quantized_units import QuantizedUnit, quantized_units
from qbench.diagnosis.step_causes import StepCauses, count_causes
from qbench.graph import values_by_name
from qbench.metrics import Differences, count_differences

Array = npt.NDArray[Any]
Operators = Mapping[str, int]

_PLAIN = Optimization(level=Level.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueEffect:
    """The levels ``value``: ``alone``, and ``along`` the graph; None: it is no value of both graphs any more."""

    value: str
    node: str
    operators: tuple[str, ...]
    alone: StepCauses
    along: StepCauses | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEffect:
    """One graph output: its ``differences``, and their ``causes`` where it is on a grid."""

    name: str
    differences: Differences
    causes: StepCauses | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizationEffect:
    """What is other in the second of two sessions.

    Args:
        before, after: operator → how often, in the graph that the first leaves and in that of the second.
        same_graph: whether both leave the same nodes.
        values, outputs: none where no samples were given.
        disturbed: whether the taps of ``along`` themselves changed one of the two graphs.
    """

    before: Operators
    after: Operators
    same_graph: bool
    values: tuple[ValueEffect, ...] = ()
    outputs: tuple[OutputEffect, ...] = ()
    disturbed: bool = False

    @property
    def moved(self) -> tuple[ValueEffect, ...]:
        """The values that differ, in the order of the graph."""
        return tuple(one for one in self.values if one.alone.differing or (one.along and one.along.differing))

    @property
    def first(self) -> ValueEffect | None:
        """The first value along the graph that moves, where both graphs still name one that does."""
        return next((one for one in self.values if one.along and one.along.differing), None)


@dataclass(frozen=True, slots=True)
class _Left:
    """A session's graph as the engine left it: its nodes as text, operators, and names of values."""

    nodes: tuple[str, ...]
    operators: Operators
    names: frozenset[str]


class OptimizationTrial:
    """One model, and a batch of samples or none, on which any two optimizations are compared."""

    def __init__(self, model: ir.Model, feeds: Feeds | None, backend: OrtBackend, threads: int = 1) -> None:
        """``backend`` gives all but the optimization.

        Raises:
            InputError: a Q or DQ of ``model`` means nothing, or ``feeds`` do not fit it.
        """
        self._model, self._feeds, self._backend, self._threads = model, feeds, backend, threads
        self._units: tuple[QuantizedUnit, ...] = ()
        self._values: dict[str, Array] = {}
        if feeds is not None:
            self._units = quantized_units(model)
            self._values = self._plain_values(feeds)

    def compare(self, first: Optimization, second: Optimization) -> OptimizationEffect:
        """What is other in ``second``.

        Raises:
            InputError: one of the two leaves no valid graph.
        """
        (before, old), (after, new) = self._run(first), self._run(second)
        outputs = tuple(self._output(name, old[name], new[name]) for name in old)
        if before.nodes == after.nodes or self._feeds is None:
            same = before.nodes == after.nodes
            return OptimizationEffect(before=before.operators, after=after.operators, same_graph=same, outputs=outputs)
        named = [unit.value for unit in self._units if unit.value in before.names & after.names]
        (left, ours), (right, theirs) = self._run(first, named), self._run(second, named)
        return OptimizationEffect(
            before=before.operators,
            after=after.operators,
            same_graph=False,
            values=tuple(self._value(unit, first, second, (ours, theirs)) for unit in self._units),
            outputs=outputs,
            disturbed=(left.operators, right.operators) != (before.operators, after.operators),
        )

    def _plain_values(self, feeds: Feeds) -> dict[str, Array]:
        """Inputs, levels and real values of a run with no optimizations, where taps change nothing."""
        given = {str(value.name) for value in self._model.graph.inputs}
        taps = {name for unit in self._units for name in (unit.value, unit.real)} - given
        known = values_by_name(self._model)
        with self._prepared(self._model, _PLAIN, [name for name in known if name in taps]) as executor:
            return {**feeds, **executor.run(feeds)}

    def _run(self, optimization: Optimization, taps: Sequence[str] = ()) -> tuple[_Left, dict[str, Array]]:
        """The graph that is left, and what it gives for the samples, if there are any."""
        with tempfile.TemporaryDirectory(prefix="qbench-") as folder:
            kept = Path(folder) / "kept.onnx"
            with self._prepared(self._model, replace(optimization, kept=kept), taps) as executor:
                results = {} if self._feeds is None else executor.run(self._feeds)
            return _left(ir.load(kept).graph), results

    def _prepared(self, model: ir.Model, optimization: Optimization, taps: Sequence[str] = ()) -> Executor:
        backend = replace(self._backend, optimization=optimization)
        return backend.prepare(model, taps=taps, threads=self._threads)

    def _value(
        self, unit: QuantizedUnit, first: Optimization, second: Optimization, tapped: tuple[Feeds, Feeds]
    ) -> ValueEffect:
        ours, theirs = (results.get(unit.value) for results in tapped)
        along = None if ours is None or theirs is None else self._causes(unit, ours, theirs)
        alone = self._causes(unit, *(self._levels_alone(unit, one) for one in (first, second)))
        return ValueEffect(value=unit.value, node=unit.node, operators=unit.operators, alone=alone, along=along)

    def _levels_alone(self, unit: QuantizedUnit, optimization: Optimization) -> Array:
        with self._prepared(unit.graph, optimization) as executor:
            return executor.run({name: self._values[name] for name in unit.feeds})[unit.value]

    def _causes(self, unit: QuantizedUnit, ours: Array, theirs: Array) -> StepCauses:
        return count_causes(ours, theirs, unit.in_steps(self._values).reshape(ours.shape), unit.ends)

    def _output(self, name: str, ours: Array, theirs: Array) -> OutputEffect:
        unit, scaled = self._unit_of(name)
        if unit is None:
            return OutputEffect(name=name, differences=count_differences(ours, theirs), causes=None)
        scale = np.asarray(unit.scale, np.float32) if scaled else np.float32(1)
        levels = (unit.levels(one) if scaled else one for one in (ours, theirs))
        causes = self._causes(unit, *levels)
        return OutputEffect(name=name, differences=count_differences(ours, theirs, np.asarray(scale)), causes=causes)

    def _unit_of(self, name: str) -> tuple[QuantizedUnit | None, bool]:
        """The piece whose levels an output is, or dequantizes (then True)."""
        by_value = {unit.value: unit for unit in self._units}
        if name in by_value:
            return by_value[name], False
        maker = values_by_name(self._model)[name].producer()
        if maker is None or maker.op_type != "DequantizeLinear" or maker.inputs[0] is None:
            return None, False
        return by_value.get(str(maker.inputs[0].name)), True


def _left(graph: ir.Graph) -> _Left:
    nodes = list(graph)
    operators = Counter(_operator(node) for node in nodes)
    names = frozenset(str(value.name) for node in nodes for value in node.outputs)
    return _Left(tuple(sorted(_spelled(node) for node in nodes)), dict(sorted(operators.items())), names)


def _operator(node: ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in {"", "com.microsoft"} else node.op_type


def _spelled(node: ir.Node) -> str:
    """A node without its name, which the engine makes up; attributes in the order of their names."""
    inputs, outputs = (",".join(_names(values)) for values in (node.inputs, node.outputs))
    attributes = ",".join(f"{name}={node.attributes[name].value}" for name in sorted(node.attributes))
    return f"{outputs}={_operator(node)}({inputs};{attributes})"


def _names(values: Iterable[ir.Value | None]) -> Iterable[str]:
    return ("" if value is None else str(value.name) for value in values)


__all__ = ["Operators", "OptimizationEffect", "OptimizationTrial", "OutputEffect", "ValueEffect"]
