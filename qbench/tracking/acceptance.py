"""Accepting: measurements become what is expected from now on."""

import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench.errors import IncompleteError, InputError
from qbench.judging import (
    ANY,
    COSTS,
    DRIFTING,
    Accepted,
    Cell,
    Criterion,
    GateKind,
    GateState,
    Measurement,
    Outcome,
    QuarantineEntry,
    Rules,
    Verdict,
    broken_text,
    least_agreement,
)
from qbench.metrics import Against, Answers, Score, kept_arrays, unpacked_answers
from qbench.tracking.baseline import AcceptedCell, Baseline, KeptAnswers, StoredData
from qbench.tracking.calibrations import (
    AcceptedRow,
    KnownNoise,
    Scope,
    TakenCalibrations,
    accepted_of,
    calibration_name,
    demand_reason,
    is_change,
    is_in_scope,
)
from qbench.tracking.record import Run, absent_cells

# Pure functions from a Baseline to a new one. The scope says which results of a run are accepted;
# the fp32 reference changes only by ``accept_reference``.

FLOOR_SLACK_PERCENT = 2
"""How far under the accepted agreement its floor lies. Within a class drift gates the exact
value; the floor is for the other classes and for updates of an engine, where a few crops may
move without anything being wrong.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepting:
    """What a run accepts: results of cells in ``scope`` (None: none), the fp32 reference, and why.

    ``for_any``: the results are declared to hold in ``any`` environment class that has none of its
    own. An equal result of their own class is moved there; another one is replaced like any other
    result.
    """

    scope: Scope | None = None
    fp32: bool = False
    reason: str = ""
    for_any: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A measurement that was not accepted, and why; ``is_listed``: left out on purpose, as it
    is known to be bad.
    """

    cell: str
    reason: str
    is_listed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The new baseline, what changed in it, and what was refused. Without rows the baseline is
    as it was.

    ``notices`` are sentences about quarantine entries that have run out. ``left_new`` and
    ``left_changed`` count the results that a wider scope would have taken: those of cells without
    an accepted result, and those that differ from it.
    """

    baseline: Baseline
    rows: tuple[AcceptedRow, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notices: tuple[str, ...] = ()
    left_new: int = 0
    left_changed: int = 0


def demand_whole(run: Run) -> None:
    """Refuse a run that ended early, lost selected cells or saw a part of the samples.

    Raises:
        IncompleteError: it has no end, damaged lines, cells without a line, or was limited.
        InputError: it measured another release.
    """
    found = ""
    if run.was_interrupted:
        found = "a run that was interrupted"
    elif run.damaged:
        found = f"{run.damaged} line{'' if run.damaged == 1 else 's'} that cannot be read"
    elif absent := absent_cells(run):
        found = f"no line for {absent} of the {run.header['selected']} cells that it selected"
    elif run.header.get("limited"):
        found = "a run over a part of the samples"
    if run.releases:
        raise InputError(
            f"Accepting results of run '{run.id}'",
            found=f"a run of another release of {run.releases}",
            expected="a run of what is installed",
            remedy="Install that release, and run the suite.",
        )
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
    today: datetime.date | None = None,
    criterion: Callable[[Cell], Criterion | None] = lambda cell: None,  # noqa: ARG005 - no cell has one
) -> Acceptance:
    """Take over results of one model's cells.

    Args:
        baseline: the model's, with a reference of the model and data that were measured.
        measurements: of its cells, in any environment class.
        accepting: scope and reason.
        rules: the suite's numbers: what is unsupported, the least floor.
        quarantine: cells that are never accepted.
        today: an entry whose last day is before it is ignored, with a notice; None: all are valid.
        criterion: cell → how far its answers may be from those of another backend; a cell beyond it
            is never accepted.

    Raises:
        InputError: something accepted would be replaced without a reason; nothing is taken over
            then.
    """
    cells, rows, refusals = dict(baseline.cells), list[AcceptedRow](), list[Refusal]()
    ended: dict[str, str] = {}
    left_new = left_changed = 0
    calibrations = TakenCalibrations(
        baseline.calibrations, accepting.scope, limit=rules.ranges, reason=accepting.reason
    )
    kept = {
        (slug, name): answers
        for slug, classes in baseline.kept.items()
        for name, answers in classes.items()
    }
    for measurement in sorted(measurements, key=lambda m: (m.cell, str(m.environment))):
        slug, name = measurement.cell.slug, str(measurement.environment)
        entry = next(
            (e for e in quarantine if e.covers(measurement.cell, measurement.environment)), None
        )
        if entry is not None and today is not None and entry.expired(today):
            ended[entry.cell] = _ended(entry)
            entry = None
        unequal = broken_text(measurement.compared, criterion(measurement.cell))
        refusal = _refusal(baseline, measurement, rules, entry, unequal)
        if refusal is not None:
            refusals.append(refusal)
            continue
        known = cells.get(slug, AcceptedCell(accepted={}))
        replaced = _replaced(baseline, known, measurement, rules, for_any=accepting.for_any)
        taken = replaced.is_in_scope(accepting.scope, measurement)
        rows += calibrations.take(measurement.calibrated, with_cell=taken)
        if not taken:
            left_new += replaced.old is None
            left_changed += is_change(measurement, replaced.old, replaced.noise)
            continue
        target = replaced.target
        if replaced.is_change(measurement):
            demand_reason(f"Accepting '{measurement.cell}' in {target}", accepting.reason)
        same_subject = None if replaced.is_former else replaced.old
        new = accepted_of(measurement, _reason(accepting, replaced.old), same_subject)
        cells[slug] = _with_floors(
            _with_result(known, target, new, dropped=name), measurement, rules
        )
        kept.pop((slug, name), None)
        kept[slug, target] = {
            data: unpacked_answers(word) for data, word in measurement.kept.items()
        }
        before = {} if replaced.old is None else replaced.old.metrics
        rows += _rows(slug, target, before, ((score, score.hits) for score in measurement.scores))
        rows += _cost_rows(slug, target, replaced.old, new)
    changed = replace(
        baseline, cells=cells, kept=_by_slug(kept), calibrations=calibrations.accepted
    )
    return Acceptance(
        baseline=changed if rows else baseline,
        rows=tuple(rows),
        refusals=tuple(refusals),
        notices=tuple(ended.values()),
        left_new=left_new + len(calibrations.left_new),
        left_changed=left_changed + len(calibrations.left_moved),
    )


def _refusal(
    baseline: Baseline,
    measurement: Measurement,
    rules: Rules,
    entry: QuarantineEntry | None,
    unequal: str,
) -> Refusal | None:
    """Why ``measurement`` is not accepted; None: it may be.

    Args:
        entry: the entry of the quarantine that covers its cell today, if there is one.
        unequal: how it breaks the comparison with another backend; empty where it does not.
    """
    slug = measurement.cell.slug
    if entry is not None:
        why = f"it is listed as known bad until {entry.expires}: {entry.reason}"
        return Refusal(cell=slug, reason=why, is_listed=True)
    reason = _unacceptable(baseline, measurement, rules) or unequal
    return Refusal(cell=slug, reason=reason) if reason else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replaced:
    """What one measurement would replace.

    ``target``: the environment class for which it is accepted. ``own``: the accepted result of the
    class in which it was measured. ``old``: the result that it replaces, and ``compared`` the one
    that decides whether it is in a scope; each None: does not exist. ``noise``: how far runs of the
    cell differ, where they do. ``is_former``: the result of ``target`` is of a former model or
    former data.
    """

    target: str
    own: Accepted | None
    old: Accepted | None
    compared: Accepted | None
    noise: KnownNoise | None
    is_former: bool

    def is_in_scope(self, scope: Scope | None, measurement: Measurement) -> bool:
        """Whether ``scope`` (None: nothing) takes ``measurement``."""
        if self.is_former and scope is not Scope.IMPROVED:  # both new and changed
            return scope is not None
        return is_in_scope(scope, measurement, self.compared, self.noise)

    def is_change(self, measurement: Measurement) -> bool:
        """Whether a result of today's model and data would be replaced by another one."""
        return not self.is_former and any(
            is_change(measurement, one, self.noise) for one in (self.old, self.own)
        )


