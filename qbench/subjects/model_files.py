"""Models that a user names: an ONNX file as a classifier, or a model of the catalogue."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.errors import InputError, require_type
from qbench.extension import known_extensions
from qbench.graph import (
    fixed_batch,
    format_of_path,
    load_model,
    operator_catalogue,
    own_copy,
    with_operators,
)
from qbench.subjects.catalogue import model_catalogue
from qbench.subjects.dataset import Array, Dataset, Preprocess, is_one_hot, one_hot_error
from qbench.subjects.detection import Detection, FramedPicture
from qbench.subjects.factory_names import is_factory
from qbench.subjects.language import causal_lm, is_decoder
from qbench.subjects.module_factories import graph_of_factory
from qbench.subjects.pictures import Picture
from qbench.subjects.sample_folders import ReadyArray
from qbench.subjects.samples import BATCH
from qbench.subjects.source_tables import pieces_note
from qbench.subjects.subject import Task, ZooModel
from qbench.subjects.tasks import Classification, WholeOutput
from qbench.subjects.value_tasks import Regression, Restoration, Segmentation


def read_network(
    model: str,
    data: Dataset,
    preprocess: Preprocess | None,
    output: str | None = None,
    *,
    like: ZooModel | None = None,
) -> ZooModel:
    """The model of the catalogue, or that of the file ``model`` with ``preprocess`` in front.

    Args:
        model: a path or a name.
        data: the samples; a file without ``preprocess`` gets the usual one of their kind.
        preprocess: replaces that of the catalogue's model; None: do not replace it.
        output: as in ``model_from_file``.
        like: its float model; a file is fed and judged as this one is where ``data`` are of a kind
            that only models of the catalogue read.

    Raises:
        InputError: no such file or name; an output of a model of the catalogue; data of a kind that
            has no preprocessing of its own, or whose arrays are not the inputs of the graph.
    """
    named = _catalogue_model(model)
    if named is None and like is not None and data.kind not in _USUAL:
        return _file_like(model, like, output)
    if named is None:
        return model_from_file(
            model, preprocess=preprocess or _usual_preprocess(data), output=output, data=data
        )
    if output is not None:
        raise _task_reads_outputs(output, model)
    if preprocess is None:
        return named
    if _is_fed_as_it_is(named):
        preprocess = _fitted(only_graph(named), preprocess, data)
    return replace(named, preprocess=preprocess)


def _task_reads_outputs(output: str, model: str) -> InputError:
    return InputError(
        f"Reading output '{output}' of '{model}'",
        found="a model of the catalogue, whose task says what it reads",
        expected="a model file",
        remedy="Leave --output out.",
    )


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
        path: or ``module:factory``, a function that returns a module of a library such as
            PyTorch and its example inputs.
        name: its id; None: the name of the file.
        task: reads its outputs; None: ``causal_lm`` of a decoder that takes its past, the one that
            labels of ``data`` ask for where they are masks, pictures or values, else
            ``Classification`` where the output is (n, classes), else ``WholeOutput``.
        preprocess: None: samples are ready feeds.
        output: the one that a task of ours reads; None: the graph's first.
        data: samples whose arrays have to be the inputs of the graph.

    Raises:
        InputError: no such file, no such output, or arrays that are not its inputs.
    """
    graph = _with_batch_axis(_read_file(str(path)), preprocess or ReadyArray(), task, data)
    # the task of a decoder feeds tokens alone, and its cache itself
    fed = None if task is None and is_decoder(graph) else data
    return ZooModel(
        id=name or re.sub(r"[^a-z0-9_.-]", "-", Path(path).stem.lower()) or "model",
        graphs={"model": lambda: graph},
        preprocess=_fitted(graph, preprocess or ReadyArray(), fed),
        task=_of_one_sample(
            _usual_task(graph, output, str(path), preprocess, data) if task is None else task, graph
        ),
        origin=str(path),
    )


