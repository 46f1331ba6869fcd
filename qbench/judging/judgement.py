"""One measurement, what is expected of it, and the rules → one verdict."""

import datetime
from dataclasses import replace
from itertools import starmap

from qbench.judging import format as remedies
from qbench.judging.cell import Cell
from qbench.judging.drift import (
    CHANGED,
    Criterion,
    calibration_gates,
    drift_gates,
    equality_gate,
    moves_of,
    reference_gate,
    unequal_text,
)
from qbench.judging.expectation import Accepted, Expectation, Floors, State, accepted_on, inherited, known_noise
from qbench.judging.known_bad import EXCUSABLE, quarantined
from qbench.judging.loss import judge_score, recovery_gate, rival_gate, slice_gates, with_improvement
from qbench.judging.measurement import Measurement
from qbench.judging.noise import Repeats, noise_of
from qbench.judging.rules import QuarantineEntry, RelativeTo, Rules, Tolerance
from qbench.judging.sequential import stopped_gate
from qbench.judging.verdict import (
    FAILING,
    UNGATED,
    Gate,
    GateState,
    KnownValue,
    Outcome,
    Verdict,
    breach,
    judges_answers,
    numbers,
    one_line,
    retrained,
    undecided,
    wanting,
)
from qbench.metrics import Against
from qbench.number_text import percent, settled, short_percent

# The verdict on a cell whose result the same run accepts.
#
# new or changed → ACCEPTED; beyond its rule → FAILED: accepting does not make a loss green

APPROVABLE = (Outcome.MISSING, Outcome.DRIFTED, Outcome.FAILED)
"""The outcomes that accepting changes."""
NEVER_ACCEPTED = "never accepted; "
"""The headline of a cell without an accepted result begins with this."""


def approved(verdict: Verdict) -> Verdict:
    """``verdict``, one of ``APPROVABLE``, once its result is accepted."""
    if not any(gate.kind in FAILING and gate.state is GateState.BROKEN for gate in verdict.gates):
        return replace(verdict, outcome=Outcome.ACCEPTED, remedy="", notices=(UNGATED,) if verdict.ungated else ())
    return replace(
        verdict,
        outcome=Outcome.FAILED,
        headline=verdict.headline.removeprefix(NEVER_ACCEPTED),
        notices=_notices_without_unaccepted(verdict),
        remedy=remedies.still_failing(),
    )


def _notices_without_unaccepted(verdict: Verdict) -> tuple[str, ...]:
    """The notices of ``verdict`` except that nothing is accepted to compare with."""
    unaccepted = [g.detail for g in verdict.gates if g.kind == "drift" and g.state is GateState.INCOMPARABLE]
    return tuple(notice for notice in verdict.notices if notice not in unaccepted)


# One measurement, what is expected of it, and the rules → one verdict.
#
# In this order:
#
#     too little planned in integers              UNSUPPORTED, or DRIFTED where a result was accepted on this processor
#     no baseline, or one of another model        MISSING, STALE
#     loss, agreement, limit, equality            FAILED; equality also without a baseline
#     less run in integers than its floor         FAILED
#     other calibration or result than accepted   DRIFTED; also less run in integers than accepted
#     a quarantine entry                          QUARANTINED instead of FAILED or DRIFTED; EXPIRED when its date has
#                                                 passed or its cell does not fail (``known_bad``)
#
# A quarantine entry with a pattern is not EXPIRED by one passing cell: other cells of the pattern may fail.

_LISTED = 3
"""Refusals that an unsupported cell names; its measurement has all of them."""
_NOTICED = (GateState.INCOMPARABLE, GateState.SHOWN)


