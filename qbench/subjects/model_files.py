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
from qbench.subjects.subject import Dataset, Preprocess, Task, ZooModel
from qbench.subjects.tasks import Classification, WholeOutput


def read_network(model: str, data: Dataset, preprocess: Preprocess | None, output: str | None = None) -> ZooModel:
    """The model of the catalogue, or that of the file ``model`` with ``preprocess`` in front.

    Args:
        model: a path or a name. data: the samples; a file without ``preprocess`` gets the usual one of their kind.
        preprocess: replaces that of the catalogue's model; None: do not replace it. output: as in ``model_from_file``.

    Raises:
        InputError: no such file or name; an output of a model of the catalogue; data of a kind that has no
            preprocessing of its own, or whose arrays are not the inputs of the graph.
    """
    named = _catalogue_model(model)
    if named is None:
        return model_from_file(model, preprocess=preprocess or _usual_preprocess(data), output=output, data=data)
    if output is not None:
        raise InputError(
            f"Reading output '{output}' of '{model}'",
            found="a model of the catalogue, whose task says what it reads",
            expected="a model file",
            remedy="Leave --output out.",
        )
    if preprocess is None:
        return named
    if isinstance(preprocess, ReadyArray) and len(named.graphs) == 1:
        preprocess = _with_inputs_of(only_graph(named), preprocess, data)
    return replace(named, preprocess=preprocess)


def model_from_file(
    path: str | Path,
    *,
    name: str | None = None,
    task: Task | None = None,
    preprocess: Preprocess | None = None,
    output: str | None = None,
    data: Dataset | None = None,
) -> ZooModel:
    """The ONNX file at ``path`` as a model that suites and verbs can name.

    Args:
        name: its id; None: the name of the file. task: reads its outputs; None: ``Classification`` where the output is
            (n, classes), else ``WholeOutput``. preprocess: None: samples are ready feeds. output: the one that a task
            of ours reads; None: the graph's first. data: samples whose arrays have to be the inputs of the graph.

    Raises:
        InputError: no such file, no such output, or arrays that are not its inputs.
    """
    graph = _read_file(str(path))
    return ZooModel(
        id=name or re.sub(r"[^a-z0-9_.-]", "-", Path(path).stem.lower()) or "model",
        graphs={"model": lambda: graph},
        preprocess=_with_inputs_of(graph, preprocess or ReadyArray(), data),
        task=_usual_task(graph, output, str(path)) if task is None else task,
        origin=str(path),
    )


def _usual_task(graph: ir.Model, output: str | None, path: str) -> Task:
    outputs = {value.name: value for value in graph.graph.outputs}
    if output is not None and output not in outputs:
        raise InputError(
            f"Reading the outputs of '{path}'",
            found=f"no output '{output}'",
            expected=f"one of: {', '.join(map(str, outputs))}",
            remedy="Name an output that the graph has.",
        )
    chosen = outputs[output] if output is not None else graph.graph.outputs[0]
    is_ranked = chosen.shape is None or len(chosen.shape) == 2
    return Classification(output=output) if is_ranked else WholeOutput(output=output)


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


def _with_inputs_of(model: ir.Model, preprocess: Any, data: Dataset | None) -> Preprocess:  # noqa: ANN401
    """``preprocess`` for ``model``: its own name for a lone input gives way to that of the graph.

    Raises:
        InputError: ``data`` names feeds, and they are not the inputs of the graph.
    """
    inputs = [str(value.name) for value in model.graph.inputs if value.name not in model.graph.initializers]
    if hasattr(preprocess, "input") and preprocess.input not in inputs and len(inputs) == 1:
        preprocess = replace(preprocess, input=inputs[0])
    if data is not None and len(data) and data.kind == "array" and isinstance(preprocess, ReadyArray):
        fed = set(preprocess.prepare(data.load(0)))
        if fed != set(inputs):
            raise InputError(
                f"Feeding '{data.id}' to the model",
                found=f"the arrays {', '.join(sorted(fed))}",
                expected=f"one for each input of the graph: {', '.join(inputs)} (y: the labels)",
                remedy="Save every array under the name of its input.",
            )
    return preprocess  # type: ignore[no-any-return]
