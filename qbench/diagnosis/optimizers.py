"""ONNX Runtime's graph optimizers one by one: each alone left out of the full set, and what that changes.

    effect of O = what a session with all optimizers has that one with all but O has not

Only optimizers that say they rewrote the graph are left out in turn: one that rewrote nothing can change nothing. Which
rules of a rule-based transformer rewrote it is not said, so all of its known rules are tried, and the transformer as a
whole where none of them accounts for it. Beside the optimizers stand the levels, each against the one below.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import onnx_ir as ir

from qbench.backends import Feeds, Level, Optimization, OrtBackend, SessionOptimizer, session_optimizers
from qbench.diagnosis.optimizer_effects import OptimizationEffect, OptimizationTrial
from qbench.diagnosis.optimizer_names import KnownOptimizers, known_optimizers
from qbench.errors import InputError
from qbench.graph import Form, form_of

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
    for name, levels in _names(found, known):
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


def _names(found: tuple[SessionOptimizer, ...], known: KnownOptimizers) -> Iterator[tuple[str, tuple[int, ...]]]:
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
