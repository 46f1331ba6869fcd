"""The point rule and the floors, in whole numbers."""

import dataclasses
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_numbers import agreement, expected, judged, measured, per, top1

from qbench.judging import (
    Accepted,
    DecisionRule,
    EnvironmentClass,
    Evidence,
    Expectation,
    Floors,
    GateState,
    Outcome,
    Rules,
    Tolerance,
    least_agreement,
    margin_evidence,
)
from qbench.judging.loss import floor_gate, loss_gate
from qbench.metrics import Clusters, Direction

HALF = Tolerance(0.005, "suite smoke")
RULES = Rules(rule="suite smoke", agreement_rule="suite smoke")


@pytest.mark.parametrize(
    ("n", "reference", "admitted"),
    [
        (200, 200, 1),
        (400, 400, 2),
        (400, 380, 1),
        (1000, 1000, 5),
        (1000, 760, 3),
        (1000, 800, 4),
        (50_000, 40_000, 200),
    ],
)
def test_the_margin_is_floor_of_tolerance_times_reference(n, reference, admitted):
    assert loss_gate(top1(reference - admitted, n, reference), HALF).state is GateState.HOLDS
    assert loss_gate(top1(reference - admitted - 1, n, reference), HALF).state is GateState.BROKEN


def proven(n, reference, hits, thousandths):
    losses, gains = max(reference - hits, 0), 0
    return margin_evidence(losses, gains, n, thousandths * reference / 1000 / n) is Evidence.FAIL


@given(
    st.integers(1, 100_000).flatmap(
        lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n))
    ),
    st.integers(0, 999),
)
def test_proportions_against_whole_number_arithmetic(counts, thousandths):
    n, reference, hits = counts
    tolerance = Tolerance(thousandths / 1000)
    state = loss_gate(top1(hits, n, reference), tolerance).state
    if 0 < thousandths * reference < 1000:  # the margin is under one sample, and not nothing
        assert state is (
            GateState.BROKEN if proven(n, reference, hits, thousandths) else GateState.INCONCLUSIVE
        )
    else:
        assert (state is GateState.HOLDS) == (1000 * (reference - hits) <= thousandths * reference)


@given(st.integers(1, 50_000), st.integers(0, 50_000), st.integers(0, 50_000), st.integers(0, 999))
def test_error_rates_gate_upwards_with_a_least_margin(out_of, reference, edits, thousandths):
    state = loss_gate(per(edits, out_of, reference), Tolerance(thousandths / 1000)).state
    margin = max(Fraction(thousandths * reference, 1000), Fraction(out_of, 1000))
    assert (state is GateState.HOLDS) == (edits - reference <= margin)
    assert state is not GateState.SHOWN


def test_the_margin_takes_the_number_as_written():
    assert Tolerance(0.005).margin(top1(600, 1000, 600)) == 3
    assert (
        Tolerance(0.07).margin(top1(700, 1000, 700)) == 49
    )  # 0.07 · 700 is 49.00000000000001 in floats
    assert Tolerance(0.005).margin(per(0, 2000, 0)) == 2


def test_what_twenty_pictures_cannot_tell_is_not_decided():
    gate = loss_gate(top1(17, 20, 20), HALF)
    assert (gate.state, gate.limit, gate.decided) == (
        GateState.INCONCLUSIVE,
        0.995,
        DecisionRule.CI,
    )
    assert loss_gate(top1(17, 20, 20), Tolerance(0.05)).state is GateState.BROKEN


def test_a_cell_that_its_samples_do_not_decide_never_passes():
    """It is green and says how many samples would decide; no record of it says passed."""
    few = measured(top1(19, 20, 20))
    verdict = judged(few, expected(few))
    assert (verdict.outcome, verdict.outcome.is_red) == (Outcome.INCONCLUSIVE, False)
    needed = verdict.gates[0].shown.deciding
    assert needed > 20
    assert any(f"with {needed} samples like these" in notice for notice in verdict.notices)


