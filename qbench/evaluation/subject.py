"""A model with the data and metrics it is judged by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from qbench.errors import InputError, UnsupportedError
from qbench.graph import Form, form_of, library_operators, library_remedy
from qbench.metrics import Answers, Likelihoods, Metric, get_metric
from qbench.number_text import counted
from qbench.storage import digest_arrays
from qbench.subjects import (
    Dataset,
    Preprocess,
    Runner,
    Samples,
    Task,
    ZooModel,
    dataset_from_text,
    forced_likelihoods,
    read_network,
    require_feeds,
)

if TYPE_CHECKING:
    from qbench.quantization import Plan

# Models that came quantized: the same way in and out as their float partner, read into plans, never
# rewritten.


def refuse_other_interface(given: ZooModel, partner: ZooModel) -> None:
    """Check that samples enter and answers leave ``given`` as they do its float ``partner``.

    Raises:
        InputError: other preprocessing, another task, or other graphs.
    """
    pairs = (
        ("the preprocessing", given.preprocess.name, partner.preprocess.name),
        ("the task", given.task.name, partner.task.name),
        ("the graphs", ", ".join(sorted(given.graphs)), ", ".join(sorted(partner.graphs))),
    )
    for word, mine, theirs in pairs:
        if mine != theirs:
            raise InputError(
                f"Judging '{given.id}' against its fp32 partner '{partner.id}'",
                found=f"{word} '{mine}', where the partner has '{theirs}'",
                expected="the same, so that only quantization differs",
                remedy=f"Give '{given.id}' what '{partner.id}' has.",
            )


def read_given(
    given: ZooModel, sized: Callable[[ir.Model], ir.Model]
) -> "tuple[Mapping[str, ir.Model], Mapping[str, Plan]]":
    """The graphs of ``given`` as they are, and the plans that can be read out of them.

    Args:
        given: a model with a float partner.
        sized: what declares the usual sizes of a graph.

    Raises:
        InputError: none of its graphs is quantized, or a Q or DQ in them means nothing.
        UnsupportedError: a graph cannot be read at the opset that QDQ is written at.
    """
    from qbench.quantization import read_plan

    models = {name: sized(load()) for name, load in given.graphs.items()}
    if all(form_of(model) is Form.FLOAT for model in models.values()):
        _refuse_library_operators(given.id, models)
        raise InputError(
            f"Measuring '{given.id}' as it is",
            found="a float model",
            expected="a quantized one, because it names an fp32 partner",
            remedy="Give the quantized file, or take a schema in place of 'fp32'.",
        )
    return models, {name: read_plan(model) for name, model in models.items()}


def _refuse_library_operators(name: str, models: "Mapping[str, ir.Model]") -> None:
    """Raise where what quantizes ``models`` are operators of a library.

    Raises:
        UnsupportedError: there are such.
    """
    own = tuple(one for model in models.values() for one in library_operators(model))
    if own:
        raise UnsupportedError(
            f"Reading what is quantized in '{name}'",
            found=" and ".join(map(str, own)),
            expected="Q and DQ, or operators on integers, of ONNX or ONNX Runtime",
            remedy=library_remedy(own),
        )


# A model with the data and the metrics that it is judged by.


@dataclass(frozen=True, slots=True)
class MetricUse:
    """A metric on one data set; ``name`` as in a suite: ``top1``, ``agreement@photo_crops``."""

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
        InputError: scored data has no samples, calibration and scored data overlap, a metric needs
            labels that its data does not have, or ``given`` takes samples or gives answers
            in another way than ``model``.
    """

    model: ZooModel
    data: Mapping[str, Dataset]
    metrics: tuple[MetricUse, ...]
    calibration: Dataset
    given: ZooModel | None = None

    def __post_init__(self) -> None:
        if self.given is not None:
            refuse_other_interface(self.given, self.model)
        for dataset in self.data.values():
            if not len(dataset):
                raise InputError(
                    f"Scoring '{self.model.id}' on '{dataset.id}'",
                    found="a data set of no samples",
                    expected="at least one sample",
                    remedy="Correct the function that the data set comes from, or choose another.",
                )
            refuse_overlap(self.model, self.calibration, dataset)
        for use in self.metrics:
            if use.metric.needs_labels and self.data[use.data].labels is None:
                raise InputError(
                    f"Scoring '{self.model.id}' with '{use.name}'",
                    found=f"no labels in data set '{use.data}'",
                    expected="labelled samples",
                    remedy=(
                        "Choose labelled data, or a metric against the fp32 reference such as "
                        "'agreement'."
                    ),
                )

    def asks_likelihoods(self, dataset: Dataset) -> bool:
        """Whether a metric counts how likely the labels of ``dataset`` are."""
        asking = (self.data[use.data] for use in self.metrics if use.metric.of_likelihoods)
        return any(data.digest == dataset.digest for data in asking)


