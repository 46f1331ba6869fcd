"""Answers → scores: what a task answered, counted sample by sample."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.metrics.answers import PADDING as PADDING
    from qbench.metrics.answers import AnswerKind as AnswerKind
    from qbench.metrics.answers import Answers as Answers
    from qbench.metrics.metric import Counts as Counts
    from qbench.metrics.metric import Labels as Labels
    from qbench.metrics.metric import Metric as Metric
    from qbench.metrics.metric import score as score
    from qbench.metrics.named import catalogue as catalogue
    from qbench.metrics.named import get_metric as get_metric
    from qbench.metrics.named import split_name as split_name
    from qbench.metrics.scores import Against as Against
    from qbench.metrics.scores import Direction as Direction
    from qbench.metrics.scores import Score as Score
else:
    __getattr__, __dir__, __all__ = open_on_use(
        __name__,
        {
            "answers": ("PADDING", "AnswerKind", "Answers"),
            "metric": ("Counts", "Labels", "Metric", "score"),
            "scores": ("Against", "Direction", "Score"),
            "named": ("catalogue", "get_metric", "split_name"),
        },
    )
