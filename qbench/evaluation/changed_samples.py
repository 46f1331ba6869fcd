"""Which samples a cell lost and gained against fp32, with the answers of both to each.

It costs no run of an engine: the answers are those that the cell is scored by. Stored references
have no probabilities, so those of fp32 are of the fp32 cell that this process measured before;
where it measured none, or that cell answers otherwise than the reference, only the parts of the
reference are told.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from qbench.evaluation.cell_run import CellRun
from qbench.evaluation.request import Request
from qbench.evaluation.subject import MetricUse
from qbench.extension import place_of, raised
from qbench.judging import (
    CHANGED,
    GAINED,
    LOST,
    ChangedSample,
    SampleChanges,
    SamplesByData,
)
from qbench.metrics import Against, AnswerPart, Answers, Direction
from qbench.subjects import Dataset, class_namer

T = TypeVar("T")


def note_float_run(request: Request, run: CellRun) -> None:
    """Keep the answers of an fp32 cell for the cells that are measured after it."""
    if request.most_samples and request.cell.is_fp32 and run.stopped is None:
        request.shared.float_run = dict(run.answers)


def changed_samples(request: Request, run: CellRun) -> SamplesByData:
    """Data set → the samples that were lost and gained, at most ``request.most_samples`` of them
    listed, the largest change first. Empty for a cell of the float model.
    """
    if not request.most_samples or request.cell.is_fp32:
        return {}
    found = {}
    for name in run.answers:
        use = _deciding(request, name)
        if use is not None:
            found[name] = _listed(request, run, use)
    return found


def _deciding(request: Request, data: str) -> MetricUse | None:
    """The metric by which samples of ``data`` are lost: the first against labels, else the first
    against fp32.
    """
    uses = [
        use
        for use in request.subject.metrics
        if use.data == data and not (use.metric.of_likelihoods or use.metric.of_run)
    ]
    return min(uses, key=lambda use: use.metric.against is not Against.LABELS, default=None)


def _listed(request: Request, run: CellRun, use: MetricUse) -> SampleChanges:
    data, answers, reference = run.data[use.data], run.answers[use.data], run.reference[use.data]
    effects, values = _effects(use, answers, reference, data)
    fp32 = _float_answers(request, run, use)
    moves = _probability_moves(answers, fp32, use, data, effects)
    is_probability = any(one is not None for one in moves.values())
    if not is_probability and values is not None:
        sign = 1 if use.metric.direction is Direction.HIGHER else -1
        moves = {at: sign * float(values[at, 1] - values[at, 0]) for at in effects}
    order = sorted(effects, key=lambda at: (-abs(moves[at] or 0.0), at))[: request.most_samples]
    samples = tuple(ChangedSample(id=data.sample_ids[at], effect=effects[at]) for at in order)
    is_private = request.private or data.private
    if not is_private:
        tell = _Teller(request, answers, class_namer(data))
        samples = tuple(
            replace(
                sample,
                label=tell.label(data, at),
                change=moves[at],
                fp32=tell.answer(fp32(at), at),
                quantized=tell.answer(answers, at),
                values=None if values is None else (float(values[at, 0]), float(values[at, 1])),
            )
            for sample, at in zip(samples, order, strict=True)
        )
    found = list(effects.values())
    return SampleChanges(
        metric=use.name,
        digest=data.digest,
        lost=found.count(LOST),
        gained=found.count(GAINED),
        changed=len(run.changed[use.data]),
        is_probability=is_probability,
        private=is_private,
        samples=samples,
    )


def _probability_moves(
    answers: Answers,
    fp32: Callable[[int], Answers],
    use: MetricUse,
    data: Dataset,
    places: Iterable[int],
) -> dict[int, float | None]:
    """Place → the change of the probability of its label, or of the best class of fp32; None: the
    answers have no probabilities.
    """
    labels = data.whole_labels if use.metric.against is Against.LABELS else None
    return {
        at: answers.moved_from(fp32(at), at, () if labels is None else labels[at]) for at in places
    }


def _effects(
    use: MetricUse, answers: Answers, reference: Answers, data: Dataset
) -> tuple[dict[int, str], npt.NDArray[np.float64] | None]:
    """Place → effect, of each sample that was lost or gained (without labels: whose answer
    differs); and (n, 2) what the metric counts in fp32 and in the cell, None where that is 0 or 1.
    """
    metric = use.metric
    if metric.against is not Against.LABELS:
        places = range(len(answers))
        return {at: CHANGED for at in places if answers.best(at) != reference.best(at)}, None
    before, now = (metric.count(one, data.labels, None) for one in (reference, answers))
    better = (now.hits - before.hits) * (1 if metric.direction is Direction.HIGHER else -1)
    effects = {int(at): GAINED if better[at] > 0 else LOST for at in np.flatnonzero(better)}
    if metric.proportion:
        return effects, None
    values = [one.hits / np.maximum(one.out_of, 1) for one in (before, now)]
    return effects, np.stack(values, axis=1)


def _float_answers(request: Request, run: CellRun, use: MetricUse) -> Callable[[int], Answers]:
    """Which answers of fp32 a place is told of: those of the fp32 cell of this process, which have
    probabilities, where it ran all samples and answers this one as the reference does.
    """
    reference, floats = run.reference[use.data], request.shared.float_run.get(use.data)
    if floats is None or run.drawn.get(use.data):
        return lambda _: reference
    return lambda at: floats if floats.best(at) == reference.best(at) else reference


@dataclass(frozen=True)
class _Teller:
    """Texts of samples, by the class of their answers. A class of users cannot fail a cell by it:
    where it fails, the text is left out and the run has a notice.
    """

    request: Request
    answers: Answers
    name_of: Callable[[int], str]

    def answer(self, answers: Answers, at: int) -> tuple[AnswerPart, ...]:
        """The parts of the answer to the sample at ``at``."""
        return self._made("told", lambda: _parts(answers.told(at, self.name_of)), ())

    def label(self, data: Dataset, at: int) -> str:
        """The label of the sample at ``at``; empty: it has none."""
        if data.labels is None:
            return ""
        right: Sequence[int] | npt.NDArray[np.float64] = data.labels[at]
        return self._made(
            "told_label", lambda: _text(self.answers.told_label(right, self.name_of)), ""
        )

    def _made(self, method: str, make: Callable[[], T], nothing: T) -> T:
        try:
            return make()
        except Exception as error:  # code of users may raise anything
            name = f"{type(self.answers).__name__}.{method}"
            self.request.shared.note(
                f"samples of '{self.request.cell.model}' are listed without the text that {name} "
                f"gives: {raised(error)}{place_of(error, Path.cwd())}"
            )
            return nothing


def _parts(told: object) -> tuple[AnswerPart, ...]:
    if not isinstance(told, tuple) or not all(isinstance(one, AnswerPart) for one in told):
        raise TypeError(f"a tuple of AnswerPart is expected, not {repr(told)[:40]}")
    return told


def _text(told: object) -> str:
    if not isinstance(told, str):
        raise TypeError(f"a text is expected, not {repr(told)[:40]}")
    return told
