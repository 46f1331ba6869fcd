"""Top-k: a sample is right when one of its labels is among the k best classes.

hits_i = 1 if {ids_i1 … ids_ik} ∩ labels_i ≠ ∅ else 0, out of 1. Equal scores were ordered by the task, lowest class id
first, so that a tie is broken the same way everywhere.
"""

import numpy as np

from qbench.metrics.answers import AnswerKind, Answers
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.scores import Against, Direction


def _count_top(k: int, answers: Answers, labels: Labels | None) -> Counts:
    assert labels is not None
    if answers.kind is AnswerKind.SEQUENCE:
        raise ValueError(f"top{k} ranks classes, and these answers are sequences")
    best = answers.ids[:, :k]
    hits = np.fromiter(
        (not set(row.tolist()).isdisjoint(right) for row, right in zip(best, labels, strict=True)),
        dtype=np.int64,
        count=len(answers),
    )
    return Counts(hits, np.ones(len(answers), dtype=np.int64))


def _count_top1(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    return _count_top(1, answers, labels)


def _count_top5(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    return _count_top(5, answers, labels)


TOP1 = Metric(
    name="top1", title="Top-1 accuracy", direction=Direction.HIGHER, against=Against.LABELS, count=_count_top1
)
TOP5 = Metric(
    name="top5", title="Top-5 accuracy", direction=Direction.HIGHER, against=Against.LABELS, count=_count_top5
)
