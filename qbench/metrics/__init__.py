"""Answers → scores: what a task answered, counted sample by sample."""

from qbench.metrics.answers import PADDING, AnswerKind, Answers
from qbench.metrics.metric import Against, Counts, Direction, Labels, Metric, Score, score
from qbench.metrics.named import catalogue, get_metric, split_name

__all__ = [
    "PADDING",
    "Against",
    "AnswerKind",
    "Answers",
    "Counts",
    "Direction",
    "Labels",
    "Metric",
    "Score",
    "catalogue",
    "get_metric",
    "score",
    "split_name",
]
