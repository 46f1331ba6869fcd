"""Watching an executor at work: every watched value of every run is folded, and the caller sees the plain outputs.

A task drives a Watch as it drives any executor, so that decode loops calibrate by being run. Rows of a run are samples;
a row's key is its id, if ids are given, else the digest of what was fed to it.
"""

import hashlib
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import Array, Backend, Executor, Feeds, in_slices
from qbench.calibration.observer import Observer
from qbench.calibration.profile import Profile, note_sample
from qbench.calibration.watched import WatchedValue, watched_values
from qbench.errors import InputError
from qbench.graph import graph_digest
from qbench.passes import canonicalize


class Watch:
    """An executor of a canonical graph whose runs are folded into a profile; a context manager that closes it.

    Args:
        executor: runs the graph and gives, beside its outputs, every value in ``values`` (its taps).
        model: the canonical graph that ``executor`` runs.
        values: the watched values, as ``watched_values`` gives them.
        sample_ids: of the rows to come, in their order; None: rows are told apart by content.
    """

    def __init__(
        self,
        executor: Executor,
        model: ir.Model,
        values: Sequence[WatchedValue],
        sample_ids: Iterable[str] | None = None,
    ) -> None:
        self._executor = in_slices(executor, model)
        self._graph = graph_digest(model)
        self._first_input = model.graph.inputs[0].name or ""
        self._outputs = tuple(value.name or "" for value in model.graph.outputs)
        self._observers = {value.name: Observer(value.name, per_sample=value.per_sample) for value in values}
        self._ids = None if sample_ids is None else iter(sample_ids)
        self._samples: dict[str, str] = {}
        self._rows = 0

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: folds the watched values, returns the graph's own outputs.

        Raises:
            InputError: NaN or Inf in a watched value, a missing tap, or more rows than sample ids.
        """
        contents = row_digests(feeds, self._first_input)
        keys = contents if self._ids is None else self._next_ids(len(contents))
        results = self._executor.run(feeds)
        for name, observer in self._observers.items():
            batch = feeds.get(name) if name in feeds else results.get(name)
            if batch is None:
                raise _missing_tap(name)
            observer.fold(np.asarray(batch), keys)
        for key, content in zip(keys, contents, strict=True):
            note_sample(self._samples, key, content)
        self._rows += len(keys)
        return {name: results[name] for name in self._outputs}

    def profile(self) -> Profile:
        """The profile of everything run so far.

        Raises:
            InputError: nothing was run.
        """
        if not self._rows:
            raise InputError(
                "Calibrating", found="no samples", expected="at least one batch", remedy="Give calibration samples."
            )
        samples = dict(sorted(self._samples.items()))
        values = {name: observer.statistics(tuple(samples)) for name, observer in self._observers.items()}
        return Profile(self._graph, samples, self._rows, values)

    def close(self) -> None:
        """Close the executor."""
        self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next_ids(self, count: int) -> list[str]:
        assert self._ids is not None
        found = [str(name) for _, name in zip(range(count), self._ids, strict=False)]
        if len(found) < count:
            raise InputError(
                "Calibrating",
                found=f"more samples than ids ({self._rows + len(found)} ids)",
                expected="an id for every sample",
                remedy="Give as many sample ids as samples.",
            )
        return found


def prepare_watch(
    model: ir.Model,
    backend: Backend,
    *,
    values: Iterable[str] | None = None,
    sample_ids: Iterable[str] | None = None,
    threads: int = 1,
) -> Watch:
    """A Watch over ``model`` (canonicalized here) on ``backend``, with the taps it needs.

    Args:
        model: float graph.
        backend: whose float arithmetic makes the values.
        values: names of values of the canonical graph; None: all that some schema could use.
        sample_ids: of the rows to come.
        threads: of the executor.

    Raises:
        InputError: an unknown value. What ``prepare`` raises passes through.
    """
    canonical = canonicalize(model)
    watched = watched_values(canonical, values)
    given = {value.name for value in (*canonical.graph.inputs, *canonical.graph.outputs)}
    taps = tuple(value.name for value in watched if value.name not in given)
    return Watch(backend.prepare(canonical, taps=taps, threads=threads), canonical, watched, sample_ids)


def row_digests(feeds: Feeds, first_input: str) -> list[str]:
    """The digest of each row of ``feeds``: of every input's part along the first axis of ``first_input``.

    An input of another length belongs whole to every row.

    Raises:
        InputError: that input is missing or has no axis to count rows by.
    """
    first = feeds.get(first_input)
    if first is None or not np.ndim(first):
        raise InputError(
            "Calibrating",
            found=f"a batch without '{first_input}', or with it as one number",
            expected="an array whose first axis runs over samples",
            remedy="Feed the graph's inputs by name.",
        )
    states = [hashlib.blake2b(digest_size=16) for _ in range(len(first))]
    for name in sorted(feeds):
        array = np.ascontiguousarray(feeds[name])
        split = array.ndim > 0 and len(array) == len(states)
        for index, state in enumerate(states):
            part: npt.NDArray[Any] = array[index] if split else array
            state.update(f"{name}|{part.dtype.str}|{part.shape}|".encode())
            state.update(np.ascontiguousarray(part).data if part.dtype != object else repr(part.tolist()).encode())
    return [state.hexdigest() for state in states]


def _missing_tap(name: str) -> InputError:
    return InputError(
        f"Watching value '{name}'",
        found="an executor that does not return it",
        expected="an executor prepared with every watched value as a tap",
        remedy="Prepare it on the canonical graph with taps=[…], or leave executor out.",
    )
