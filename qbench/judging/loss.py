"""Margin, agreement floor and limits in whole numbers: how much worse than fp32 a cell may be."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist

from qbench.judging import format as remedies
from qbench.judging.drift import making_changes
from qbench.judging.expectation import AcceptedHere, Floors
from qbench.judging.format import apart, valued
from qbench.judging.kinds import GateKind
from qbench.judging.measurement import Measurement
from qbench.judging.noise import Noise
from qbench.judging.rules import Limit, RelativeTo, Rules, Tolerance, exact
from qbench.judging.statistics import (
    ALPHA,
    POINT,
    Decision,
    DecisionRule,
    Evidence,
    LossEvidence,
    beyond_margin_p,
    detectable_by_spread,
    holm,
    interval_evidence,
    possible_change,
    possible_drop,
    sample_text,
    samples_by_spread,
    samples_deciding,
    shown_by,
    too_few_text,
)
from qbench.judging.verdict import Gate, GateState, Outcome, Verdict, drop_text, move, one_line
from qbench.metrics import Against, Direction, Score
from qbench.number_text import counted, percent, settled, short_percent

# The gate of a loss holds when drop ≤ margin (the point rule; ``Tolerance.margin``), or as far as
# the sample shows it (``decision``, and every margin that is less than one sample). A loss that the
# sample proves to be greater than the margin is red by every rule. A distance to fp32 gates where
# the suite limits it, else it is shown.

_Z90, _Z95 = NormalDist().inv_cdf(0.95), NormalDist().inv_cdf(0.975)
PROVEN = "proven by the paired test"
"""The end of a rule whose margin is under one sample, which the counts cannot decide."""


def is_under_one_sample(margin: Fraction) -> bool:
    """Whether ``margin``, in units of any metric, admits not even one, though it is not nothing."""
    return 0 < margin < 1


def least_agreement(share: float, out_of: int) -> int:
    """The fewest of ``out_of`` that are ``share`` of them."""
    return math.ceil(exact(share) * out_of)


def gate_of_score(score: Score) -> GateKind:
    """The gate of ``score``: a loss where the metric uses labels, the agreement floor, or a
    limit.
    """
    if score.against is Against.LABELS:
        return GateKind.LOSS
    return GateKind.FLOOR if score.has_floor else GateKind.LIMIT


def judge_score(
    score: Score, tolerance: Tolerance, rules: Rules, floors: Floors, noise: Noise | None = None
) -> Gate:
    """The gate of one score.

    ``noise``: how far runs of the cell differ in it; None: they do not, or it is not known.
    """
    kind = gate_of_score(score)
    if kind is GateKind.FLOOR:
        return floor_gate(score, rules, floors, noise)
    if kind is GateKind.LIMIT:
        return limit_gate(score, rules.limits.get(score.metric))
    gate = loss_gate(score, tolerance, rules.decision)
    return gate if noise is None else with_noise(gate, score, noise, tolerance, rules.decision)


_BY_EVIDENCE = {
    (DecisionRule.CI, Evidence.PASS): GateState.HOLDS,
    (DecisionRule.CI, Evidence.FAIL): GateState.BROKEN,
    (DecisionRule.CI, Evidence.INCONCLUSIVE): GateState.INCONCLUSIVE,
    (DecisionRule.STRICT, Evidence.PASS): GateState.HOLDS,
    (DecisionRule.STRICT, Evidence.FAIL): GateState.BROKEN,
    (DecisionRule.STRICT, Evidence.INCONCLUSIVE): GateState.BROKEN,
}


def loss_gate(
    score: Score, tolerance: Tolerance, decision: Decision = POINT, *, against: str = "fp32"
) -> Gate:
    """Whether ``score`` lost more than ``tolerance`` admits, by ``decision``; without evidence,
    by the counts.

    ``against``: whose answers are the reference of ``score``.

    Where the margin is under one sample (20 pictures, 0.5 %), or under one edit of an error rate,
    the counts alone would fail at the first flip, which means nothing: there the evidence decides
    as by ``ci``, and what it does not decide is INCONCLUSIVE. A tolerance of 0 does mean the first
    flip.
    """
    margin, rule = tolerance.margin(score), tolerance.margin_rule(score)
    shown = shown_by(score, float(margin / score.out_of))
    deciding = _deciding(margin, decision) if shown is not None else DecisionRule.POINT
    state = _state(score, margin, shown, deciding)
    worse = -margin if score.direction is Direction.HIGHER else margin
    detail = _loss_detail(score, margin, rule, against)
    rule = _with_decision(rule, state, deciding, decision)
    return Gate(
        kind=GateKind.LOSS,
        metric=score.metric,
        state=state,
        detail=detail if shown is None else f"{detail}; {shown.text(score)}",
        rule=rule,
        limit=float((score.reference_hits + worse) / score.out_of),
        shown=shown,
        decided=deciding,
    )


def _deciding(margin: Fraction, decision: Decision) -> DecisionRule:
    """How a loss with this ``margin`` is decided where the sample shows something about it."""
    is_point = decision.by is DecisionRule.POINT
    return DecisionRule.CI if is_point and is_under_one_sample(margin) else decision.by


def _with_decision(rule: str, state: GateState, deciding: DecisionRule, decision: Decision) -> str:
    """``rule``, and what decided besides the counts."""
    if decision.by is not DecisionRule.POINT and deciding is not DecisionRule.POINT:
        return f"{rule}, {decision.text}"
    is_proven = deciding is DecisionRule.CI and state is GateState.BROKEN
    return f"{rule}, {PROVEN}" if is_proven else rule


def with_noise(
    gate: Gate, score: Score, noise: Noise, tolerance: Tolerance, decision: Decision
) -> Gate:
    """The loss ``gate`` of one run, judged by the mean of the runs and by the variance of
    samples and runs together.

    Where noise alone is more than the margin, and what was measured proves neither a loss within it
    nor a greater one, the gate is INCONCLUSIVE, by the plain counts too: another run of the same
    code could end on the other side.
    """
    margin = tolerance.margin(score)
    share = float(margin / score.out_of)
    noise = replace(noise, margin=share)
    shown = _noisy_evidence(gate.shown, score, noise)
    evidence, by = shown.evidence, _deciding(margin, decision)
    if by is not DecisionRule.POINT:
        state = _BY_EVIDENCE[by, evidence]
    elif evidence is Evidence.FAIL:
        state = GateState.BROKEN
    elif noise.exceeds and evidence is Evidence.INCONCLUSIVE:
        state = GateState.INCONCLUSIVE
    else:
        state = GateState.HOLDS if noise.drop(score) * score.out_of <= margin else GateState.BROKEN
    worse = -share if score.direction is Direction.HIGHER else share
    rule = _with_decision(tolerance.margin_rule(score), state, by, decision)
    counts = gate.detail.partition("; losses")[0].partition(": ")[0]
    return replace(
        gate,
        state=state,
        detail=f"{counts} in the first run; {move(score, noise)}: {drop_text(score, noise)}, "
        f"margin {apart(score, share)}; {noise.text(score)}; losses {score.losses}, gains "
        f"{score.gains} in the first run; {shown.text(score)}",
        rule=rule,
        limit=score.reference_value + worse,
        shown=shown,
        decided=by,
        noise=noise,
    )


def _noisy_evidence(shown: LossEvidence | None, score: Score, noise: Noise) -> LossEvidence:
    """The evidence of the mean of the runs: a normal interval of the variance of samples and of
    runs together.

    ``shown``: the evidence of one run; its interval gives the variance of samples. None: only the
        noise is known.
    """
    if too_few_text(score) and shown is not None:
        return shown  # nothing is proven, however often few samples are run
    spread, change = noise.total(_sampling_error(shown, score)), -float(noise.drop(score))
    below, above = (max(_Z90 * spread, one) for one in _by_sources(score))
    evidence = interval_evidence(change - below, change + above, noise.margin)
    is_open = evidence is Evidence.INCONCLUSIVE
    return LossEvidence(
        evidence=evidence,
        low=possible_change(score, change - max(_Z95 * spread, below)),
        high=possible_change(score, change + max(_Z95 * spread, above)),
        interval="95 % of samples and runs",
        midp=None,
        detectable=possible_drop(score, detectable_by_spread(spread)),
        needed=samples_by_spread(spread, score.n, noise.margin),
        deciding=samples_deciding(score.n * spread * spread, -change, noise.margin, score.n)
        if is_open
        else None,
    )


def _sampling_error(shown: LossEvidence | None, score: Score) -> float:
    """The standard deviation by samples alone, from the interval of one run; 0 where there is
    none.
    """
    if score.clusters is not None:
        return score.clusters.error
    if shown is None:
        return 0.0
    quantile = _Z90 if score.interval else _Z95
    return (shown.high - shown.low) / 2 / quantile


def _by_sources(score: Score) -> tuple[float, float]:
    """How far the sources of ``score`` let the change be below and above what was counted, in
    the better-is-more sense.

    Runs of the same sources do not show what other sources would do.
    """
    if score.clusters is None:
        return 0.0, 0.0
    low, high = score.clusters.interval
    change = score.value - score.reference_value
    ends = change - low, high - change
    return ends if score.direction is Direction.HIGHER else (ends[1], ends[0])


def retrained_gate(score: Score, tolerance: Tolerance, decision: Decision = POINT) -> Gate:
    """The gate of the float model itself: ``score`` counts today's fp32 answers against those
    of the model before.

    The rule and the statistics are those of a cell. It is information: the cell is stale whatever
    it says. Agreement with the model before has no rule: a better model answers otherwise, too.
    """
    if score.against is Against.REFERENCE:
        detail = (
            f"{score.metric} {score.hits}/{score.out_of} = {percent(settled(score.value))} with "
            "the stored fp32"
        )
        return Gate(
            kind=GateKind.RETRAINED,
            metric=score.metric,
            state=GateState.SHOWN,
            detail=detail,
            rule="shown, not judged",
        )
    return replace(
        loss_gate(score, tolerance, decision, against="the stored fp32"), kind=GateKind.RETRAINED
    )


def no_worse_gate(score: Score, rules: Rules) -> Gate:
    """Whether the cell is worse than ``rules.no_worse_than`` by no more than the margin, on the
    same samples.

    Args:
        score: against labels, counted against the other backend's answers.

    The rule of ONNX Runtime's tests of its QNN provider: three runs, of the float model, and of the
    quantized one on a trusted backend and on the one under test. Decision and statistics are those
    of a loss.
    """
    margin = rules.no_worse_margin or Tolerance()
    gate = loss_gate(score, margin, rules.decision, against=rules.no_worse_than)
    proven = f", {PROVEN}" if gate.rule.endswith(PROVEN) else ""
    rule = (
        f"no_worse_than {rules.no_worse_than} by {short_percent(margin.value)} "
        f"({margin.rule}){proven}"
    )
    return replace(gate, kind=GateKind.NO_WORSE_THAN, rule=rule)


def recovery_gate(score: Score, rules: Rules) -> Gate:
    """Whether the cell reaches the share ``rules.recovery`` of what fp32 scores today.

    Args:
        score: against labels, counted against the answers of today's fp32 run.

    Of a score: value ≥ recovery × fp32; of an error rate, where less is better: value ≤ (2 −
    recovery) × fp32. Decision and statistics are those of a loss with that margin.
    """
    share = 1 - exact(rules.recovery or 0.0)
    gate = loss_gate(
        score,
        Tolerance(float(share)) if share < 1 else _ANYTHING,
        rules.decision,
        against="today's fp32",
    )
    proven = f", {PROVEN}" if gate.rule.endswith(PROVEN) else ""
    reached = (
        f"{100 * score.value / score.reference_value:.2f} %" if score.reference_hits else "all"
    )
    return replace(
        gate,
        kind=GateKind.RECOVERY,
        detail=f"{reached} recovered: {gate.detail}",
        rule=f"recovery {short_percent(rules.recovery or 0.0)} ({rules.recovery_rule}){proven}",
    )


_ANYTHING = Tolerance(1.0, relative_to=RelativeTo.NOTHING)
_LISTED_SLICES = 5


def slice_gates(
    slices: Mapping[str, tuple[Score, ...]], tolerance: Tolerance, rules: Rules
) -> tuple[Gate, ...]:
    """One gate for each metric against labels: whether it lost more than ``tolerance`` admits
    in a slice of the data.

    A slice loses too much where that is proven by the test of a loss, at 5 % for all slices
    together (Holm). Slices are small, so that the counts alone decide none of them: by the decision
    ``point`` what is not proven passes, by ``ci`` it is inconclusive, and by ``strict`` each slice
    has to be proven to lose less.
    """
    metrics = dict.fromkeys(one.metric for scores in slices.values() for one in scores)
    return tuple(_slice_gate(metric, slices, tolerance, rules) for metric in metrics)


def _slice_gate(
    metric: str, slices: Mapping[str, tuple[Score, ...]], tolerance: Tolerance, rules: Rules
) -> Gate:
    named = {name: one for name, scores in slices.items() for one in scores if one.metric == metric}
    margins = {name: tolerance.margin(one) / one.out_of for name, one in named.items()}
    values = [beyond_margin_p(one, float(margins[name])) for name, one in named.items()]
    beyond = [name for name, p in zip(named, holm(values), strict=True) if p <= ALPHA]
    worst = min(
        zip(values, named, strict=True),
        key=lambda pair: (pair[0], -named[pair[1]].drop / named[pair[1]].out_of),
    )[1]
    evidence = {name: shown_by(one, float(margins[name])) for name, one in named.items()}
    unproven = [
        name
        for name, shown in evidence.items()
        if shown is None or shown.evidence is not Evidence.PASS
    ]
    state = GateState.BROKEN
    if not beyond:
        state = GateState.HOLDS
        if unproven and rules.decision.by is DecisionRule.CI:
            state = GateState.INCONCLUSIVE
        elif unproven and rules.decision.by is DecisionRule.STRICT:
            state = GateState.BROKEN
    return Gate(
        kind=GateKind.SLICES,
        metric=metric,
        state=state,
        detail=(
            f"{_worst_text(named[worst], worst, margins[worst])}; "
            f"{_proofs_text(len(named), beyond, len(unproven))}"
        ),
        rule=(
            f"slices by {rules.slices} ({rules.slices_rule}), {tolerance.of(metric).text}, Holm 5 %"
        ),
        shown=evidence[worst],
        decided=rules.decision.by,
    )


def _worst_text(score: Score, name: str, margin: Fraction) -> str:
    return (
        f"worst slice '{name}': {score.metric} {score.hits}/{score.out_of} = "
        f"{valued(score, score.value)} against fp32 {score.reference_hits}/{score.out_of} = "
        f"{valued(score, score.reference_value)}, {drop_text(score)}, margin "
        f"{apart(score, float(margin))}"
    )


def _proofs_text(slices: int, beyond: Sequence[str], unproven: int) -> str:
    many = counted(slices, "slice")
    if not beyond:
        return (
            f"none of {many} is proven to lose more than its margin, {slices - unproven} to lose "
            "less"
        )
    listed = ", ".join(beyond[:_LISTED_SLICES]) + (", …" if len(beyond) > _LISTED_SLICES else "")
    return f"{len(beyond)} of {many} proven to lose more than their margin: {listed}"


def _state(
    score: Score, margin: Fraction, shown: LossEvidence | None, deciding: DecisionRule
) -> GateState:
    if shown is not None and deciding is not DecisionRule.POINT:
        return _BY_EVIDENCE[deciding, shown.evidence]
    if shown is not None and shown.evidence is Evidence.FAIL:
        return GateState.BROKEN
    return GateState.HOLDS if score.drop <= margin else GateState.BROKEN


def _loss_detail(score: Score, margin: Fraction, rule: str, against: str) -> str:
    """The counts in one line; a margin that is not a number of samples is in the unit of its
    metric.
    """
    margin_text = (
        rule
        if rule.startswith("least margin")
        else f"margin {apart(score, float(margin) / score.out_of)}"
    )
    if is_under_one_sample(margin):
        margin_text += f" is under one {'sample' if score.proportion else 'unit'}"
    elif score.proportion:
        margin_text += f" admits {counted(math.floor(margin), 'sample')}"
    return (
        f"{score.metric} {_counts(score, score.hits)}{valued(score, score.value)} against "
        f"{against} {_counts(score, score.reference_hits)}{valued(score, score.reference_value)}: "
        f"{drop_text(score)}, {margin_text}; losses {score.losses}, gains {score.gains}"
    )


_PARTS = 1_000_000
"""Values that are no counts, such as decibels or a mean over classes, are held in millionths or
smaller parts.
"""


def _counts(score: Score, hits: int) -> str:
    """``353/400 = ``, in front of its value; nothing where these are parts of a number."""
    return (
        "" if not score.proportion and score.out_of % _PARTS == 0 else f"{hits}/{score.out_of} = "
    )


def floor_gate(score: Score, rules: Rules, floors: Floors, noise: Noise | None = None) -> Gate:
    """Whether ``score`` still agrees with fp32 as often as was accepted, and never less than
    the suite's minimum.

    ``floors`` has the least hits of the baseline, if it has any. Crops of one picture are not
    independent, so there is no statistical test: a floor, no interval. With ``noise`` the mean of
    the runs is judged, and one under the floor by no more than noise explains is INCONCLUSIVE.
    """
    least = least_agreement(rules.agreement, score.out_of)
    rule = f"agreement {short_percent(rules.agreement)} ({rules.agreement_rule})"
    is_rounded = least / score.out_of != rules.agreement
    accepted = floors.least(score.metric, score.out_of)
    if accepted is not None and accepted > least:
        least, rule, is_rounded = accepted, floors.rule(score.metric), False
    floor = f"floor {least}/{score.out_of}"
    if not is_rounded:  # another share than that of the rule would contradict it
        floor += f" = {percent(settled(least / score.out_of))}"
    under = Fraction(least - score.hits)
    if noise is not None:
        under = least - noise.value(score) * score.out_of
        noise = replace(noise, margin=float(abs(under)) / score.out_of)
    state = GateState.HOLDS
    if under > 0:
        state = GateState.INCONCLUSIVE if noise is not None and noise.exceeds else GateState.BROKEN
    detail = (
        f"{score.metric} {score.hits}/{score.out_of} = {percent(settled(score.value))}, "
        f"{floor}; "
        f"{score.out_of - score.hits} differ from fp32"
    )
    if score.clusters is not None:
        detail += f" in {sample_text(score)}"
    if noise is not None:
        detail += f"; {noise.text(score)}"
    return Gate(
        kind=GateKind.FLOOR,
        metric=score.metric,
        state=state,
        noise=noise,
        detail=detail,
        rule=rule,
        limit=least / score.out_of,
    )


def limit_gate(score: Score, limit: Limit | None) -> Gate:
    """Whether a distance to fp32 is on the right side of the suite's ``limit``; None: it is
    shown and does not gate.
    """
    value = f"{score.metric} {valued(score, score.value)} over {counted(score.n, 'sample')}"
    if limit is None:
        return Gate(
            kind=GateKind.LIMIT,
            metric=score.metric,
            state=GateState.SHOWN,
            detail=value,
            rule="no limit is set",
        )
    beyond = score.hits - exact(limit.value) * score.out_of
    holds = beyond >= 0 if score.direction is Direction.HIGHER else beyond <= 0
    side = "least" if score.direction is Direction.HIGHER else "most"
    return Gate(
        kind=GateKind.LIMIT,
        metric=score.metric,
        state=GateState.HOLDS if holds else GateState.BROKEN,
        detail=f"{value}, at {side} {valued(score, limit.value)}",
        rule=f"limit {valued(score, limit.value)} ({limit.rule})",
        limit=limit.value,
    )


# A result that is better than the accepted one by more than the tolerance; a user has to accept it
# on purpose.
#
# better by more than the margin in one metric against labels, and worse in none

IMPROVED = "improved: "
"""The beginning of the headline of such a verdict."""


def with_improvement(
    verdict: Verdict,
    measurement: Measurement,
    here: AcceptedHere,
    *,
    tolerance: Tolerance,
    node_id: str,
) -> Verdict:
    """``verdict``, marked as an improvement where it drifted for the better beyond
    ``tolerance``; it stays red.
    """
    accepted = here.result
    if verdict.outcome is not Outcome.DRIFTED or accepted is None:
        return verdict
    if verdict.moved or making_changes(accepted.made, measurement.made):
        # a result of another calibration or schema is another result, and not better than this one
        return verdict
    gains = accepted.gains(measurement)
    if any(gain < 0 for _, gain in gains) or not any(
        gain > tolerance.margin(score) for score, gain in gains
    ):
        return verdict
    return replace(
        verdict,
        headline=one_line(f"{IMPROVED}{verdict.headline}"),
        remedy=remedies.improved(node_id),
    )