def judge(
    measurement: Measurement,
    expectation: Expectation,
    *,
    tolerance: Tolerance,
    rules: Rules,
    criterion: Criterion | None = None,
    quarantine: QuarantineEntry | None = None,
    today: datetime.date,
    node_id: str = "",
) -> Verdict:
    """The verdict on one cell.

    Args:
        measurement: what was measured. expectation: what the baseline holds.
        tolerance: the one that won for this cell. rules: the suite's numbers.
        criterion: how close the cell must be to the backend that it was compared with, if any.
        quarantine: the entry that covers the cell here, if any. today: for its last day.
        node_id: the node id of the cell in pytest, ``suites/smoke.qbench.toml::model::backend+schema``, for the
            commands in remedies.
    """
    node_id = node_id or str(measurement.cell)
    share = _integer_gate(measurement, rules)
    if share is not None and share.state is GateState.BROKEN:
        return _too_little(measurement, expectation, share)
    compared = measurement.compared
    equality = None if compared is None or criterion is None else equality_gate(compared, criterion)
    is_unequal = equality is not None and equality.state is GateState.BROKEN
    executed = _executed_gate(measurement, rules)
    recovered = [recovery_gate(score, rules) for score in measurement.recovery]
    others = tuple(gate for gate in (share, executed, equality, *recovered) if gate is not None)
    if expectation.state is not State.KNOWN:
        verdict = _without_reference(expectation, others, node_id)
        lost = next((gate for gate in recovered if gate.state is GateState.BROKEN), None)
        if lost is not None and not is_unequal:  # so is a loss against what fp32 scores today
            text = f"{lost.detail.partition(';')[0]}; {verdict.headline}"
            return replace(verdict, outcome=Outcome.FAILED, headline=one_line(text), rule=lost.rule)
        if compared is None or equality is None or not is_unequal:
            return verdict
        return replace(  # a difference from another backend is known without a baseline
            verdict,
            outcome=Outcome.FAILED,
            headline=one_line(f"{unequal_text(compared)}; {verdict.headline}"),
            rule=equality.rule,
            remedy=remedies.unequal(equality.metric),
        )
    repeats, averaged = known_noise(measurement, expectation, rules.equivalents)
    floors = Floors.on(expectation.floors, expectation.accepted, measurement.environment, rules.equivalents)
    scores = [
        judge_score(score, tolerance, rules, floors, noise_of(score, repeats, averaged=averaged))
        for score in measurement.scores
    ]
    stopped = measurement.stopped
    if stopped is not None:
        pairs = zip(scores, measurement.scores, strict=True)
        scores = [stopped_gate(gate, score, stopped, tolerance) for gate, score in pairs]
    moved = moves_of(measurement, expectation, rules)
    calibration = calibration_gates(measurement, expectation, rules, moved)
    rivals = [rival_gate(score, rules) for score in measurement.rival]
    fallback = _fallback_gates(measurement, expectation, rules)
    parts = slice_gates(measurement.slices, tolerance, rules)
    gates = (
        *scores,
        *others,
        *parts,
        *rivals,
        *calibration,
        *fallback,
        *_memory_gates(measurement, expectation, rules),
    )
    rules_of_loss = dict.fromkeys(gate.rule for gate in scores if gate.kind == "loss")
    rule = " and ".join(rules_of_loss) or tolerance.text
    name = inherited(expectation.accepted, measurement.environment, rules.equivalents)
    worse = name is not None and expectation.accepted[name].is_worse(measurement)
    verdict = _by_gates(measurement, gates, rule, node_id, whole=expectation.whole, worse=worse, rival=rules.rival)
    known = _known_values(measurement, None if name is None else expectation.accepted[name], repeats, averaged=averaged)
    tolerated = _relative(tolerance) if expectation.stored else None
    verdict = replace(verdict, moved=moved, tolerance=tolerated, known=known)
    by_name = {score.metric: score for score in measurement.scores}
    if not any(judges_answers(gate, by_name) for gate in gates):
        verdict = replace(verdict, ungated=True, notices=(*verdict.notices, UNGATED))
    if stopped is not None:
        verdict = replace(verdict, headline=one_line(f"{verdict.headline}, {stopped.text}"))
    if repeats is not None and repeats.is_noisy:
        verdict = replace(verdict, notices=(*verdict.notices, _noise_text(repeats, rules, averaged=averaged)))
    verdict = with_improvement(verdict, measurement, expectation, tolerance=tolerance, rules=rules, node_id=node_id)
    if quarantine is not None and (expectation.whole or verdict.outcome in EXCUSABLE):
        return quarantined(
            verdict,
            measurement,
            quarantine,
            tolerance=tolerance,
            repeats=(repeats, averaged),
            notices=_notices_without_unaccepted(verdict),
            today=today,
            whole=expectation.whole,
        )
    if expectation.cell_known or is_unequal:
        return verdict
    fails = verdict.headline if verdict.outcome is Outcome.FAILED else numbers(measurement, gates)
    return replace(  # a user has to accept its numbers first
        verdict,
        outcome=Outcome.MISSING,
        headline=one_line(f"{NEVER_ACCEPTED}{fails}"),
        remedy=remedies.missing_cell(node_id, fails=verdict.outcome is Outcome.FAILED),
    )


