"""One measurement, what is expected of it, and the rules → one verdict."""

import datetime
from collections.abc import Container, Iterable
from dataclasses import replace
from itertools import starmap

from qbench.judging import format as remedies
from qbench.judging.cell import Cell
from qbench.judging.context import Context
from qbench.judging.drift import Criterion, unequal_text
from qbench.judging.expectation import Expectation, State, accepted_on
from qbench.judging.gates import (
    COSTS,
    FAILING,
    SPECS,
    UNSUPPORTING,
    Severity,
    judged_gates,
    judges_answers,
)
from qbench.judging.kinds import GateKind
from qbench.judging.known_bad import EXCUSABLE, quarantined
from qbench.judging.loss import with_improvement
from qbench.judging.measurement import NOTHING_QUANTIZED, Measurement
from qbench.judging.noise import Repeats
from qbench.judging.rules import QuarantineEntry, RelativeTo, Rules, Tolerance
from qbench.judging.verdict import (
    UNGATED,
    Gate,
    GateState,
    KnownValue,
    Outcome,
    Verdict,
    numbers,
    one_line,
    retrained,
)
from qbench.metrics import Against, Score
from qbench.number_text import percent, settled

# The verdict on a cell whose result the same run accepts.
#
# new or changed → ACCEPTED; beyond its rule → FAILED: accepting does not make a loss green

APPROVABLE = (Outcome.MISSING, Outcome.DRIFTED, Outcome.FAILED)
"""The outcomes that accepting changes."""
NEVER_ACCEPTED = "never accepted; "
"""The headline of a cell without an accepted result begins with this."""


def approved(verdict: Verdict, node_id: str = "") -> Verdict:
    """``verdict``, one of ``APPROVABLE``, once its result is accepted; ``node_id``: of its cell."""
    if _first_broken(verdict.gates, FAILING) is None:
        notices = (UNGATED,) if verdict.ungated else ()
        return replace(verdict, outcome=Outcome.ACCEPTED, remedy="", notices=notices)
    return replace(
        verdict,
        outcome=Outcome.FAILED,
        headline=verdict.headline.removeprefix(NEVER_ACCEPTED),
        notices=_notices_without_unaccepted(verdict),
        remedy=remedies.still_failing(node_id),
    )


def judged_alone(verdict: Verdict) -> Verdict:
    """``verdict`` of a test without an accepted result: that nothing is accepted yet is said once
    for all tests.
    """
    return replace(verdict, notices=_notices_without_unaccepted(verdict))


def _notices_without_unaccepted(verdict: Verdict) -> tuple[str, ...]:
    """The notices of ``verdict`` except that nothing is accepted to compare with."""
    drift = (gate for gate in verdict.gates if gate.kind is GateKind.DRIFT)
    unaccepted = [gate.detail for gate in drift if gate.state is GateState.INCOMPARABLE]
    return tuple(notice for notice in verdict.notices if notice not in unaccepted)


# One measurement, what is expected of it, and the rules → one verdict.
#
# In this order:
#
#     too little planned in integers            UNSUPPORTED, or DRIFTED where a result was accepted
#                                               on this processor
#     no baseline, or one of another model      MISSING, STALE; FAILED where it is not equal, or
#                                               recovers too little
#     the first broken gate of ``gates.GATES``  FAILED or DRIFTED, by its severity
#     a gate that is not decided                INCONCLUSIVE
#     a quarantine entry                        QUARANTINED instead of FAILED or DRIFTED; EXPIRED
#                                               when its date has passed or its cell does not fail
#                                               (``known_bad``)
#     no accepted result of the cell            MISSING
#
# A quarantine entry with a pattern is not EXPIRED by one passing cell: other cells of the pattern
# may fail.

