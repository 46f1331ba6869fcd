"""One cell: its request, how it is measured, and what the cells of its subject share."""

from qbench.evaluation.artifacts import Quantized, SubjectArtifacts, prepare_runners, recorded_feeds
from qbench.evaluation.measure import FLOAT_BACKEND, environment_here, measure_cell, measure_request, subject_artifacts
from qbench.evaluation.request import Comparator, Request
from qbench.evaluation.rewriting import OutputSteps, Rewriting, rewrite_quantized, steps_of
from qbench.evaluation.subject import MetricUse, RecordingTask, Subject, build_subject
from qbench.evaluation.versus_backend import NotedSamples

__all__ = [
    "FLOAT_BACKEND",
    "Comparator",
    "MetricUse",
    "NotedSamples",
    "OutputSteps",
    "Quantized",
    "RecordingTask",
    "Request",
    "Rewriting",
    "Subject",
    "SubjectArtifacts",
    "build_subject",
    "environment_here",
    "measure_cell",
    "measure_request",
    "prepare_runners",
    "recorded_feeds",
    "rewrite_quantized",
    "steps_of",
    "subject_artifacts",
]