def _known_values(
    measurement: Measurement, accepted: Accepted | None, repeats: Repeats | None, *, averaged: bool
) -> dict[str, KnownValue]:
    """Metric → what was accepted for it and how far runs of it differ, of those of which something is known."""
    found = {}
    for score in measurement.scores:
        counts = noise_of(score, repeats, averaged=averaged)
        noise = None if counts is None else counts.spreads(score)
        if noise is None and repeats is not None and repeats.is_noisy:
            noise = (0.0, 0.0)  # this metric is not repeated, or was equal in these runs
        hits = None if accepted is None else accepted.metrics.get(score.metric)
        if hits is not None or noise is not None:
            found[score.metric] = KnownValue(accepted=hits, noise=noise)
    return found


def _noise_text(repeats: Repeats, rules: Rules, *, averaged: bool) -> str:
    where = f"repeats {rules.repeats} ({rules.repeats_rule})" if averaged else "the noise floor in the baseline"
    return f"the engine does not repeat its answers: {repeats.text}; {where}"


def _relative(tolerance: Tolerance) -> float | None:
    return tolerance.value if tolerance.relative_to is RelativeTo.SCORE else None


def _integer_gate(measurement: Measurement, rules: Rules) -> Gate | None:
    """Whether enough of the cell is planned in integers to call it quantized; None where nothing is planned."""
    if measurement.cell.is_fp32 or measurement.cell.is_recorded:
        return None
    if measurement.cell.is_given:
        return Gate(
            kind="integer",
            metric="integer_macs",
            state=GateState.SHOWN,
            detail=f"{percent(settled(measurement.integer_macs))} of {measurement.macs} multiply-accumulates came in "
            "integers",
            rule="a model that came quantized is measured as it is",
        )
    enough = measurement.planned_share >= rules.integer_macs
    return Gate(
        kind="integer",
        metric="integer_macs",
        state=GateState.HOLDS if enough else GateState.BROKEN,
        detail=(
            f"{percent(settled(measurement.planned_share))} of {measurement.macs} multiply-accumulates planned "
            f"{measurement.planned_words}, "
            f"floor {short_percent(rules.integer_macs)}"
        ),
        rule=f"integer_macs {short_percent(rules.integer_macs)} ({rules.rule})",
    )


def _executed_text(measurement: Measurement) -> str:
    """``62 % of 1000 multiply-accumulates executed in integers by 'ort-cpu': conv1 in float32 (38 %)``."""
    assert measurement.executed_macs is not None
    text = (
        f"{percent(settled(measurement.executed_macs))} of {measurement.macs} multiply-accumulates executed in "
        f"integers by '{measurement.cell.backend}'"
    )
    named = measurement.executed_in_float[:_LISTED]
    more = len(measurement.executed_in_float) - len(named)
    return text + (f": {', '.join(named)}" if named else "") + (f" and {more} more" if more else "")


def _executed_gate(measurement: Measurement, rules: Rules) -> Gate | None:
    """Whether the engine ran enough of the cell in integers; None where it reports nothing and no floor is set."""
    floor, share = rules.executed_macs, measurement.executed_macs
    text = "the engine does not report what it ran in integers" if share is None else _executed_text(measurement)
    if floor is None:
        rule = "no floor is set"
        return None if share is None else _executed(GateState.SHOWN, text, rule)
    if measurement.cell.is_fp32:
        return None
    rule = f"executed_macs {short_percent(floor)} ({rules.executed_rule})"
    if share is None:
        return _executed(GateState.INCOMPARABLE, text, rule)
    return _executed(GateState.HOLDS if share >= floor else GateState.BROKEN, text, rule, floor)


