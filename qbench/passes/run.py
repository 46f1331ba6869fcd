"""Running passes on a copy of a model, until nothing changes, with an account of each pass."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from qbench.errors import InputError, QbenchError
from qbench.graph import (
    LINEAGE,
    carried_operators,
    extend_lineage,
    graph_digest,
    lineage_of,
    own_copy,
    with_operators,
)
from qbench.passes.contract import Effect, Pass, Policy, take_declined
from qbench.passes.pipeline import Pipeline, spelled
from qbench.passes.soundness import Interface, fault_of

Watch = Callable[[Pass, ir.Model, ir.Model, bool], None]
"""Called after a pass that changed a graph or returned that it did: with the pass, a copy of
the graph before it, the graph after it (not to be changed), and what the pass returned.
"""
ROUNDS = 24
"""The most times that a pipeline runs. Few are needed: each pass sweeps the whole graph."""


@dataclass(frozen=True, slots=True)
class PassAccount:
    """What one pass did: its name as the pipeline spells it, the number of rounds in which it
    changed something, and the number of nodes that it removed.
    """

    name: str
    spelled: str
    effect: Effect
    rounds: int
    removed: int

    @property
    def changed(self) -> bool:
        """Whether it did anything."""
        return self.rounds > 0


@dataclass(frozen=True, slots=True)
class Declined:
    """A pass that the policy did not admit (``node`` is empty), or that left a node alone, and
    why.
    """

    name: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Rewritten:
    """A model after a pipeline, and the account of it."""

    model: ir.Model
    accounts: tuple[PassAccount, ...]
    declined: tuple[Declined, ...]

    @property
    def removed(self) -> int:
        """The number of nodes that the passes removed."""
        return sum(one.removed for one in self.accounts)


class PassError(InputError):
    """A pass that was stopped; ``last_good`` is the graph before it."""

    last_good: ir.Model


def run_pipeline(
    model: ir.Model, pipeline: Pipeline, policy: Policy = Policy.EXACT, watch: Watch | None = None
) -> Rewritten:
    """A copy of ``model`` after the passes of ``pipeline`` that ``policy`` admits, repeated until
    none of them changes anything.

    Args:
        watch: called after every change; what it raises ends the run. With it graphs are compared,
            so that a change that a pass does not report is found, too; without it the value that a
            pass returns is trusted.

    Raises:
        PassError: a pass left an unsound graph, lost an output, broke down, or had not settled
            after 24 rounds.
        QbenchError: a pass refused the model.
    """
    kept, refused = pipeline.admitted(policy)
    copy, interface = own_copy(model), Interface.of(model)
    rounds, removed = dict.fromkeys(kept.passes, 0), dict.fromkeys(kept.passes, 0)
    steps = 0
    for _ in range(ROUNDS):
        modified = []
        for one in kept.passes:
            before = len(copy.graph)
            changed = _checked_run(one, copy, interface, watch)
            if isinstance(changed, str):
                raise _stopped(model, kept, steps, one, changed)
            steps += 1
            if changed:
                modified.append(one)
                rounds[one] += 1
                removed[one] += before - len(copy.graph)
        if not modified:
            break
    else:
        raise _stopped(
            model,
            kept,
            steps - 1,
            modified[-1],
            f"that it still changed the graph in round {ROUNDS}",
        )
    notes = take_declined(copy)
    _remember(model, copy)
    accounts = tuple(
        PassAccount(one.name, spelled(one), one.effect, rounds[one], removed[one])
        for one in kept.passes
    )
    return Rewritten(
        copy,
        accounts,
        (*_refusals(refused, policy), *(Declined(*key, why) for key, why in notes.items())),
    )


def _checked_run(
    one: Pass, model: ir.Model, interface: Interface, watch: Watch | None
) -> bool | str:
    """Whether the pass changed ``model``, or why it has to be stopped, as text; ``watch`` is
    called after a change.
    """
    was = model if watch is None else model.clone()
    reported = _run(one, model)
    if isinstance(reported, str):
        return reported
    if not reported and (watch is None or graph_digest(was) == graph_digest(model)):
        return False
    fault = fault_of(model, interface)
    if fault is not None:
        return fault
    if watch is not None:
        watch(one, was, model, reported)
    return True


def _run(one: Pass, model: ir.Model) -> bool | str:
    """Whether the pass returned that it changed ``model``, or the exception that it raised, as
    text.
    """
    try:
        return bool(one.run(model))
    except QbenchError:
        raise
    except Exception as error:  # whatever breaks in a pass, the user must learn which one
        return f"{type(error).__name__}: {error}"


def _stopped(model: ir.Model, pipeline: Pipeline, steps: int, one: Pass, found: str) -> PassError:
    """The error, with the graph that the ``steps`` before made: passes are deterministic, so
    they make it again.
    """
    error = PassError(
        f"Rewriting '{model.graph.name}' with the pass '{one.name}'",
        found=found,
        expected="a sound graph with the same inputs and outputs, that settles",
        remedy="Leave the pass out, or correct it; the last sound graph is kept.",
    )
    error.last_good = own_copy(model)
    for index in range(steps):
        pipeline.passes[index % len(pipeline.passes)].run(error.last_good)
    return error


def _refusals(refused: tuple[Pass, ...], policy: Policy) -> Iterator[Declined]:
    for one in refused:
        yield Declined(
            one.name,
            "",
            f"its effect is {one.effect}, which the policy '{policy.value}' does not admit",
        )


def _remember(model: ir.Model, copy: ir.Model) -> None:
    if (before := graph_digest(model)) != graph_digest(copy) and (
        LINEAGE not in copy.metadata_props or lineage_of(copy)
    ):
        extend_lineage(copy, before)


def rewrite(model: ir.Model, passes: Sequence[Pass]) -> ir.Model:
    """A new model: ``model`` after ``passes`` in order, with its lineage written.

    ``model`` itself is not touched.

    A pass that gives other numbers to values that keep their names forgets the lineage: it begins
    behind that pass.

    Raises:
        QbenchError: a pass refused the model.
        InputError: a pass broke down on it; the pass is named.
    """
    copy = own_copy(model)
    if not lineage_of(copy):
        # so that a lineage that is forgotten from here on is noticed
        copy.metadata_props.pop(LINEAGE, None)
    operators, modified = carried_operators(model), False
    for step in passes:
        try:
            modified |= step.run(copy)
            with_operators(copy, operators)  # which a pass by way of ONNX's own messages loses
            _check_names(copy)
        except QbenchError:
            raise
        except Exception as error:  # whatever breaks in a pass, the user must learn which one
            raise InputError(
                f"Rewriting '{model.graph.name}' with the pass '{step.name}'",
                found=f"{type(error).__name__}: {error}",
                expected="a graph the pass understands",
                remedy="Leave the pass out, or report the model.",
            ) from error
    forgotten = LINEAGE in copy.metadata_props and not lineage_of(copy)
    if modified and not forgotten and (before := graph_digest(model)) != graph_digest(copy):
        extend_lineage(copy, before)
    return copy


def _check_names(model: ir.Model) -> None:
    """Two values under one name would be merged silently when the model is written.

    Raises:
        ValueError: the name that two values of the main graph have.
    """
    seen: set[str] = set()
    graph = model.graph
    constants = (value for value in graph.initializers.values() if not value.is_graph_input())
    for value in (*graph.inputs, *constants, *(v for node in graph for v in node.outputs)):
        if value.name and value.name in seen:
            raise ValueError(f"two values called '{value.name}'")
        seen.add(value.name or "")
