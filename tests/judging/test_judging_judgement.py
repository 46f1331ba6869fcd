"""From a measurement to one outcome, and what the verdict says."""

import dataclasses
import datetime
import math
import re

import pytest
from judged_numbers import (
    ELSEWHERE,
    HERE,
    NODE,
    TODAY,
    accepted_of,
    agreement,
    expected,
    judged,
    measured,
    per,
    sqnr,
    top1,
)

from qbench.judging import (
    ANY_CLASS,
    NOTHING_QUANTIZED,
    THEN,
    Decision,
    DecisionRule,
    Expectation,
    GateState,
    Outcome,
    QuarantineEntry,
    Rules,
    State,
    Tolerance,
    approved,
    retrained_gate,
)
from qbench.judging.verdict import LONGEST, UNGATED
from qbench.number_text import distance_text, settled
from qbench.tracking import CellRecord

NAMED = "mobilenet_v2::ort-cpu+w8a8_asym_pc"
MODEL = NODE.rpartition("::")[0]


def entry(**changes):
    values = {
        "cell": "mobilenet_v2::*",
        "measured": "77.8 → 70.7",
        "reason": "per-tensor weights",
        "owner": "kernels",
        "expires": "2026-12-31",
    }
    return QuarantineEntry(**(values | changes))


def gate(verdict, kind):
    return next(g for g in verdict.gates if g.kind == kind)


def test_a_cell_as_accepted_passes_and_shows_its_share(words):
    verdict = judged(measured())
    assert verdict.outcome is Outcome.PASSED
    words(verdict.headline)
    assert verdict.rule == "tolerance 0.5 % (suite smoke)"
    assert [g.kind for g in verdict.gates] == ["loss", "floor", "integer", "drift"]
    assert not verdict.notices
    assert not verdict.remedy


def test_a_loss_beyond_tolerance_fails(words):
    verdict = judged(measured(top1(756), agreement(470)))
    assert verdict.outcome is Outcome.FAILED
    words(verdict.headline)
    assert "quarantine" in verdict.remedy
    assert judged(measured(top1(757), agreement(470))).outcome is Outcome.PASSED


def test_the_winning_tolerance_decides_and_is_named(words):
    verdict = judged(
        measured(top1(746), agreement(470)), tolerance=Tolerance(0.02, "model mobilenet_v2")
    )
    assert verdict.outcome is Outcome.PASSED
    words(verdict.rule)


def test_an_error_rate_that_rises_fails():
    verdict = judged(measured(per(110)))
    assert verdict.outcome is Outcome.FAILED
    assert "rise 0.50 pp" in verdict.headline


def test_agreement_under_its_floor_fails(words):
    verdict = judged(measured(top1(760), agreement(459)))
    assert verdict.outcome is Outcome.FAILED
    words(verdict.headline)


def test_predictions_that_changed_within_tolerance_have_drifted(words):
    now = measured(top1(759), agreement(469), predictions="p2")
    verdict = judged(now, expected(measured()))
    assert verdict.outcome is Outcome.DRIFTED
    words(gate(verdict, "drift").detail)
    accept = f'pytest "{NODE}" --qbench-accept=changed --qbench-reason "…" if it is intended'
    look, bisect = (
        "qbench compare last-green latest",
        f'qbench bisect commits --good last-green "{NODE}"',
    )
    assert verdict.remedy.split(THEN) == [look, bisect, accept]  # accepting is the last thing to do
    assert (
        judged(now, expected(measured()), node_id="tests/test_mine.py::test_m").remedy.count(THEN)
        == 1
    )
    equal = judged(
        measured(predictions="p2"), expected(measured())
    )  # nothing that a bisection could find is worse
    assert equal.remedy.split(THEN) == [look, accept]


def test_drift_sees_predictions_that_leave_every_count_alone(words):
    verdict = judged(measured(predictions="p2"), expected(measured()))
    assert verdict.outcome is Outcome.DRIFTED
    words(gate(verdict, "drift").detail)