def _replaced(
    baseline: Baseline,
    known: AcceptedCell,
    measurement: Measurement,
    rules: Rules,
    *,
    for_any: bool,
) -> _Replaced:
    """What ``measurement`` would replace in ``known``, or with ``for_any`` in the class ``any``."""
    name = str(measurement.environment)
    own = known.current.get(name)
    noise = _known_noise(baseline, known, measurement, rules)
    if not for_any:
        old = _predecessor(known, measurement, rules)
        return _Replaced(
            target=name, own=own, old=old, compared=old, noise=noise, is_former=name in known.former
        )
    old = known.accepted.get(ANY, own)
    is_moved = (
        ANY not in known.accepted and own is not None and not is_change(measurement, own, noise)
    )
    compared = None if is_moved else old  # nothing is replaced: the class alone is new
    return _Replaced(
        target=ANY, own=own, old=old, compared=compared, noise=noise, is_former=ANY in known.former
    )


def _known_noise(
    baseline: Baseline, known: AcceptedCell, measurement: Measurement, rules: Rules
) -> KnownNoise | None:
    """How far runs of this cell differ; None where they do not, or it is not known."""
    here = known.here(measurement.environment, rules.equivalents)
    repeats, averaged = here.noise_with(measurement)
    if repeats is None or not repeats.is_noisy:
        return None
    kept = baseline.kept.get(measurement.cell.slug, {}).get(str(measurement.environment), {})
    return KnownNoise(repeats=repeats, averaged=averaged, kept=kept)


