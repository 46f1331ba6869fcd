"""Tolerances by the error or as they are, recovery against today's fp32, and slices of the data."""

import dataclasses
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_numbers import expected, judged, measured, per, top1
from scipy.stats import norm
from statsmodels.stats.multitest import multipletests

from qbench.judging import (
    Decision,
    DecisionRule,
    Evidence,
    Expectation,
    GateKind,
    Outcome,
    RelativeTo,
    Rules,
    Tolerance,
    margin_evidence,
)
from qbench.judging.loss import recovery_gate, slice_gates
from qbench.judging.statistics import beyond_margin_p, holm
from qbench.metrics import Clusters, tango_statistic


def units(value, relative_to, score):
    return Tolerance(value, "suite smoke", relative_to=relative_to).margin(score)


def test_what_a_tolerance_is_relative_to():
    near = top1(980, reference=990)
    assert units(0.1, RelativeTo.SCORE, near) == 99
    assert units(0.1, RelativeTo.ERROR, near) == 1  # a tenth of the ten that fp32 has wrong
    assert units(0.01, RelativeTo.NOTHING, near) == 10
    rate = per(120, reference=100, least=0.0)
    assert [units(0.1, one, rate) for one in RelativeTo] == [10, 10, 200]
    assert units(2.5, RelativeTo.ERROR, near) == 25  # two and a half times as many errors more
    noise = dataclasses.replace(near, unit="dB")
    assert units(0.1, RelativeTo.ERROR, noise) == 0


def test_the_same_tolerance_of_the_score_admits_twice_the_errors_near_the_top():
    score = top1(980, reference=990)
    assert units(0.01, RelativeTo.SCORE, score) == Fraction(99, 10)  # 9.9 of 10 errors more
    assert units(0.1, RelativeTo.ERROR, score) == 1


def test_a_tolerance_names_what_it_is_relative_to(words):
    words(Tolerance(0.1, "suite smoke", relative_to=RelativeTo.ERROR).text)
    assert (
        Tolerance(0.01, "model m", relative_to=RelativeTo.NOTHING).text
        == "tolerance 0.01 absolute (model m)"
    )
    different = {str(Tolerance(0.1, relative_to=one).numbers) for one in RelativeTo}
    assert len(different) == 3
    with pytest.raises(ValueError, match="a tolerance of -1 is impossible"):
        Tolerance(-1, relative_to=RelativeTo.ERROR)


# Recovery.


@pytest.mark.parametrize(
    ("recovery", "hits", "outcome"),
    [(0.99, 750, Outcome.PASSED), (0.99, 753, Outcome.PASSED), (0.99, 700, Outcome.FAILED)],
)
def test_recovery_is_of_what_fp32_scores_today(words, recovery, hits, outcome):
    stored = top1(hits, reference=hits)  # the baseline is as bad as the cell
    today = top1(hits, reference=757)
    measurement = measured(stored, evidence={GateKind.RECOVERY: (today,)})
    rules = Rules(recovery=recovery, recovery_rule="suite smoke")
    found = judged(measurement, expected(measurement), rules=rules)
    assert found.outcome is outcome
    (gate,) = [gate for gate in found.gates if gate.kind == "recovery"]
    assert gate.detail.startswith(f"{100 * hits / 757:.2f} % recovered: top1 {hits}/1000")
    words(gate.rule)
    assert gate.limit is not None
    assert gate.limit * 1000 == pytest.approx(0.99 * 757)


def test_a_recovery_that_is_missed_fails_without_a_baseline_too():
    measurement = measured(top1(700), evidence={GateKind.RECOVERY: (top1(700),)})
    rules = Rules(recovery=0.99, recovery_rule="suite smoke")
    missing = Expectation.missing("no baseline of 'mobilenet_v2' in suite 'smoke'")
    found = judged(measurement, missing, rules=rules)
    assert found.outcome is Outcome.FAILED
    assert found.headline.startswith("92.11 % recovered")
    assert (
        judged(
            measured(top1(759), evidence={GateKind.RECOVERY: (top1(759),)}), missing, rules=rules
        ).outcome
        is Outcome.MISSING
    )


def test_an_error_rate_recovers_where_it_rises_little():
    rules = Rules(recovery=0.95, recovery_rule="suite smoke")
    edits = {
        hits: recovery_gate(per(hits, reference=100, least=0.0), rules).state.value
        for hits in (100, 105, 106)
    }
    assert edits == {100: "holds", 105: "holds", 106: "broken"}


