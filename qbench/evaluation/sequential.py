"""A cell whose samples are run in random order, until they decide its verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from qbench.backends import Executor
from qbench.evaluation.artifacts import answered
from qbench.evaluation.repeats import is_joint, picked_answers, shuffled
from qbench.evaluation.request import Request
from qbench.evaluation.subject import MetricUse
from qbench.judging import CountTest, EarlyTest, Remaining, Stopped, StopRule, early_state
from qbench.metrics import Answers, Direction, IntegerAnswers, Score, score
from qbench.subjects import Dataset, Samples

CHUNK = 64
"""At least so many samples are run before it is looked whether they decide: a look costs less
than a batch.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialRun:
    """The answers that a stopped or finished cell has.

    Args:
        answers: data set → of the samples at ``rows``; where the cell was not stopped, of all, in
            their order.
        rows: data set → places of the samples that were run, in the order drawn.
        stopped: None where all samples were run.
    """

    answers: Mapping[str, Answers]
    rows: Mapping[str, tuple[int, ...]]
    stopped: Stopped | None


def can_stop(request: Request, reference: Mapping[str, Answers]) -> bool:
    """Whether samples of ``request`` can be left out: each is answered by itself, and counts 0
    or 1 in every metric.

    Cells that are compared with another backend, repeated, or run in float are run whole: those
    look at every answer. Where a gate ``needs_all_samples``, the request has no rule to stop by.
    """
    if request.stop is None or request.comparator or request.repeats > 1 or request.cell.is_fp32:
        return False
    if is_joint(request.subject.model.task):
        return False
    metrics = [use.metric for use in request.subject.metrics]
    plain = all(
        one.proportion and not (one.of_run or one.of_likelihoods or one.resampled)
        for one in metrics
    )
    return plain and all(isinstance(one, IntegerAnswers) for one in reference.values())


def run_until_decided(
    request: Request,
    runners: Mapping[str, Executor],
    samples: Mapping[str, Samples],
    reference: Mapping[str, Answers],
) -> SequentialRun:
    """Run the sources of each data set in random order, until every gate of ``request.stop`` is
    decided.

    Raises:
        InputError: what the task or a metric raises.
    """
    assert request.stop is not None
    task, data = request.subject.model.task, request.subject.data
    each = {name: _Drawn(dataset) for name, dataset in data.items()}
    watched = {
        name: [
            _Watched(use, request.stop, data[name], reference[name])
            for use in request.subject.metrics
            if use.data == name
        ]
        for name in data
    }
    while True:
        open_ = [
            name
            for name, drawn in each.items()
            if drawn.is_open and any(one.state is None for one in watched[name])
        ]
        if not open_:
            break
        for name in open_:
            rows = each[name].draw()
            given = answered(task, runners, samples[name].picked(rows))
            each[name].answers.append(given)
            so_far = joined_answers(each[name].answers)
            drawn = each[name].rows
            dataset, before = data[name].pick(drawn), picked_answers(task, reference[name], drawn)
            for one in watched[name]:
                one.look(so_far, dataset, before, len(rows))
    answers = {name: joined_answers(drawn.answers) for name, drawn in each.items()}
    if not any(drawn.is_open for drawn in each.values()):
        whole = {
            name: picked_answers(task, answers[name], np.argsort(each[name].rows).tolist())
            for name in each
        }
        return SequentialRun(answers=whole, rows={}, stopped=None)
    metrics = [one for several in watched.values() for one in several]
    stopped = Stopped(
        samples={name: len(drawn.rows) for name, drawn in each.items()},
        of={name: len(dataset) for name, dataset in data.items()},
        decided={one.use.name: one.state for one in metrics if one.state is not None},
        proven=tuple(one.use.name for one in metrics if one.is_proven),
    )
    return SequentialRun(
        answers=answers,
        rows={name: tuple(drawn.rows) for name, drawn in each.items()},
        stopped=stopped,
    )


def joined_answers(parts: Sequence[Answers]) -> IntegerAnswers:
    """``parts``, answers to samples one after the other, as one."""
    several = [part for part in parts if isinstance(part, IntegerAnswers)]
    assert len(several) == len(parts)
    width = max(part.ids.shape[1] for part in several)
    scores = [part.scores for part in several if part.scores is not None]
    tied = [part.tied for part in several if part.tied is not None]
    return IntegerAnswers(
        np.concatenate([part.padded(width) for part in several]),
        np.concatenate(scores) if len(scores) == len(several) else None,
        np.concatenate(tied) if len(tied) == len(several) else None,
        kind=several[0].kind,
    )