_OF_RESULTS = DRIFTING - {GateKind.CALIBRATION}
"""The drifts that accepting the result of the cell ends, and accepting its calibration does not."""


def is_taken(acceptance: Acceptance, measurement: Measurement, verdict: Verdict) -> bool:
    """Whether the new baseline holds what ``verdict`` is red for: result, calibration or both."""
    taken = {row.cell for row in acceptance.rows}
    if verdict.moved and (
        measurement.calibrated is None or calibration_name(measurement.calibrated.key) not in taken
    ):
        return False
    if measurement.cell.slug in taken:
        return True
    drifted = any(
        gate.kind in _OF_RESULTS and gate.state is GateState.BROKEN for gate in verdict.gates
    )
    return bool(verdict.moved) and verdict.outcome is Outcome.DRIFTED and not drifted


def _reason(accepting: Accepting, old: Accepted | None) -> str:
    """The stored reason of a result: why it replaces ``old``; the first result of a cell needs
    none.
    """
    if old is None and not accepting.for_any:
        return ""
    return accepting.reason.strip() or ("" if old is None else old.reason)


def _ended(entry: QuarantineEntry) -> str:
    return (
        f"The quarantine entry '{entry.cell}' ended on {entry.expires} and prevents no acceptance "
        f"any more: remove it, or ask {entry.owner} for a new date; what fails stays red."
    )


def _by_slug(kept: Mapping[tuple[str, str], Mapping[str, Answers]]) -> KeptAnswers:
    """Answers by (slug, environment class) as a baseline holds them, without empty ones."""
    found: dict[str, dict[str, Mapping[str, Answers]]] = {}
    for (slug, name), answers in kept.items():
        if answers:
            found.setdefault(slug, {})[name] = answers
    return found


def _unacceptable(baseline: Baseline, measurement: Measurement, rules: Rules) -> str:
    """Why this measurement may not be accepted; empty when it may."""
    if measurement.stopped is not None:
        return f"it {measurement.stopped.text}; a run with --qbench-accept runs all samples"
    if found := _damaged_answers(baseline, measurement):
        return found
    if found := _not_finite(measurement):
        return f"{found} is not a finite number"
    stale = baseline.expectation(measurement.cell, measurement.digests).what
    if stale:
        return (
            f"the stored fp32 reference does not fit it: {stale}; accept that first "
            "(--qbench-accept-fp32)"
        )
    cell = measurement.cell
    planned = not (cell.is_fp32 or cell.is_by_others or cell.is_recorded)
    if planned and not measurement.planned_share >= rules.integer_macs:  # so written for NaN
        share = f"{100 * measurement.planned_share:.0f} % of its multiply-accumulates"
        return f"only {share} are planned {measurement.planned_words}"
    return ""


def _damaged_answers(baseline: Baseline, measurement: Measurement) -> str:
    """What is wrong with the answers that the record of ``measurement`` carries; empty when
    nothing is.
    """
    for data, word in measurement.kept.items():
        try:
            answers = unpacked_answers(word)
        except ValueError as error:
            return f"its record is damaged: {error}"
        known = baseline.data.get(data)
        if known is not None and (len(answers), answers.form) != (known.samples, known.kind):
            return (
                f"its record is damaged: it has {len(answers)} answers ({answers.form}) "
                f"for the {known.samples} samples of '{data}' ({known.kind})"
            )
    return ""


