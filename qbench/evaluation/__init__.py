"""One cell: its request, how it is measured, and what the cells of its subject share."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.evaluation.artifacts import Quantized as Quantized
    from qbench.evaluation.artifacts import SubjectArtifacts as SubjectArtifacts
    from qbench.evaluation.artifacts import prepare_runners as prepare_runners
    from qbench.evaluation.cell_model import cache_words as cache_words
    from qbench.evaluation.feeding import are_inputs as are_inputs
    from qbench.evaluation.feeding import data_of_profile as data_of_profile
    from qbench.evaluation.feeding import fed_arrays as fed_arrays
    from qbench.evaluation.feeding import fed_batches as fed_batches
    from qbench.evaluation.feeding import profile_of as profile_of
    from qbench.evaluation.measure import FLOAT_BACKEND as FLOAT_BACKEND
    from qbench.evaluation.measure import environment_here as environment_here
    from qbench.evaluation.measure import measure_cell as measure_cell
    from qbench.evaluation.measure import measure_request as measure_request
    from qbench.evaluation.measure import subject_artifacts as subject_artifacts
    from qbench.evaluation.quantizer_run import quantizer_python as quantizer_python
    from qbench.evaluation.recorded import environment_of as environment_of
    from qbench.evaluation.request import Comparator as Comparator
    from qbench.evaluation.request import Request as Request
    from qbench.evaluation.rewriting import OutputSteps as OutputSteps
    from qbench.evaluation.rewriting import Rewriting as Rewriting
    from qbench.evaluation.rewriting import rewrite_quantized as rewrite_quantized
    from qbench.evaluation.rewriting import steps_of as steps_of
    from qbench.evaluation.sample_previews import SamplePreviews as SamplePreviews
    from qbench.evaluation.sample_previews import previews_of as previews_of
    from qbench.evaluation.subject import MetricUse as MetricUse
    from qbench.evaluation.subject import RecordingTask as RecordingTask
    from qbench.evaluation.subject import Subject as Subject
    from qbench.evaluation.subject import build_subject as build_subject
    from qbench.evaluation.subject import refuse_overlap as refuse_overlap
    from qbench.evaluation.sweep import SweepPlan as SweepPlan
    from qbench.evaluation.sweep import sweep_cell as sweep_cell
    from qbench.evaluation.sweep import sweep_cells as sweep_cells
    from qbench.evaluation.versus_backend import NotedSamples as NotedSamples
    from qbench.evaluation.versus_backend import compare_until_differing as compare_until_differing
    from qbench.evaluation.watched_executor import recorded_feeds as recorded_feeds
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