def refuse_overlap(model: ZooModel, calibration: Dataset, scored: Dataset) -> None:
    """Check that no sample is both calibrated on and scored.

    Raises:
        InputError: two samples come from one source, or are the same tokens to ``model``; the
            first is named.
    """
    if not len(calibration):
        return
    pairs, unit = _pairs(calibration, calibration.sources, scored, scored.sources), "source"
    if not pairs:
        unit = "sample"
        pairs = _pairs(calibration, _tokens(model, calibration), scored, _tokens(model, scored))
    if not pairs:
        return
    sample, other = next(iter(pairs.values()))
    raise InputError(
        f"Calibrating '{model.id}' on '{calibration.id}'",
        found=(
            f"{counted(len(pairs), unit)} that '{scored.id}' is scored on, e.g. '{sample}', "
            f"there '{other}'"
        ),
        expected="calibration samples that are never scored",
        remedy="Choose other calibration data.",
    )


def _pairs(
    calibration: Dataset, learned: Sequence[str], scored: Dataset, counts: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """What ``learned``, a text for each calibration sample, shares with ``counts``, one for each
    scored sample → the ids of the two samples, each the first or only one that has it.
    """
    known = dict(zip(reversed(counts), reversed(scored.sample_ids), strict=False))
    return {
        text: (one, known[text])
        for text, one in zip(learned, calibration.sample_ids, strict=False)
        if text in known
    }


def _tokens(model: ZooModel, data: Dataset) -> tuple[str, ...]:
    """A digest of the tokens of each sample of ``data``, where ``model`` is fed tokens alone; none
    of another model.

    The arrays next to the tokens, such as the document of each window, are not fed: two samples
    that differ in these alone have different sources and are the same to the model.
    """
    sequence = getattr(model.task, "sequence", None)
    if sequence is None or data.kind != "array":
        return ()
    samples = (data.load(index) for index in range(len(data)))
    feeds = [one.get(sequence) if isinstance(one, Mapping) else one for one in samples]
    if any(one is None for one in feeds):
        return ()  # is refused where it is read, with the arrays that there are
    return tuple(digest_arrays({sequence: np.asarray(one)}) for one in feeds)


def build_subject(
    model: str,
    data: str,
    calibration: str | None,
    metrics: Sequence[str],
    count: int | None,
    *,
    given: str | None = None,
    output: str | None = None,
) -> Subject:
    """The subject of a user's model and data: what ``measure_cell`` and ``qbench eval`` measure.

    Args:
        model: an ONNX file, or the name of a model.
        data, calibration: scored and calibration samples, each written as ``dataset_from_text``
            reads it; no calibration is enough for a float model.
        metrics: names; none: those that fit the task and the labels.
        count: of calibration samples; None: all.
        given: ``model`` as it came quantized, a file or a name; None: it did not.
        output: of a model file, the output that is compared; None: the graph's first.

    Raises:
        InputError: no such file or name, settings that contradict each other, or calibration
            samples that are scored.
    """
    scored, preprocess = dataset_from_text(data)
    network = read_network(model, scored, preprocess, output)
    learned = (
        scored.without_samples()
        if calibration is None
        else _calibration(calibration, network, preprocess)
    )
    return Subject(
        model=network,
        data={scored.id: scored},
        metrics=_uses(network, scored, metrics),
        calibration=learned if count is None or calibration is None else learned.take(count),
        given=None
        if given is None
        else read_network(given, scored, preprocess, output, like=network),
    )


def _calibration(text: str, network: ZooModel, scored: Preprocess | None) -> Dataset:
    """The data set ``text``; ``scored`` is the preprocessing of the scored data, where its text
    has settings.
    """
    dataset, preprocess = dataset_from_text(text)
    if (
        "?" in text
        and scored is not None
        and preprocess is not None
        and preprocess.name != scored.name
    ):
        raise InputError(
            f"Calibrating '{network.id}' on '{text}'",
            found=(
                f"settings ({preprocess.name}) that differ from those of the scored data "
                f"({scored.name})"
            ),
            expected="one preprocessing for both",
            remedy="Leave the settings out here: those of the scored data are used for both.",
        )
    if dataset.kind == "array":
        require_feeds(network, dataset)
    return dataset


def _uses(network: ZooModel, data: Dataset, names: Sequence[str]) -> tuple[MetricUse, ...]:
    if not names:
        of_labels = (
            () if data.labels is None else getattr(network.task, "usual_metrics", ("exact",))
        )
        names = (*of_labels, *getattr(network.task, "usual_comparisons", ("agreement",)))
    return tuple(MetricUse(name, get_metric(name), data.id) for name in dict.fromkeys(names))


# A task that keeps its last answers for further counting.


class RecordingTask:
    """``task``, with ``last``: its answers of the last run; None before the first."""

    def __init__(self, task: Task) -> None:
        self.last: Answers | None = None
        self._task = self.__wrapped__ = (
            task  # its code is the task's: what is cached for one is for both
        )

    @property
    def name(self) -> str:
        """The task's own: it reads outputs alike."""
        return self._task.name

    @property
    def graphs(self) -> tuple[str, ...]:
        """The names of the graphs it runs."""
        return self._task.graphs

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The answers to all samples, kept.

        Raises:
            InputError: what the task raises.
        """
        self.last = self._task.answer(runners, samples)
        return self.last

    def likelihoods(self, runners: Mapping[str, Runner], samples: Samples) -> Likelihoods:
        """How likely the labels are, kept with the answers.

        Raises:
            InputError: the task cannot compute it, or what it raises.
        """
        found = forced_likelihoods(self._task, runners, samples)
        self.last = None if self.last is None else self.last.with_run(likelihoods=found)
        return found
