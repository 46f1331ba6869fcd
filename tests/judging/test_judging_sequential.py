"""Cells that end early: the exact rule against every completion,
the always-valid test against its own formula.
"""

import dataclasses
import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_numbers import agreement, expected, judged, measured, top1

from qbench.judging import (
    CountTest,
    DecisionRule,
    EarlyTest,
    Evidence,
    GateState,
    Outcome,
    Remaining,
    Rules,
    Stopped,
    StopRule,
    Tolerance,
)
from qbench.judging.expectation import Floors
from qbench.judging.loss import floor_gate, loss_gate
from qbench.judging.sequential import EARLY
from qbench.judging.statistics import Decision
from qbench.metrics import Clusters

COUNTS = st.tuples(*(st.integers(0, 6) for _ in range(6)))


@given(COUNTS, st.sampled_from([0.0, 0.05, 0.2, 0.6]), st.sampled_from(list(DecisionRule)))
def test_what_is_decided_exactly_is_so_however_the_others_end(counts, tolerance, by):
    both, losses, gains, neither, losable, gainable = counts
    run = both + losses + gains + neither
    if not run:
        return
    rule = StopRule(tolerance=Tolerance(tolerance), rules=Rules(decision=Decision(by)))
    score = top1(both + gains, run, both + losses, losses=losses, gains=gains)
    n, reference = run + losable + gainable, both + losses + losable
    remaining = Remaining(n=n, reference_hits=reference, losable=losable, gainable=gainable)
    ends = set()
    for more_losses, more_gains in itertools.product(range(losable + 1), range(gainable + 1)):
        lost, won = losses + more_losses, gains + more_gains
        whole = top1(reference - lost + won, n, reference, losses=lost, gains=won)
        ends.add(loss_gate(whole, rule.tolerance, rule.rules.decision).state)
    assert rule.decided(score, remaining) == (ends.pop() if len(ends) == 1 else None)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.floats(0, 1))
def test_a_floor_is_decided_when_no_end_is_on_its_other_side(same, other, left, share):
    if not same + other:
        return
    rule = StopRule(tolerance=Tolerance(), rules=Rules(agreement=round(share, 3)), floors=Floors())
    score = agreement(same, same + other)
    n = same + other + left
    ends = {
        floor_gate(agreement(same + more, n), rule.rules, Floors()).state
        for more in range(left + 1)
    }
    remaining = Remaining(n=n, reference_hits=n, losable=left, gainable=0)
    assert rule.decided(score, remaining) == (ends.pop() if len(ends) == 1 else None)


def test_evidence_by_sources_is_not_taken_for_exact_but_counts_are():
    clusters = Clusters(
        sources=5, effect=2.0, interval=(-0.5, 0.5), shown=(-0.6, 0.6), p=0.5, error=0.2
    )
    score = dataclasses.replace(top1(10, 100, 90, losses=80), clusters=clusters)
    remaining = Remaining(n=110, reference_hits=99, losable=9, gainable=1)
    rule = StopRule(tolerance=Tolerance(0.05), rules=Rules(decision=Decision(DecisionRule.CI)))
    assert rule.decided(score, remaining) is None
    assert dataclasses.replace(rule, rules=Rules()).decided(score, remaining) is GateState.BROKEN