def test_failing_wins_over_drift_and_says_what_accepting_would_do():
    verdict = judged(measured(top1(700), agreement(470), predictions="p2"), expected(measured()))
    assert verdict.outcome is Outcome.FAILED
    assert f'pytest "{NODE}" --qbench-accept=changed' in verdict.remedy
    assert "stays red" in verdict.remedy


def test_another_class_is_incomparable_and_green():
    verdict = judged(
        measured(predictions="p2", environment=ELSEWHERE), expected(measured(), environment=HERE)
    )
    assert verdict.outcome is Outcome.PASSED
    assert gate(verdict, "drift").state is GateState.INCOMPARABLE
    assert str(ELSEWHERE) in verdict.notices[0]


def test_loss_is_judged_on_another_class():
    now = measured(top1(700), agreement(470), predictions="p2", environment=ELSEWHERE)
    assert judged(now, expected(measured(), environment=HERE)).outcome is Outcome.FAILED


def test_a_cell_in_which_nothing_is_quantized_says_so():
    rules = Rules(rule="suite smoke", agreement_rule="suite smoke", integer_macs=0.0)
    float_model = judged(measured(integer_macs=0.0, quantized_units=0), rules=rules)
    assert float_model.outcome is Outcome.PASSED
    assert sum(NOTHING_QUANTIZED in one for one in float_model.notices) == 1
    for other in (
        measured(integer_macs=0.01, quantized_units=1),
        measured(integer_macs=0.0, quantized_units=1),  # run in floats between Q and DQ
        measured(integer_macs=0.0),  # not known
        measured(schema="fp32"),
    ):
        assert not any(NOTHING_QUANTIZED in one for one in judged(other, rules=rules).notices)


def test_too_little_in_integers_is_unsupported_before_anything_else(words):
    now = measured(
        top1(100),
        agreement(10),
        integer_macs=0.49,
        refusals=("Conv_3: no int8 kernel", "Conv_4: …"),
    )
    verdict = judged(now, Expectation.missing("no baseline"))
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert "49.00 %" in verdict.headline
    words(verdict.notices[0])
    assert "integer_macs = 0" in verdict.notices[-1]
    lost = measured(integer_macs=0.0, run_in_float=("Conv_3: no integer product of int8 by int4",))
    floats = judged(lost, Expectation.missing("no baseline"))
    words(floats.notices[0])
    assert verdict.rule == "integer_macs 50 % (suite smoke)"
    assert judged(measured(integer_macs=0.5)).outcome is Outcome.PASSED
    fresh = expected(measured(), accepted={})
    assert (
        judged(measured(integer_macs=0.5), fresh, rules=Rules(integer_macs=0.6)).outcome
        is Outcome.UNSUPPORTED
    )


def test_a_floor_of_executed_integers_fails_and_names_the_layers(words):
    now = measured(executed_macs=0.4, executed_in_float=("Conv_3 in float32 (60 %)",))
    rules = Rules(executed_macs=0.9, executed_rule="suite smoke")
    verdict = judged(now, rules=rules)
    assert (verdict.outcome, gate(verdict, "executed").limit) == (Outcome.FAILED, 0.9)
    assert "Conv_3 in float32" in verdict.headline
    words(verdict.rule)
    assert judged(now).outcome is Outcome.PASSED
    assert gate(judged(now), "executed").state is GateState.SHOWN
    silent = judged(measured(), rules=rules)
    assert (silent.outcome, gate(silent, "executed").state) == (
        Outcome.PASSED,
        GateState.INCOMPARABLE,
    )
    assert not [one for one in judged(measured()).gates if one.kind == "executed"]


def test_more_run_in_integers_than_planned_is_an_error_of_ours():
    told = judged(measured(integer_macs=0.986, executed_macs=1.0))
    assert told.outcome is Outcome.PASSED
    (notice,) = [one for one in told.notices if "error of qbench" in one]
    assert notice.startswith("100 % executed in integers, more than the 98.6 % planned")
    for executed in (0.9861, 0.9, None):
        fine = judged(measured(integer_macs=0.986, executed_macs=executed))
        assert not any("error of qbench" in one for one in fine.notices)


