"""What the one graph of a model is fed for samples, by verbs that run it without scoring.

Samples that are the inputs of the graph are fed as they are, batch by batch. Where the task makes
the inputs of them (it cuts padding away, splits pairs, or runs a decoder block by block), the graph
is fed what the task feeds it while the float model answers, as in the cells of a suite.
"""

from collections.abc import Iterator
from contextlib import ExitStack

from qbench.backends import Array, Feeds, get_backend
from qbench.calibration import Profile, calibrate, data_of
from qbench.evaluation.artifacts import prepare_runners
from qbench.evaluation.measure import FLOAT_BACKEND
from qbench.evaluation.quantizer_run import stacked
from qbench.evaluation.watched_executor import recorded_feeds, task_profiles
from qbench.passes import DEFAULT
from qbench.subjects import BATCH, Samples, ZooModel, holds_past, only_graph


def are_inputs(network: ZooModel, samples: Samples) -> bool:
    """Whether ``samples`` are fed as they are: each input has an array, and there are no others.

    Samples that hold the past of a decoder are too: its task would make another one.

    Raises:
        InputError: the model has several graphs.
    """
    model = only_graph(network)
    names = next(samples.batches(1)).keys()
    inputs = {value.name for value in model.graph.inputs} - model.graph.initializers.keys()
    return names == inputs or holds_past(model, names)


def fed_batches(network: ZooModel, samples: Samples, size: int = BATCH) -> Iterator[Feeds]:
    """The batches that the graph of ``network`` is fed for ``samples``.

    Args:
        network: a model of one graph.
        samples: prepared by its preprocessing.
        size: samples of a batch, where they are fed as they are; a task makes its own batches.

    Raises:
        InputError: the model has several graphs, or its task refuses a sample.
    """
    if are_inputs(network, samples):
        yield from samples.batches(size)
        return
    with ExitStack() as stack:
        backend = get_backend(FLOAT_BACKEND)
        runners = prepare_runners(backend, network.loaded(), stack, threads=1)
        (batches,) = recorded_feeds(network.task, runners, samples).values()
    yield from batches


def fed_arrays(network: ZooModel, samples: Samples, doing: str, remedy: str) -> dict[str, Array]:
    """Graph input → all that it is fed for ``samples`` along the first axis; where a task makes
    batches of several shapes, those of the shape that most rows have.

    Raises:
        InputError: as of ``fed_batches``.
        UnsupportedError: an input has no axis of samples.
    """
    return stacked(list(fed_batches(network, samples)), doing, remedy)


def profile_of(
    network: ZooModel,
    samples: Samples,
    *,
    pipeline: str = DEFAULT,
    channels: bool = False,
    threads: int = 1,
) -> Profile:
    """The profile of the graph of ``network`` over ``samples``.

    Samples that are fed as they are keep their names in it; what a task makes of them is known by
    its content.

    Args:
        network: a float model of one graph.
        samples: prepared by its preprocessing.
        pipeline: the canonical passes, as schemas name them.
        channels: keep the extremes of every channel too.
        threads: of the engine.

    Raises:
        InputError: as of ``fed_batches``; a value is not finite (the sample is named).
    """
    model = only_graph(network)
    if are_inputs(network, samples):
        return calibrate(
            model,
            samples.batches(),
            # those of two files add up, whatever they count from
            sample_ids=[f"{samples.data}/{name}" for name in samples.ids],
            threads=threads,
            pipeline=pipeline,
            channels=channels,
        )
    (profile,) = task_profiles(
        network.task,
        dict.fromkeys(network.graphs, model),
        samples,
        get_backend(FLOAT_BACKEND),
        pipeline=pipeline,
        channels=channels,
        threads=threads,
    ).values()
    return profile


def data_of_profile(
    network: ZooModel, samples: Samples, *, pipeline: str = DEFAULT, threads: int = 1
) -> str:
    """The digest of the data of ``profile_of`` with the same arguments.

    Samples that are fed as they are need no run. What a task feeds may be what the graph made
    before (the past of a decoder), whose last bits depend on the graph that runs: the very one of
    the profile runs again.

    Raises:
        InputError: as of ``profile_of``.
    """
    if are_inputs(network, samples):
        return data_of(only_graph(network), samples.batches())
    return profile_of(network, samples, pipeline=pipeline, threads=threads).data
