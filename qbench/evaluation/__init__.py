"""One cell: its request, the road it takes, and what its subject's cells share."""

from qbench.evaluation.feed_recorder import recorded_feeds
from qbench.evaluation.kept_answers import KeptAnswers
from qbench.evaluation.noted_samples import NotedSamples
from qbench.evaluation.output_steps import OutputSteps, steps_of
from qbench.evaluation.request import Beside, MetricUse, Request, Subject
from qbench.evaluation.rewriting import rewrite_quantized
from qbench.evaluation.rewriting_value import Rewriting
from qbench.evaluation.road import evaluate
from qbench.evaluation.shared import Quantized, SharedWork, prepare_runners

__all__ = [
    "Beside",
    "KeptAnswers",
    "MetricUse",
    "NotedSamples",
    "OutputSteps",
    "Quantized",
    "Request",
    "Rewriting",
    "SharedWork",
    "Subject",
    "evaluate",
    "prepare_runners",
    "recorded_feeds",
    "rewrite_quantized",
    "steps_of",
]
