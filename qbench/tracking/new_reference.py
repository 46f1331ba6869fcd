"""Accepting today's fp32 answers as the reference of a model; a pure function from a Baseline to a new one.

What was accepted for cells of another model or other data no longer judges anything: it is kept, marked as of a former
one, until its class is measured again or it is pruned (``leftovers``). Calibrations of another model are forgotten.
"""

from collections.abc import Mapping
from dataclasses import replace

from qbench.errors import InputError
from qbench.judging import Measurement
from qbench.metrics import Against, Answers
from qbench.tracking.acceptance import Acceptance
from qbench.tracking.accepted_row import AcceptedRow, demand_reason
from qbench.tracking.baseline import Baseline, StoredData


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
        calibrations={} if baseline is None else baseline.calibrations,
    )
    if baseline is not None:
        if _same_reference(baseline, new):
            return Acceptance(baseline=replace(baseline, stored=answers, lost=()) if baseline.lost else baseline)
        if _is_other_subject(baseline, new):
            outdated = {slug: cell.outdated() for slug, cell in baseline.cells.items()}
            is_other_model = _identity(baseline) != _identity(new)
            new = replace(new, cells=outdated, calibrations={} if is_other_model else baseline.calibrations)
        demand_reason(f"Accepting a new fp32 reference of '{measurement.cell.model}'", reason)
    before = {} if baseline is None else baseline.metrics
    rows = [
        AcceptedRow(
            cell="fp32",
            environment_class=environment_class,
            metric=s.metric,
            old=before.get(s.metric),
            new=s.reference_hits,
            out_of=s.out_of,
            unit=s.unit,
        )
        for s in labelled
    ]
    return Acceptance(baseline=new, rows=tuple(rows))


def _same_reference(old: Baseline, new: Baseline) -> bool:
    """Whether only the place where it was made differs: then the file stays as it is."""
    same = ("model", "model_digest", "preprocessing", "metrics", "data")
    return all(getattr(old, name) == getattr(new, name) for name in same)


def _is_other_subject(old: Baseline, new: Baseline) -> bool:
    """Whether another model, preprocessing or data is behind it: a reference may also move with an engine's version."""
    shared = old.data.keys() & new.data.keys()
    return _identity(old) != _identity(new) or any(old.data[name].digest != new.data[name].digest for name in shared)


def _identity(baseline: Baseline) -> tuple[str, str]:
    return baseline.model_digest, baseline.preprocessing
