"""A subject from any ONNX file and the user's data."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.evaluation import MetricUse, Subject
    from qbench.subjects import Dataset, Preprocess, ZooModel


def build_subject(
    model: str,
    data: str,
    calibration: str | None,
    metrics: Sequence[str],
    count: int | None,
    *,
    given: str | None = None,
) -> "Subject":
    """What ``qbench eval`` measures.

    Args:
        model: an ONNX file, or a name of the zoo. data, calibration: texts as ``dataset_from_text`` takes them; no
            calibration gives an empty one, for float models.
        metrics: names; none: those that fit the task and the labels. count: of calibration samples; None: all.
        given: ``model`` as it came quantized, a file or a name; None: it did not.

    Raises:
        InputError: no such file or name, settings that contradict each other, or calibration samples that are scored.
    """
    from qbench.evaluation import Subject
    from qbench.subjects import dataset_from_text

    scored, preprocess = dataset_from_text(data)
    network = read_network(model, scored, preprocess)
    chosen = _nothing(scored) if calibration is None else _calibration(calibration, network, preprocess, count)
    uses = _uses(network, scored, metrics)
    came = None if given is None else read_network(given, scored, preprocess)
    return Subject(model=network, data={scored.id: scored}, metrics=uses, calibration=chosen, given=came)


def read_network(model: str, data: "Dataset", preprocess: "Preprocess | None") -> "ZooModel":
    """The model of the zoo, or the file ``model`` as a classifier fed by ``preprocess``.

    Raises:
        InputError: no such file or name; data of a kind that has no preprocessing of its own.
    """
    from qbench.extension import installed_extensions
    from qbench.graph import load_model
    from qbench.subjects import Classification, ZooModel, model_catalogue

    zoo = model_catalogue(installed_extensions())
    if model in zoo.names():
        network = zoo.get(model)
        return network if preprocess is None else replace(network, preprocess=preprocess)
    if not Path(model).exists() and not Path(model).suffix:
        return zoo.get(model, doing=f"Looking for the model '{model}'")  # which says what names there are
    graph = load_model(model)
    return ZooModel(
        id=re.sub(r"[^a-z0-9_.-]", "-", Path(model).stem.lower()) or "model",
        graphs={"model": lambda: graph},
        preprocess=_fitted(preprocess or _usual(data), graph),
        task=Classification(),
        origin=model,
    )


def only_graph(network: "ZooModel") -> "ir.Model":
    """The graph of a model that has one.

    Raises:
        InputError: it has several, which only its task can drive.
    """
    if len(network.graphs) != 1:
        raise InputError(
            f"Reading the model '{network.id}'",
            found=f"{len(network.graphs)} graphs ({', '.join(sorted(network.graphs))})",
            expected="one",
            remedy="Measure it with 'qbench eval' or a suite, which drive all its graphs.",
        )
    (load,) = network.graphs.values()
    return load()


def read_graph(model: str) -> "ir.Model":
    """The graph of the ONNX file ``model``, or of the model of the zoo that is called so.

    Raises:
        InputError: no such file or name, or a model of several graphs.
    """
    from qbench.extension import installed_extensions
    from qbench.graph import load_model
    from qbench.subjects import model_catalogue

    zoo = model_catalogue(installed_extensions())
    is_file = Path(model).exists() or Path(model).suffix
    if model in zoo.names() or not is_file:
        return only_graph(zoo.get(model, doing=f"Looking for the model '{model}'"))
    return load_model(model)


def _usual(data: "Dataset") -> "Preprocess":
    """What data of the zoo goes through when the model is the user's file."""
    from qbench.subjects import Picture, ReadyArray

    usual: dict[str, Preprocess] = {"picture": Picture(), "array": ReadyArray()}
    if data.kind in usual:
        return usual[data.kind]
    raise InputError(
        f"Preparing data set '{data.id}' for a model file",
        found=f"samples of kind '{data.kind}', which only a model of the zoo knows how to read",
        expected="pictures or arrays",
        remedy="Bring the samples as an .npz file with x and y.",
    )


def _fitted(preprocess: Any, model: "ir.Model") -> "Preprocess":  # noqa: ANN401 - any of the zoo's, by its field
    """``preprocess`` that feeds the only input of ``model``, when its own name for it was left to us."""
    names = [value.name for value in model.graph.inputs if value.name not in model.graph.initializers]
    if hasattr(preprocess, "input") and preprocess.input not in names and len(names) == 1:
        return replace(preprocess, input=names[0])  # type: ignore[no-any-return]
    return preprocess  # type: ignore[no-any-return]


def _nothing(like: "Dataset") -> "Dataset":
    return replace(like, id="none", sample_ids=(), sources=(), labels=None, content="")


def _calibration(text: str, network: "ZooModel", given: "Preprocess | None", count: int | None) -> "Dataset":
    from qbench.subjects import dataset_from_text

    dataset, preprocess = dataset_from_text(text)
    if "?" in text and given is not None and preprocess is not None and preprocess.name != given.name:
        raise InputError(
            f"Calibrating '{network.id}' on '{text}'",
            found=f"other settings ({preprocess.name}) than the scored data has ({given.name})",
            expected="one way into the model",
            remedy="Leave the settings of --calib out: those of --data hold for both.",
        )
    if count is None:
        return dataset
    if not 1 <= count <= len(dataset):
        raise InputError(
            f"Calibrating '{network.id}' on '{text}'",
            found=f"{len(dataset)} samples where {count} were asked for",
            expected="at least as many, and one at least",
            remedy="Mend --calib-count.",
        )
    return dataset.take(count)


def _uses(network: "ZooModel", data: "Dataset", names: Sequence[str]) -> "tuple[MetricUse, ...]":
    from qbench.evaluation import MetricUse
    from qbench.metrics import get_metric
    from qbench.subjects import Classification

    if not names:
        right = ("top1", "top5") if isinstance(network.task, Classification) else ("exact",)
        names = (*(right if data.labels is not None else ()), "agreement")
    return tuple(MetricUse(name, get_metric(name), data.id) for name in dict.fromkeys(names))
