"""The equal error rate: the share of pairs misjudged at the threshold where misses and false alarms are balanced.

    t = the least threshold at which #{unlike pairs ≥ t} / #unlike ≤ #{like pairs < t} / #like
    hits_i = 1 if pair i is misjudged at t, out of 1

As many like as unlike pairs are asked for: the share of all is then the mean of both rates, which are equal at t or
next to it. The threshold is of the answers that are counted, so every run has its own.
"""

import numpy as np

from qbench.metrics.answers import ANSWER_WORDS, AnswerKind, Answers
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.scores import Against, Direction


def _count_misjudged(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    assert labels is not None
    if answers.kind is not AnswerKind.LIKENESS:
        raise ValueError(f"eer judges likenesses, and these answers are {ANSWER_WORDS[answers.kind]}")
    likeness = answers.ids[:, 0]
    alike = np.array([right == (1,) for right in labels])
    if 2 * alike.sum() != len(alike) or any(right not in ((0,), (1,)) for right in labels):
        raise ValueError(
            f"eer needs as many like as unlike pairs, labelled 1 and 0, not {int(alike.sum())} of {len(alike)}"
        )
    said = likeness >= balanced_threshold(likeness[alike], likeness[~alike])
    return Counts((said != alike).astype(np.int64), np.ones(len(answers), dtype=np.int64))


def balanced_threshold(alike: np.typing.NDArray[np.int32], others: np.typing.NDArray[np.int32]) -> int:
    """The least threshold at which no more of ``others`` reach it, as a share, than of ``alike`` fail to."""
    candidates = np.unique(np.concatenate([alike, others, [max(alike.max(), others.max()) + 1]]))
    misses = np.searchsorted(np.sort(alike), candidates, side="left")
    alarms = len(others) - np.searchsorted(np.sort(others), candidates, side="left")
    return int(candidates[int(np.argmax(alarms * len(alike) <= misses * len(others)))])


EER = Metric(
    name="eer",
    title="Equal error rate",
    direction=Direction.LOWER,
    against=Against.LABELS,
    count=_count_misjudged,
    least_margin=0.005,
)