def test_data_that_the_engine_rounds_itself_are_named_and_no_error_of_ours():
    rounded = tuple(f"fc{index} (20 %)" for index in range(5))
    told = judged(measured(integer_macs=0.6, executed_macs=1.0, rounded_data=rounded))
    (notice,) = [one for one in told.notices if "rounds real data to 8 bits itself" in one]
    assert notice.endswith("fc0 (20 %), fc1 (20 %), fc2 (20 %) and 2 more")
    assert not any("error of qbench" in one for one in told.notices)


def test_less_run_in_integers_than_accepted_drifts_and_names_the_layers():
    before = measured(executed_macs=1.0)
    known = dataclasses.replace(accepted_of(before), executed_macs=1.0)
    now = measured(executed_macs=0.4, executed_in_float=("Conv_3 in float32 (60 %)",))
    verdict = judged(now, expected(before, accepted={str(HERE): known}))
    assert verdict.outcome is Outcome.DRIFTED
    assert "Conv_3 in float32" in verdict.headline
    assert judged(before, expected(before, accepted={str(HERE): known})).outcome is Outcome.PASSED
    silent = judged(measured(), expected(before, accepted={str(HERE): known}))
    assert silent.outcome is Outcome.PASSED
    assert [
        (one.metric, one.state) for one in silent.gates if one.state is GateState.INCOMPARABLE
    ] == [("executed_macs", GateState.INCOMPARABLE)]
    assert any("does not report what it executed" in notice for notice in silent.notices)
    assert (
        judged(now, expected(before)).outcome is Outcome.PASSED
    )  # accepted before the share was known


def test_weights_alone_are_judged_by_their_own_share(words):
    verdict = judged(
        measured(integer_macs=0.0, weight_macs=0.4), Expectation.missing("no baseline")
    )
    assert verdict.outcome is Outcome.UNSUPPORTED
    words(verdict.headline)
    assert judged(measured(integer_macs=0.0, weight_macs=0.6)).outcome is Outcome.PASSED


def test_a_cell_accepted_here_that_becomes_unsupported_is_red(words):
    now = measured(integer_macs=0.1, refusals=("Conv_3: no int8 kernel",))
    verdict = judged(now, expected(measured()))
    assert verdict.outcome is Outcome.DRIFTED
    assert verdict.headline.startswith(
        "accepted here before, unsupported now: only 10.00 % of MACs"
    )
    assert verdict.notices[0].startswith("only 10.00 %")
    words(verdict.remedy)


def test_what_was_accepted_elsewhere_or_of_another_model_may_be_unsupported_here():
    now = measured(integer_macs=0.1)
    assert judged(now, expected(measured(), environment=ELSEWHERE)).outcome is Outcome.UNSUPPORTED
    assert (
        judged(now, expected(measured(), state=State.STALE, what="it is")).outcome
        is Outcome.UNSUPPORTED
    )


def test_a_few_samples_do_not_show_that_a_known_bad_cell_is_mended():
    few = Expectation(whole=False)
    assert judged(measured(), few, quarantine=entry()).outcome is Outcome.PASSED
    assert judged(measured(top1(700)), few, quarantine=entry()).outcome is Outcome.QUARANTINED
    assert (
        judged(measured(), expected(measured()), quarantine=entry(cell=NAMED)).outcome
        is Outcome.EXPIRED
    )


def test_a_run_over_a_few_samples_does_not_say_that_nothing_is_accepted(words):
    (notice,) = judged(measured(), Expectation(whole=False)).notices
    words(notice)


def test_missing_baselines_say_what_to_type(words):
    verdict = judged(measured(), Expectation.missing("no baseline of mobilenet_v2 in suite smoke"))
    assert verdict.outcome is Outcome.MISSING
    words(verdict.headline)
    assert verdict.remedy == f'pytest "{MODEL}" --qbench-accept-fp32 --qbench-accept=new'