def _fallback_gates(measurement: Measurement, expectation: Expectation, rules: Rules) -> tuple[Gate, ...]:
    """The gate whether the engine ran as much in integers as when the result of this class was accepted, if known."""
    name = inherited(expectation.accepted, measurement.environment, rules.equivalents)
    before = None if name is None else expectation.accepted[name].executed_macs
    if name is None or before is None:
        return ()
    if measurement.executed_macs is None:  # a report that breaks must not switch its gate off
        text = f"{measurement.cell.backend} does not report what it executed; accepted {percent(settled(before))}"
        rule = "as much executed in integers as accepted"
        return (Gate(kind="drift", metric="executed_macs", state=GateState.INCOMPARABLE, detail=text, rule=rule),)
    fell = expectation.accepted[name].fell_to_float(measurement)
    text = f"{_executed_text(measurement)}; accepted {percent(settled(before))}"
    rule = "as much executed in integers as accepted"
    state = GateState.BROKEN if fell else GateState.HOLDS
    return (Gate(kind="drift", metric="executed_macs", state=state, detail=text, rule=rule, limit=before),)


def _executed(state: GateState, detail: str, rule: str, limit: float | None = None) -> Gate:
    return Gate(kind="executed", metric="executed_macs", state=state, detail=detail, rule=rule, limit=limit)


def support_lost(verdict: Verdict, cell: Cell) -> Verdict:
    """The UNSUPPORTED ``verdict`` for a cell that was accepted on this class of processor: DRIFTED, which is red.

    Otherwise a quantizer that breaks so that no cell runs would give a green run of skipped cells, and so would an
    engine or a model that is no longer on the machine.
    """
    return replace(
        verdict,
        outcome=Outcome.DRIFTED,
        headline=one_line(f"accepted here before, unsupported now: {verdict.headline}"),
        rule="an accepted cell stays supported",
        notices=(verdict.headline, *verdict.notices),
        remedy=remedies.support_lost(cell.slug),
    )


_ASKED_FOR_INTEGERS = "to judge the accuracy all the same, set integer_macs = 0 for the cell in its suite"


def _too_little(measurement: Measurement, expectation: Expectation, share: Gate) -> Verdict:
    why = [f"left in float: {refusal}" for refusal in measurement.refusals]
    why += [f"run in float by '{measurement.cell.backend}': {product}" for product in measurement.run_in_float]
    left = tuple(why[:_LISTED])
    more = len(why) - len(left)
    headline = (
        f"only {percent(settled(measurement.planned_share))} of MACs planned {measurement.planned_words}: {share.rule}"
    )
    verdict = Verdict(
        outcome=Outcome.UNSUPPORTED,
        headline=one_line(headline),
        rule=share.rule,
        gates=(share,),
        notices=(*left, *([f"and {more} more"] if more > 0 else []), _ASKED_FOR_INTEGERS),
    )
    known = expectation.state is State.KNOWN and accepted_on(expectation.accepted, measurement.environment.processor)
    return support_lost(verdict, measurement.cell) if known else verdict


_REFERENCE_RULE = "a stored fp32 reference of this model, data and preprocessing"


def _without_reference(expectation: Expectation, gates: tuple[Gate, ...], node_id: str) -> Verdict:
    if expectation.state is not State.STALE:
        return Verdict(
            outcome=Outcome.MISSING,
            headline=one_line(expectation.what),
            rule=_REFERENCE_RULE,
            gates=gates,
            notices=(expectation.what,),
            remedy=remedies.missing_model(node_id),
        )
    lost = any(gate.state is GateState.BROKEN for _, gate in expectation.retrained)
    labelled = [one for one in expectation.retrained if one[0].against is Against.LABELS] or expectation.retrained
    headline = [f"the baseline {expectation.what.removeprefix('it ')}", *starmap(retrained, labelled)]
    return Verdict(
        outcome=Outcome.STALE,
        headline=one_line("; ".join(headline)),
        rule=_REFERENCE_RULE,
        gates=(*(gate for _, gate in expectation.retrained), *gates),
        notices=(expectation.what,),
        remedy=remedies.stale(node_id, lost=lost),
    )