def test_a_float_cell_that_answers_as_its_reference_needs_no_more_samples():
    same, other = top1(19, 20, 19), top1(19, 20, 19, losses=1, gains=1)
    for score, outcome in ((same, Outcome.PASSED), (other, Outcome.INCONCLUSIVE)):
        found = measured(score, schema="fp32")
        assert judged(found, expected(found)).outcome is outcome


@pytest.mark.parametrize(
    ("n", "least"), [(1, None), (3, None), (4, 4), (20, 4), (100, 5), (199, 5)]
)
def test_a_loss_that_is_proven_fails_however_few_the_samples(n, least):
    """The fewest losses that fail where nothing is gained
    and the margin is half a per cent of all samples.
    """
    states = [loss_gate(top1(n - lost, n, n), HALF).state for lost in range(n + 1)]
    shown = n + 1 if least is None else least
    assert states == [GateState.INCONCLUSIVE] * shown + [GateState.BROKEN] * (n + 1 - shown)


def test_a_collapse_is_red_where_nothing_was_accepted():
    """100 of 100 become 52: nothing to drift from, and a margin of half a sample."""
    collapsed = measured(top1(52, 100, 100))
    verdict = judged(collapsed, dataclasses.replace(expected(collapsed), accepted={}))
    gate = verdict.gates[0]
    assert (verdict.outcome, verdict.rule) == (
        Outcome.FAILED,
        "tolerance 0.5 % (suite smoke), proven by the paired test",
    )
    assert (gate.state, gate.limit, gate.decided) == (GateState.BROKEN, 0.995, DecisionRule.CI)
    assert gate.shown.evidence is Evidence.FAIL
    assert verdict.headline.startswith(
        "top1 100.00 → 52.00 %: FAIL, drop 48.00 pp, margin 0.50 pp: tolerance 0.5 %"
    )


def test_parts_of_a_value_that_is_no_count_are_left_out():
    decibels = per(23_868_000_000, 10**9, 23_941_000_000)
    decibels = dataclasses.replace(decibels, metric="psnr", direction=Direction.HIGHER, unit="dB")
    detail = loss_gate(decibels, HALF).detail
    assert detail.startswith("psnr 23.868 dB against fp32 23.941 dB: drop 0.073 dB, margin 0.1")


def test_a_metric_may_have_a_tolerance_of_its_own():
    own = Tolerance(0.35, "cell m::*", {"top5": Tolerance(0.02, "cell m::*")})
    assert loss_gate(top1(153, 200, 170), own).state is GateState.HOLDS
    gate = loss_gate(top1(153, 200, 170, metric="top5"), own)
    assert (gate.state, gate.rule) == (GateState.BROKEN, "tolerance 2 % (cell m::*)")


def test_a_gain_always_holds():
    assert loss_gate(top1(990, 1000, 760), HALF).state is GateState.HOLDS
    assert loss_gate(per(0, 2000, 100), HALF).state is GateState.HOLDS


def test_the_line_has_every_number(words):
    gate = loss_gate(top1(353, 400, 360, losses=9, gains=2), HALF)
    words(gate.detail)
    assert gate.rule == "tolerance 0.5 % (suite smoke)"
    assert (
        gate.limit == 0.8955
    )  # the margin of 1.8 samples, not the one whole sample that it admits
    rate = loss_gate(per(120, 2000, 100), Tolerance(0.05, "cell ort-cpu+w8a8"))
    assert "rise 1.00 pp, margin 0.25 pp; " in rate.detail
    assert rate.limit == 105 / 2000


def test_a_metric_in_millionths_has_its_margin_in_its_own_unit(words):
    nats = dataclasses.replace(
        per(2_520_000, 1_000_000, 2_500_000, least=0.0), metric="log_perplexity", unit="nats"
    )
    detail = loss_gate(nats, HALF).detail
    words(detail)
    assert "unit" not in detail