def _not_finite(measurement: Measurement) -> str:
    """The first thing of ``measurement`` that is NaN or infinite; empty where all is finite."""
    if measurement.executed_macs is not None and not math.isfinite(measurement.executed_macs):
        return "executed_macs"
    for score in measurement.scores:
        if not all(map(math.isfinite, (score.hits, score.value, *(score.interval or ())))):
            return score.metric
    for data, word in measurement.kept.items():
        for name, array in kept_arrays(unpacked_answers(word)).items():
            if array.dtype.kind == "f" and not all(map(math.isfinite, array.ravel().tolist())):
                return f"a {'probability' if name == 'scores' else 'number'} on '{data}'"
    return ""


def _predecessor(known: AcceptedCell, measurement: Measurement, rules: Rules) -> Accepted | None:
    """The result that ``measurement`` is compared with: of its own class, even one of a former
    model, or inherited.
    """
    name = str(measurement.environment)
    if name in known.former:
        return known.accepted[name]
    return known.here(measurement.environment, rules.equivalents).result


def _with_result(cell: AcceptedCell, name: str, result: Accepted, *, dropped: str) -> AcceptedCell:
    """``cell`` with ``result`` for the class ``name``, without the one for ``dropped`` unless
    that is the same.
    """
    others = {key: accepted for key, accepted in cell.accepted.items() if key != dropped}
    former = tuple(key for key in cell.former if key not in (name, dropped))
    return replace(cell, accepted={**others, name: result}, former=former)


def _with_floors(cell: AcceptedCell, measurement: Measurement, rules: Rules) -> AcceptedCell:
    """Floors anew from the lowest agreement accepted in any class, less the slack, never under
    the suite's minimum.
    """
    floors = dict(cell.floors)
    for score in measurement.scores:
        if score.has_floor:
            lowest = min(
                a.metrics[score.metric] for a in cell.current.values() if score.metric in a.metrics
            )
            slack = score.out_of * FLOOR_SLACK_PERCENT // 100
            floors[score.metric] = max(
                least_agreement(rules.agreement, score.out_of), lowest - slack
            )
    return replace(cell, floors=floors)


def _rows(
    slug: str, environment_class: str, before: Mapping[str, int], hits: Iterable[tuple[Score, int]]
) -> list[AcceptedRow]:
    return [
        AcceptedRow(
            cell=slug,
            environment_class=environment_class,
            metric=score.metric,
            old=before.get(score.metric),
            new=new,
            out_of=score.out_of,
            unit=score.unit,
        )
        for score, new in hits
    ]


def _cost_rows(
    slug: str, environment_class: str, old: Accepted | None, new: Accepted
) -> list[AcceptedRow]:
    """The times and sizes that ``new`` keeps and ``old`` did not, or not so."""
    before = {} if old is None else old.remembered
    return [
        AcceptedRow(
            cell=slug,
            environment_class=environment_class,
            metric=cost.name,
            old=before.get(kind),
            new=new.remembered[kind],
            out_of=1,
            unit=cost.unit,
        )
        for kind, cost in COSTS.items()
        if kind in new.remembered and before.get(kind) != new.remembered[kind]
    ]


def accept_noise(
    baseline: Baseline | None, measurements: Iterable[Measurement]
) -> tuple[Baseline | None, dict[str, str]]:
    """``baseline`` with how far the runs of ``measurements`` differ, and of each cell that has
    no place there why.

    The noise of a cell is kept by environment class, next to what was accepted for it in any class.
    """
    if baseline is None:
        return None, {str(one.cell): "no baseline" for one in measurements}
    cells, refused = dict(baseline.cells), dict[str, str]()
    for measurement in measurements:
        slug, name = measurement.cell.slug, str(measurement.environment)
        known = cells.get(slug)
        if stale := baseline.expectation(measurement.cell, measurement.digests).what:
            refused[str(measurement.cell)] = f"the stored fp32 reference does not fit: {stale}"
        elif known is None or not known.current:
            refused[str(measurement.cell)] = "never accepted"
        elif measurement.repeats is not None:
            cells[slug] = replace(known, noise={**known.noise, name: measurement.repeats})
    return replace(baseline, cells=cells), refused


# Accepting today's fp32 answers as the reference of a model; a pure function from a Baseline to a
# new one.
#
# No cell is judged by what was accepted for another model or other data. It is kept and marked as
# of a former one until its class is measured again or it is pruned (``stale.py``). Calibrations of
# another model are deleted.