def wealth(sources, margin, largest, sign):
    """The mixture of products of the module's own text, in plain numbers."""
    top = 1 / ((1 - sign * margin) * largest)
    bets = [0.95 * 2 ** (-k / 2) * top for k in range(14)]
    return sum(
        math.prod(1 + sign * bet * (s + margin * n) for s, n in sources) for bet in bets
    ) / len(bets)


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.just(3)), max_size=60),
    st.sampled_from([0.01, 0.1, 0.4]),
)
def test_the_test_is_the_mixture_of_its_bets(sources, margin):
    test = EarlyTest(margin, 3)
    test.add(sources[: len(sources) // 2])
    test.add(sources[len(sources) // 2 :])
    up, down = wealth(sources, margin, 3, 1), wealth(sources, margin, 3, -1)
    assert min(up, down) >= 0
    if min(abs(up * EARLY - 1), abs(down * EARLY - 1)) > 1e-6:
        assert test.evidence is (
            Evidence.PASS
            if up >= 1 / EARLY
            else Evidence.FAIL
            if down >= 1 / EARLY
            else Evidence.INCONCLUSIVE
        )


def test_each_bet_is_fair_where_the_change_is_the_margin():
    # the expectation of a factor is 1: losses 3 %, gains 1 %, margin 2 %
    for bet in (0.1, 0.5, 0.9):
        assert 0.03 * (1 + bet * (-1 + 0.02)) + 0.01 * (1 + bet * 1.02) + 0.96 * (
            1 + bet * 0.02
        ) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize(("losses", "gains"), [(0.02, 0.0), (0.06, 0.04)])
def test_wrong_verdicts_at_the_margin_are_rare_however_often_one_looks(losses, gains):
    rng, wrong, trials = random.Random(3), {Evidence.PASS: 0, Evidence.FAIL: 0}, 150
    for _ in range(trials):
        test = EarlyTest(0.02)
        for _ in range(60):
            draws = (rng.random() for _ in range(16))
            test.add(
                [(-1 if one < losses else 1 if one < losses + gains else 0, 1) for one in draws]
            )
            if test.evidence is not Evidence.INCONCLUSIVE:
                wrong[test.evidence] += 1
                break
    assert max(wrong.values()) <= 6  # of 150 at 1 %: more than that once in 900 times


def test_a_clear_cell_is_decided_early():
    good, bad = EarlyTest(0.02), EarlyTest(0.02)
    good.add([(0, 1)] * 400)
    bad.add([(-1, 1), *[(0, 1)] * 6] * 20)
    assert (good.evidence, bad.evidence) == (Evidence.PASS, Evidence.FAIL)


def without_replacement(changes, least, most):
    """Both e-processes of ``CountTest`` at the end of ``changes``, one sample a source, by the
    module's formula.
    """
    found = []
    for sign, limit in ((1, least - 1), (-1, least)):
        total = 0.0
        for k in range(14):
            bet, product, before = 0.95 * 2 ** (-k / 2), 1.0, 0
            for place, change in enumerate(changes):
                mean = (limit - before) / (len(changes) - place)
                room = mean + 1 if sign > 0 else most - mean
                product *= 1 + sign * bet * (change - mean) / room if room > 0 else 1
                before += change
            total += product / 14
        found.append(total)
    return found


@given(st.lists(st.integers(-1, 1), min_size=1, max_size=60), st.integers(-20, 5))
def test_the_test_of_counts_is_the_mixture_of_its_bets(changes, least):
    test = CountTest(least, len(changes))
    test.add([(change, 1) for change in changes])
    up, down = without_replacement(changes, least, 1)
    if min(abs(up * EARLY - 1), abs(down * EARLY - 1)) > 1e-6:
        assert test.evidence is (
            Evidence.PASS
            if up >= 1 / EARLY
            else Evidence.FAIL
            if down >= 1 / EARLY
            else Evidence.INCONCLUSIVE
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lost", "won", "most"), [(21, 0, 1), (20, 0, 1), (60, 40, 1), (30, 0, 0), (31, 0, 0)]
)
def test_counts_are_misjudged_early_in_few_of_the_orders(lost, won, most):
    """300 samples of which so many are lost and won, just within 20 (or 30 of agreement) or one
    beyond, 150 orders.
    """
    rng, wrong, least = random.Random(7), 0, -20 if most else -30
    changes = [-1] * lost + [1] * won + [0] * (300 - lost - won)
    for _ in range(150):
        rng.shuffle(changes)
        test = CountTest(least, 300, most=most)
        for place in range(0, 300, 20):
            test.add([(change, 1) for change in changes[place : place + 20]])
            if test.evidence is not Evidence.INCONCLUSIVE:
                wrong += (test.evidence is Evidence.PASS) != (won - lost >= least)
                break
    assert wrong <= 6  # of 150 at 1 %: more than that once in 900 times


def test_what_decides_a_gate_is_tested():
    remaining = Remaining(n=1000, reference_hits=760, losable=500, gainable=200)
    rule = StopRule(
        tolerance=Tolerance(0.01),
        rules=Rules(agreement=0.9),
        floors=Floors(stored={"agreement@photo_crops": 970}),
    )
    counts = rule.test(top1(200, 300, 250), remaining, sources=1000, largest=1)
    assert isinstance(counts, CountTest)
    counts.add([(-1, 1)] * 60)
    assert counts.evidence is Evidence.FAIL  # 7.6 are admitted
    ci = dataclasses.replace(rule, rules=Rules(decision=Decision(DecisionRule.CI)))
    assert isinstance(ci.test(top1(200, 300, 250), remaining, sources=1000, largest=1), EarlyTest)
    small = dataclasses.replace(rule, tolerance=Tolerance(0.001))
    assert small.test(top1(200, 300, 250), remaining, sources=1000, largest=1) is None
    floor = rule.test(agreement(290, 300), remaining, sources=1000, largest=1)
    assert isinstance(floor, CountTest)


def stopped(**decided):
    return Stopped(samples={"photos": 310}, of={"photos": 1000}, decided=decided, proven=("top1",))


def test_a_stopped_cell_has_the_state_that_was_decided_and_says_how_many_samples_ran(words):
    rules = Rules(decision=Decision(DecisionRule.CI))
    part = measured(top1(236, 310, 238, losses=3, gains=1), stopped=stopped(top1="holds"))
    verdict = judged(part, expected(part, accepted={}), rules=rules)
    assert verdict.outcome is Outcome.PASSED
    words(verdict.headline)
    broken = measured(top1(200, 310, 238, losses=40, gains=2), stopped=stopped(top1="broken"))
    verdict = judged(broken, expected(broken, accepted={}), rules=rules)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.gates[0].limit is not None


def test_a_gate_that_nothing_decided_is_that_of_all_samples_of_its_data():
    """Data that end undecided are judged whole, though other data of the model stopped early."""
    rules = Rules(decision=Decision(DecisionRule.CI))
    part = measured(top1(292, 310, 298, losses=8, gains=2), stopped=stopped())
    whole = measured(top1(292, 310, 298, losses=8, gains=2))
    verdicts = [judged(one, expected(one, accepted={}), rules=rules) for one in (part, whole)]
    assert [one.outcome for one in verdicts] == [Outcome.INCONCLUSIVE] * 2
    assert verdicts[0].gates[0] == verdicts[1].gates[0]


def test_how_many_samples_ran_in_words(words):
    words(stopped().text)