def _memory_gates(measurement: Measurement, expectation: Expectation, rules: Rules) -> tuple[Gate, ...]:
    """The drift gates; for an fp32 cell first the gate whether it reproduces the stored reference."""
    if not expectation.stored:
        return ()
    drift = drift_gates(measurement, expectation, rules)
    if not measurement.cell.is_fp32 or not expectation.reference:
        return drift
    return reference_gate(measurement, expectation, drift[0]), *drift


def _by_gates(
    measurement: Measurement, gates: tuple[Gate, ...], rule: str, node_id: str, *, whole: bool, worse: bool, rival: str
) -> Verdict:
    """The first broken gate decides; ``rule`` is named when none is; ``worse``: whether a metric is, than accepted."""
    drifted = any(gate.kind == "drift" and gate.state is GateState.BROKEN for gate in gates)
    broken = next((gate for gate in gates if gate.state is GateState.BROKEN), None)
    open_ = [gate for gate in gates if gate.state is GateState.INCONCLUSIVE]
    if broken is None and open_:
        outcome, headline, remedy = (
            Outcome.INCONCLUSIVE,
            undecided(measurement, open_[0]),
            _remedy(measurement, open_[0], node_id, whole=whole),
        )
    elif broken is None:
        outcome, headline, remedy = Outcome.PASSED, numbers(measurement, gates), ""
    elif broken.kind == "equality" and measurement.compared is not None:
        outcome, headline = Outcome.FAILED, f"{unequal_text(measurement.compared)}: {broken.rule}"
        remedy = remedies.unequal(broken.metric)
    elif broken.kind == "rival":
        outcome, headline = Outcome.FAILED, f"{broken.detail.partition(';')[0]}: {broken.rule}"
        remedy = remedies.worse_than(rival, measurement.cell.backend)
    elif broken.kind in ("recovery", "slice"):
        outcome, headline = Outcome.FAILED, f"{broken.detail.partition(';')[0]}: {broken.rule}"
        remedy = remedies.failed(node_id, drifted=drifted, floor=False)
    elif broken.kind == "executed":
        outcome, headline = Outcome.FAILED, f"{broken.detail}: {broken.rule}"
        remedy = remedies.fell_to_float()
    elif broken.kind == "limit":
        outcome, headline, remedy = Outcome.FAILED, breach(measurement, broken), remedies.too_far()
    elif broken.kind in FAILING:
        outcome, headline = Outcome.FAILED, breach(measurement, broken)
        remedy = remedies.failed(node_id, drifted=drifted, floor=broken.kind == "floor")
    else:
        cause = CHANGED if broken.kind == "calibration" else ""
        outcome, headline, remedy = Outcome.DRIFTED, f"{cause}{broken.detail}", remedies.changed(node_id, worse=worse)
    return Verdict(
        outcome=outcome,
        headline=one_line(headline),
        rule=rule if broken is None else broken.rule,
        gates=gates,
        notices=(
            *(g.detail for g in gates if g.kind in ("drift", "reference", "calibration") and g.state in _NOTICED),
            *(
                CHANGED + g.detail
                for g in gates
                if g.kind == "calibration" and g.state is GateState.BROKEN and g is not broken
            ),
            *(wanting(measurement, gate) for gate in open_),
            *(() if measurement.rewritten is None else measurement.rewritten.notices),
        ),
        remedy=remedy,
    )


def _remedy(measurement: Measurement, gate: Gate, node_id: str, *, whole: bool) -> str:
    """The next step for a cell whose ``gate`` is not decided."""
    if gate.is_noise and gate.noise is not None:
        return remedies.noisy(measurement.cell.slug, gate.noise.runs_needed)
    return remedies.undecided(node_id, whole=whole)
