"""Models that a user names: an ONNX file as a classifier, or a model of the catalogue."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from qbench.errors import InputError, require_type
from qbench.extension import known_extensions
from qbench.graph import load_model, operator_catalogue, with_operators
from qbench.subjects.catalogue import model_catalogue
from qbench.subjects.pictures import Picture
from qbench.subjects.sources import ReadyArray
from qbench.subjects.subject import Dataset, Preprocess, ZooModel
from qbench.subjects.tasks import Classification


def read_network(model: str, data: Dataset, preprocess: Preprocess | None) -> ZooModel:
    """The model of the catalogue, or the file ``model`` as a classifier whose input is made by ``preprocess``.

    Args:
        model: a path or a name. data: the samples; a file without ``preprocess`` gets the usual one of their kind.
        preprocess: replaces that of the catalogue's model; None: do not replace it.

    Raises:
        InputError: no such file or name; data of a kind that has no preprocessing of its own.
    """
    named = _catalogue_model(model)
    if named is not None:
        return named if preprocess is None else replace(named, preprocess=preprocess)
    graph = _read_file(model)
    return ZooModel(
        id=re.sub(r"[^a-z0-9_.-]", "-", Path(model).stem.lower()) or "model",
        graphs={"model": lambda: graph},
        preprocess=_with_input_of(graph, preprocess or _usual_preprocess(data)),
        task=Classification(),
        origin=model,
    )


def read_graph(model: str) -> ir.Model:
    """The graph of the ONNX file ``model``, or of the model of the catalogue with this name.

    Raises:
        InputError: no such file or name, or a model of several graphs.
    """
    named = _catalogue_model(model)
    return _read_file(model) if named is None else only_graph(named)


def only_graph(network: ZooModel) -> ir.Model:
    """The graph of a model that has one.

    Raises:
        InputError: it has several, which only its task can run.
    """
    if len(network.graphs) != 1:
        raise InputError(
            f"Reading the model '{network.id}'",
            found=f"{len(network.graphs)} graphs ({', '.join(sorted(network.graphs))})",
            expected="one",
            remedy="Measure it with 'qbench eval' or a suite, which run all its graphs.",
        )
    (load,) = network.graphs.values()
    return load()


def _read_file(path: str) -> ir.Model:
    """The graph of the file; its nodes know the operators of the known extensions."""
    return with_operators(load_model(path), operator_catalogue(known_extensions()))


def _catalogue_model(model: str) -> ZooModel | None:
    """The model of the catalogue; None where ``model`` is a file.

    Raises:
        InputError: neither a name nor a path: the error lists the names.
    """
    remedy = "Save a model that is in memory with qbench.save_model, and give the path."
    require_type("Looking for a model", model, (str, Path), expected="a name or a path, as a text", remedy=remedy)
    catalogue = model_catalogue(known_extensions())
    is_file = Path(model).exists() or Path(model).suffix
    if model in catalogue.names() or not is_file:
        return catalogue.get(model, doing=f"Looking for the model '{model}'")
    return None


def _usual_preprocess(data: Dataset) -> Preprocess:
    """How samples of a data set of the catalogue become the input of a user's model file."""
    usual: dict[str, Preprocess] = {"picture": Picture(), "array": ReadyArray()}
    if data.kind in usual:
        return usual[data.kind]
    raise InputError(
        f"Preparing data set '{data.id}' for a model file",
        found=f"samples of kind '{data.kind}', which only a model of the catalogue can read",
        expected="pictures or arrays",
        remedy="Bring the samples as an .npz file with x and y.",
    )


def _with_input_of(model: ir.Model, preprocess: Any) -> Preprocess:  # noqa: ANN401 - any class with a field `input`
    """``preprocess`` for the only input of ``model``, where its own name for the input does not exist there."""
    names = [value.name for value in model.graph.inputs if value.name not in model.graph.initializers]
    if hasattr(preprocess, "input") and preprocess.input not in names and len(names) == 1:
        return replace(preprocess, input=names[0])  # type: ignore[no-any-return]
    return preprocess  # type: ignore[no-any-return]
