"""Samples that quantization turned: right in fp32 and wrong now, or the reverse.

    negative_flips  hits_i = 1 if sample i was right in the reference and is wrong now, out of 1         (losses)
    flips           hits_i = 1 if it was right in one of the two and is wrong in the other, out of 1     (and gains)

Right is the best class among the labels, or the whole sequence. Equal accuracy can hide many flips (Dutta et al.,
"Accuracy is not all you need", 2024); users feel the negative ones (Yan et al., "Positive-congruent training", 2021).
"""

import numpy as np
import numpy.typing as npt

from qbench.metrics.answers import AnswerKind, Answers
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.scores import Against, Direction


def _right(name: str, answers: Answers, labels: Labels) -> npt.NDArray[np.bool_]:
    if answers.kind is AnswerKind.LIKENESS:
        raise ValueError(f"{name} needs answers that are right or wrong, and a likeness is neither")
    if answers.kind is AnswerKind.RANKING:
        found = [answers.best(index)[0] in right for index, right in enumerate(labels)]
    else:
        found = [answers.best(index) == tuple(right) for index, right in enumerate(labels)]
    return np.array(found, dtype=np.bool_)


def _count_flips(answers: Answers, labels: Labels | None, reference: Answers | None) -> Counts:
    assert labels is not None
    assert reference is not None
    turned = _right("flips", answers, labels) != _right("flips", reference, labels)
    return Counts(turned.astype(np.int64), np.ones(len(answers), dtype=np.int64))


def _count_negative(answers: Answers, labels: Labels | None, reference: Answers | None) -> Counts:
    assert labels is not None
    assert reference is not None
    lost = _right("negative_flips", reference, labels) & ~_right("negative_flips", answers, labels)
    return Counts(lost.astype(np.int64), np.ones(len(answers), dtype=np.int64))


FLIPS = Metric(
    name="flips",
    title="Flips",
    direction=Direction.LOWER,
    against=Against.REFERENCE,
    count=_count_flips,
    by_labels=True,
)
NEGATIVE_FLIPS = Metric(
    name="negative_flips",
    title="Negative flips",
    direction=Direction.LOWER,
    against=Against.REFERENCE,
    count=_count_negative,
    by_labels=True,
)
