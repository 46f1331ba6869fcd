"""A Request holds every replaceable part of a cell's road as a value, so that one part can be exchanged.

Localisation, faults, another Python or a pool run the same road with one part replaced; nothing lower calls it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from qbench.backends import Backend
from qbench.errors import InputError
from qbench.evaluation.given_model import refuse_other_road
from qbench.evaluation.rewriting_value import Rewriting
from qbench.judging import Cell, Criterion, EnvironmentClass
from qbench.metrics import Metric
from qbench.quantization import Schema
from qbench.zoo import Dataset, ZooModel


@dataclass(frozen=True, slots=True)
class MetricUse:
    """A metric on one data set; ``name`` is as the suite writes it: ``top1`` or ``agreement@photo_crops``."""

    name: str
    metric: Metric
    data: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """A model with the data and the metrics it is judged by.

    Args:
        data: scored data sets by id, the subject's main one first.
        calibration: what ranges are taken from; shares no source with scored data.
        given: ``model`` as it came quantized, which cells of the schema ``given`` run.

    Raises:
        InputError: calibration and scored data overlap, a metric needs labels that its data does not have, or ``given``
            takes samples or gives answers in another way than ``model``.
    """

    model: ZooModel
    data: Mapping[str, Dataset]
    metrics: tuple[MetricUse, ...]
    calibration: Dataset
    given: ZooModel | None = None

    def __post_init__(self) -> None:
        if self.given is not None:
            refuse_other_road(self.given, self.model)
        for dataset in self.data.values():
            refuse_overlap(self.model.id, self.calibration, dataset)
        for use in self.metrics:
            if use.metric.needs_labels and self.data[use.data].labels is None:
                raise InputError(
                    f"Scoring '{self.model.id}' with '{use.name}'",
                    found=f"no labels in data set '{use.data}'",
                    expected="labelled samples",
                    remedy="Choose labelled data, or a metric against the fp32 reference such as 'agreement'.",
                )

    def asks_likelihoods(self, dataset: Dataset) -> bool:
        """Whether a metric counts how likely the labels of ``dataset`` are."""
        asking = (self.data[use.data] for use in self.metrics if use.metric.of_likelihoods)
        return any(data.digest == dataset.digest for data in asking)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beside:
    """Another backend that runs a cell's quantized model too, its class here, and what the cell must be beside it."""

    backend: Backend
    criterion: Criterion
    environment: EnvironmentClass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """All that the road of one cell needs. ``schema`` None runs a model as it is: the float one, or the given one.

    ``rewriting`` is what runs behind the quantizer; None: nothing. ``beside`` is whom a quantized cell is compared
    with; None: nobody. ``keeps_answers``: whether the measurement carries the answers themselves. ``recalibrated``: the
    variant of the suite that the calibration samples are of; empty: they are the model's own.
    """

    cell: Cell
    subject: Subject
    backend: Backend
    schema: Schema | None
    rewriting: Rewriting | None = None
    threads: int = 1
    beside: Beside | None = None
    keeps_answers: bool = False
    recalibrated: str = ""


def refuse_overlap(model: str, calibration: Dataset, scored: Dataset) -> None:
    """Check that no sample is both calibrated on and scored.

    Raises:
        InputError: two samples come from one source; the first is named.
    """
    shared = set(calibration.sources) & set(scored.sources)
    if shared:
        raise InputError(
            f"Calibrating '{model}' on '{calibration.id}'",
            found=f"{len(shared)} sources that '{scored.id}' is scored on, e.g. '{min(shared)}'",
            expected="calibration samples that are never scored",
            remedy="Choose other calibration data.",
        )
