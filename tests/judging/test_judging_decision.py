"""How a loss is decided: by the counts, by what they show, or strictly;
and what that makes of a cell.
"""

import dataclasses

import numpy as np
import pytest
from judged_numbers import NODE, agreement, expected, judged, measured, per, top1

from qbench.judging import (
    Decision,
    DecisionRule,
    Evidence,
    Expectation,
    GateState,
    Outcome,
    QuarantineEntry,
    RelativeTo,
    Rules,
    Tolerance,
    shown_by,
)
from qbench.judging.loss import loss_gate
from qbench.metrics import (
    Against,
    Answers,
    Counts,
    Direction,
    Metric,
    catalogue,
    score,
)
from qbench.metrics.metric import no_interval

HALF = Tolerance(0.005, "suite smoke")
EVEN = top1(760, losses=5, gains=5)  # of 1000: within the margin of 3.8 samples, not shown
FEW = top1(755, losses=8, gains=3)  # beyond the counts' margin, not shown
MANY = top1(730, losses=32, gains=2)  # shown
SAME = top1(4_000, n=5_000, reference=4_000)  # within, shown


def by(deciding):
    rule = Decision(deciding, "model mobilenet_v2")
    return Rules(rule="suite smoke", agreement_rule="suite smoke", decision=rule)


@pytest.mark.parametrize(
    ("score", "evidence", "point", "ci", "strict"),
    [
        (EVEN, Evidence.INCONCLUSIVE, Outcome.PASSED, Outcome.INCONCLUSIVE, Outcome.FAILED),
        (FEW, Evidence.INCONCLUSIVE, Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.FAILED),
        (MANY, Evidence.FAIL, Outcome.FAILED, Outcome.FAILED, Outcome.FAILED),
        (SAME, Evidence.PASS, Outcome.PASSED, Outcome.PASSED, Outcome.PASSED),
    ],
)
def test_three_decisions(score, evidence, point, ci, strict):
    for deciding, outcome in zip(DecisionRule, (point, ci, strict), strict=True):
        verdict = judged(measured(score, agreement(470)), rules=by(deciding))
        gate = verdict.gates[0]
        assert (gate.shown.evidence, gate.decided, verdict.outcome) == (evidence, deciding, outcome)
        assert ("decision" in gate.rule) == (deciding is not DecisionRule.POINT)


def test_an_inconclusive_cell_is_green_and_says_what_would_decide_it(words):
    verdict = judged(measured(FEW, agreement(470)), rules=by(DecisionRule.CI))
    assert verdict.gates[0].state is GateState.INCONCLUSIVE
    assert not verdict.outcome.is_red
    words(verdict.headline)
    words(verdict.notices)
    again = f'pytest "{NODE}" again when its model has that many samples in the suite'
    assert verdict.remedy.startswith(again)
    few = judged(measured(FEW, agreement(470)), Expectation(whole=False), rules=by(DecisionRule.CI))
    assert few.remedy.startswith(f'pytest "{NODE}" again without --qbench-limit')


def test_what_would_decide_is_more_than_what_did_not():
    """Four losses and a gain of 400: nothing lost would need 331 samples,
    which these are more than.
    """
    verdict = judged(
        measured(top1(357, 400, 360, losses=4, gains=1), agreement(470)),
        tolerance=Tolerance(0.02, "suite smoke"),
        rules=by(DecisionRule.CI),
    )
    shown = verdict.gates[0].shown
    assert (verdict.outcome, shown.needed) == (Outcome.INCONCLUSIVE, 333)
    assert shown.deciding > 400
    assert verdict.notices == (
        f"top1: 400 samples do not decide; with {shown.deciding} samples like these it would PASS",
    )
    assert all(judged(measured(one)).gates[0].shown.deciding is None for one in (SAME, MANY))


