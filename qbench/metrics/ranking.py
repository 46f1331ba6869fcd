"""Top-k, and mean average precision over classes."""

from collections.abc import Callable

import numpy as np

from qbench.errors import UnavailableError
from qbench.extension import install_command
from qbench.metrics.answers import (
    MILLION,
    AnswerKind,
    Answers,
    IntegerAnswers,
    OutputKind,
    integer_answers,
)
from qbench.metrics.metric import Counts, Labels, Metric, no_interval
from qbench.metrics.scores import Against, Direction

# Top-k: a sample is right when one of its labels is among the k best classes.
#
# hits_i = 1 if {ids_i1 … ids_ik} ∩ labels_i ≠ ∅ else 0, out of 1. Equal scores were ordered by the
# task, lowest class id first, so that a tie is broken the same way everywhere.
#
# The mean reciprocal rank of the first right one among the ten best: hits_i = 2520 / rank_i, or 0,
# out of 2520, the least number that 1 to 10 divide.
#
# Recall at k, for samples of several right ones: hits_i = |{ids_i1 … ids_ik} ∩ labels_i|, out of
# |labels_i|; so the share of all right ones that are found. With one label a sample it is top-k.

_DEEPEST_RANK, _RANK_UNIT = 10, 2520


def _count_top(k: int, answers: Answers, labels: Labels | None) -> Counts:
    assert labels is not None
    answers = _rankings(f"top{k}", answers)
    best = answers.ids[:, :k]
    hits = np.fromiter(
        (not set(row.tolist()).isdisjoint(right) for row, right in zip(best, labels, strict=True)),
        dtype=np.int64,
        count=len(answers),
    )
    return Counts(hits, np.ones(len(answers), dtype=np.int64))


def _count_reciprocal(
    answers: Answers, labels: Labels | None, _reference: Answers | None
) -> Counts:
    assert labels is not None
    answers = _rankings("mrr", answers)
    best = answers.ids[:, :_DEEPEST_RANK].tolist()
    ranks = [
        next((rank for rank, one in enumerate(row, start=1) if one in right), 0)
        for row, right in zip(best, labels, strict=True)
    ]
    hits = [_RANK_UNIT // rank if rank else 0 for rank in ranks]
    return Counts(np.array(hits, dtype=np.int64), np.full(len(answers), _RANK_UNIT, dtype=np.int64))


def _count_recalled(k: int, answers: Answers, labels: Labels | None) -> Counts:
    assert labels is not None
    answers = _rankings(f"recall{k}", answers)
    if answers.ids.shape[1] < k:
        raise ValueError(
            f"recall{k} looks for right ones among {k}, and these answers name "
            f"{answers.ids.shape[1]}"
        )
    best, right = answers.ids[:, :k].tolist(), [set(one) for one in labels]
    found = [len(one.intersection(row)) for one, row in zip(right, best, strict=True)]
    return Counts(
        np.array(found, dtype=np.int64), np.array([len(one) for one in right], dtype=np.int64)
    )


def _rankings(name: str, answers: Answers) -> IntegerAnswers:
    return integer_answers(answers, f"{name} ranks classes", AnswerKind.RANKING)


def _count_top1(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    return _count_top(1, answers, labels)


def _count_recalled5(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    return _count_recalled(5, answers, labels)


def _count_recalled10(
    answers: Answers, labels: Labels | None, _reference: Answers | None
) -> Counts:
    return _count_recalled(10, answers, labels)


def _count_top5(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    return _count_top(5, answers, labels)


TOP1 = Metric(
    name="top1",
    title="Top-1 accuracy",
    direction=Direction.HIGHER,
    against=Against.LABELS,
    count=_count_top1,
)
TOP5 = Metric(
    name="top5",
    title="Top-5 accuracy",
    direction=Direction.HIGHER,
    against=Against.LABELS,
    count=_count_top5,
    depth=5,
)
RECALL5 = Metric(
    name="recall5",
    title="Recall at 5",
    direction=Direction.HIGHER,
    against=Against.LABELS,
    count=_count_recalled5,
    proportion=False,
    depth=5,
)
RECALL10 = Metric(
    name="recall10",
    title="Recall at 10",
    direction=Direction.HIGHER,
    against=Against.LABELS,
    count=_count_recalled10,
    proportion=False,
    depth=10,
)
MRR = Metric(
    name="mrr",
    title="Mean reciprocal rank of ten",
    direction=Direction.HIGHER,
    against=Against.LABELS,
    count=_count_reciprocal,
    proportion=False,
    depth=_DEEPEST_RANK,
)


# Mean average precision over classes: how far ahead of all others the samples of a class are ranked
# by its score.
#
#     AP_c   = Σ over thresholds t of s_c:  (recall_c(t) − recall_c(t⁺)) · precision_c(t)
#              t⁺: the next higher one
#     map    = mean of AP_c over the C classes that any of the m samples is labelled with
#              (macro average)
#     hits_i = (m / C) · Σ over the labels c of sample i of AP_c / #{samples labelled c},
#              in millionths, out of 1,000,000
#
# so that Σ hits / Σ out_of is the mean but for the rounding of each sample, under a millionth. AP
# is scikit-learn's (``average_precision_score``, no interpolation); equal scores are one threshold.
# Every AP depends on all samples, so the sums of resampled samples would not be those of any
# resample: no interval is given.


def _count_precision(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    assert labels is not None
    held = integer_answers(
        answers, "map ranks samples by scores of classes", AnswerKind.RANKING
    ).held("map")
    if held.kind is not OutputKind.CLASSES:
        raise ValueError(
            "map ranks samples by scores of classes, and these outputs are other numbers"
        )
    right = np.zeros(held.values.shape, dtype=np.bool_)
    for row, classes in zip(right, labels, strict=False):
        # outputs are held of the first samples only
        row[list(classes)] = True
    named = right.any(axis=0)
    precision_of = _average_precision()
    columns = zip(right[:, named].T, held.values[:, named].T, strict=True)
    precisions = np.array([precision_of(*column) for column in columns])
    shares = right[:, named] @ (precisions / right[:, named].sum(axis=0)) / max(1, len(precisions))
    hits = np.rint(MILLION * len(held) * shares).astype(np.int64)
    return Counts(hits, np.full(len(held), MILLION if named.any() else 0, dtype=np.int64))


def _average_precision() -> Callable[..., float]:
    try:
        from sklearn.metrics import average_precision_score
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "Counting metric 'map'",
            found="no scikit-learn",
            expected="the extra 'retrieval'",
            remedy=(
                f"Install it: {install_command('retrieval')}; every other metric works without."
            ),
        ) from error
    found: Callable[..., float] = average_precision_score
    return found


MAP = Metric(
    name="map",
    title="Mean average precision over classes",
    direction=Direction.HIGHER,
    against=Against.LABELS,
    count=_count_precision,
    proportion=False,
    of_run=True,
    resampled=no_interval,
)
