"""Calibration in one call: canonicalize, run the batches, return the profile."""

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from qbench.backends import Executor, Feeds, get_backend
from qbench.calibration.profile import Profile, data_digest
from qbench.calibration.watch import Watch, prepare_watch, refuse_nan
from qbench.calibration.watched import Rows, watched_values
from qbench.errors import InputError, require_count
from qbench.graph import AnyModel, as_model
from qbench.passes import DEFAULT, canonicalize
from qbench.working import working


def calibrate(
    model: AnyModel,
    batches: Iterable[Feeds],
    *,
    executor: Executor | None = None,
    sample_ids: Iterable[str] | None = None,
    threads: int = 1,
    values: Iterable[str] | None = None,
    pipeline: str = DEFAULT,
    channels: bool = False,
) -> Profile:
    """The profile of ``model`` (canonicalized here, idempotently) over ``batches``.

    Args:
        model: float graph, or the path of one; not touched.
        batches: input name → array whose first axis runs over samples, batch by batch.
        executor: runs the canonical graph with the watched values as taps; None: the backend
            ``ort-cpu``.
        sample_ids: one per sample, in order, for messages and for the record; None: samples are
            keyed by content.
        threads: of the executor made here.
        values: names of canonical values to watch; None: all that some schema could use.
        pipeline: the canonical passes, as the schemas that will use the profile name them
            (``Schema.canonical``).
        channels: keep extremes of every channel (axis 1) of the values too.

    Raises:
        InputError: no batches, or some that are not such tables, NaN in a constant or a watched
            value, NaN or ±Inf in what is fed (the sample is named; ±Inf that the graph itself makes
            is counted), ids that do not match the samples.
    """
    require_count("Calibrating", "threads", threads)
    ids, model = None if sample_ids is None else list(sample_ids), as_model(model)
    if executor is not None:
        refuse_nan(model)
        canonical = canonicalize(model, pipeline)
        return _run(
            Watch(executor, canonical, watched_values(canonical, values), ids, channels=channels),
            batches,
            ids,
        )
    backend = get_backend("ort-cpu")
    with prepare_watch(
        model,
        backend,
        values=values,
        sample_ids=ids,
        threads=threads,
        pipeline=pipeline,
        channels=channels,
    ) as watch:
        return _run(watch, batches, ids)


def data_of(model: ir.Model, batches: Iterable[Feeds]) -> str:
    """The digest of the data of a profile of ``model`` over ``batches``; runs nothing.

    Raises:
        InputError: a batch without the graph's first input.
    """
    rows = Rows.of(model)
    return data_digest(
        content for feeds in batches for content in rows.digests(feeds, rows.count(feeds))
    )


@working("calibrating")
def _run(watch: Watch, batches: Iterable[Feeds], ids: list[str] | None) -> Profile:
    if not isinstance(batches, Iterable):
        raise _no_batches(
            f"something of type {type(batches).__name__}", "Give a list of tables: [{'x': array}]."
        )
    if isinstance(batches, Mapping):
        raise _no_batches("one table of arrays", "Put it into a list: [{…}].")
    for feeds in batches:
        if not isinstance(feeds, Mapping):
            raise _no_batches(
                f"a batch that is a {type(feeds).__name__}", "Name the input: {'x': array}."
            )
        watch.run(feeds)
    profile = watch.profile()
    if ids is not None and profile.rows != len(ids):
        raise InputError(
            "Calibrating",
            found=f"{profile.rows} samples for {len(ids)} ids",
            expected="an id for every sample",
            remedy="Give as many sample ids as samples.",
        )
    return profile


def _no_batches(found: str, remedy: str) -> InputError:
    return InputError(
        "Calibrating",
        found=found,
        expected="batches, each a table of input name → array",
        remedy=remedy,
    )
