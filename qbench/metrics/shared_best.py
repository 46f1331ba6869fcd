"""The share of samples that the tie rule decided: their best score was shared, and the lowest id was taken.

hits_i = 1 if another class (of a sequence: another token of some step) has the best score too, out of 1. A quantized
network answers on a grid, so that many ties make a top-1 score a matter of the order of its classes.
"""

import numpy as np

from qbench.metrics.answers import Answers
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.scores import Against, Direction


def _count_tied(answers: Answers, _labels: Labels | None, _reference: Answers | None) -> Counts:
    if answers.tied is None:
        raise ValueError("ties counts samples whose best score is shared, and the task of these answers does not tell")
    return Counts(answers.tied.astype(np.int64), np.ones(len(answers), dtype=np.int64))


TIES = Metric(
    name="ties",
    title="Ties for the best",
    direction=Direction.LOWER,
    against=Against.REFERENCE,
    count=_count_tied,
    of_run=True,
)