def test_a_loss_of_just_the_margin_is_never_decided(words):
    even = judged(
        measured(top1(190, 200, 200)),
        tolerance=Tolerance(0.05, "suite smoke"),
        rules=by(DecisionRule.CI),
    )
    assert even.gates[0].shown.deciding is None
    words(even.notices[0])


@pytest.mark.parametrize("deciding", [DecisionRule.CI, DecisionRule.STRICT])
def test_four_samples_of_which_none_changed_are_not_shown_to_hold(deciding):
    answers = Answers(np.tile(np.arange(10, dtype=np.int32), (4, 1)))
    recall = score(catalogue().get("recall5"), answers, labels=((2,),) * 4, reference=answers)
    gate = loss_gate(recall, HALF, Decision(deciding, "suite smoke"))
    assert gate.shown.evidence is Evidence.INCONCLUSIVE
    assert gate.state is not GateState.HOLDS
    assert "find a drop of 0.00 pp" not in gate.detail


def test_a_strict_decision_names_what_is_missing(words):
    verdict = judged(measured(EVEN, agreement(470)), rules=by(DecisionRule.STRICT))
    assert verdict.outcome is Outcome.FAILED
    words(verdict.headline)
    words(verdict.rule)


def test_drift_and_floors_stay_red_beside_an_inconclusive_loss():
    moved = measured(FEW, agreement(470), predictions="p2")
    accepted = expected(measured(FEW, agreement(470)))
    assert judged(moved, accepted, rules=by(DecisionRule.CI)).outcome is Outcome.DRIFTED
    assert (
        judged(measured(FEW, agreement(400)), rules=by(DecisionRule.CI)).outcome is Outcome.FAILED
    )


def test_a_listed_cell_is_not_unlisted_by_a_sample_that_cannot_tell():
    entry = QuarantineEntry(
        cell="*", measured="-5 pp", reason="known", owner="us", expires="2027-01-01"
    )
    verdict = judged(measured(FEW, agreement(470)), rules=by(DecisionRule.CI), quarantine=entry)
    assert verdict.outcome is Outcome.QUARANTINED


def test_the_plain_rule_is_untouched_by_what_is_shown(words):
    bare = loss_gate(FEW, HALF)
    assert bare.state is GateState.BROKEN
    words(bare.rule)


@pytest.mark.parametrize(
    ("interval", "evidence", "ci", "strict"),
    [
        ((-0.001, 0.002), Evidence.PASS, GateState.HOLDS, GateState.HOLDS),
        ((-0.001, 0.02), Evidence.INCONCLUSIVE, GateState.INCONCLUSIVE, GateState.BROKEN),
        ((0.008, 0.02), Evidence.FAIL, GateState.BROKEN, GateState.BROKEN),
    ],
)
def test_an_error_rate_is_decided_by_its_bootstrap(interval, evidence, ci, strict):
    """Its interval is of the rate, so more is worse: it is turned round before it is placed
    beside the margin.
    """
    rate = dataclasses.replace(per(110, 2000, 100, least=0.005), interval=interval)
    gates = {d: loss_gate(rate, HALF, Decision(d, "suite smoke")) for d in DecisionRule}
    assert gates[DecisionRule.POINT].state is (
        GateState.BROKEN if evidence is Evidence.FAIL else GateState.HOLDS
    )
    assert (gates[DecisionRule.CI].state, gates[DecisionRule.STRICT].state) == (ci, strict)
    shown = gates[DecisionRule.CI].shown
    assert (shown.evidence, shown.low, shown.high) == (evidence, -interval[1], -interval[0])
    assert "paired bootstrap 90 %, with unmet changes" in gates[DecisionRule.POINT].detail


def test_an_interval_without_a_unit_has_no_blank_behind_it():
    rate = dataclasses.replace(per(110, 2000, 100, least=0.005), interval=(-0.001, 0.002), unit="")
    shown = shown_by(rate, 0.01)
    assert " )" not in shown.text(rate)
    assert "+0.001)" in shown.text(rate)