def test_a_cell_without_accepted_result_that_fails_stays_red_when_it_is_accepted():
    fresh = expected(measured(), accepted={}, cell_known=False)
    fails, passes = judged(measured(top1(700)), fresh), judged(measured(), fresh)
    assert (fails.outcome, passes.outcome) == (Outcome.MISSING, Outcome.MISSING)
    assert "this stays red" in fails.remedy
    assert passes.remedy == f'pytest "{NODE}" --qbench-accept=new'
    assert fails.remedy.startswith(passes.remedy)


def test_a_cell_nobody_accepted_is_missing_and_shows_its_numbers(words):
    unknown = expected(measured(), accepted={}, cell_known=False)
    verdict = judged(measured(), unknown)
    assert verdict.outcome is Outcome.MISSING
    words(verdict.headline)
    assert verdict.remedy == f'pytest "{NODE}" --qbench-accept=new'
    assert "drop 0.40 pp" in judged(measured(top1(756)), unknown).headline


@pytest.mark.parametrize(
    ("hits", "decision", "words"),
    [
        (757, "point", "drop 0.30 pp within its margin of 0.38 pp"),
        (755, "point", "drop 0.50 pp beyond its margin of 0.38 pp"),
        (757, "strict", "drop 0.30 pp not proven within its margin of 0.38 pp"),
        (757, "ci", "drop 0.30 pp not decided against its margin of 0.38 pp"),
        (770, "strict", "gain 1.00 pp"),
    ],
)
def test_a_stale_baseline_says_what_the_float_model_lost_and_stays_stale(hits, decision, words):
    score = top1(hits)
    gate = retrained_gate(score, Tolerance(0.005, "suite smoke"), Decision(DecisionRule(decision)))
    verdict = judged(
        measured(),
        Expectation(state=State.STALE, what="it is of another model", retrained=((score, gate),)),
    )
    assert verdict.outcome is Outcome.STALE
    assert (
        verdict.headline
        == f"the baseline is of another model; fp32 top1 76.00 → {hits / 10:.2f} %, {words}"
    )
    assert [one.kind for one in verdict.gates if one.metric == "top1"] == ["fp32"]
    assert verdict.remedy.endswith("is intended") == (gate.state is GateState.BROKEN)


def test_a_stale_baseline_says_what_differs(words):
    verdict = judged(measured(), Expectation(state=State.STALE, what="it is of another model"))
    assert verdict.outcome is Outcome.STALE
    words(verdict.headline)
    assert verdict.remedy.startswith(f'pytest "{MODEL}" --qbench-accept-fp32 ')


@pytest.mark.parametrize("scores", [(top1(700),), (top1(760), agreement(300))])
def test_a_listed_cell_that_fails_is_quarantined(scores):
    verdict = judged(measured(*scores), quarantine=entry())
    assert verdict.outcome is Outcome.QUARANTINED
    assert "per-tensor weights" in verdict.notices[-1]
    assert "kernels" in verdict.rule


def test_a_listed_cell_that_drifts_is_quarantined():
    verdict = judged(measured(predictions="p2"), expected(measured()), quarantine=entry())
    assert verdict.outcome is Outcome.QUARANTINED


def test_a_listed_cell_need_not_be_accepted():
    unknown = expected(measured(), accepted={}, cell_known=False)
    assert judged(measured(top1(700)), unknown, quarantine=entry()).outcome is Outcome.QUARANTINED


def test_a_listed_cell_that_does_not_fail_is_red():
    verdict = judged(measured(), quarantine=entry(cell=NAMED))
    assert verdict.outcome is Outcome.EXPIRED
    assert verdict.headline.startswith("no longer fails: remove the entry")
    assert NAMED in verdict.remedy


@pytest.mark.parametrize("expires", ["2026-12-31", "2020-01-01"])
def test_one_cell_of_a_pattern_that_passes_does_not_outdate_it(words, expires):
    verdict = judged(measured(), quarantine=entry(expires=expires))
    assert verdict.outcome is Outcome.PASSED
    words(verdict.notices)


def test_an_entry_that_ran_out_and_is_not_needed_is_to_be_removed_and_not_renewed():
    verdict = judged(measured(), quarantine=entry(cell=NAMED, expires="2020-01-01"))
    assert verdict.headline.startswith("no longer fails")
    assert verdict.remedy == f"Remove the entry '{NAMED}' from the quarantine file"


