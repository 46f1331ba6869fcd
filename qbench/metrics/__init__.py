"""Answers → scores: what a task answered, counted sample by sample."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.metrics.answers import MILLION as MILLION
    from qbench.metrics.answers import PADDING as PADDING
    from qbench.metrics.answers import AnswerKind as AnswerKind
    from qbench.metrics.answers import Answers as Answers
    from qbench.metrics.answers import points_of as points_of
    from qbench.metrics.answers import text_of as text_of
    from qbench.metrics.distances import MOST_DB as MOST_DB
    from qbench.metrics.kept import AnswerChange as AnswerChange
    from qbench.metrics.kept import count_changes as count_changes
    from qbench.metrics.kept import kept_arrays as kept_arrays
    from qbench.metrics.kept import kept_digest as kept_digest
    from qbench.metrics.kept import packed_answers as packed_answers
    from qbench.metrics.kept import restored_answers as restored_answers
    from qbench.metrics.kept import unpacked_answers as unpacked_answers
    from qbench.metrics.likelihoods import Likelihoods as Likelihoods
    from qbench.metrics.metric import Counts as Counts
    from qbench.metrics.metric import Labels as Labels
    from qbench.metrics.metric import Metric as Metric
    from qbench.metrics.metric import score as score
    from qbench.metrics.named import catalogue as catalogue
    from qbench.metrics.named import get_metric as get_metric
    from qbench.metrics.named import split_name as split_name
    from qbench.metrics.outputs import FirstOutputs as FirstOutputs
    from qbench.metrics.outputs import OutputKind as OutputKind
    from qbench.metrics.outputs import Outputs as Outputs
    from qbench.metrics.outputs import held_outputs as held_outputs
    from qbench.metrics.scores import Against as Against
    from qbench.metrics.scores import Direction as Direction
    from qbench.metrics.scores import Score as Score
    from qbench.metrics.steps import Differences as Differences
    from qbench.metrics.steps import count_differences as count_differences
    from qbench.metrics.steps import unequal as unequal
else:
    __getattr__, __dir__, __all__ = open_on_use(
        __name__,
        {
            "answers": ("MILLION", "PADDING", "AnswerKind", "Answers", "points_of", "text_of"),
            "kept": (
                "AnswerChange",
                "count_changes",
                "kept_arrays",
                "kept_digest",
                "packed_answers",
                "restored_answers",
                "unpacked_answers",
            ),
            "likelihoods": ("Likelihoods",),
            "metric": ("Counts", "Labels", "Metric", "score"),
            "outputs": ("FirstOutputs", "OutputKind", "Outputs", "held_outputs"),
            "scores": ("Against", "Direction", "Score"),
            "distances": ("MOST_DB",),
            "steps": ("Differences", "count_differences", "unequal"),
            "named": ("catalogue", "get_metric", "split_name"),
        },
    )
