"""Calibration in one call: canonicalize, run the batches through a watching executor, hand back the profile."""

from collections.abc import Iterable

import onnx_ir as ir

from qbench.backends import Executor, Feeds, get_backend
from qbench.calibration.profile import Profile
from qbench.calibration.watch import Watch, prepare_watch
from qbench.calibration.watched import watched_values
from qbench.errors import InputError
from qbench.passes import canonicalize


def calibrate(
    model: ir.Model,
    batches: Iterable[Feeds],
    *,
    executor: Executor | None = None,
    sample_ids: Iterable[str] | None = None,
    threads: int = 1,
    values: Iterable[str] | None = None,
) -> Profile:
    """The profile of ``model`` (canonicalized here, idempotently) over ``batches``.

    Args:
        model: float graph; not touched.
        batches: input name → array whose first axis runs over samples, batch by batch.
        executor: runs the canonical graph with the watched values as taps; None: the backend ``ort-cpu``.
        sample_ids: one a sample, in order, for messages and for the record; None: samples are keyed by content.
        threads: of the executor made here.
        values: names of canonical values to watch; None: all that some schema could use.

    Raises:
        InputError: no batches, NaN or Inf in a watched value (the sample is named), ids that do not match the samples.
    """
    ids = None if sample_ids is None else list(sample_ids)
    if executor is not None:
        canonical = canonicalize(model)
        return _run(Watch(executor, canonical, watched_values(canonical, values), ids), batches, ids)
    with prepare_watch(model, get_backend("ort-cpu"), values=values, sample_ids=ids, threads=threads) as watch:
        return _run(watch, batches, ids)


def _run(watch: Watch, batches: Iterable[Feeds], ids: list[str] | None) -> Profile:
    for feeds in batches:
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
