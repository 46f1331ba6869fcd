"""What each graph optimization of ONNX Runtime changes in a quantized model."""

import enum
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import (
    EngineError,
    Executor,
    Feeds,
    Level,
    Optimization,
    OrtBackend,
    Worker,
    engine_sentence,
)
from qbench.diagnosis.units import QuantizedUnit, StepCauses, count_causes, quantized_units
from qbench.errors import InputError
from qbench.graph import Form, form_of, values_by_name
from qbench.metrics import Differences, count_differences
from qbench.storage import read_toml, value_from_table

# The optimizers that ONNX Runtime really has, and which of them found something to rewrite in a model.

_LEVEL = re.compile(r"Applying \d+ graph transformer\(s\) for level (\d+)")
_LEVEL_ENDS = re.compile(r"Stopping graph transformer iteration")
_APPLIED = re.compile(r"GraphTransformer (\S+) modified: ([01]) with status")
_LONGEST = 600
"""Seconds; a session that takes longer to make is stuck."""


@dataclass(frozen=True, slots=True)
class SessionOptimizer:
    """One optimizer of a session: its name, the level (1, 2, …) at which it ran, whether it ``modified`` the graph."""

    name: str
    level: int
    modified: bool


def session_optimizers(model: ir.Model, backend: OrtBackend) -> tuple[SessionOptimizer, ...]:
    """Every optimizer that a session of ``backend`` over ``model`` asks, in order, once a level.

    Rewrites that run at every level and cannot be left out (casts, copies between devices) are not among them. The
    rules inside ``Level1_RuleBasedTransformer`` and ``Level2_RuleBasedTransformer`` have no line of their own.

    Raises:
        InputError: no session can be made of it.
    """
    doing = f"Asking ONNX Runtime what it rewrites of '{model.graph.name}'"
    telling = replace(backend, optimization=replace(backend.optimization, logged=True))
    with Worker() as worker:  # a process of its own: the engine writes its log to standard error
        try:
            worker.load(telling.fitted(model), telling.session_settings(threads=1), doing=doing, seconds=_LONGEST)
        except EngineError as error:
            raise InputError(
                doing,
                found=engine_sentence(str(error)),
                expected="a session",
                remedy="Run it on the backend ort-cpu first.",
            ) from error
        return _read(worker.printed())


def _read(log: str) -> tuple[SessionOptimizer, ...]:
    found: dict[tuple[str, int], bool] = {}
    level = None
    for line in log.splitlines():
        if begun := _LEVEL.search(line):
            level = int(begun[1])
        elif _LEVEL_ENDS.search(line):
            level = None
        elif (applied := _APPLIED.search(line)) and level is not None:
            key = applied[1], level
            found[key] = found.get(key, False) or applied[2] == "1"
    return tuple(SessionOptimizer(name, level, modified) for (name, level), modified in found.items())


# What one difference in ONNX Runtime's optimizations changes: the graph, the levels of its values, its outputs.
#
# Two sessions that differ in their ``Optimization`` are compared in three ways:
#
#     graph     operators of the graphs that they leave
#     alone     each quantized piece by itself, fed with the levels of a run with no optimizations: what changes here
#               changes because of what is done here; no tap lies inside a fused operator
#     along     the whole graph, with the levels that both graphs still name as further outputs: what has come down
#               from in front is in it. That tapping them leaves the graph as it was is checked, and said where not
#     outputs   the whole graph, untapped
#
# Why a level differs is judged by its float value in the run with no optimizations (``step_causes``).

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


# Which optimizers of ONNX Runtime we know by name (``optimizer_names.toml``), and how they agree with a session's.

