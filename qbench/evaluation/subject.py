"""A model with the data and the metrics that it is judged by."""

from collections.abc import Mapping
from dataclasses import dataclass

from qbench.errors import InputError
from qbench.evaluation.given_model import refuse_other_road
from qbench.metrics import Metric
from qbench.subjects import Dataset, ZooModel


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