_LISTED = 3
"""Refusals that an unsupported cell names; its measurement has all of them."""


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
        measurement: what was measured.
        expectation: what the baseline holds.
        tolerance: the one that won for this cell.
        rules: the suite's numbers.
        criterion: how close the cell must be to the backend that it was compared with, if any.
        quarantine: the entry that covers the cell here, if any.
        today: for its last day.
        node_id: the node id of the cell in pytest,
            ``suites/smoke.qbench.toml::model::backend+schema``, for the commands in remedies.
    """
    context = Context(
        measurement=measurement,
        expectation=expectation,
        here=expectation.here(measurement.environment, rules.equivalents),
        tolerance=tolerance,
        rules=rules,
        criterion=criterion,
        node_id=node_id or str(measurement.cell),
    )
    gates = judged_gates(context)
    refusing = _first_broken(gates, UNSUPPORTING)
    if refusing is not None:
        return _too_little(context, refusing)
    if expectation.state is not State.KNOWN:
        return _without_reference(context, gates)
    verdict = _with_facts(_by_gates(context, gates), context)
    if quarantine is not None and _first_broken(gates, COSTS) is not None:
        verdict = replace(verdict, notices=(*verdict.notices, _NOT_EXCUSED))
    elif quarantine is not None and (expectation.whole or verdict.outcome in EXCUSABLE):
        return quarantined(
            verdict,
            measurement,
            quarantine,
            tolerance=tolerance,
            repeats=context.noise,
            notices=_notices_without_unaccepted(verdict),
            today=today,
            whole=expectation.whole,
        )
    # a difference from another backend is known without a baseline
    unequal = _first_broken(gates, (GateKind.EQUALITY,))
    if expectation.cell_known or unequal is not None:
        return verdict
    return _never_accepted(verdict, context)


_UNQUANTIZED = (
    f"{NOTHING_QUANTIZED}: its answers are those of fp32, and green says nothing of the schema"
)
_NOT_EXCUSED = "its quarantine entry holds values of metrics, and excuses neither time nor size"


def _first_broken(gates: Iterable[Gate], kinds: Container[str] = SPECS) -> Gate | None:
    """The first broken gate of one of ``kinds``; by default of any kind."""
    broken = (gate for gate in gates if gate.state is GateState.BROKEN)
    return next((gate for gate in broken if gate.kind in kinds), None)


def _with_facts(verdict: Verdict, context: Context) -> Verdict:
    """``verdict`` with what is known of the cell beyond its gates, and the notices about that."""
    measurement, gates = context.measurement, verdict.gates
    verdict = replace(
        verdict, moved=context.moved, tolerance=_relative(context), known=_known_values(context)
    )
    scores = {score.metric: score for score in measurement.scores}
    if not any(judges_answers(gate, scores) for gate in gates):
        verdict = replace(verdict, ungated=True, notices=(*verdict.notices, UNGATED))
    if measurement.is_unquantized:
        verdict = replace(verdict, notices=(*verdict.notices, _UNQUANTIZED))
    if measurement.stopped is not None:
        verdict = replace(
            verdict, headline=one_line(f"{verdict.headline}, {measurement.stopped.text}")
        )
    repeats, averaged = context.noise
    if repeats is not None and repeats.is_noisy:
        noise = _noise_text(repeats, context.rules, averaged=averaged)
        verdict = replace(verdict, notices=(*verdict.notices, noise))
    return with_improvement(
        verdict, measurement, context.here, tolerance=context.tolerance, node_id=context.node_id
    )


def _never_accepted(verdict: Verdict, context: Context) -> Verdict:
    """``verdict`` of a cell without an accepted result: a user has to accept its numbers first."""
    fails = verdict.outcome is Outcome.FAILED
    numbers_or_failure = verdict.headline if fails else numbers(context.measurement, verdict.gates)
    return replace(
        verdict,
        outcome=Outcome.MISSING,
        headline=one_line(f"{NEVER_ACCEPTED}{numbers_or_failure}"),
        remedy=remedies.missing_cell(context.node_id, fails=fails),
    )


def _known_values(context: Context) -> dict[str, KnownValue]:
    """Metric → its accepted value and its noise; metrics without either are left out."""
    accepted = context.here.result
    found = {}
    for score in context.measurement.scores:
        hits = accepted.metrics.get(score.metric) if accepted is not None else None
        noise = _known_noise(context, score)
        if hits is not None or noise is not None:
            found[score.metric] = KnownValue(accepted=hits, noise=noise)
    return found


def _known_noise(context: Context, score: Score) -> tuple[float, float] | None:
    counts = context.noise_of(score)
    noise = counts.spreads(score) if counts is not None else None
    if noise is not None:
        return noise
    repeats, _ = context.noise
    if repeats is not None and repeats.is_noisy:
        return 0.0, 0.0  # this metric is not repeated, or was equal in these runs
    return None


def _noise_text(repeats: Repeats, rules: Rules, *, averaged: bool) -> str:
    where = (
        f"repeats {rules.repeats} ({rules.repeats_rule})"
        if averaged
        else "the noise floor in the baseline"
    )
    return f"the engine does not repeat its answers: {repeats.text}; {where}"


def _relative(context: Context) -> float | None:
    """The tolerance relative to the fp32 score; None: the tolerance is of another kind, or no
    result of the cell is stored.
    """
    is_relative = context.tolerance.relative_to is RelativeTo.SCORE
    return context.tolerance.value if is_relative and context.expectation.stored else None


def support_lost(verdict: Verdict, cell: Cell, node_id: str = "") -> Verdict:
    """The UNSUPPORTED ``verdict`` for a cell that was accepted on this class of processor:
    DRIFTED, which is red; ``node_id`` as in ``judge``.

    Otherwise a quantizer that breaks so that no cell runs would give a green run of skipped cells,
    and so would an engine or a model that is no longer on the machine.
    """
    return replace(
        verdict,
        outcome=Outcome.DRIFTED,
        headline=one_line(f"accepted here before, unsupported now: {verdict.headline}"),
        rule="an accepted cell stays supported",
        notices=(verdict.headline, *verdict.notices),
        remedy=remedies.support_lost(cell.slug, node_id),
    )


_ASKED_FOR_INTEGERS = (
    "to judge the accuracy all the same, set integer_macs = 0 for the cell in its suite"
)


def _too_little(context: Context, share: Gate) -> Verdict:
    measurement, expectation = context.measurement, context.expectation
    why = [f"left in float: {refusal}" for refusal in measurement.refusals]
    why += [
        f"run in float by '{measurement.cell.backend}': {product}"
        for product in measurement.run_in_float
    ]
    left = why[:_LISTED]
    if len(why) > len(left):
        left.append(f"and {len(why) - len(left)} more")
    headline = (
        f"only {percent(settled(measurement.planned_share))} of MACs planned "
        f"{measurement.planned_words}: {share.rule}"
    )
    verdict = Verdict(
        outcome=Outcome.UNSUPPORTED,
        headline=one_line(headline),
        rule=share.rule,
        gates=(share,),
        notices=(*left, _ASKED_FOR_INTEGERS),
    )
    environment = measurement.environment
    known = expectation.state is State.KNOWN and accepted_on(
        expectation.accepted, environment.processor, device=environment.device
    )
    return support_lost(verdict, measurement.cell, context.node_id) if known else verdict


_REFERENCE_RULE = "a stored fp32 reference of this model, data and preprocessing"


def _without_reference(context: Context, gates: tuple[Gate, ...]) -> Verdict:
    """The verdict where no stored reference can judge: a gate that needs none may be broken all
    the same.
    """
    verdict = _missing_or_stale(context, gates)
    unequal = _first_broken(gates, (GateKind.EQUALITY,))
    if unequal is not None:
        compared = context.measurement.compared
        assert compared is not None
        headline = one_line(f"{unequal_text(compared)}; {verdict.headline}")
        remedy = remedies.unequal(unequal.metric)
        return replace(
            verdict, outcome=Outcome.FAILED, headline=headline, rule=unequal.rule, remedy=remedy
        )
    lost = _first_broken(gates, (GateKind.RECOVERY,))
    if lost is not None:  # a loss against what fp32 scores today
        headline = one_line(f"{lost.detail.partition(';')[0]}; {verdict.headline}")
        return replace(verdict, outcome=Outcome.FAILED, headline=headline, rule=lost.rule)
    return verdict


def _missing_or_stale(context: Context, gates: tuple[Gate, ...]) -> Verdict:
    expectation, node_id = context.expectation, context.node_id
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
    labelled = [
        one for one in expectation.retrained if one[0].against is Against.LABELS
    ] or expectation.retrained
    headline = [
        f"the baseline {expectation.what.removeprefix('it ')}",
        *starmap(retrained, labelled),
    ]
    return Verdict(
        outcome=Outcome.STALE,
        headline=one_line("; ".join(headline)),
        rule=_REFERENCE_RULE,
        gates=(*(gate for _, gate in expectation.retrained), *gates),
        notices=(expectation.what,),
        remedy=remedies.stale(node_id, lost=lost),
    )


_OUTCOMES = {Severity.FAILS: Outcome.FAILED, Severity.DRIFTS: Outcome.DRIFTED}


def _by_gates(context: Context, gates: tuple[Gate, ...]) -> Verdict:
    """The first broken gate decides, else the first that is not decided."""
    measurement = context.measurement
    broken = _first_broken(gates)
    undecided_gates = [gate for gate in gates if gate.state is GateState.INCONCLUSIVE]
    outcome, headline = Outcome.PASSED, numbers(measurement, gates)
    rule, remedy = _rule_of_losses(context, gates), ""
    if broken is not None:
        spec = SPECS[broken.kind]
        outcome, headline, rule = (
            _OUTCOMES[spec.severity],
            spec.headline(context, broken),
            broken.rule,
        )
        drift = _first_broken(gates, (GateKind.EXECUTED_DRIFT, GateKind.DRIFT))
        remedy = spec.remedy(context, broken, drift is not None)
    elif undecided_gates:
        first = undecided_gates[0]
        outcome, headline = Outcome.INCONCLUSIVE, SPECS[first.kind].undecided(context, first)
        remedy = SPECS[first.kind].deciding(context, first)
    notices = [
        *_notices(gates, broken),
        *(SPECS[gate.kind].wanting(context, gate) for gate in undecided_gates),
    ]
    if measurement.rewritten is not None:
        notices += measurement.rewritten.notices
    if measurement.quantizer is not None:
        notices.append(f"quantized by {measurement.quantizer.text}")
    notices += filter(None, [measurement.misread, measurement.rounded_words])
    return Verdict(
        outcome=outcome,
        headline=one_line(headline),
        rule=rule,
        gates=gates,
        notices=tuple(notices),
        remedy=remedy,
    )


def _rule_of_losses(context: Context, gates: Iterable[Gate]) -> str:
    """What set the margins of a cell that passes."""
    rules = dict.fromkeys(gate.rule for gate in gates if gate.kind is GateKind.LOSS)
    return " and ".join(rules) or context.tolerance.text


def _notices(gates: tuple[Gate, ...], decider: Gate | None) -> Iterable[str]:
    """What the gates report that do not decide the cell: first what could not be compared, then
    what is broken too.
    """
    yield from (gate.detail for gate in gates if gate.state in SPECS[gate.kind].noticed)
    for gate in gates:
        notice = SPECS[gate.kind].notice
        if notice is not None and gate.state is GateState.BROKEN and gate is not decider:
            yield notice + gate.detail
