"""Agreement with the fp32 reference: the same best class, or the identical sequence, text or likeness.

hits_i = 1 if answer_i = reference_i else 0, out of 1. It needs no labels, so it can be counted on any data.
"""

import numpy as np

from qbench.metrics.answers import AnswerKind, Answers
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.scores import Against, Direction


def _count_same(answers: Answers, _labels: Labels | None, reference: Answers | None) -> Counts:
    assert reference is not None
    if answers.kind is not reference.kind:
        raise ValueError(f"answers and reference are not of one kind: {answers.kind.value} and {reference.kind.value}")
    if answers.kind is not AnswerKind.RANKING:
        width = max(answers.ids.shape[1], reference.ids.shape[1])
        same = (answers.padded(width) == reference.padded(width)).all(axis=1)
    else:
        same = answers.ids[:, 0] == reference.ids[:, 0]
    return Counts(same.astype(np.int64), np.ones(len(answers), dtype=np.int64))


AGREEMENT = Metric(
    name="agreement",
    title="Agreement with fp32",
    direction=Direction.HIGHER,
    against=Against.REFERENCE,
    count=_count_same,
)