@given(st.integers(0, 100), st.integers(1, 100_000))
def test_least_agreement_is_the_ceiling(percent, n):
    assert least_agreement(percent / 100, n) == -(-percent * n // 100)
    assert least_agreement(percent / 100, n) == math.ceil(Fraction(percent, 100) * n)


def floors(least):
    """The floor of the class at hand; None: nothing was accepted."""
    return Floors(stored={} if least is None else {"agreement@photo_crops": least})


@pytest.mark.parametrize(
    ("hits", "accepted", "state"),
    [
        (425, None, GateState.HOLDS),
        (424, None, GateState.BROKEN),
        (460, 460, GateState.HOLDS),
        (459, 460, GateState.BROKEN),
        (424, 300, GateState.BROKEN),  # never under the suite's minimum, whatever was accepted
    ],
)
def test_floors(hits, accepted, state):
    assert floor_gate(agreement(hits), RULES, floors(accepted)).state is state


def test_a_floor_says_what_its_samples_were_drawn_from(words):
    ends = {"interval": (-0.2, 0.0), "shown": (-0.2, 0.0), "p": 0.1, "error": 0.02}
    crops = dataclasses.replace(agreement(470), clusters=Clusters(sources=20, effect=5.0, **ends))
    gate = floor_gate(crops, RULES, floors(460))
    words(gate.detail)
    assert gate.state is floor_gate(agreement(470), RULES, floors(460)).state


def test_a_floor_names_where_it_was_set(words):
    assert floor_gate(agreement(470), RULES, floors(460)).rule == "accepted floor (baseline)"
    assert floor_gate(agreement(470), RULES, floors(300)).rule == "agreement 85 % (suite smoke)"
    words(floor_gate(agreement(470), RULES, floors(460)).detail)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_rules_refuse_the_impossible(share):
    with pytest.raises(ValueError, match="impossible"):
        Rules(agreement=share)
    with pytest.raises(ValueError, match="impossible"):
        Rules(integer_macs=share)


def test_the_least_margin_is_named_where_it_decides(words):
    gate = loss_gate(per(108, 2000, 100, least=0.005), HALF)
    assert gate.state is GateState.HOLDS
    words(gate.rule)
    words(gate.detail)
    assert (
        loss_gate(per(108, 2000, 100, least=0.005), Tolerance(0.2, "default")).rule
        == "tolerance 20 % (default)"
    )


HERE, THERE = (
    EnvironmentClass.parse(f"{processor}+engine-1.0")
    for processor in ("x64-avx512-vnni", "x64-avx2")
)


def floors_here(stored, accepted, environment, *equivalents):
    return Expectation(floors=stored, accepted=accepted).here(environment, equivalents).floors


def chance(fewer, before):
    """One-sided mid-p of ``fewer`` misses against ``before``, each as likely on either side:
    an exact sum.
    """
    total = fewer + before
    upper = sum(math.comb(total, k) for k in range(fewer + 1, total + 1))
    return Fraction(2 * upper + math.comb(total, fewer), 2 ** (total + 1))


@given(st.integers(1, 300), st.data())
def test_a_floor_of_another_class_admits_what_chance_explains_and_no_more(n, data):
    hits = data.draw(st.integers(0, n))
    accepted = {str(THERE): Accepted(metrics={"agreement": hits}, predictions={})}
    there = floors_here({"agreement": hits}, accepted, THERE)
    here = floors_here({"agreement": hits}, accepted, HERE)
    least = here.least("agreement", n)
    assert there.least("agreement", n) == hits
    assert least <= hits
    assert least == hits or chance(n - least, n - hits) >= Fraction(1, 20) - Fraction(1, 10**9)
    assert least == 0 or chance(n - least + 1, n - hits) < Fraction(1, 20) + Fraction(1, 10**9)


def test_a_collapse_in_a_new_class_is_under_the_floor_of_another():
    """168 of 200 agreed on the other class: 162 is chance, one in ten is not; a class with a
    result keeps its floor.
    """
    accepted = {str(THERE): Accepted(metrics={"agreement": 168}, predictions={})}
    new = floors_here({"agreement": 164}, accepted, HERE)
    assert new.least("agreement", 200) <= 162
    assert new.least("agreement", 200) > 150
    assert "another class" in new.rule("agreement")
    equivalent = floors_here({"agreement": 164}, accepted, HERE, ("x64-avx512-vnni", "x64-avx2"))
    assert equivalent.least("agreement", 200) == 164
    assert floors_here({}, accepted, HERE).least("agreement", 200) is None