def _with_batch_axis(
    graph: ir.Model,
    preprocess: Any,  # noqa: ANN401
    task: Task | None,
    data: Dataset | None,
) -> ir.Model:
    """``graph`` with an axis of one sample in front of its inputs where they have none; else
    itself.

    Detectors are often exported so: one picture (3, H, W) a run. Their outputs stay as they are.
    """
    inputs = [value for value in graph.graph.inputs if value.name not in graph.graph.initializers]
    feeds = {} if data is None or not len(data) else _first_feeds(preprocess, data)
    samples: dict[str, tuple[int | None, ...]]
    if isinstance(preprocess, FramedPicture) or (not feeds and isinstance(task, Detection)):
        samples = dict.fromkeys((str(value.name) for value in inputs), _PICTURE)
    elif len(inputs) == 1:
        samples = {
            str(value.name): feed.shape[1:]
            for value, feed in zip(inputs, feeds.values(), strict=False)
        }
    else:
        samples = {name: feed.shape[1:] for name, feed in feeds.items()}
    if not inputs or not all(
        _takes_one_sample(one.shape, samples.get(str(one.name))) for one in inputs
    ):
        return graph
    made = own_copy(graph)
    axis = ir.Value(
        name="qbench_batch_axis",
        const_value=ir.tensor(np.array([0], np.int64), name="qbench_batch_axis"),
    )
    made.graph.initializers["qbench_batch_axis"] = axis
    for value in [one for one in made.graph.inputs if one.name not in graph.graph.initializers]:
        first = next(node for node in made.graph)
        squeeze = ir.node("Squeeze", [value, axis], name=f"{value.name}_of_one_sample")
        squeezed = squeeze.outputs[0]
        squeezed.name = f"{value.name}_of_one_sample"
        squeezed.shape = value.shape
        squeezed.type = value.type
        value.replace_all_uses_with(squeezed)
        squeeze.replace_input_with(0, value)
        value.shape = ir.Shape([1, *(value.shape or ())])
        made.graph.insert_before(first, squeeze)
    return made


_PICTURE = (None, None, None)
"""The shape of one picture, of any size."""


def _takes_one_sample(shape: ir.Shape | None, sample: tuple[int | None, ...] | None) -> bool:
    """Whether an input of ``shape`` has the axes of one ``sample``, and none of the batch.

    A free first axis is that of the batch where the first axis of the sample is 1: the sample was
    saved with it.
    """
    if shape is None or sample is None or len(shape) != len(sample):
        return False
    return not sample or isinstance(shape[0], int) or sample[0] != 1


def _usual_task(
    graph: ir.Model,
    output: str | None,
    path: str,
    preprocess: Preprocess | None,
    data: Dataset | None,
) -> Task:
    outputs = {value.name: value for value in graph.graph.outputs}
    if not outputs:
        raise InputError(
            f"Reading the outputs of '{path}'",
            found="a graph without an output",
            expected="an output with the answers",
            remedy="Export the model with its outputs.",
        )
    if output is not None and output not in outputs:
        raise InputError(
            f"Reading the outputs of '{path}'",
            found=f"no output '{output}'",
            expected=f"one of: {', '.join(map(str, outputs))}",
            remedy="Name an output that the graph has.",
        )
    if isinstance(preprocess, FramedPicture):
        return _detection(graph, output, path)
    if is_decoder(graph):
        return causal_lm(graph, path)
    labelled = None if data is None else _task_of_labels(data, output)
    chosen = outputs[output] if output is not None else graph.graph.outputs[0]
    if data is not None and isinstance(labelled, Regression):
        _refuse_one_hot(data, chosen)
    if labelled is not None:
        return labelled
    return (
        Classification(output=output)
        if _has_rows_of_scores(chosen, graph)
        else WholeOutput(output=output)
    )


def _of_one_sample(task: Task, graph: ir.Model) -> Task:
    """``task`` with one sample a run where ``graph`` has one, and the output that it reads has
    no axis of samples.
    """
    if fixed_batch(graph) != 1 or not isinstance(task, (Detection, WholeOutput)):
        return task
    name = task.boxes if isinstance(task, Detection) else task.output
    output = next((one for one in graph.graph.outputs if name in (None, one.name)), None)
    shape = None if output is None else output.shape
    if shape is None or not len(shape):
        return task
    is_flat = (
        len(shape) == 2
        if isinstance(task, Detection)
        else isinstance(shape[0], int) and shape[0] != 1
    )
    return replace(task, batch=1) if is_flat else task