class _Drawn:
    """The sources of ``dataset`` in random order, and what was answered so far."""

    def __init__(self, dataset: Dataset) -> None:
        groups: dict[str, list[int]] = {}
        for row, source in enumerate(dataset.drawn_from):
            groups.setdefault(source, []).append(row)
        listed = list(groups.values())
        self._groups = [listed[place] for place in shuffled(dataset.digest, len(listed), 0)]
        self._next = 0
        self.rows: list[int] = []
        self.answers: list[Answers] = []

    @property
    def is_open(self) -> bool:
        """Whether samples remain."""
        return self._next < len(self._groups)

    def draw(self) -> list[int]:
        """The samples of the next sources, whole sources."""
        drawn: list[int] = []
        while self.is_open and len(drawn) < CHUNK:
            drawn += self._groups[self._next]
            self._next += 1
        self.rows += drawn
        return drawn


@dataclass(slots=True)
class _Watched:
    """One metric while its samples are run; ``state``: that of its gate, once it is decided."""

    use: MetricUse
    rule: StopRule
    dataset: Dataset
    reference: Answers
    state: str | None = None
    is_proven: bool = False
    _test: EarlyTest | CountTest | None = None
    _started: bool = False
    _right: npt.NDArray[np.bool_] | None = field(default=None)

    def look(self, answers: Answers, drawn: Dataset, reference: Answers, fresh: int) -> None:
        """Decide, if that is possible, by the ``answers`` to ``drawn``, the last ``fresh`` of
        which are new.
        """
        if self.state is not None:
            return
        labels = drawn.labels
        found = score(
            self.use.metric,
            answers,
            labels=labels,
            reference=reference,
            name=self.use.name,
            sources=drawn.drawn_from,
        )
        remaining = self._remaining(found, drawn)
        if not self._started:
            sizes = np.unique(self.dataset.drawn_from, return_counts=True)[1]
            test = self.rule.test(found, remaining, sources=len(sizes), largest=int(sizes.max()))
            self._test, self._started = test, True
        state = self.rule.decided(found, remaining)
        if self._test is not None:
            self._test.add(self._sums(answers, drawn, reference, fresh))
            early = early_state(self._test.evidence)
            self.is_proven = state is None and early is not None
            state = state or early
        self.state = None if state is None else state.value

    def _remaining(self, found: Score, drawn: Dataset) -> Remaining:
        right = self._right_before()
        hits, n = int(right.sum()), len(self.dataset)
        left = hits - found.reference_hits if self.use.metric.needs_labels else n - len(drawn)
        others = n - len(drawn) - left
        is_higher = found.direction is Direction.HIGHER
        return Remaining(
            n=n,
            reference_hits=hits,
            losable=left if is_higher else others,
            gainable=others if is_higher else left,
        )

    def _right_before(self) -> npt.NDArray[np.bool_]:
        """(n,) what the metric counts of the reference's answer to every sample."""
        if self._right is None:
            metric = self.use.metric
            other = None if metric.needs_labels else self.reference
            counts = metric.count(
                self.reference, self.dataset.labels if metric.needs_labels else None, other
            )
            self._right = counts.hits > 0
        return self._right

    def _sums(
        self, answers: Answers, drawn: Dataset, reference: Answers, fresh: int
    ) -> list[tuple[int, int]]:
        """(sum of changes, samples) of each new source, in the order drawn; a change is 1 where
        it is better.
        """
        metric = self.use.metric
        if metric.needs_labels:
            now, before = (
                metric.count(one, drawn.labels, None).hits for one in (answers, reference)
            )
            changes = now - before if metric.direction is Direction.HIGHER else before - now
        else:
            changes = metric.count(answers, None, reference).hits - 1
        sums: dict[str, tuple[int, int]] = {}
        for source, change in zip(
            drawn.drawn_from[-fresh:], changes[-fresh:].tolist(), strict=True
        ):
            total, size = sums.get(source, (0, 0))
            sums[source] = total + change, size + 1
        return list(sums.values())
