"""A cell run again with the samples in another order and in other batches: whether its answers
are the same.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from qbench.evaluation.artifacts import answered, prepare_runners
from qbench.evaluation.request import Request
from qbench.evaluation.subject import Subject
from qbench.judging import MetricNoise, Repeats
from qbench.metrics import PADDING, Against, Answers, Counts, IntegerAnswers, Score, rows_of
from qbench.subjects import Samples, Task, task_answers

if TYPE_CHECKING:
    import onnx_ir as ir

# What differs between the runs of a cell, though it should not matter:
#
#     order     a permutation of the samples, by the digest of the data and the number of the run
#     batches   5/8, 7/8 and 3/8 of the size that the task asks for, then the size itself
#     threads   those of ``repeat_threads`` in turn, where the suite allows others
#     engine    loaded anew
#
# Where the second run answers like the first, in every rank of every sample, there is no third: the
# results of this engine depend on none of these. With ``repeat_threads`` that takes one such run
# with each of its numbers.

_SPLITS = (Fraction(5, 8), Fraction(7, 8), Fraction(3, 8), Fraction(1))


def measure_repeats(
    request: Request,
    graphs: "Mapping[str, ir.Model]",
    samples: Mapping[str, Samples],
    *,
    first: Mapping[str, Answers],
    reference: Mapping[str, Answers],
    scores: Sequence[Score],
) -> Repeats | None:
    """How the answers of ``request.repeats`` runs differ; None where there is one run.

    Args:
        graphs: of the cell.
        samples: of each data set.
        first: what the first run answered.
        reference: fp32 answers.
        scores: of the first run.

    Raises:
        QbenchError: what a run raises.
    """
    runs = [first]
    enough = 1 + max(1, len(request.repeat_threads))
    most = max(request.repeats, enough) if request.repeats > 1 else 1
    while len(runs) < most:
        runs.append(_run(request, graphs, samples, len(runs)))
        if len(runs) == enough and all(
            run[name].digest == first[name].digest for run in runs[1:] for name in first
        ):
            return Repeats(runs=enough)
    out_of = {score.metric: score.out_of for score in scores}
    return compare_runs(request.subject, runs, reference, out_of) if len(runs) > 1 else None


def _run(
    request: Request, graphs: "Mapping[str, ir.Model]", samples: Mapping[str, Samples], number: int
) -> dict[str, Answers]:
    """The answers of run ``number``, in the order of ``samples``."""
    task, threads = request.subject.model.task, request.threads
    if request.repeat_threads:
        threads = request.repeat_threads[(number - 1) % len(request.repeat_threads)]
    answers = {}
    with ExitStack() as stack:
        runners = prepare_runners(request.backend, graphs, stack, threads=threads)
        for name, data in samples.items():
            order = range(len(data)) if is_joint(task) else shuffled(data.digest, len(data), number)
            given = answered(
                task, runners, data.picked(order, split=_SPLITS[(number - 1) % len(_SPLITS)])
            )
            answers[name] = picked_answers(task, given, np.argsort(order).tolist())
    return answers


def is_joint(task: Task) -> bool:
    """Whether the answer of ``task`` to one sample depends on the other samples."""
    return bool(getattr(getattr(task, "__wrapped__", task), "is_joint", False))


def shuffled(digest: str, count: int, number: int) -> list[int]:
    """A permutation of ``count`` places that ``digest`` and ``number`` determine."""
    seed = int.from_bytes(hashlib.sha256(f"{digest}:{number}".encode()).digest()[:8])
    order: list[int] = np.random.Generator(np.random.PCG64(seed)).permutation(count).tolist()
    return order


def picked_answers(task: Task, answers: Answers, rows: Sequence[int]) -> Answers:
    """The answers at ``rows``, in that order, without what only the first samples have (outputs).

    Raises:
        InputError: the task does not restore answers of their form.
    """
    return task_answers(task, rows_of(answers, rows))


def compare_runs(
    subject: Subject,
    runs: Sequence[Mapping[str, Answers]],
    reference: Mapping[str, Answers],
    out_of: Mapping[str, int],
) -> Repeats:
    """How ``runs`` (data set → answers in one order) differ, and what each metric counted in them.

    ``out_of``: metric → what its score counts out of.
    """
    differing = {name: _differing([run[name] for run in runs]) for name in runs[0]}
    flips = {name: _flips([run[name] for run in runs]) for name in runs[0]}
    metrics = {}
    for use in subject.metrics:
        if use.metric.of_run or use.metric.of_likelihoods or not differing[use.data]:
            continue
        labels = subject.data[use.data].labels if use.metric.needs_labels else None
        other = reference[use.data] if use.metric.against is Against.REFERENCE else None
        counts = [use.metric.count(run[use.data], labels, other) for run in runs]
        metrics[use.name] = _counted(counts, out_of[use.name], flips[use.data])
    return Repeats(runs=len(runs), differing=differing, flips=flips, metrics=metrics)


def _counted(counts: Sequence[Counts], out_of: int, flips: int) -> MetricNoise:
    """What a metric counted in every run, out of as many as its score; sums over samples have a
    noise of samples.
    """
    sums = [count.sums for count in counts]
    values = [
        hits if whole == out_of else round(out_of * Fraction(hits, whole)) for hits, whole in sums
    ]
    spread = 0
    if all(count.total is None for count in counts) and all(whole == out_of for _, whole in sums):
        hits = np.stack([count.hits for count in counts])
        spread = int((len(counts) * (hits**2).sum(axis=0) - hits.sum(axis=0) ** 2).sum())
    return MetricNoise(
        hits=tuple(values), out_of=(out_of,) * len(values), pairs=spread, flips=flips
    )


def _differing(runs: Sequence[Answers]) -> int:
    """How many samples are not answered alike by all ``runs``, in every rank."""
    return sum(len({_whole(run, index) for run in runs}) > 1 for index in range(len(runs[0])))


def _flips(runs: Sequence[Answers]) -> int:
    """Over all pairs of ``runs``, how many samples have another best answer."""
    best = [[run.best(index) for index in range(len(run))] for run in runs]
    return sum(
        sum(a != b for a, b in zip(one, other, strict=True)) for one, other in combinations(best, 2)
    )


def _whole(answers: Answers, index: int) -> object:
    if isinstance(answers, IntegerAnswers):
        row = answers.ids[index]
        return row[row != PADDING].tobytes()
    return tuple((name, array[index].tobytes()) for name, array in sorted(answers.arrays().items()))