def test_one_sample_is_one_sample():
    one = dataclasses.replace(FEW, n=1, hits=1, out_of=1, reference_hits=1, losses=0, gains=0)
    text = shown_by(one, 0.1).text(one)
    assert "; 1 sample is too few to detect any drop" in text


def test_what_nothing_is_shown_of_is_decided_by_its_counts():
    for deciding in DecisionRule:
        gate = loss_gate(per(130, 2000, 100), HALF, Decision(deciding, "suite smoke"))
        assert (gate.state, gate.shown, gate.decided) == (
            GateState.BROKEN,
            None,
            DecisionRule.POINT,
        )
        assert "decision" not in gate.rule


def doubled(n, **kind):
    """The score of ``n`` values that all doubled, by a metric of ``kind``."""
    metric = Metric(
        name="gap",
        title="Gap",
        direction=Direction.LOWER,
        count=lambda answers, _labels, _reference: Counts(
            answers.ids[:, 0].astype(np.int64), np.ones(n, np.int64)
        ),
        proportion=False,
        **kind,
    )
    now, before = (Answers(np.full((n, 1), one, np.int32)) for one in (2, 1))
    return score(metric, now, labels=((0,),) * n, reference=before, sources=list("abcdef"[:n]))


@pytest.mark.parametrize("deciding", DecisionRule)
@pytest.mark.parametrize(("tolerance", "state"), [(0.5, "broken"), (3.0, "holds")])
@pytest.mark.parametrize(
    "kind",
    [{"against": Against.REFERENCE}, {"against": Against.LABELS, "resampled": no_interval}],
    ids=["reference", "no_interval"],
)
def test_what_is_never_resampled_is_decided_by_its_counts_however_few(
    kind, tolerance, state, deciding
):
    margin = Tolerance(tolerance, "suite smoke", relative_to=RelativeTo.NOTHING)
    for n in (1, 4, 5, 6):
        gate = loss_gate(doubled(n, **kind), margin, Decision(deciding))
        assert (gate.state.value, gate.shown) == (state, None)


def test_what_is_resampled_proves_nothing_by_few_samples():
    shown = [shown_by(doubled(n, against=Against.LABELS), 0.5) for n in (1, 4, 5)]
    assert [one.evidence for one in shown[:2]] == [Evidence.INCONCLUSIVE] * 2
    assert shown[2] is not None


def test_small_samples_gate_only_where_the_evidence_decides():
    few, one = top1(12, 20, 20), top1(19, 20, 20)
    assert [loss_gate(few, HALF, Decision(each)).state for each in DecisionRule] == [
        GateState.BROKEN
    ] * 3
    assert loss_gate(one, HALF).state is GateState.INCONCLUSIVE
    assert loss_gate(one, HALF, Decision(DecisionRule.CI)).state is GateState.INCONCLUSIVE
    assert loss_gate(one, HALF, Decision(DecisionRule.STRICT)).state is GateState.BROKEN


@pytest.mark.parametrize("deciding", DecisionRule)
@pytest.mark.parametrize(
    "counted", [EVEN, FEW, MANY, SAME, top1(999, losses=1, n=1000, reference=1000)]
)
@pytest.mark.parametrize("tolerance", [HALF, Tolerance(0.0002, "suite smoke")])
def test_a_gate_in_one_sentence_keeps_its_counts_and_says_in_words_what_is_proven(
    deciding, counted, tolerance
):
    gate = loss_gate(counted, tolerance, Decision(deciding))
    assert gate.sentence.partition(";")[0] == gate.detail.partition(";")[0]
    assert not any(
        word in gate.sentence for word in ("INCONCLUSIVE", "FAIL", "PASS", "Bonett-Price")
    )
    assert gate.sentence.endswith("; the samples prove it") is (
        gate.shown.evidence is Evidence.FAIL
    )
    assert gate.sentence.endswith("; too few samples to decide") is (
        gate.state is GateState.INCONCLUSIVE
    )
