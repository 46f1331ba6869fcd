"""Passes behind the quantizer held to what they promise: the node that shows it, why,
and on which samples.
"""

import itertools
from dataclasses import dataclass, replace

import onnx_ir as ir
import pytest
from digits_targets import batches, constant_behind, digits, put, quantized, target

from qbench.diagnosis import localize_graph as localized_graph
from qbench.diagnosis.capture import Budget, samples_that_passes_move
from qbench.diagnosis.hypotheses import NamedCause
from qbench.diagnosis.localize_graph import BrokenPass, LocalizedGraph, broken_passes
from qbench.diagnosis.target import Target
from qbench.evaluation import Rewriting
from qbench.judging import Cause, CountingErrors
from qbench.passes import (
    EXACT,
    LOSSY,
    Effect,
    Pipeline,
    Policy,
    catalogue,
    parse_pipeline,
    run_pipeline,
)


@dataclass(frozen=True)
class Wrong:
    """A pass that gives the bias of a node other levels, once, whatever it promises; the last
    ``lost`` bits are 0.
    """

    lost: int = 0
    node: str = "dense1"
    effect: Effect = EXACT
    name: str = "wrong"

    def run(self, model: ir.Model) -> bool:
        if self.name in model.metadata_props:
            return False
        model.metadata_props[self.name] = "done"
        value, levels = constant_behind(model, self.node, 2, 0)
        put(value, levels >> self.lost << self.lost)
        return True


COARSE = Wrong(lost=6)
"""No fp32 number feels it: less than a tenth of a step of the result."""


def budget(seconds: float | None = None) -> Budget:
    return Budget.begin(seconds, itertools.count().__next__)


def rewritten(*passes: Wrong, policy: Policy = Policy.EXACT) -> Target:
    return with_pipeline(Pipeline(passes), policy)


def with_pipeline(pipeline: Pipeline, policy: Policy = Policy.EXACT) -> Target:
    written = quantized()
    graph = run_pipeline(written, pipeline, policy).model
    return replace(target(model=graph), written=written, rewriting=Rewriting(pipeline, policy))


def suspects(*passes: Wrong):
    with LocalizedGraph(rewritten(*passes), several=False) as graph:
        graph.run(batches(1, 8)[0], lambda: None)
        assert graph.name_causes(budget(), 2)
        return graph.suspects, tuple(graph.notes)


@pytest.mark.slow
def test_a_pass_that_is_not_exact_is_found_at_its_node_though_fp32_feels_nothing():
    found, notes = suspects(COARSE)
    assert notes == ()
    first = found[0]
    assert (first.node, first.cause) == ("dense1", Cause.WRONG_BIAS)
    assert "the pass 'wrong' promises to be exact, and moves " in first.evidence
    assert "'wrong'" in first.remedy


@pytest.mark.parametrize(
    ("largest", "said"), [(1, "by 1 step at most"), (1000, "by 1000 steps at most")]
)
def test_what_a_pass_moves_is_told_in_steps_without_powers_of_ten(largest, said):
    counted = CountingErrors(elements=4, differing=2, largest_steps=largest)
    found = BrokenPass(
        name="wrong", effect=EXACT, region=None, before=None, after=None, counted=counted
    )
    assert found.sentence.endswith(f"moves 2 of 4 codes here, {said}")


@pytest.mark.slow
def test_without_a_record_of_the_pass_nothing_speaks_against_that_node():
    made = rewritten(COARSE)
    with LocalizedGraph(replace(made, written=None, rewriting=None), several=False) as graph:
        graph.run(batches(1, 8)[0], lambda: None)
        assert graph.name_causes(budget(), 2)
        assert graph.suspects == ()


@pytest.mark.slow
def test_what_no_rule_explains_is_told_by_what_the_pass_moved(monkeypatch):
    unknown = NamedCause(cause=None, evidence="nothing is known")
    monkeypatch.setattr(localized_graph, "name_cause", lambda *_, **__: unknown)
    (first,), _ = suspects(COARSE)
    assert (first.node, first.cause) == ("dense1", Cause.WRONG_GRAPH)
    assert first.evidence.startswith("the pass 'wrong' promises to be exact, and moves ")
    assert "'wrong'" in first.remedy


@pytest.mark.slow
def test_passes_that_keep_their_word_are_no_suspects():
    """Neither where all do, nor beside one that does not."""
    kept = parse_pipeline("rebase-int8", catalogue()).passes
    assert run_pipeline(quantized(), Pipeline(kept)).accounts[0].changed
    assert broken_passes(with_pipeline(Pipeline(kept)), batches(1, 8)[0], budget()) == {}
    (found,) = broken_passes(
        with_pipeline(Pipeline((*kept, COARSE))), batches(1, 8)[0], budget()
    ).values()
    assert found.name == "wrong"


def test_of_a_pass_that_promises_nothing_nothing_is_said():
    made = rewritten(replace(COARSE, effect=LOSSY), policy=Policy.FAST)
    assert broken_passes(made, batches(1, 8)[0], budget()) == {}
    assert broken_passes(target(), batches(1, 8)[0], budget()) == {}


def test_no_pass_is_looked_at_when_the_budget_is_over():
    made = rewritten(COARSE)
    assert set(broken_passes(made, batches(1, 8)[0], budget())) == {"relu_dense1_quantized"}
    assert broken_passes(made, batches(1, 8)[0], budget(0.5)) == {}


def test_of_two_passes_the_one_that_broke_its_word_is_named():
    made = with_pipeline(
        Pipeline((Wrong(node="conv1", name="idle"), replace(COARSE, name="second")))
    )
    (found,) = broken_passes(made, batches(1, 8)[0], budget()).values()
    assert (found.codes, found.name) == ("relu_dense1_quantized", "second")


def test_samples_that_passes_move_are_named_in_their_order():
    made = rewritten(COARSE)
    (data,) = digits().subject.data.values()
    samples, task = digits().samples(data), digits().subject.model.task

    def asked(one: Target, count: int, seconds: float | None = None) -> tuple[str, ...]:
        return samples_that_passes_move(
            {"model": one}, task, samples, count=count, budget=budget(seconds)
        )

    feeds = next(iter(samples.batches(len(samples.ids))))
    outputs = []
    for model in (made.quantized, made.written):
        with made.backend.prepare(model) as executor:
            outputs.append(next(iter(executor.run(feeds).values())))
    moved = [
        name
        for name, row in zip(samples.ids, (outputs[0] != outputs[1]).any(axis=1), strict=True)
        if row
    ]
    assert 0 < len(moved) < len(samples.ids)
    assert asked(made, len(samples.ids)) == tuple(moved)
    assert asked(made, 3) == tuple(moved[:3])
    assert asked(made, 3, 0.5) == ()
    assert asked(target(), 3) == ()
