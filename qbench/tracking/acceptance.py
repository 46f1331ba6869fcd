"""Accepting: measurements become what is expected from now on; pure functions from a Baseline to a new one.

What of a run is taken over its scope says (``scope``); the fp32 reference changes only by ``accept_reference``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench.errors import IncompleteError, InputError
from qbench.judging import (
    Accepted,
    Cell,
    Criterion,
    Measurement,
    QuarantineEntry,
    Rules,
    broken_text,
    inherited,
    least_agreement,
)
from qbench.metrics import Against, Answers, Score, unpacked_answers
from qbench.tracking.baseline import AcceptedCell, Baseline, KeptAnswers, StoredData
from qbench.tracking.runs import Run
from qbench.tracking.scope import Scope, accepted_of, is_change, is_in_scope

FLOOR_SLACK_PERCENT = 2
"""How far under the accepted agreement its floor lies. Within a class drift gates the exact value; the floor is for the
other classes and for updates of an engine, where a few crops may move without anything being wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepting:
    """What a run was told to accept: results of cells in ``scope`` (None: none), the fp32 reference, and why."""

    scope: Scope | None = None
    fp32: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRow:
    """One line of the table old → new; ``old`` is None for what was not there. ``cell`` is a slug, or ``fp32``."""

    cell: str
    environment_class: str
    metric: str
    old: int | None
    new: int
    out_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A measurement that was not accepted, and why."""

    cell: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The new baseline, what changed in it, and what was refused. Without rows the baseline is as it was."""

    baseline: Baseline
    rows: tuple[AcceptedRow, ...] = ()
    refusals: tuple[Refusal, ...] = ()


def demand_whole(run: Run) -> None:
    """Refuse to accept from a run that ended early or saw a part of the samples.

    Raises:
        IncompleteError: it has no end, damaged lines, or was limited.
    """
    found = ""
    if not run.complete:
        found = "a run that was interrupted"
    elif run.damaged:
        found = f"{run.damaged} lines that cannot be read"
    elif run.header.get("limited"):
        found = "a run over a part of the samples"
    if found:
        raise IncompleteError(
            f"Accepting results of run '{run.id}'",
            found=found,
            expected="a run that ended by itself, over all samples",
            remedy="Run it again to its end.",
        )


def accept_measurements(
    baseline: Baseline,
    measurements: Iterable[Measurement],
    *,
    accepting: Accepting,
    rules: Rules,
    quarantine: Sequence[QuarantineEntry] = (),
    criterion: Callable[[Cell], Criterion | None] = lambda cell: None,  # noqa: ARG005 - nothing is asked of any cell
) -> Acceptance:
    """Take over results of one model's cells.

    Args:
        baseline: the model's, with a reference of the model and data that were measured.
        measurements: of its cells, in any environment class. accepting: scope and reason.
        rules: the suite's numbers: what is unsupported, the least floor. quarantine: cells that are never accepted.
        criterion: cell → what it must be beside another backend; one that is not is never accepted.

    Raises:
        InputError: something accepted would be replaced without a reason; nothing is taken over then.
    """
    cells, rows, refusals = dict(baseline.cells), list[AcceptedRow](), list[Refusal]()
    kept = {(slug, name): answers for slug, classes in baseline.kept.items() for name, answers in classes.items()}
    for measurement in sorted(measurements, key=lambda m: (m.cell, str(m.environment))):
        slug, name = measurement.cell.slug, str(measurement.environment)
        unequal = broken_text(measurement.compared, criterion(measurement.cell))
        if reason := _unacceptable(baseline, measurement, rules, quarantine) or unequal:
            refusals.append(Refusal(cell=slug, reason=reason))
            continue
        known = cells.get(slug, AcceptedCell(accepted={}))
        old = known.accepted.get(inherited(known.accepted, measurement.environment, rules.equivalents) or name)
        if not is_in_scope(accepting.scope, measurement, old):
            continue
        if is_change(measurement, old):
            _demand_reason(f"Accepting '{measurement.cell}' in {name}", accepting.reason)
        new = accepted_of(measurement, accepting.reason.strip() if old else "")
        cells[slug] = _with_floors(replace(known, accepted={**known.accepted, name: new}), measurement, rules)
        kept[slug, name] = {data: unpacked_answers(word) for data, word in measurement.kept.items()}
        rows += _rows(slug, name, old, measurement.scores)
    new_baseline = replace(baseline, cells=cells, kept=_by_slug(kept)) if rows else baseline
    return Acceptance(baseline=new_baseline, rows=tuple(rows), refusals=tuple(refusals))


def _by_slug(kept: Mapping[tuple[str, str], Mapping[str, Answers]]) -> KeptAnswers:
    """Answers by (slug, environment class) as a baseline holds them, without those that are none."""
    found: dict[str, dict[str, Mapping[str, Answers]]] = {}
    for (slug, name), answers in kept.items():
        if answers:
            found.setdefault(slug, {})[name] = answers
    return found


