"""The equal error rate."""

import numpy as np
import numpy.typing as npt

from qbench.metrics.answers import AnswerKind, Answers, integer_answers
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.resampling import recomputed_interval
from qbench.metrics.scores import Against, Direction


def _count_misjudged(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    assert labels is not None
    similarity, alike = _similarities(answers), _alike(labels)
    return Counts(
        _misjudged(similarity, alike).astype(np.int64), np.ones(len(answers), dtype=np.int64)
    )


def _resampled(
    answers: Answers, labels: Labels, reference: Answers, sources: npt.NDArray[np.intp] | None
) -> tuple[float, float] | None:
    now, before = _similarities(answers), _similarities(reference)
    alike = _alike(labels)

    def change(places: npt.NDArray[np.intp]) -> float:
        drawn = alike[places]
        return float(
            _misjudged(now[places], drawn).mean() - _misjudged(before[places], drawn).mean()
        )

    if len(alike) <= 2:
        return None
    return recomputed_interval(change, (np.flatnonzero(alike), np.flatnonzero(~alike)), sources)


def _similarities(answers: Answers) -> npt.NDArray[np.int32]:
    return integer_answers(answers, "eer compares similarities", AnswerKind.LIKENESS).ids[:, 0]


def _alike(labels: Labels) -> npt.NDArray[np.bool_]:
    """Which pairs are labelled alike."""
    alike = np.array([right == (1,) for right in labels])
    if 2 * alike.sum() != len(alike) or any(right not in ((0,), (1,)) for right in labels):
        raise ValueError(
            f"eer needs as many pairs that are alike (1) as others (0), not {int(alike.sum())} of "
            f"{len(alike)}"
        )
    return alike


def _misjudged(
    similarity: npt.NDArray[np.int32], alike: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    accepted = similarity >= balanced_threshold(similarity[alike], similarity[~alike])
    return np.asarray(accepted != alike)


def balanced_threshold(alike: npt.NDArray[np.int32], others: npt.NDArray[np.int32]) -> int:
    """The least threshold that no larger share of ``others`` reaches than the share of
    ``alike`` below it.
    """
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
    proportion=False,
    resampled=_resampled,
)