def _has_rows_of_scores(output: ir.Value, graph: ir.Model) -> bool:
    """Whether ``output`` may be (n, classes): not (boxes, 4) of the one sample that a run of
    the graph has.
    """
    shape, size = output.shape, fixed_batch(graph)
    if shape is None:
        return True
    return len(shape) == 2 and (size is None or not isinstance(shape[0], int) or shape[0] == size)


def _refuse_one_hot(data: Dataset, scores: ir.Value) -> None:
    """Check that the values of ``data`` are not one-hot classes, where the model gives a row of
    scores.

    Raises:
        InputError: they are.
    """
    labels = [np.asarray(label) for label in data.labels or ()]
    is_ranked = scores.shape is None or len(scores.shape) == 2
    if is_ranked and len({label.shape for label in labels}) == 1 and is_one_hot(np.stack(labels)):
        raise one_hot_error(f"Reading the labels of '{data.id}'", len(labels[0]))


def _task_of_labels(data: Dataset, output: str | None) -> Task | None:
    """What labels that are arrays ask of a model: masks, pictures or values; None: they are
    others, or classes.
    """
    if not data.labels or data.whole_labels is not None:
        return None
    first = np.asarray(data.labels[0])
    if first.dtype.kind == "u":
        return Segmentation(output=output) if first.ndim == 2 else Restoration(output=output)
    return Regression(output=output) if first.ndim <= 1 else None