def test_an_entry_says_what_a_day_looks_like():
    with pytest.raises(ValueError, match="expires = 'soon', which is no day such as 2027-03-31"):
        entry(expires="soon")


@pytest.mark.parametrize(("day", "outcome"), [(0, Outcome.QUARANTINED), (1, Outcome.EXPIRED)])
def test_an_entry_holds_through_its_last_day(day, outcome):
    listed = entry(expires=str(TODAY))
    verdict = judged(
        measured(top1(700)), quarantine=listed, today=TODAY + datetime.timedelta(days=day)
    )
    assert verdict.outcome is outcome
    assert verdict.outcome.is_red == bool(day)


@pytest.mark.parametrize(
    "expectation", [Expectation.missing("none"), Expectation(state=State.STALE, what="other")]
)
def test_quarantine_does_not_excuse_a_baseline_that_cannot_judge(expectation):
    assert judged(measured(), expectation, quarantine=entry()).outcome.is_red


def fp32(**more):
    values = {"schema": "fp32", "predictions": "r1"}
    return measured(top1(760), agreement(500), **(values | more))


def test_an_fp32_cell_reproduces_its_reference():
    verdict = judged(fp32())
    assert verdict.outcome is Outcome.PASSED
    assert [g.kind for g in verdict.gates] == ["loss", "floor", "reference", "drift"]
    assert "integers" not in verdict.headline


def test_an_fp32_cell_that_does_not_is_red_and_names_the_samples(words):
    now = fp32(
        predictions="p2", changed={"photos": ("cat.png", "dog.png")}, changed_count={"photos": 2}
    )
    verdict = judged(now, expected(fp32()))
    assert verdict.outcome is Outcome.DRIFTED
    words(verdict.headline)


def test_an_fp32_cell_elsewhere_is_incomparable_but_judged():
    changed = {"changed": {"photos": ("cat.png",)}, "changed_count": {"photos": 1}}
    now = fp32(predictions="p2", environment=ELSEWHERE, **changed)
    verdict = judged(now, expected(fp32(), environment=HERE))
    assert verdict.outcome is Outcome.PASSED
    assert any("1 sample differs" in notice and "cat.png" in notice for notice in verdict.notices)
    worse = dataclasses.replace(now, scores=(top1(700),))
    assert judged(worse, expected(fp32(), environment=HERE)).outcome is Outcome.FAILED


def test_an_fp32_difference_that_was_accepted_stays_visible(words):
    now = fp32(predictions="p2", changed={"photos": ()}, changed_count={"photos": 0})
    verdict = judged(now, expected(now))
    assert verdict.outcome is Outcome.PASSED
    words(verdict.notices[0])


@pytest.mark.parametrize(
    "verdict",
    [
        judged(measured()),
        judged(measured(*(top1(700, metric=f"top1@a_rather_long_name_{i}") for i in range(9)))),
        judged(measured(top1(700, metric="top1@" + "x" * 200))),
        judged(measured(predictions="p2"), expected(measured())),
        judged(measured(), Expectation(state=State.STALE, what="x" * 300)),
        judged(measured(top1(700)), quarantine=entry(reason="y" * 300)),
        judged(measured(top1(700)), quarantine=entry(expires="2020-01-01", reason="two\nlines")),
    ],
)
def test_every_headline_is_one_line(verdict):
    assert len(verdict.headline) <= LONGEST
    assert "\n" not in verdict.headline


def test_a_passing_cell_names_every_rule_that_decided(words):
    rate = per(101, least=0.005)
    words(judged(measured(rate)).rule)
    both = "tolerance 0.5 % (suite smoke) and least margin 0.50 pp (metric per)"
    assert judged(measured(top1(760), rate)).rule == both


def test_headline_and_gate_show_one_margin(words):
    verdict = judged(measured(top1(390, 400, 399)))
    assert "margin 0.50 pp: " in verdict.headline
    words(gate(verdict, "loss").detail)


