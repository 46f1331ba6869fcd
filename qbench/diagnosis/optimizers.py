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
from qbench.working import each_told

_LEVEL = re.compile(r"Applying \d+ graph transformer\(s\) for level (\d+)")
_LEVEL_ENDS = re.compile(r"Stopping graph transformer iteration")
_APPLIED = re.compile(r"GraphTransformer (\S+) modified: ([01]) with status")
_LONGEST = 600
"""Seconds after which making a session is assumed to hang."""


@dataclass(frozen=True, slots=True)
class SessionOptimizer:
    """One optimizer of a session: its name, the level (1, 2, …) at which it ran, whether it
    ``modified`` the graph.
    """

    name: str
    level: int
    modified: bool


def session_optimizers(model: ir.Model, backend: OrtBackend) -> tuple[SessionOptimizer, ...]:
    """Every optimizer that a session of ``backend`` over ``model`` runs, in order, once per level.

    Without rewrites that run at every level and cannot be disabled (casts, copies between devices),
    and without the single rules inside ``Level1_RuleBasedTransformer`` and
    ``Level2_RuleBasedTransformer``, which are not in the log.

    Raises:
        InputError: ONNX Runtime makes no session of it.
    """
    doing = f"Listing what ONNX Runtime rewrites in '{model.graph.name}'"
    logging = replace(backend, optimization=replace(backend.optimization, logged=True))
    with Worker() as worker:  # a process of its own: the engine writes its log to standard error
        try:
            worker.load(
                logging.fitted(model),
                logging.session_settings(threads=1),
                doing=doing,
                seconds=_LONGEST,
            )
        except EngineError as error:
            raise InputError(
                doing,
                found=engine_sentence(str(error)),
                expected="a model that ONNX Runtime loads",
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
    return tuple(
        SessionOptimizer(name, level, modified) for (name, level), modified in found.items()
    )


# Two sessions that differ in their ``Optimization`` are compared in four ways:
#
#     graph     the operators of the optimized graphs
#     alone     each unit alone, on inputs from a run without optimizations: a difference here is
#               caused in this unit
#     along     the whole graph, with the quantized values that both graphs still have as further
#               outputs: this includes differences from units before. Whether these taps change a
#               graph is checked and reported
#     outputs   the whole graph, untapped
#
# The cause of a difference is determined by the float value in the run without optimizations
# (``count_causes``).

Array = npt.NDArray[Any]
Operators = Mapping[str, int]

_PLAIN = Optimization(level=Level.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueEffect:
    """The differences of one quantized value: ``alone``, and ``along`` the graph; None: not in
    both graphs.
    """

    value: str
    node: str
    operators: tuple[str, ...]
    alone: StepCauses
    along: StepCauses | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEffect:
    """One graph output: its ``differences``, and their ``causes`` where it is quantized."""

    name: str
    differences: Differences
    causes: StepCauses | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizationEffect:
    """The differences of the second of two sessions from the first.

    Args:
        before, after: operator → its count in the optimized graph of the first and of the second
            session.
        same_graph: whether both graphs have the same nodes.
        values, outputs: empty without samples.
        disturbed: whether the taps of ``along`` themselves changed one of the graphs.
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
        return tuple(
            one for one in self.values if one.alone.differing or (one.along and one.along.differing)
        )

    @property
    def first(self) -> ValueEffect | None:
        """The first value that both graphs still have and in which they differ."""
        return next((one for one in self.values if one.along and one.along.differing), None)


@dataclass(frozen=True, slots=True)
class _Left:
    """The optimized graph of a session: its nodes as text, its operators, and the names of its
    values.
    """

    nodes: tuple[str, ...]
    operators: Operators
    names: frozenset[str]


class OptimizationTrial:
    """One model and a batch of samples, or none, on which two optimizations are compared."""

    def __init__(
        self, model: ir.Model, feeds: Feeds | None, backend: OrtBackend, threads: int = 1
    ) -> None:
        """``backend`` gives all options but the optimization.

        Raises:
            InputError: a QuantizeLinear or DequantizeLinear of ``model`` is invalid, or ``feeds``
                do not fit it.
        """
        self._model, self._feeds, self._backend, self._threads = model, feeds, backend, threads
        self._units: tuple[QuantizedUnit, ...] = ()
        self._values: dict[str, Array] = {}
        if feeds is not None:
            self._units = quantized_units(model)
            self._values = self._plain_values(feeds)

    def compare(self, first: Optimization, second: Optimization) -> OptimizationEffect:
        """The differences of ``second`` from ``first``.

        Raises:
            InputError: one of the two makes no valid graph.
        """
        (before, old), (after, new) = self._run(first), self._run(second)
        outputs = tuple(self._output(name, old[name], new[name]) for name in old)
        if before.nodes == after.nodes or self._feeds is None:
            same = before.nodes == after.nodes
            return OptimizationEffect(
                before=before.operators, after=after.operators, same_graph=same, outputs=outputs
            )
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
        """Inputs, quantized and real values of a run without optimizations, where taps change
        no number.
        """
        given = {str(value.name) for value in self._model.graph.inputs}
        taps = {name for unit in self._units for name in (unit.value, unit.real)} - given
        known = values_by_name(self._model)
        with self._prepared(
            self._model, _PLAIN, [name for name in known if name in taps]
        ) as executor:
            return {**feeds, **executor.run(feeds)}

    def _run(
        self, optimization: Optimization, taps: Sequence[str] = ()
    ) -> tuple[_Left, dict[str, Array]]:
        """The optimized graph, and its outputs for the samples, if there are any."""
        with tempfile.TemporaryDirectory(prefix="qbench-") as folder:
            kept = Path(folder) / "kept.onnx"
            with self._prepared(self._model, replace(optimization, kept=kept), taps) as executor:
                results = {} if self._feeds is None else executor.run(self._feeds)
            return _left(ir.load(kept).graph), results

    def _prepared(
        self, model: ir.Model, optimization: Optimization, taps: Sequence[str] = ()
    ) -> Executor:
        backend = replace(self._backend, optimization=optimization)
        return backend.prepare(model, taps=taps, threads=self._threads)

    def _value(
        self,
        unit: QuantizedUnit,
        first: Optimization,
        second: Optimization,
        tapped: tuple[Feeds, Feeds],
    ) -> ValueEffect:
        ours, theirs = (results.get(unit.value) for results in tapped)
        along = None if ours is None or theirs is None else self._causes(unit, ours, theirs)
        alone = self._causes(unit, *(self._codes_alone(unit, one) for one in (first, second)))
        return ValueEffect(
            value=unit.value, node=unit.node, operators=unit.operators, alone=alone, along=along
        )

    def _codes_alone(self, unit: QuantizedUnit, optimization: Optimization) -> Array:
        with self._prepared(unit.graph, optimization) as executor:
            return executor.run({name: self._values[name] for name in unit.feeds})[unit.value]

    def _causes(self, unit: QuantizedUnit, ours: Array, theirs: Array) -> StepCauses:
        return count_causes(
            ours, theirs, unit.in_steps(self._values).reshape(ours.shape), unit.ends
        )

    def _output(self, name: str, ours: Array, theirs: Array) -> OutputEffect:
        unit, scaled = self._unit_of(name)
        if unit is None:
            return OutputEffect(name=name, differences=count_differences(ours, theirs), causes=None)
        scale = np.asarray(unit.scale, np.float32) if scaled else np.float32(1)
        codes = (unit.codes(one) if scaled else one for one in (ours, theirs))
        causes = self._causes(unit, *codes)
        return OutputEffect(
            name=name, differences=count_differences(ours, theirs, np.asarray(scale)), causes=causes
        )

    def _unit_of(self, name: str) -> tuple[QuantizedUnit | None, bool]:
        """The unit that computes an output, or whose result the output dequantizes (then True)."""
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
    return _Left(
        tuple(sorted(_spelled(node) for node in nodes)), dict(sorted(operators.items())), names
    )


def _operator(node: ir.Node) -> str:
    return (
        f"{node.domain}.{node.op_type}"
        if node.domain not in {"", "com.microsoft"}
        else node.op_type
    )


def _spelled(node: ir.Node) -> str:
    """A node as text without its name, which the engine generates; attributes sorted by name."""
    inputs, outputs = (",".join(_names(values)) for values in (node.inputs, node.outputs))
    attributes = ",".join(
        f"{name}={node.attributes[name].value}" for name in sorted(node.attributes)
    )
    return f"{outputs}={_operator(node)}({inputs};{attributes})"


def _names(values: Iterable[ir.Value | None]) -> Iterable[str]:
    return ("" if value is None else str(value.name) for value in values)


_NAMES = Path(__file__).with_name("optimizer_names.toml")
_CASES = Path(__file__).with_name("optimizer_catalogue.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOptimizers:
    """The optimizers of one version of ONNX Runtime (``optimizer_names.toml``).

    Args:
        version: of onnxruntime.
        levels: level → names, in the engine's order.
        rules: transformer → its rules, which can be disabled by name but are not in the log.
        conditional: those that exist only on some processors or with some options.
    """

    version: str
    levels: Mapping[str, tuple[str, ...]]
    rules: Mapping[str, tuple[str, ...]]
    conditional: tuple[str, ...]

    def unknown(self, found: Iterable[SessionOptimizer]) -> tuple[str, ...]:
        """The optimizers of a session that are not in this table, in its order."""
        known = {name for names in self.levels.values() for name in names}
        return tuple(dict.fromkeys(one.name for one in found if one.name not in known))

    def missing(self, found: Iterable[SessionOptimizer]) -> tuple[str, ...]:
        """The optimizers of this table that a session lacks at its levels, without conditional
        ones.
        """
        found = tuple(found)
        names, reached = {one.name for one in found}, {str(one.level) for one in found}
        wanted = (name for level in reached for name in self.levels.get(level, ()))
        return tuple(sorted(set(wanted) - names - set(self.conditional)))


def known_optimizers() -> KnownOptimizers:
    """The table of this installation."""
    return value_from_table(KnownOptimizers, read_toml(_NAMES), f"'{_NAMES.name}'")


# Each optimizer of ONNX Runtime alone is disabled, and the session is compared with the full one:
#
#     effect of O = the differences of a session with all optimizers from one with all but O
#
# Only optimizers that logged a change of the graph are disabled in turn. A rule-based transformer
# does not log which of its rules made the change. So all its known rules are tried, and the
# transformer as a whole if no rule has an effect. In addition, each optimization level is compared
# with the one below.

_STEPS = ((Level.NONE, Level.BASIC), (Level.BASIC, Level.EXTENDED), (Level.EXTENDED, Level.ALL))


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerEffect:
    """One optimizer or rule: its ``name``, the ``levels`` at which it runs, and its effect
    alone.
    """

    name: str
    levels: tuple[int, ...]
    effect: OptimizationEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelEffect:
    """The effect of a ``level`` compared with the one ``below``."""

    below: Level
    level: Level
    effect: OptimizationEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerReport:
    """The effects of the optimizers on one model.

    Args:
        asked: number of optimizers that the session runs.
        effects: of optimizers without which the graph changes, in the engine's order.
        replaced: optimizers that changed the graph, although it is the same without them: another
            does their work.
        unknown: optimizers of the session that are not in the table; they are tried, too.
        missing: those only in the table.
        levels: one per step from none to all.
    """

    asked: int
    effects: tuple[OptimizerEffect, ...]
    replaced: tuple[str, ...]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    levels: tuple[LevelEffect, ...]


def examine_optimizers(
    model: ir.Model,
    feeds: Feeds | None = None,
    *,
    backend: OrtBackend,
    level: Level = Level.ALL,
    threads: int = 1,
) -> OptimizerReport:
    """The effect of each optimizer of a session over a quantized ``model``.

    Args:
        model: in QDQ or QOperator form; not changed.
        feeds: one batch of samples; None: only graphs are compared.
        backend: gives all options but the optimization.
        level: the full set of optimizers, from which each is disabled.
        threads: of every session.

    Raises:
        InputError: a float model, an invalid QuantizeLinear or DequantizeLinear, feeds that do not
            fit, or a graph that ONNX Runtime does not load.
    """
    if form_of(model) is Form.FLOAT:
        raise InputError(
            f"Trying the optimizers on '{model.graph.name}'",
            found="a float model",
            expected="a quantized model",
            remedy="Quantize it first: qbench quantize.",
        )
    full = Optimization(level=level)
    found = session_optimizers(model, replace(backend, optimization=full))
    known, trial = known_optimizers(), OptimizationTrial(model, feeds, backend, threads)
    effects, replaced = [], []
    tried = list(_optimizers_names(found, known))
    for name, levels in each_told("trying optimizers", tried, "optimizers"):
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
    """What to disable in turn, with its levels: what changed the graph; rules before their
    transformer.
    """
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


_SEED = 20261122
_PAIRS = 256
"""Number of 8-bit values; its square is the number of pairs."""


class Origin(enum.Enum):
    """The cause of a difference."""

    KERNEL = "kernel"
    OPTIMIZER = "optimizer"
    NEITHER = "neither"


class Samples(enum.Enum):
    """The samples of an input."""

    CODES = "levels"  # stored name
    PAIRS_FIRST = "pairs-first"
    PAIRS_SECOND = "pairs-second"
    DRAWN = "drawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerCase:
    """One graph of ``optimizer_catalogue.toml`` and the expected differences between no and all
    optimizations.

    Args:
        name: short.
        reported: an earlier measurement elsewhere.
        says: the explanation.
        belongs: the cause of the difference.
        graph: ONNX text.
        samples: of its inputs.
        constants: inputs that become weights.
        expected: differing output values by cause; zeros are omitted.
        operators: of the optimized graph.
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
        """The differences of its one output."""
        (output,) = self.effect.outputs
        assert output.causes is not None
        return output.causes

    @property
    def as_expected(self) -> bool:
        """Whether every number is the expected one."""
        return self.measured == self.case.expected and dict(self.effect.after) == dict(
            self.case.operators
        )


def optimizer_cases() -> tuple[OptimizerCase, ...]:
    """The cases of the catalogue, in its order."""
    tables = read_toml(_CASES)["case"]
    return tuple(
        value_from_table(
            OptimizerCase, table, f"case '{table.get('name', number)}' of '{_CASES.name}'"
        )
        for number, table in enumerate(tables)
    )


def measure_case(case: OptimizerCase, *, precise: bool = True) -> CaseResult:
    """Run one case; ``precise``: in the mode in which u8 × s8 sums are exact on every x64
    processor.
    """
    model = ir.from_onnx_text(case.graph)
    inputs = {str(value.name): value for value in model.graph.inputs}
    for index, (name, samples) in enumerate((case.constants or {}).items()):
        _make_constant(model, inputs[name], _array(inputs[name], samples, 1000 + index))
    feeds: Feeds = {
        name: _array(inputs[name], one, n) for n, (name, one) in enumerate(case.samples.items())
    }
    trial = OptimizationTrial(model, feeds, OrtBackend(name="ort-cpu", precise=precise))
    return CaseResult(case, trial.compare(Optimization(level=Level.NONE), Optimization()))


def _array(value: ir.Value, samples: Samples, stream: int) -> Array:
    assert value.dtype is not None
    assert value.shape is not None
    shape, dtype = value.shape.numpy(), value.dtype.numpy()
    lowest = np.iinfo(dtype).min
    codes = np.arange(lowest, lowest + _PAIRS)
    match samples:
        case Samples.CODES:
            chosen = codes
        case Samples.PAIRS_FIRST:
            chosen = np.tile(codes, _PAIRS)
        case Samples.PAIRS_SECOND:
            chosen = np.repeat(codes, _PAIRS)
        case Samples.DRAWN:
            chosen = np.random.default_rng([_SEED, stream]).integers(lowest, lowest + _PAIRS, shape)
    return chosen.astype(dtype).reshape(shape)


def _make_constant(model: ir.Model, value: ir.Value, array: Array) -> None:
    model.graph.inputs.remove(value)
    value.const_value = ir.tensor(array, name=value.name)
    model.graph.register_initializer(value)
