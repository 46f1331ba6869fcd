"""One run of a cell: its answers to the samples, and the fp32 answers that they are counted
against.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from qbench.backends import Executor, Recorded, recording
from qbench.errors import InputError
from qbench.evaluation.artifacts import answered, prepare_runners
from qbench.evaluation.cell_model import CellModel
from qbench.evaluation.engine_time import timed_answers
from qbench.evaluation.executed_share import ExecutedShare, executed_share
from qbench.evaluation.recorded import recorded_answers
from qbench.evaluation.repeats import picked_answers
from qbench.evaluation.request import Request
from qbench.evaluation.scoring import of_today, score_of
from qbench.evaluation.sequential import SequentialRun, can_stop, run_until_decided
from qbench.evaluation.versus_backend import BackendComparison
from qbench.judging import Compared, Stopped
from qbench.metrics import Answers, Score
from qbench.subjects import Dataset, Samples, task_answers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellRun:
    """What a cell answered; every mapping is by data set.

    Args:
        answers: to the samples that were run.
        reference: the fp32 answers to these.
        today: ``reference``; where a metric counts what only a run of the float model gives, with
            that.
        whole: the fp32 answers to all samples.
        data: the samples that were run.
        samples: all of them, prepared; empty where answers are only read.
        stopped: where the cell ended before all samples were run; None: all were.
        drawn: places of the samples that were run, in the order of the answers; empty: all, in
            their order.
        compared: the comparison with another backend; None: there is none.
        executed: what the engine ran in integers, and how it summed floats of few bits.
        seconds: of preparing, answering, and of the other backend, wall clock.
        sample_seconds: of a sample of the first data set on the engine, in each run; empty: not
            timed.
    """

    answers: Mapping[str, Answers]
    reference: Mapping[str, Answers]
    today: Mapping[str, Answers]
    whole: Mapping[str, Answers]
    data: Mapping[str, Dataset]
    samples: Mapping[str, Samples] = field(default_factory=dict)
    stopped: Stopped | None = None
    drawn: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    compared: Compared | None = None
    executed: ExecutedShare = field(default_factory=ExecutedShare)
    seconds: Mapping[str, float] = field(default_factory=dict)
    sample_seconds: tuple[float, ...] = ()

    def scores(self, request: Request) -> tuple[Score, ...]:
        """One score for each metric that the suite asks for, in its order."""
        return tuple(
            score_of(
                request, use, self.answers[use.data], self.today[use.data], self.data[use.data]
            )
            for use in request.subject.metrics
        )

    @property
    def changed(self) -> dict[str, tuple[str, ...]]:
        """Ids of the samples whose best answer (the whole of a sequence) is not the reference's."""
        found = {}
        for name, answers in self.answers.items():
            reference, ids = self.reference[name], self.data[name].sample_ids
            found[name] = tuple(
                one for at, one in enumerate(ids) if answers.best(at) != reference.best(at)
            )
        return found

    @property
    def digests(self) -> dict[str, str]:
        """Of the answers, called ``part`` where the cell was stopped, and of all fp32 answers."""
        word = "predictions" if self.stopped is None else "part"
        own = {f"{word}:{name}": answers.digest for name, answers in self.answers.items()}
        return own | {f"reference:{name}": self.whole[name].digest for name in self.answers}


def reference_of(request: Request) -> dict[str, Answers]:
    """The fp32 answers of ``request`` in the form of its task."""
    task = request.subject.model.task
    return {name: task_answers(task, stored) for name, stored in request.reference.items()}


def read_run(request: Request) -> CellRun:
    """The run of answers that were recorded elsewhere: they are read, and nothing is run.

    Raises:
        InputError: the file is not of this model and data, or the cell is to be run more than once.
    """
    assert isinstance(request.backend, Recorded)
    if request.repeats > 1:
        raise InputError(
            f"Measuring '{request.cell}'",
            found=f"repeats = {request.repeats} for answers that were recorded elsewhere",
            expected="1, since nothing is run here: every reading is the same",
            remedy=f'Set repeats = {{ "{request.backend.name}" = 1 }} for these cells.',
        )
    started, reference = request.timer(), reference_of(request)
    answers, today = recorded_answers(request, reference), of_today(request, reference)
    return CellRun(
        answers=answers,
        reference=reference,
        today=today,
        whole=reference,
        data=request.subject.data,
        seconds={"prepare": 0.0, "inference": round(request.timer() - started, 3)},
    )


