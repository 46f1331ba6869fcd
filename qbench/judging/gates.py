"""One row per gate: what it is judged by, what a broken one does to a cell, and the next step
for a user.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from qbench.judging import format as remedies
from qbench.judging.context import Context
from qbench.judging.drift import (
    CHANGED,
    calibration_gates,
    drift_gates,
    equality_gate,
    reference_gate,
    unequal_text,
)
from qbench.judging.expectation import State
from qbench.judging.file_size import (
    FILE_BYTES,
    MAX_FILE_BYTES,
    judge_file_size,
    make_smaller,
    remembered_bytes,
)
from qbench.judging.kinds import GateKind, Quantity, RememberedNumber
from qbench.judging.latency import (
    MAX_LATENCY_RATIO,
    RATIO,
    UNDECIDED_TIME,
    accept_all,
    find_what_is_slow,
    judge_latency,
    quiet_computer,
    remembered_ratio,
    wanting_time,
)
from qbench.judging.loss import (
    gate_of_score,
    judge_score,
    least_agreement,
    no_worse_gate,
    recovery_gate,
    slice_gates,
)
from qbench.judging.measurement import Measurement
from qbench.judging.rules import Rules
from qbench.judging.sequential import stopped_gate
from qbench.judging.statistics import DecisionRule
from qbench.judging.suite_keys import (
    DECISION,
    EXECUTED_MACS,
    FLIPS,
    NO_WORSE_THAN,
    OF_MEASURING,
    PROBABILITIES,
    RECOVERY,
    SLICES,
    SuiteKey,
)
from qbench.judging.verdict import Gate, GateState, breach, undecided, wanting
from qbench.metrics import Direction, Score
from qbench.number_text import percent, settled, short_percent


class Severity(enum.Enum):
    """What a broken gate makes of a cell."""

    UNSUPPORTS = "unsupported"  # before anything else is judged
    FAILS = "failed"  # whatever was accepted
    DRIFTS = "drifted"  # it is not as accepted


class BackendName(str):
    """The name of a backend that evidence is measured by; the measurement looks the backend up."""


def _undecided_score(context: Context, gate: Gate) -> str:
    return undecided(context.measurement, gate)


def _wanting_score(context: Context, gate: Gate) -> str:
    return wanting(context.measurement, gate)


def _more_samples(context: Context, gate: Gate) -> str:
    if gate.is_noise and gate.noise is not None:
        return remedies.noisy(context.measurement.cell.slug, gate.noise.runs_needed)
    by_counts = context.rules.decision.by is DecisionRule.POINT
    return remedies.undecided(context.node_id, whole=context.expectation.whole, by_counts=by_counts)


def _detail(_: Context, gate: Gate) -> str:
    return gate.detail


def _wanting_slices(context: Context, gate: Gate) -> str:
    """Its evidence is that of the worst slice alone, while every slice has to be proven."""
    metric = context.measurement.score(gate.metric).metric
    return (
        f"{metric}: some slices have too few samples to prove that they lose less than their margin"
    )


def _asks_nothing(_: Rules) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """One gate.

    Args:
        title, short: why a cell is red where this gate is broken: the heading of its group in
            reports, and the words after a count of such cells.
        judge: the gates of this kind of one cell, with their states.
        judges, next_step: what it is about, and what to do where it is broken, for the page of
            options.
        keys: of the suite, by which cells are judged.
        model_keys: the names of further keys of the suite that it depends on: those of whole models
            (``Rules``), and those in the row of another gate.
        asks: what evidence beyond the answers is measured by, in ``evaluation/evidence/KIND.py``;
            None: these rules ask for none.
        remembers: evidence and setting → the number that an accepted result keeps; None: it keeps
            none.
        needs_all_samples: whether its evidence is of the whole data, so that a cell that has it
            never ends early.
        severity: what a broken one makes of the cell.
        headline, remedy: of a cell that a broken gate of this kind decides: one line, and the next
            step.
        undecided, wanting, deciding: of a gate that is not decided: the headline of a cell that it
            decides, what would decide it, and the next step.
        undecided_title: the heading of such cells in reports.
        set_by_suite: whether its rule comes from the suite alone, not from what was accepted.
        cost: the time or size that it measures; None: it is about something else.
        judges_answers: whether other answers of the engine can break it.
        has_culprit: whether a node that counts wrongly can be why it is broken.
        bounds_value: whether ``limit`` of the gate is a value of its metric, beyond which it is
            broken.
        needs_baseline: whether it is judged only where the reference of the model is stored and
            fits.
        noticed: the states in which its detail is a notice of a cell that it does not decide.
        notice: the beginning of a notice about a broken gate that does not decide the cell; None:
            no notice.
    """

    kind: GateKind
    judges: str
    model_keys: tuple[str, ...] = ()
    next_step: str = ""
    title: str = ""
    short: str = ""
    judge: Callable[[Context], Iterable[Gate]]
    keys: tuple[SuiteKey, ...] = ()
    asks: Callable[[Rules], object] = _asks_nothing
    remembers: Callable[[Any, Any], RememberedNumber | None] | None = None
    severity: Severity = Severity.FAILS
    headline: Callable[[Context, Gate], str]
    remedy: Callable[[Context, Gate, bool], str]
    undecided: Callable[[Context, Gate], str] = _undecided_score
    undecided_title: str = "Too few samples or runs to decide whether it loses more than allowed"
    wanting: Callable[[Context, Gate], str] = _wanting_score
    deciding: Callable[[Context, Gate], str] = _more_samples
    set_by_suite: bool = True
    cost: Quantity | None = None
    judges_answers: bool = True
    has_culprit: bool = True
    bounds_value: bool = False
    needs_baseline: bool = True
    needs_all_samples: bool = False
    noticed: frozenset[GateState] = frozenset()
    notice: str | None = None


# Judges: the gates of one kind.


def _judge_scores(context: Context, kind: GateKind) -> Iterable[Gate]:
    stopped = context.measurement.stopped
    for score in context.measurement.scores:
        if gate_of_score(score) is not kind:
            continue
        gate = judge_score(
            score, context.tolerance, context.rules, context.here.floors, context.noise_of(score)
        )
        if stopped is not None:
            gate = stopped_gate(gate, score, stopped, context.tolerance)
        if gate.state is GateState.INCONCLUSIVE and _reproduces(context, score):
            gate = replace(gate, state=GateState.HOLDS, rule="fp32 answers as its reference")
        yield gate


def _reproduces(context: Context, score: Score) -> bool:
    """Whether ``score`` is of a float cell that has right and wrong what the stored fp32 has: such
    a cell is to reproduce these samples, not to prove anything about others.
    """
    changes = (score.losses, score.gains, score.hits - score.reference_hits)
    return context.measurement.cell.is_fp32 and not any(changes)


def _judge_losses(context: Context) -> Iterable[Gate]:
    return _judge_scores(context, GateKind.LOSS)


def _judge_floors(context: Context) -> Iterable[Gate]:
    return _judge_scores(context, GateKind.FLOOR)


def _judge_limits(context: Context) -> Iterable[Gate]:
    return _judge_scores(context, GateKind.LIMIT)


def _judge_planned(context: Context) -> Iterable[Gate]:
    """Whether enough of the cell is planned in integers to call it quantized; nothing where
    nothing is planned.
    """
    measurement, floor = context.measurement, context.rules.integer_macs
    if measurement.cell.is_fp32 or measurement.cell.is_recorded:
        return
    state, rule = GateState.SHOWN, "a model that came quantized is measured as it is"
    detail = (
        f"{percent(settled(measurement.integer_macs))} of {measurement.macs} multiply-accumulates "
        "came in integers"
    )
    if not measurement.cell.is_by_others:
        state = GateState.HOLDS if measurement.planned_share >= floor else GateState.BROKEN
        rule = f"integer_macs {short_percent(floor)} ({context.rules.rule})"
        detail = (
            f"{percent(settled(measurement.planned_share))} of {measurement.macs} "
            "multiply-accumulates planned "
            f"{measurement.planned_words}, floor {short_percent(floor)}"
        )
    yield Gate(kind=GateKind.INTEGER, metric="integer_macs", state=state, detail=detail, rule=rule)


_LISTED = 3
"""Layers in float that a line names; the measurement has all of them."""


def _executed_text(measurement: Measurement) -> str:
    """``62 % of 1000 multiply-accumulates executed in integers by 'ort-cpu': conv1 in float32
    (38 %)``.
    """
    assert measurement.executed_macs is not None
    text = (
        f"{percent(settled(measurement.executed_macs))} of {measurement.macs} multiply-accumulates "
        f"executed in integers by '{measurement.cell.backend}'"
    )
    named = measurement.executed_in_float[:_LISTED]
    more = len(measurement.executed_in_float) - len(named)
    if named:
        text += f": {', '.join(named)}"
    return f"{text} and {more} more" if more else text


def _judge_executed(context: Context) -> Iterable[Gate]:
    """Whether the engine ran enough of the cell in integers; nothing where it reports none and
    no floor is set.
    """
    measurement, floor = context.measurement, context.rules.executed_macs
    share = measurement.executed_macs
    if floor is None:
        if share is not None:
            yield _executed(GateState.SHOWN, _executed_text(measurement), "no floor is set")
        return
    if measurement.cell.is_fp32:
        return
    rule = f"executed_macs {short_percent(floor)} ({context.rules.executed_rule})"
    if share is None:
        yield _executed(
            GateState.INCOMPARABLE, "the engine does not report what it ran in integers", rule
        )
        return
    state = GateState.HOLDS if share >= floor else GateState.BROKEN
    yield _executed(state, _executed_text(measurement), rule, floor)


def _executed(state: GateState, detail: str, rule: str, limit: float | None = None) -> Gate:
    return Gate(
        kind=GateKind.EXECUTED,
        metric="executed_macs",
        state=state,
        detail=detail,
        rule=rule,
        limit=limit,
    )


def _judge_equality(context: Context) -> Iterable[Gate]:
    compared = context.measurement.compared
    if compared is not None and context.criterion is not None:
        yield equality_gate(compared, context.criterion)


def _judge_recovery(context: Context) -> Iterable[Gate]:
    scores = context.measurement.evidence.get(GateKind.RECOVERY, ())
    return (recovery_gate(score, context.rules) for score in scores)


def _judge_slices(context: Context) -> Iterable[Gate]:
    slices = context.measurement.evidence.get(GateKind.SLICES, {})
    return slice_gates(slices, context.tolerance, context.rules)


def _judge_no_worse_than(context: Context) -> Iterable[Gate]:
    scores = context.measurement.evidence.get(GateKind.NO_WORSE_THAN, ())
    return (no_worse_gate(score, context.rules) for score in scores)


def _judge_calibration(context: Context) -> Iterable[Gate]:
    return calibration_gates(
        context.measurement, context.expectation, context.here, context.rules, context.moved
    )


def _judge_drift(context: Context) -> Iterable[Gate]:
    """The answers compared with the accepted ones; of fp32 also with its stored reference."""
    if not context.expectation.stored:
        return
    whole = context.expectation.whole
    drift = drift_gates(context.measurement, context.here, context.rules.allowance, whole=whole)
    if context.measurement.cell.is_fp32 and context.expectation.reference:
        yield reference_gate(context.measurement, context.expectation, drift[0])
    yield from drift


def _judge_executed_drift(context: Context) -> Iterable[Gate]:
    """Whether the engine ran as much in integers as when the result of this class was accepted,
    where that is known.
    """
    measurement, accepted = context.measurement, context.here.result
    if accepted is None or accepted.executed_macs is None:
        return
    before = f"accepted {percent(settled(accepted.executed_macs))}"
    limit: float | None = None
    if measurement.executed_macs is None:  # a report that breaks must not switch its gate off
        state, text = (
            GateState.INCOMPARABLE,
            f"{measurement.cell.backend} does not report what it executed",
        )
    else:
        state = GateState.BROKEN if accepted.fell_to_float(measurement) else GateState.HOLDS
        text, limit = _executed_text(measurement), accepted.executed_macs
    yield Gate(
        kind=GateKind.EXECUTED_DRIFT,
        metric="executed_macs",
        state=state,
        detail=f"{text}; {before}",
        rule="as much executed in integers as accepted",
        limit=limit,
    )


def _judged_elsewhere(_: Context) -> Iterable[Gate]:
    """No gates: those of this kind are made with gates of another kind, or after the verdict."""
    return ()


# Headlines and remedies of a cell that a broken gate decides.


def _breach(context: Context, gate: Gate) -> str:
    return breach(context.measurement, gate)


def _under_floor(context: Context, gate: Gate) -> str:
    """A floor that rounds the share of the suite up to whole samples is said in samples: two
    shares of one floor contradict each other.
    """
    measurement, share = context.measurement, context.rules.agreement
    out_of = measurement.score(gate.metric).out_of
    least = least_agreement(share, out_of)
    is_rounded = gate.limit == least / out_of != share
    return breach(measurement, gate, f"{least} of {out_of} samples" if is_rounded else "")


def _unequal(context: Context, gate: Gate) -> str:
    compared = context.measurement.compared
    assert compared is not None
    return f"{unequal_text(compared)}: {gate.rule}"


def _first_clause(_: Context, gate: Gate) -> str:
    return f"{gate.detail.partition(';')[0]}: {gate.rule}"


def _detail_and_rule(_: Context, gate: Gate) -> str:
    return f"{gate.detail}: {gate.rule}"


def _calibration_changed(_: Context, gate: Gate) -> str:
    return f"{CHANGED}{gate.detail}"


def _find_the_loss(context: Context, _: Gate, drifted: bool) -> str:
    return remedies.failed(context.node_id, drifted=drifted, floor=False)


def _raise_the_floor(context: Context, _: Gate, drifted: bool) -> str:
    return remedies.failed(context.node_id, drifted=drifted, floor=True)


def _too_far(_context: Context, _gate: Gate, _drifted: bool) -> str:
    return remedies.too_far()


def _fell_to_float(_context: Context, _gate: Gate, _drifted: bool) -> str:
    return remedies.fell_to_float()


def _find_the_difference(_context: Context, gate: Gate, _drifted: bool) -> str:
    return remedies.unequal(gate.metric)


def _compare_backends(context: Context, _gate: Gate, _drifted: bool) -> str:
    return remedies.worse_than(context.rules.no_worse_than, context.measurement.cell.backend)


def _accept_or_find(context: Context, _gate: Gate, _drifted: bool) -> str:
    return remedies.changed(context.node_id, worse=context.here.is_worse(context.measurement))


def _accept_or_recalibrate(context: Context, _gate: Gate, _drifted: bool) -> str:
    return remedies.recalibrated(context.node_id, worse=context.here.is_worse(context.measurement))


def _nothing(_context: Context, _gate: Gate, _drifted: bool) -> str:
    return ""


_UNDECIDED = frozenset({GateState.INCOMPARABLE, GateState.SHOWN})

GATES: tuple[GateSpec, ...] = (
    GateSpec(
        kind=GateKind.LOSS,
        judges="the loss of a metric against labels, compared with fp32",
        model_keys=("tolerance", "relative_to"),
        next_step="find the cause, or give the cell a tolerance or a quarantine entry",
        title="Loses more against fp32 than its tolerance allows",
        short="beyond tolerance",
        judge=_judge_losses,
        keys=(DECISION,),
        headline=_breach,
        remedy=_find_the_loss,
        bounds_value=True,
    ),
    GateSpec(
        kind=GateKind.FLOOR,
        judges="how often answers are those of fp32",
        model_keys=("agreement",),
        next_step="find the cause, or accept what lowers the floor",
        set_by_suite=False,
        title="Agrees with fp32 less than its accepted floor",
        short="below the agreement floor",
        judge=_judge_floors,
        headline=_under_floor,
        remedy=_raise_the_floor,
        bounds_value=True,
    ),
    GateSpec(
        kind=GateKind.LIMIT,
        judges="a distance to fp32",
        model_keys=("limits",),
        next_step="find the cause, or change the limit",
        title="Is farther from fp32 than its limit",
        short="beyond its limit",
        judge=_judge_limits,
        headline=_breach,
        remedy=_too_far,
        bounds_value=True,
    ),
    GateSpec(
        kind=GateKind.INTEGER,
        judges="the share of multiply-accumulates that is planned in integers",
        model_keys=("integer_macs",),
        next_step="see why operators stay in float: `qbench quantize --why`",
        judge=_judge_planned,
        severity=Severity.UNSUPPORTS,
        headline=_detail,
        remedy=_nothing,
        judges_answers=False,
        needs_baseline=False,
    ),
    GateSpec(
        kind=GateKind.EXECUTED,
        judges="the share that the engine ran in integers",
        keys=(EXECUTED_MACS,),
        next_step="see why it runs layers in float, or lower the key",
        title="Runs less in integers than its floor",
        short="below the floor of executed integers",
        judge=_judge_executed,
        headline=_detail_and_rule,
        remedy=_fell_to_float,
        judges_answers=False,
        has_culprit=False,
        needs_baseline=False,
    ),
    GateSpec(
        kind=GateKind.EQUALITY,
        judges="the results of another backend for the same graph",
        model_keys=("equal_to", "close_to"),
        next_step="find why they differ, or allow it by `close_to`",
        title="Differs from another backend",
        short="different from another backend",
        judge=_judge_equality,
        headline=_unequal,
        remedy=_find_the_difference,
        needs_baseline=False,
    ),
    GateSpec(
        kind=GateKind.RECOVERY,
        judges="the share of today's fp32 score",
        next_step="find the cause, or give the cell a tolerance or a quarantine entry",
        title="Recovers less of today's fp32 score than it has to",
        short="below the least recovery",
        judge=_judge_recovery,
        keys=(RECOVERY,),
        asks=lambda rules: rules.recovery,
        needs_all_samples=True,
        headline=_first_clause,
        remedy=_find_the_loss,
        needs_baseline=False,
    ),
    GateSpec(
        kind=GateKind.SLICES,
        judges="the loss in each part of the data",
        next_step="find the cause, or give the cell a tolerance or a quarantine entry",
        title="Loses more in a part of the data than its tolerance allows",
        short="beyond tolerance in a part of the data",
        judge=_judge_slices,
        undecided=_detail,
        wanting=_wanting_slices,
        keys=(SLICES,),
        asks=lambda rules: rules.slices or None,
        needs_all_samples=True,
        headline=_first_clause,
        remedy=_find_the_loss,
    ),
    GateSpec(
        kind=GateKind.NO_WORSE_THAN,
        judges="the loss on the same samples, compared with another backend",
        next_step="`qbench diff` between the two backends",
        title="Loses more than another backend on the same samples",
        short="worse than another backend",
        judge=_judge_no_worse_than,
        keys=(NO_WORSE_THAN,),
        asks=lambda rules: BackendName(rules.no_worse_than) if rules.no_worse_than else None,
        needs_all_samples=True,
        headline=_first_clause,
        remedy=_compare_backends,
    ),
    GateSpec(
        kind=GateKind.LATENCY,
        judges="the time of a sample as a multiple of that of fp32",
        next_step="find what got slower, or raise the key",
        title="Takes longer for a sample than its limit",
        short="slower than its limit",
        judge=judge_latency,
        keys=(MAX_LATENCY_RATIO,),
        asks=lambda rules: rules.more.get(MAX_LATENCY_RATIO.name),
        remembers=remembered_ratio,
        headline=_first_clause,
        remedy=find_what_is_slow,
        undecided=_detail,
        undecided_title=UNDECIDED_TIME,
        wanting=wanting_time,
        deciding=quiet_computer,
        judges_answers=False,
        cost=RATIO,
        has_culprit=False,
        needs_baseline=False,
        noticed=frozenset({GateState.INCOMPARABLE}),
    ),
    GateSpec(
        kind=GateKind.FILE_SIZE,
        judges="the bytes of the model file",
        next_step="find what is stored in float, or raise the key",
        title="Has a larger file than its limit",
        short="larger than its limit",
        judge=judge_file_size,
        keys=(MAX_FILE_BYTES,),
        asks=lambda rules: rules.more.get(MAX_FILE_BYTES.name),
        remembers=remembered_bytes,
        headline=_detail_and_rule,
        remedy=make_smaller,
        judges_answers=False,
        cost=FILE_BYTES,
        has_culprit=False,
        needs_baseline=False,
        noticed=frozenset({GateState.INCOMPARABLE}),
    ),
    GateSpec(  # made with the gate of latency
        kind=GateKind.LATENCY_DRIFT,
        title="Takes longer for a sample than accepted",
        short="slower than accepted",
        judges="the same multiple, compared with the accepted one",
        model_keys=("max_latency_ratio",),
        next_step="accept it if it is intended",
        judge=_judged_elsewhere,
        severity=Severity.DRIFTS,
        headline=_first_clause,
        remedy=accept_all,
        undecided=_detail,
        undecided_title=UNDECIDED_TIME,
        wanting=wanting_time,
        deciding=quiet_computer,
        judges_answers=False,
        cost=RATIO,
        has_culprit=False,
        noticed=frozenset({GateState.INCOMPARABLE}),
    ),
    GateSpec(  # made with the gate of the size
        kind=GateKind.FILE_SIZE_DRIFT,
        title="Has a larger file than accepted",
        short="larger than accepted",
        judges="the bytes, compared with the accepted ones",
        model_keys=("max_file_bytes",),
        next_step="accept them if they are intended",
        judge=_judged_elsewhere,
        severity=Severity.DRIFTS,
        headline=_detail_and_rule,
        remedy=accept_all,
        judges_answers=False,
        cost=FILE_BYTES,
        has_culprit=False,
        noticed=frozenset({GateState.INCOMPARABLE}),
    ),
    GateSpec(
        kind=GateKind.CALIBRATION,
        title="Its calibration differs from the accepted one",
        short="with another calibration",
        judges="calibrated ranges, compared with the accepted ones",
        model_keys=("ranges",),
        next_step="restore the calibration data, or accept the new ranges",
        set_by_suite=False,
        judge=_judge_calibration,
        severity=Severity.DRIFTS,
        headline=_calibration_changed,
        remedy=_accept_or_recalibrate,
        judges_answers=False,
        noticed=_UNDECIDED,
        notice=CHANGED,
    ),
    GateSpec(
        kind=GateKind.EXECUTED_DRIFT,
        title="Runs less in integers than accepted",
        short="running less in integers than accepted",
        judges="the share that the engine ran in integers, compared with the accepted one",
        next_step="compare with the last green run; accept it if it is intended",
        set_by_suite=False,
        judge=_judge_executed_drift,
        severity=Severity.DRIFTS,
        headline=_detail,
        remedy=_accept_or_find,
        judges_answers=False,
        has_culprit=False,
        noticed=_UNDECIDED,
    ),
    GateSpec(
        kind=GateKind.DRIFT,
        judges="the answers, compared with the accepted ones",
        next_step="compare with the last green run; accept it if it is intended",
        set_by_suite=False,
        judge=_judge_drift,
        keys=(FLIPS, PROBABILITIES),
        severity=Severity.DRIFTS,
        headline=_detail,
        remedy=_accept_or_find,
        noticed=_UNDECIDED,
    ),
    GateSpec(  # made with the drift gates, on whose state it depends
        kind=GateKind.REFERENCE,
        judges="the answers of fp32, compared with its stored ones",
        next_step="compare with the last green run; accept it if it is intended",
        set_by_suite=False,
        judge=_judged_elsewhere,
        severity=Severity.DRIFTS,
        headline=_detail,
        remedy=_accept_or_find,
        noticed=_UNDECIDED,
    ),
    GateSpec(  # made of a stale baseline: it is shown
        kind=GateKind.RETRAINED,
        judges="the loss of another float model; it is shown",
        set_by_suite=False,
        judge=_judged_elsewhere,
        severity=Severity.DRIFTS,
        headline=_detail,
        remedy=_nothing,
        judges_answers=False,
    ),
    GateSpec(  # made when a quarantine entry is applied to the verdict
        kind=GateKind.KNOWN_BAD,
        judges="the values of a known-bad cell, compared with its quarantine entry",
        next_step="find what made it worse",
        set_by_suite=False,
        title="Is worse than its quarantine entry lists",
        short="worse than listed",
        judge=_judged_elsewhere,
        headline=_detail,
        remedy=_nothing,
    ),
)
"""The gates, in the order in which the first broken one decides a cell; those of scores in the
order of the suite.
"""

SPECS: Mapping[GateKind, GateSpec] = {spec.kind: spec for spec in GATES}
CELL_KEYS = tuple(key for spec in GATES for key in spec.keys) + OF_MEASURING
"""Every key of a suite that is set for all cells or by pattern of cells."""
FAILING = frozenset(spec.kind for spec in GATES if spec.severity is Severity.FAILS)
"""The gates that fail a cell, whatever was accepted for it."""
DRIFTING = frozenset(spec.kind for spec in GATES if spec.severity is Severity.DRIFTS)
"""The gates that compare with what was accepted."""
UNSUPPORTING = frozenset(spec.kind for spec in GATES if spec.severity is Severity.UNSUPPORTS)
"""The gates that are judged before all others."""
CULPRITS = frozenset(spec.kind for spec in GATES if spec.has_culprit)
"""The gates that a node which counts wrongly can break."""
SET_BY_SUITE = frozenset(spec.kind for spec in GATES if spec.set_by_suite)
"""The gates whose rule comes from the suite alone."""
COSTS: Mapping[str, Quantity] = {spec.kind: spec.cost for spec in GATES if spec.cost is not None}
"""The gates of time and size, each with what it measures."""
BOUNDING = frozenset(spec.kind for spec in GATES if spec.bounds_value)
"""The gates whose limit is a value of their metric."""


def asked_evidence(rules: Rules) -> dict[GateKind, object]:
    """Kind of evidence → what it is measured by, of all that gates under ``rules`` ask for."""
    asked = {spec.kind: spec.asks(rules) for spec in GATES}
    return {kind: by for kind, by in asked.items() if by is not None}


def remembered_numbers(
    collected: Mapping[GateKind, Any], asked: Mapping[GateKind, Any]
) -> dict[str, RememberedNumber]:
    """Kind of gate → the number of its evidence that an accepted result keeps.

    Args:
        collected: kind of gate → its evidence.
        asked: kind of gate → what it is measured by.
    """
    found = {}
    for kind, evidence in collected.items():
        remembers = SPECS[kind].remembers
        number = remembers(evidence, asked[kind]) if remembers is not None else None
        if number is not None:
            found[kind.value] = number
    return found


def needs_all_samples(rules: Rules) -> bool:
    """Whether a gate of a cell with ``rules`` is judged on the whole of the data."""
    return any(spec.needs_all_samples and spec.asks(rules) is not None for spec in GATES)


def judged_gates(context: Context) -> tuple[Gate, ...]:
    """The gates of one cell in the order of ``GATES``; before a reference is known, only those
    that need none.
    """
    known = context.expectation.state is State.KNOWN
    rows = [spec for spec in GATES if known or not spec.needs_baseline]
    gates = [gate for spec in rows for gate in spec.judge(context)]
    places = {score.metric: place for place, score in enumerate(context.measurement.scores)}

    def place(gate: Gate) -> int:
        return places[gate.metric] if gate.kind in BOUNDING else len(places)

    return tuple(sorted(gates, key=place))


def judges_answers(gate: Gate, scores: Mapping[str, Score]) -> bool:
    """Whether ``gate`` can be broken by other answers: it is decided, and its limit is not one
    that any score meets.

    A floor or a limit of 0 is met by any share of right answers.
    """
    if not SPECS[gate.kind].judges_answers:
        return False
    if gate.state not in (GateState.HOLDS, GateState.BROKEN):
        return False
    score = scores.get(gate.metric)
    if score is None or gate.limit is None or not score.proportion:
        return True
    return gate.limit > 0 if score.direction is Direction.HIGHER else gate.limit < 1