@pytest.mark.parametrize(
    ("hits", "n", "reference", "tolerance"), [(350, 400, 361, 0.02), (700, 1000, 761, 0.005)]
)
def test_a_margin_of_half_a_digit_is_rounded_alike(hits, n, reference, tolerance):
    verdict = judged(
        measured(top1(hits, n, reference)), tolerance=Tolerance(tolerance, "suite smoke")
    )
    (told,) = re.findall(r"margin ([\d.]+) pp: ", verdict.headline)
    assert f"margin {told} pp admits" in gate(verdict, "loss").detail


@pytest.mark.parametrize(
    ("value", "text"), [(0.01805, "1.81 pp"), (0.0179 + 0.00015, "1.81 pp"), (-0.0003, "−0.03 pp")]
)
def test_points_are_settled_before_they_are_rounded(value, text):
    assert distance_text(settled(value), "%") == text
    assert distance_text(settled(-0.0), "%") == "0.00 pp"


def test_a_gain_is_no_negative_drop(words):
    words(gate(judged(measured(top1(763))), "loss").detail)
    assert "fall 0.15 pp" in gate(judged(measured(per(97))), "loss").detail


def test_nothing_accepted_yet_is_no_notice_of_a_listed_cell(words):
    unknown = expected(measured(), accepted={}, cell_known=False)
    assert judged(measured(), unknown).notices == ("nothing accepted yet",)
    listed = judged(measured(top1(700)), unknown, quarantine=entry(values=OF_CELL))
    words(listed.notices)


@pytest.mark.parametrize(
    ("reason", "end"),
    [("slow", " (listed: slow)"), ("y" * 30, " (listed)"), ("a\nb", " (listed: a b)")],
)
def test_a_reason_is_in_the_headline_where_all_of_it_fits(reason, end):
    now = measured(top1(700), predictions="p2")
    headline = judged(now, quarantine=entry(reason=reason)).headline
    assert headline == judged(now).headline + end


# A listed cell is held to its listed values.

OF_CELL = {str(HERE): {NAMED: {top1(700).metric: 0.7}}}
OF_ANOTHER = {str(HERE): {"mobilenet_v2::ort-cpu+other": {top1(700).metric: 0.7}}}
OTHERS = {"riscv64": {NAMED: {top1(700).metric: 0.6}}, "sparc": {NAMED: {top1(700).metric: 0.5}}}


@pytest.mark.parametrize(
    ("hits", "values", "outcome"),
    [
        (700, OF_CELL, Outcome.QUARANTINED),
        (690, OF_CELL, Outcome.QUARANTINED),  # within 2 % of the samples
        (680, OF_CELL, Outcome.QUARANTINED),
        (679, OF_CELL, Outcome.FAILED),
        (90, OF_CELL, Outcome.FAILED),
        (720, OF_CELL, Outcome.QUARANTINED),  # better, and still bad
        (90, {}, Outcome.QUARANTINED),  # of an older qbench: any fall
        (700, OF_ANOTHER, Outcome.FAILED),  # the pattern lists another cell
    ],
)
@pytest.mark.parametrize("pattern", [NAMED, "*", "mobilenet_v2::*"])
def test_a_listed_cell_may_not_fall_further(hits, values, outcome, pattern):
    verdict = judged(measured(top1(hits)), quarantine=entry(cell=pattern, values=values))
    assert verdict.outcome is outcome
    listed = [gate for gate in verdict.gates if gate.kind == "listed"]
    assert bool(listed) is (outcome is Outcome.FAILED and values == OF_CELL)
    if not values:
        assert "any fall passes" in verdict.notices[-1]
    if listed:
        assert listed[0].limit == pytest.approx(0.68)


def test_a_listed_cell_may_fall_by_its_tolerance():
    wide = Tolerance(0.2)
    assert (
        judged(measured(top1(560)), tolerance=wide, quarantine=entry(values=OF_CELL)).outcome
        is Outcome.QUARANTINED
    )
    assert (
        judged(measured(top1(540)), tolerance=wide, quarantine=entry(values=OF_CELL)).outcome
        is Outcome.FAILED
    )