def run_cell(request: Request, model: CellModel, started: float) -> CellRun:
    """Run ``model`` once on the engine of ``request``.

    Args:
        started: when the work on the cell began, by the timer of ``request``.

    Raises:
        QbenchError: what the engine, the task and the comparison raise.
    """
    shared, whole = request.shared, reference_of(request)
    with ExitStack() as stack:
        engine = recording(request.backend) if model.reports else request.backend
        runners = prepare_runners(engine, model.graphs, stack, threads=request.threads)
        samples = {name: shared.samples(one) for name, one in request.subject.data.items()}
        prepared = request.timer()
        comparison = None
        if request.comparator is not None:
            comparison = BackendComparison(request, model.graphs, stack)
        done, sample_seconds = _answered(request, runners, samples, whole, comparison)
        compared = comparison.finished() if comparison is not None else None
        finished = request.timer()
        answers = {
            name: shared.with_likelihoods(one, runners, request.subject.data[name])
            for name, one in done.answers.items()
        }
        executed = _executed(model, runners)
    reference, data = _of_part(request, whole, done)
    return CellRun(
        answers=answers,
        reference=reference,
        today=of_today(request, reference),
        whole=whole,
        data=data,
        samples=samples,
        stopped=done.stopped,
        drawn=done.rows,
        compared=compared,
        executed=executed,
        seconds=_seconds(prepared - started, finished - prepared, comparison),
        sample_seconds=sample_seconds,
    )


def _answered(
    request: Request,
    runners: Mapping[str, Executor],
    samples: Mapping[str, Samples],
    whole: Mapping[str, Answers],
    comparison: BackendComparison | None,
) -> tuple[SequentialRun, tuple[float, ...]]:
    """The answers of a cell, next to another backend's where one is given: to the samples that
    decide its verdict, where they may be fewer, else to all; and the seconds of a sample on the
    engine, where asked for.
    """
    if can_stop(request, whole):
        return run_until_decided(request, runners, samples, whole), ()
    task = request.subject.model.task
    if comparison is not None:
        pairs = comparison.paired(runners)
        return _all({name: task.answer(pairs, comparison.noted(samples[name])) for name in samples})
    if not request.times_samples:
        return _all({name: answered(task, runners, data) for name, data in samples.items()})
    timed = {
        name: timed_answers(task, runners, data, request.timer) for name, data in samples.items()
    }
    _, seconds = next(iter(timed.values()))
    return _all({name: answers for name, (answers, _) in timed.items()}, seconds)


def _all(
    answers: Mapping[str, Answers], seconds: tuple[float, ...] = ()
) -> tuple[SequentialRun, tuple[float, ...]]:
    """The run of all samples, with ``answers`` to them."""
    return SequentialRun(answers=answers, rows={}, stopped=None), seconds


def _executed(model: CellModel, runners: Mapping[str, Executor]) -> ExecutedShare:
    """``CellRun.executed`` of the run by ``runners``."""
    if model.quantized is None or not model.reports:
        return ExecutedShare()
    return executed_share(runners, model.quantized)


def _of_part(
    request: Request, whole: Mapping[str, Answers], done: SequentialRun
) -> tuple[Mapping[str, Answers], Mapping[str, Dataset]]:
    """The fp32 answers and the data of the samples that were run."""
    data = request.subject.data
    if done.stopped is None:
        return whole, data
    task = request.subject.model.task
    reference = {name: picked_answers(task, one, done.rows[name]) for name, one in whole.items()}
    return reference, {name: one.pick(done.rows[name]) for name, one in data.items()}


def _seconds(
    prepare: float, answer: float, comparison: BackendComparison | None
) -> dict[str, float]:
    """Wall clock of a cell; what the other backend took is apart, so that a cell's own time can
    be followed.
    """
    if comparison is None:
        return {"prepare": round(prepare, 3), "inference": round(answer, 3)}
    other = comparison.seconds
    return {
        "prepare": round(prepare, 3),
        "inference": round(answer - other, 3),
        "compared": round(other, 3),
    }