def accept_reference(
    baseline: Baseline | None,
    measurement: Measurement,
    answers: Mapping[str, Answers],
    *,
    backend: str,
    environment_class: str,
    reason: str = "",
) -> Acceptance:
    """Make ``answers`` the stored fp32 reference; what was accepted for cells stays as it is.

    Args:
        baseline: the model's so far, None for the first.
        measurement: of any cell of the model, counted against these very answers.
        answers: data set → fp32 answers. backend, environment_class: what ran the float model, and where.
        reason: why another reference is replaced; the first needs none.

    Raises:
        InputError: the measurement was counted against other answers, or a reference is replaced without a reason.
    """
    digests = measurement.digests
    for name, given in answers.items():
        if digests.get(f"reference:{name}") != given.digest:
            raise InputError(
                f"Accepting the fp32 reference of '{measurement.cell.model}'",
                found=f"a measurement counted against other answers to '{name}'",
                expected="one counted against the answers to be stored",
                remedy="Run the fp32 cell of this model again.",
            )
    labelled = [s for s in measurement.scores if s.against is Against.LABELS]
    new = Baseline(
        model=measurement.cell.model,
        model_digest=digests["model"],
        preprocessing=digests["preprocessing"],
        backend=backend,
        environment_class=environment_class,
        metrics={s.metric: s.reference_hits for s in labelled},
        data={
            name: StoredData(samples=len(a), digest=digests[f"data:{name}"], reference=a.digest, kind=a.kind)
            for name, a in answers.items()
        },
        stored=answers,
        cells={} if baseline is None else baseline.cells,
        kept={} if baseline is None else baseline.kept,
    )
    if baseline is not None:
        if _same_reference(baseline, new):
            return Acceptance(baseline=baseline)
        _demand_reason(f"Accepting a new fp32 reference of '{measurement.cell.model}'", reason)
    before = {} if baseline is None else baseline.metrics
    rows = [
        AcceptedRow(
            cell="fp32",
            environment_class=environment_class,
            metric=s.metric,
            old=before.get(s.metric),
            new=s.reference_hits,
            out_of=s.out_of,
        )
        for s in labelled
    ]
    return Acceptance(baseline=new, rows=tuple(rows))


def _demand_reason(doing: str, reason: str) -> None:
    """Refuse to replace anything without a word about why.

    Raises:
        InputError: the reason has no letter and no digit: it is blank, or the placeholder of a printed command.
    """
    if not any(character.isalnum() for character in reason):
        raise InputError(
            doing,
            found="no reason for replacing what was accepted"
            + (f", only '{reason.strip()}'" if reason.strip() else ""),
            expected="one in words",
            remedy='Add --qbench-reason "…" and say in it why the results changed.',
        )


def _same_reference(old: Baseline, new: Baseline) -> bool:
    """Whether only the place where it was made differs: then the file stays as it is."""
    same = ("model", "model_digest", "preprocessing", "metrics", "data")
    return all(getattr(old, name) == getattr(new, name) for name in same)


def _unacceptable(
    baseline: Baseline, measurement: Measurement, rules: Rules, quarantine: Sequence[QuarantineEntry]
) -> str:
    """Why this measurement may not be accepted; empty when it may."""
    if entry := next((e for e in quarantine if e.covers(measurement.cell, measurement.environment)), None):
        return f"it is listed as known bad until {entry.expires}: {entry.reason}"
    stale = baseline.expectation(measurement.cell, measurement.digests).what
    if stale:
        return f"the stored fp32 reference does not fit it: {stale}; accept that first (--qbench-accept-fp32)"
    planned = not measurement.cell.is_fp32 and not measurement.cell.is_given
    if planned and not measurement.planned_share >= rules.integer_macs:  # so written for NaN
        share = f"{100 * measurement.planned_share:.0f} % of its multiply-accumulates"
        return f"only {share} are planned {measurement.planned_words}"
    return ""


def _with_floors(cell: AcceptedCell, measurement: Measurement, rules: Rules) -> AcceptedCell:
    """Floors anew from the lowest agreement accepted in any class, less the slack, never under the suite's minimum."""
    floors = dict(cell.floors)
    for score in measurement.scores:
        if score.has_floor:
            lowest = min(a.metrics[score.metric] for a in cell.accepted.values() if score.metric in a.metrics)
            slack = score.out_of * FLOOR_SLACK_PERCENT // 100
            floors[score.metric] = max(least_agreement(rules.agreement, score.out_of), lowest - slack)
    return replace(cell, floors=floors)


def _rows(slug: str, environment_class: str, old: Accepted | None, scores: Iterable[Score]) -> list[AcceptedRow]:
    before = {} if old is None else old.metrics
    return [
        AcceptedRow(
            cell=slug,
            environment_class=environment_class,
            metric=score.metric,
            old=before.get(score.metric),
            new=score.hits,
            out_of=score.out_of,
        )
        for score in scores
    ]