# Slices.


def slice_of(lost, n=200, reference=160):
    return top1(reference - lost, n, reference)


def of_slices(**lost):
    return {GateKind.SLICES: {name: (slice_of(samples),) for name, samples in lost.items()}}


def gate_of(*losses, tolerance=0.05, by=DecisionRule.POINT, n=200, reference=160):
    slices = {f"class {i}": (slice_of(lost, n, reference),) for i, lost in enumerate(losses)}
    rules = Rules(slices="class", slices_rule="model m", decision=Decision(by, "suite smoke"))
    (gate,) = slice_gates(slices, Tolerance(tolerance, "suite smoke"), rules)
    return gate


def test_a_slice_that_loses_more_is_named(words):
    gate = gate_of(0, 40, 3)
    assert (gate.kind, gate.metric, gate.state.value) == ("slice", "top1", "broken")
    words(gate.detail)
    words(gate.rule)
    verdict = judged(
        measured(evidence=of_slices(cat=40, dog=0)),
        rules=Rules(slices="class", slices_rule="x"),
    )
    assert verdict.outcome is Outcome.FAILED
    assert verdict.headline.startswith("worst slice 'cat'")


def test_one_slice_among_many_has_to_lose_more_to_be_proven():
    lost = next(b for b in range(160) if gate_of(b).state.value == "broken")
    assert gate_of(lost - 1).state.value == "holds"
    assert gate_of(lost, *[0] * 99).state.value == "holds"
    assert gate_of(lost + 12, *[0] * 99).state.value == "broken"


@pytest.mark.parametrize(
    ("losses", "tolerance", "states"),
    [
        ((0, 0, 0), 0.05, ("holds", "holds", "holds")),
        ((0, 9, 0), 0.05, ("holds", "inconclusive", "broken")),
        ((0, 60, 0), 0.05, ("broken", "broken", "broken")),
    ],
)
def test_decisions_of_slices(losses, tolerance, states):
    assert (
        tuple(gate_of(*losses, tolerance=tolerance, by=by).state.value for by in DecisionRule)
        == states
    )


def test_a_cell_whose_slices_alone_are_undecided_says_so(words):
    rules = Rules(
        slices="class", slices_rule="x", decision=Decision(DecisionRule.CI, "suite smoke")
    )
    measurement = measured(top1(8000, 10000, 8000), evidence=of_slices(cat=9, dog=0))
    verdict = judged(
        measurement, expected(measurement), rules=rules, tolerance=Tolerance(0.05, "suite smoke")
    )
    assert [gate.kind for gate in verdict.gates if gate.state.value == "inconclusive"] == ["slice"]
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.headline.startswith("worst slice 'cat'")
    words(verdict.notices)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(120, 400), st.floats(0.001, 0.5))
def test_the_p_of_a_margin_is_below_5_percent_where_it_is_fail(losses, gains, n, margin):
    score = top1(100 - losses + gains, n, 100, losses=losses, gains=gains)
    p = beyond_margin_p(score, margin)
    assert p == pytest.approx(norm.cdf(tango_statistic(losses, gains, n, -margin, less=0.5)))
    assert (p < 0.05) == (margin_evidence(losses, gains, n, margin) is Evidence.FAIL)


def test_sources_make_the_p_of_a_slice_larger():
    alone = slice_of(40)
    clusters = Clusters(
        sources=8, effect=20.0, interval=(-0.5, 0.1), shown=(-0.6, 0.2), p=0.2, error=0.1
    )
    assert (
        beyond_margin_p(alone, 0.04)
        < 0.001
        < beyond_margin_p(dataclasses.replace(alone, clusters=clusters), 0.04)
    )
    one = dataclasses.replace(clusters, sources=1)
    assert beyond_margin_p(dataclasses.replace(alone, clusters=one), 0.04) == 1.0


@pytest.mark.oracle
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holms_values_are_those_of_statsmodels(values):
    assert holm(values) == pytest.approx(multipletests(values, method="holm")[1])


def test_impossible_values_are_refused():
    with pytest.raises(ValueError, match="lies between 0 and 1"):
        holm([1.5])
    with pytest.raises(ValueError, match=r"recovery = 1\.5 is impossible"):
        Rules(recovery=1.5)
