"""One cell: its request, the road it takes, and what its subject's cells share."""

from qbench.evaluation.feed_recorder import recorded_feeds
from qbench.evaluation.kept_answers import KeptAnswers
from qbench.evaluation.measure import FLOAT_BACKEND, environment_here, measure_cell, measure_request, shared_work
from qbench.evaluation.noted_samples import NotedSamples
from qbench.evaluation.output_steps import OutputSteps, steps_of
from qbench.evaluation.request import Beside, Request
from qbench.evaluation.rewriting import rewrite_quantized
from qbench.evaluation.rewriting_value import Rewriting
from qbench.evaluation.shared import Quantized, SharedWork, prepare_runners
from qbench.evaluation.subject import MetricUse, Subject

__all__ = [
    "FLOAT_BACKEND",
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
    "environment_here",
    "measure_cell",
    "measure_request",
    "prepare_runners",
    "recorded_feeds",
    "rewrite_quantized",
    "shared_work",
    "steps_of",
]