_NAMES = Path(__file__).with_name("optimizer_names.toml")
_CASES = Path(__file__).with_name("optimizer_catalogue.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOptimizers:
    """The optimizers of one version.

    Args:
        version: of onnxruntime. levels: level → names, in the engine's order.
        rules: transformer → the rules in it, each of which has a name that can be left out but no line in the log.
        conditional: those that only some processors or options have.
    """

    version: str
    levels: Mapping[str, tuple[str, ...]]
    rules: Mapping[str, tuple[str, ...]]
    conditional: tuple[str, ...]

    def unknown(self, found: Iterable[SessionOptimizer]) -> tuple[str, ...]:
        """Those of a session that are in no level here, in its order."""
        known = {name for names in self.levels.values() for name in names}
        return tuple(dict.fromkeys(one.name for one in found if one.name not in known))

    def missing(self, found: Iterable[SessionOptimizer]) -> tuple[str, ...]:
        """Those of the levels that a session reached which it lacks, conditional ones aside."""
        found = tuple(found)
        names, reached = {one.name for one in found}, {str(one.level) for one in found}
        wanted = (name for level in reached for name in self.levels.get(level, ()))
        return tuple(sorted(set(wanted) - names - set(self.conditional)))


def known_optimizers() -> KnownOptimizers:
    """The table of this installation."""
    return value_from_table(KnownOptimizers, read_toml(_NAMES), f"'{_NAMES.name}'")


# ONNX Runtime's graph optimizers one by one: each alone left out of the full set, and what that changes.
#
#     effect of O = what a session with all optimizers has that one with all but O has not
#
# Only optimizers that say they rewrote the graph are left out in turn: one that rewrote nothing can change nothing.
# Which rules of a rule-based transformer rewrote it is not said, so all of its known rules are tried, and the
# transformer as a whole where none of them accounts for it. Next to the optimizers are the levels, each against the
# one below.

_STEPS = ((Level.NONE, Level.BASIC), (Level.BASIC, Level.EXTENDED), (Level.EXTENDED, Level.ALL))


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerEffect:
    """One optimizer or rule: its ``name``, the ``levels`` at which it runs, and what it alone changes."""

    name: str
    levels: tuple[int, ...]
    effect: OptimizationEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelEffect:
    """What a ``level`` changes that the one ``below`` does not."""

    below: Level
    level: Level
    effect: OptimizationEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerReport:
    """What the optimizers do to one model.

    Args:
        asked: how many optimizers the session has.
        effects: those whose absence changes the graph, in the engine's order.
        replaced: those that rewrote the graph, and yet it comes out the same without them: another does their work.
        unknown: optimizers that our table lacks; they are tried like all others. missing: those that only it has.
        levels: one a step from none to all.
    """

    asked: int
    effects: tuple[OptimizerEffect, ...]
    replaced: tuple[str, ...]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    levels: tuple[LevelEffect, ...]


def examine_optimizers(
    model: ir.Model, feeds: Feeds | None = None, *, backend: OrtBackend, level: Level = Level.ALL, threads: int = 1
) -> OptimizerReport:
    """What each optimizer of a session over a quantized ``model`` changes.

    Args:
        model: QDQ, or operators on integers; not touched.
        feeds: one batch of samples; None: graphs alone are compared.
        backend: gives all but the optimization.
        level: the full set, from which each is left out.
        threads: of every session.

    Raises:
        InputError: a float model, a Q or DQ that means nothing, feeds that do not fit, or a graph without a session.
    """
    if form_of(model) is Form.FLOAT:
        raise InputError(
            f"Trying the optimizers on '{model.graph.name}'",
            found="a float model",
            expected="a quantized one, whose values have levels",
            remedy="Quantize it first: qbench quantize.",
        )
    full = Optimization(level=level)
    found = session_optimizers(model, replace(backend, optimization=full))
    known, trial = known_optimizers(), OptimizationTrial(model, feeds, backend, threads)
    effects, replaced = [], []
    for name, levels in _optimizers_names(found, known):
        effect = trial.compare(replace(full, without=frozenset({name})), full)
        if not effect.same_graph:
            effects.append(OptimizerEffect(name=name, levels=levels, effect=effect))
        elif any(one.name == name for one in found):
            replaced.append(name)
    accounted = {one.name for one in effects}
    whole = {name for name, rules in known.rules.items() if accounted & set(rules)}
    return OptimizerReport(
        asked=len({one.name for one in found}),
        effects=tuple(one for one in effects if one.name not in whole),
        replaced=tuple(name for name in replaced if name not in whole),
        unknown=known.unknown(found),
        missing=known.missing(found),
        levels=tuple(_levels(trial, level)),
    )


def _optimizers_names(
    found: tuple[SessionOptimizer, ...], known: KnownOptimizers
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What to leave out in turn: what rewrote the graph, with its levels; rules in front of the one they are in."""
    modified: dict[str, tuple[int, ...]] = {}
    for one in found:
        if one.modified:
            for name in (*known.rules.get(one.name, ()), one.name):
                modified[name] = (*modified.get(name, ()), one.level)
    yield from modified.items()


def _levels(trial: OptimizationTrial, highest: Level) -> Iterator[LevelEffect]:
    order = list(Level)
    for below, level in _STEPS:
        if order.index(level) <= order.index(highest):
            effect = trial.compare(Optimization(level=below), Optimization(level=level))
            yield LevelEffect(below=below, level=level, effect=effect)


# Cases of what ONNX Runtime's rewriting changes, with numbers to hold it to (``optimizer_catalogue.toml``).

_SEED = 20261122
_PAIRS = 256
"""Levels of 8 bits; pairs of them are squared that many."""


class Origin(enum.Enum):
    """Whose doing a difference is."""

    KERNEL = "kernel"
    OPTIMIZER = "optimizer"
    NEITHER = "neither"


class Samples(enum.Enum):
    """What an input is fed."""

    LEVELS = "levels"
    PAIRS_FIRST = "pairs-first"
    PAIRS_SECOND = "pairs-second"
    DRAWN = "drawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerCase:
    """One graph, and how the outputs of two sessions over it differ: none and all optimizations.

    Args:
        name: short. reported: what was measured before, elsewhere. says: what was found here.
        belongs: whose doing it is.
        graph: ONNX text. samples: what its inputs are fed. constants: inputs that become weights.
        expected: output levels by cause; only those that are not zero are written.
        operators: those of the optimized graph.
    """

    name: str
    reported: str
    says: str
    belongs: Origin
    graph: str
    samples: Mapping[str, Samples]
    expected: StepCauses
    operators: Mapping[str, int]
    constants: Mapping[str, Samples] | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A ``case`` and the ``effect`` that was measured."""

    case: OptimizerCase
    effect: OptimizationEffect

    @property
    def measured(self) -> StepCauses:
        """Of its one output."""
        (output,) = self.effect.outputs
        assert output.causes is not None
        return output.causes

    @property
    def as_expected(self) -> bool:
        """Whether every number is."""
        return self.measured == self.case.expected and dict(self.effect.after) == dict(self.case.operators)


def optimizer_cases() -> tuple[OptimizerCase, ...]:
    """All of the catalogue, in its order."""
    tables = read_toml(_CASES)["case"]
    return tuple(
        value_from_table(OptimizerCase, table, f"case '{table.get('name', number)}' of '{_CASES.name}'")
        for number, table in enumerate(tables)
    )


def measure_case(case: OptimizerCase, *, precise: bool = True) -> CaseResult:
    """Run one case, as a rule in the mode where u8 × s8 sums are exact on every x64 processor."""
    model = ir.from_onnx_text(case.graph)
    inputs = {str(value.name): value for value in model.graph.inputs}
    for index, (name, samples) in enumerate((case.constants or {}).items()):
        _make_constant(model, inputs[name], _array(inputs[name], samples, 1000 + index))
    feeds: Feeds = {name: _array(inputs[name], one, n) for n, (name, one) in enumerate(case.samples.items())}
    trial = OptimizationTrial(model, feeds, OrtBackend(name="ort-cpu", precise=precise))
    return CaseResult(case, trial.compare(Optimization(level=Level.NONE), Optimization()))


def _array(value: ir.Value, samples: Samples, stream: int) -> Array:
    assert value.dtype is not None
    assert value.shape is not None
    shape, dtype = value.shape.numpy(), value.dtype.numpy()
    lowest = np.iinfo(dtype).min
    levels = np.arange(lowest, lowest + _PAIRS)
    match samples:
        case Samples.LEVELS:
            chosen = levels
        case Samples.PAIRS_FIRST:
            chosen = np.tile(levels, _PAIRS)
        case Samples.PAIRS_SECOND:
            chosen = np.repeat(levels, _PAIRS)
        case Samples.DRAWN:
            chosen = np.random.default_rng([_SEED, stream]).integers(lowest, lowest + _PAIRS, shape)
    return chosen.astype(dtype).reshape(shape)


def _make_constant(model: ir.Model, value: ir.Value, array: Array) -> None:
    model.graph.inputs.remove(value)
    value.const_value = ir.tensor(array, name=value.name)
    model.graph.register_initializer(value)