def accept_reference(
    baseline: Baseline | None,
    measurement: Measurement,
    answers: Mapping[str, Answers],
    *,
    backend: str,
    environment_class: str,
    reason: str = "",
) -> Acceptance:
    """Make ``answers`` the stored fp32 reference; what was accepted for cells stays (see above).

    Args:
        baseline: the model's so far, None for the first.
        measurement: of any cell of the model, counted against these very answers.
        answers: data set → fp32 answers. backend, environment_class: what ran the float model, and
            where.
        reason: why another reference is replaced; the first needs none.

    Raises:
        InputError: the measurement was counted against other answers, or a reference is replaced
            without a reason.
    """
    _refuse_other_answers(measurement, answers)
    labelled = [s for s in measurement.scores if s.against is Against.LABELS]
    new = _reference_of(measurement, answers, backend, environment_class)
    hits = [(score, score.reference_hits) for score in labelled]
    if baseline is None:
        return Acceptance(baseline=new, rows=tuple(_rows("fp32", environment_class, {}, hits)))
    if is_same_reference(baseline, new):
        return Acceptance(
            baseline=replace(baseline, stored=answers, lost=()) if baseline.lost else baseline
        )
    known = {
        name: replace(data, sources=new.data[name].sources if name in new.data else None)
        for name, data in baseline.data.items()
    }
    if is_same_reference(replace(baseline, data=known), new):
        # a count of sources replaces no result
        return Acceptance(baseline=replace(baseline, stored=answers, data=known, lost=()))
    demand_reason(f"Accepting a new fp32 reference of '{measurement.cell.model}'", reason)
    rows = _rows("fp32", environment_class, baseline.metrics, hits)
    return Acceptance(baseline=_with_cells_of(baseline, new), rows=tuple(rows))


def _refuse_other_answers(measurement: Measurement, answers: Mapping[str, Answers]) -> None:
    for name, given in answers.items():
        if measurement.digests.get(f"reference:{name}") != given.digest:
            raise InputError(
                f"Accepting the fp32 reference of '{measurement.cell.model}'",
                found=f"a measurement counted against other answers to '{name}'",
                expected="one counted against the answers to be stored",
                remedy="Run the fp32 cell of this model again.",
            )


def _reference_of(
    measurement: Measurement, answers: Mapping[str, Answers], backend: str, environment_class: str
) -> Baseline:
    """A baseline with ``answers`` as its reference, and nothing accepted for cells."""
    digests = measurement.digests
    main = next(iter(answers), "")
    sources = {
        s.metric.partition("@")[2] or main: s.clusters.sources
        for s in measurement.scores
        if s.clusters
    }
    return Baseline(
        model=measurement.cell.model,
        model_digest=digests["model"],
        preprocessing=digests["preprocessing"],
        backend=backend,
        environment_class=environment_class,
        metrics={
            s.metric: s.reference_hits for s in measurement.scores if s.against is Against.LABELS
        },
        data={
            name: StoredData(
                samples=len(a),
                digest=digests[f"data:{name}"],
                reference=a.digest,
                kind=a.form,
                sources=sources.get(name),
            )
            for name, a in answers.items()
        },
        stored=answers,
    )


def _with_cells_of(baseline: Baseline, new: Baseline) -> Baseline:
    """The reference of ``new`` with what ``baseline`` holds for cells: outdated where the model
    or data is another.
    """
    cells, calibrations = baseline.cells, baseline.calibrations
    if _is_other_subject(baseline, new):
        cells = {slug: cell.outdated() for slug, cell in cells.items()}
    if _identity(baseline) != _identity(new):
        calibrations = {}
    return replace(
        new, cells=cells, calibrations=calibrations, kept=baseline.kept, unread=baseline.unread
    )


def is_same_reference(old: Baseline, new: Baseline) -> bool:
    """Whether only the place where it was made differs: then the file stays as it is."""
    same = ("model", "model_digest", "preprocessing", "metrics", "data")
    return all(getattr(old, name) == getattr(new, name) for name in same)


def _is_other_subject(old: Baseline, new: Baseline) -> bool:
    """Whether another model, preprocessing or data is behind it: a reference may also move with
    an engine's version.
    """
    shared = old.data.keys() & new.data.keys()
    return _identity(old) != _identity(new) or any(
        old.data[name].digest != new.data[name].digest for name in shared
    )


def _identity(baseline: Baseline) -> tuple[str, str]:
    return baseline.model_digest, baseline.preprocessing