def _detection(graph: ir.Model, output: str | None, path: str) -> Detection:
    """The task of a detector whose outputs are named after what they hold, or that has one
    output (n, m, 6).

    Raises:
        InputError: no output is named so.
    """
    outputs = {str(value.name): value for value in graph.graph.outputs}
    rank = {
        name: None if value.shape is None else len(value.shape) for name, value in outputs.items()
    }
    inputs = [value for value in graph.graph.inputs if value.name not in graph.graph.initializers]
    is_lone = bool(inputs and inputs[0].shape and inputs[0].shape[0] == 1)

    def named(*words: str) -> str | None:
        return next((name for name in outputs if any(word in name.lower() for word in words)), None)

    def batch_of(boxes: str) -> int:
        return 1 if is_lone or rank[boxes] == 2 else BATCH

    boxes, scores, classes = output or named("box"), named("score", "conf"), named("class", "label")
    if None not in (boxes, scores, classes) and len({boxes, scores, classes}) == 3:
        return Detection(
            boxes=str(boxes), scores=scores, classes=classes, batch=batch_of(str(boxes))
        )
    lone = output or (next(iter(outputs)) if len(outputs) == 1 else None)
    last = outputs[lone].shape[-1] if lone is not None and outputs[lone].shape is not None else None  # type: ignore[index]
    if lone is not None and last in (6, None):
        return Detection(boxes=lone, batch=batch_of(lone))
    raise InputError(
        f"Reading boxes from the outputs of '{path}'",
        found=f"the outputs {', '.join(outputs)}",
        expected=(
            "outputs called boxes, scores and classes, or one (n, boxes, 6), after non-maximum "
            "suppression"
        ),
        remedy=(
            "Export the model with its suppression, or give it a task: model_from_file(path, "
            "task=Detection(...))."
        ),
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
    (graph,) = network.loaded().values()
    return graph


def _read_file(path: str) -> ir.Model:
    """The graph of the file, whose nodes know the operators of extensions; a file of another
    format is one node.
    """
    if is_factory(path):
        return graph_of_factory(path)
    foreign = format_of_path(path, f"Loading the model '{path}'")
    if foreign is not None:
        return foreign.read(Path(path))
    return with_operators(load_model(path), operator_catalogue(known_extensions()))


def _catalogue_model(model: str) -> ZooModel | None:
    """The model of the catalogue; None where ``model`` is a file.

    Raises:
        InputError: neither a name nor a path: the error lists the names.
    """
    remedy = "Save a model that is in memory with qbench.save_model, and give the path."
    require_type(
        "Looking for a model",
        model,
        (str, Path),
        expected="a name or a path, as a text",
        remedy=remedy,
    )
    catalogue = model_catalogue(known_extensions())
    is_file = Path(model).exists() or Path(model).suffix or is_factory(str(model))
    if model in catalogue.names() or not is_file:
        return catalogue.get(model, doing=f"Looking for the model '{model}'")
    return None


def _file_like(path: str, like: ZooModel, output: str | None) -> ZooModel:
    """The file at ``path`` with the preprocessing and the task of ``like``.

    Raises:
        InputError: it has other inputs or outputs.
    """
    if output is not None:
        raise _task_reads_outputs(output, like.id)
    made = model_from_file(path, task=like.task, preprocess=like.preprocess)
    ours, theirs = (_names_at_ends(only_graph(one)) for one in (made, like))
    if ours != theirs:
        raise InputError(
            f"Measuring '{path}' as its float model '{like.id}' is measured",
            found=f"other inputs or outputs: {', '.join(sorted(ours ^ theirs))}",
            expected="those of the float model",
            remedy="Name the float model that the file was made of.",
        )
    return made


def _names_at_ends(model: ir.Model) -> set[str]:
    graph = model.graph
    return {str(value.name) for value in (*graph.inputs, *graph.outputs)} - set(graph.initializers)


_USUAL: Mapping[str, Preprocess] = MappingProxyType({"picture": Picture(), "array": ReadyArray()})
"""How samples of a kind become the input of a user's model file."""


def _usual_preprocess(data: Dataset) -> Preprocess:
    """How samples of a data set of the catalogue become the input of a user's model file."""
    if data.kind in _USUAL:
        return _USUAL[data.kind]
    raise InputError(
        f"Preparing data set '{data.id}' for a model file",
        found=f"samples of kind '{data.kind}', which only a model of the catalogue can read",
        expected="pictures or arrays",
        remedy="Bring the samples as an .npz file with an array for each input, or name the model "
        "of the catalogue that the file was made of with --fp32.",
    )


def _fitted(model: ir.Model, preprocess: Any, data: Dataset | None) -> Preprocess:  # noqa: ANN401
    """``preprocess`` for ``model``: its own name for a lone input gives way to that of the graph.

    Raises:
        InputError: ``data`` names feeds, and they are not the inputs of the graph; or the first
            sample has other shapes or types than these.
    """
    inputs = {
        str(value.name): value
        for value in model.graph.inputs
        if value.name not in model.graph.initializers
    }
    if hasattr(preprocess, "input") and preprocess.input not in inputs and len(inputs) == 1:
        preprocess = replace(preprocess, input=next(iter(inputs)))
    feeds = {} if data is None or not len(data) else _first_feeds(preprocess, data)
    doing = f"Feeding '{'' if data is None else data.id}' to the model"
    if feeds and feeds.keys() != inputs.keys():
        raise InputError(
            doing,
            found=f"the arrays {', '.join(sorted(feeds))}",
            expected=f"one for each input of the graph: {', '.join(inputs)} (y: the labels)",
            remedy="Save every array under the name of its input.",
        )
    for name, feed in feeds.items():
        _require_fit(inputs[name], feed, preprocess, doing)
    return preprocess  # type: ignore[no-any-return]


_FED_AS_THEY_ARE = (Classification, WholeOutput, Segmentation, Restoration, Regression)


def require_feeds(network: ZooModel, data: Dataset) -> None:
    """Check that the first sample of ``data`` fits the graph of a network whose task feeds it
    samples as they are.

    Raises:
        InputError: it has other names, shapes or types.
    """
    if _is_fed_as_it_is(network):
        _fitted(only_graph(network), network.preprocess, data)


def _is_fed_as_it_is(network: ZooModel) -> bool:
    """Whether samples are the inputs of its graph; the task of a decoder adds those of its
    cache.
    """
    task = getattr(network.task, "__wrapped__", network.task)
    return len(network.graphs) == 1 and isinstance(task, _FED_AS_THEY_ARE)


def _first_feeds(preprocess: Any, data: Dataset) -> dict[str, Array]:  # noqa: ANN401
    """What a batch of one sample feeds; nothing where only the task knows that."""
    if isinstance(preprocess, ReadyArray) and data.kind == "array":
        return {name: feed[None] for name, feed in preprocess.prepare(data.load(0)).items()}
    if isinstance(preprocess, FramedPicture) and data.kind == "picture":
        return preprocess.finish(
            {preprocess.input: np.zeros((1, preprocess.height, preprocess.width, 3), np.uint8)}
        )
    if isinstance(preprocess, Picture) and data.kind == "picture":
        side = preprocess.crop
        return preprocess.finish({preprocess.input: np.zeros((1, side, side, 3), np.uint8)})
    return {}


def _require_fit(value: ir.Value, feed: Array, preprocess: Any, doing: str) -> None:  # noqa: ANN401
    """Check the shape after the first axis, and the type, of what an input is fed."""
    if value.dtype not in (None, ir.DataType.STRING) and feed.dtype != value.dtype.numpy():
        raise InputError(
            doing,
            found=f"{feed.dtype} for input '{value.name}'",
            expected=str(np.dtype(value.dtype.numpy())),
            remedy="Save the array with that type.",
        )
    wanted = list(value.shape or ())[1:]
    sizes = [dim if isinstance(dim, int) else None for dim in wanted]
    fits = len(sizes) == feed.ndim - 1 and all(
        want in (None, have) for want, have in zip(sizes, feed.shape[1:], strict=True)
    )
    if fits or not value.shape:
        return
    raise InputError(
        doing,
        found=f"{_sizes(feed.shape[1:])} a sample for input '{value.name}'",
        expected=_sizes(["?" if size is None else size for size in sizes]),
        remedy=_size_remedy(sizes, feed, preprocess),
    )


def _sizes(shape: Sequence[object]) -> str:
    return "×".join(map(str, shape)) or "one number"


def _size_remedy(sizes: Sequence[int | None], feed: Array, preprocess: Any) -> str:  # noqa: ANN401
    if (
        isinstance(preprocess, FramedPicture)
        and len(sizes) == 3
        and sizes[1] == sizes[2]
        and sizes[1]
    ):
        return f"Add ?resize={sizes[1]} to the path."
    if isinstance(preprocess, Picture) and len(sizes) == 3:
        is_last = sizes[0] != 3 and sizes[2] == 3
        height, width = sizes[:2] if is_last else sizes[1:]
        if 3 not in (sizes[0], sizes[2]):
            return "Pictures are fed with 3 channels; save others as arrays."
        side = height or width
        settings = (
            [f"resize={side}", f"crop={side}"] if side and {height, width} <= {side, None} else []
        )
        settings += ["layout=nhwc"] if is_last else []
        return (
            f"Add ?{'&'.join(settings)} to the path."
            if settings
            else "Save the pictures as arrays of that shape."
        )
    if feed.ndim - 2 == len(sizes) and feed.shape[1] == 1:
        return "Save each sample without the axis of the batch."
    return "Save samples of that shape, one row per sample."


def data_notes(network: ZooModel, data: Dataset) -> tuple[str, ...]:
    """How ``data`` numbers its classes, what is doubtful of that for ``network``, and if
    samples seem to be pieces.
    """
    pieces = pieces_note(data)
    if data.classes is None:
        return (pieces,) if pieces else ()
    found = [pieces, f"'{data.id}' has {data.classes}"]
    task = getattr(network.task, "__wrapped__", network.task)
    if isinstance(task, Classification) and len(network.graphs) == 1:
        outputs = {value.name: value for value in only_graph(network).graph.outputs}
        scores = outputs.get(task.output) if task.output else next(iter(outputs.values()))
        if scores is not None and scores.shape is not None and isinstance(scores.shape[-1], int):
            found.append(data.classes.warning(scores.shape[-1]))
    return tuple(filter(None, found))