@pytest.mark.parametrize(
    ("values", "least"),
    [
        (
            {**OTHERS, str(HERE): {NAMED: {"top1": 0.7}}, HERE.processor: {NAMED: {"top1": 0.3}}},
            680,
        ),  # of the class
        (
            {**OTHERS, HERE.processor: {NAMED: {"top1": 0.7}}, ANY_CLASS: {NAMED: {"top1": 0.3}}},
            680,
        ),  # the processor
        (
            {**OTHERS, ANY_CLASS: {NAMED: {"top1": 0.7}}},
            680,
        ),  # of a file that does not say the class
        (OTHERS, 480),  # of the class where it is worst
    ],
)
def test_values_are_those_of_the_class_and_of_no_other_where_it_has_some(values, least):
    listed = entry(values=values)
    assert judged(measured(top1(least)), quarantine=listed).outcome is Outcome.QUARANTINED
    assert judged(measured(top1(least - 1)), quarantine=listed).outcome is Outcome.FAILED
    notice = judged(measured(top1(least)), quarantine=listed).notices[-1]
    assert ("compared with riscv64, sparc" in notice) is (values is OTHERS)


def test_a_listed_metric_that_is_not_measured_is_red():
    listed = entry(values={HERE.processor: {NAMED: {"top1": 0.7, "top5": 0.9}}})
    verdict = judged(measured(top1(700)), quarantine=listed)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.headline.startswith("top5 is listed and not measured; ")
    assert verdict.gates[-1].metric == "top5"


def test_a_listed_value_is_a_finite_number():
    with pytest.raises(ValueError, match="no finite number"):
        entry(values={"x64": {NAMED: {"top1": math.nan}}})


@pytest.mark.parametrize(
    ("scores", "changes", "rules", "is_ungated"),
    [
        ((top1(760),), {}, {}, False),  # a margin, and the accepted result
        ((sqnr(20.0),), {}, {}, False),  # the accepted result alone
        ((sqnr(20.0),), {"accepted": {}}, {}, True),
        ((agreement(470),), {"accepted": {}, "floors": {}}, {"agreement": 0.9}, False),
        ((agreement(0),), {"accepted": {}, "floors": {}}, {"agreement": 0.0}, True),
        (
            (top1(5, n=5, reference=5), agreement(0, n=5)),
            {"accepted": {}, "floors": {}},
            {"agreement": 0.0},
            True,
        ),
    ],
)
def test_a_cell_that_any_answers_would_pass_says_so(scores, changes, rules, is_ungated):
    now = measured(*scores)
    known = Rules(rule="suite smoke", agreement_rule="suite smoke", **rules)
    verdict = judged(now, expected(now, **({"floors": {}} | changes)), rules=known)
    assert verdict.outcome in (Outcome.PASSED, Outcome.INCONCLUSIVE)
    assert verdict.ungated is is_ungated
    assert any(UNGATED in one for one in verdict.notices) is is_ungated
    record = CellRecord.of(now.cell, verdict, now)
    assert record.line().get("ungated", False) is is_ungated


def test_a_cell_without_a_gate_says_so_when_it_is_accepted():
    now = measured(sqnr(20.0))
    verdict = judged(now, expected(now, accepted={}, floors={}, cell_known=False))
    assert verdict.outcome is Outcome.MISSING
    assert (approved(verdict).outcome, approved(verdict).notices) == (Outcome.ACCEPTED, (UNGATED,))


def test_a_floor_that_rounds_its_share_up_is_said_in_samples(words):
    """'agreement 80 % is under its floor of 100 %: agreement 85 %' had two floors."""
    few = measured(top1(760), agreement(4, n=5))
    verdict = judged(few, expected(few, floors={}), rules=Rules(agreement=0.85))
    assert verdict.headline.startswith(
        "agreement@photo_crops 80.00 % is under its floor of 5 of 5 samples: agreement 85 % ("
    )
    words(gate(verdict, "floor").detail)
    many = measured(top1(760), agreement(84, n=100))
    verdict = judged(many, expected(many, floors={}), rules=Rules(agreement=0.85))
    words(verdict.headline)
