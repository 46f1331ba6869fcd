"""Mean average precision over classes: how far ahead of all others the samples of a class are ranked by its score.

    AP_c = Σ over thresholds t of s_c:  (recall_c(t) − recall_c(t⁺)) · precision_c(t)         t⁺: the next higher one
    map  = mean of AP_c over the C classes that any of the m samples is labelled with           (macro average)
    hits_i = (m / C) · Σ over the labels c of sample i of AP_c / #{samples labelled c}, in millionths, out of 1,000,000

so that Σ hits / Σ out_of is the mean but for the rounding of each sample, under a millionth. AP is scikit-learn's
(``average_precision_score``, no interpolation); equal scores are one threshold. Every AP depends on all samples, so the
sums of resampled samples would not be those of any resample: no interval is given.
"""

from collections.abc import Callable

import numpy as np

from qbench.errors import UnavailableError
from qbench.metrics.answers import ANSWER_WORDS, MILLION, AnswerKind, Answers
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.outputs import OutputKind
from qbench.metrics.scores import Against, Direction


def _count_precision(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    assert labels is not None
    if answers.kind is not AnswerKind.RANKING:
        raise ValueError(f"map ranks samples by scores of classes, and these answers are {ANSWER_WORDS[answers.kind]}")
    held = answers.held("map")
    if held.kind is not OutputKind.CLASSES:
        raise ValueError("map ranks samples by scores of classes, and these outputs are other numbers")
    right = np.zeros(held.values.shape, dtype=np.bool_)
    for row, classes in zip(right, labels, strict=False):  # outputs are held of the first samples only
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
            remedy="Install it: pip install 'pytest-qbench[retrieval]'; every other metric works without.",
        ) from error
    found: Callable[..., float] = average_precision_score
    return found


def _no_interval(_answers: Answers, _labels: Labels, _reference: Answers) -> None:
    return None


MAP = Metric(
    name="map",
    title="Mean average precision over classes",
    direction=Direction.HIGHER,
    against=Against.LABELS,
    count=_count_precision,
    proportion=False,
    of_run=True,
    resampled=_no_interval,
)
