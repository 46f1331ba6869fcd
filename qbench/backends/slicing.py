"""Batches of any size for a graph with a fixed batch size b: n samples run as ⌈n / b⌉ slices of
b, joined to one batch.

The last slice is filled with copies of its last sample, and the surplus rows of its results are
removed. The first axis of a result is assumed to run over samples if it has b rows. Other results
are concatenated over all slices, so that taps lose no number.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from qbench.backends.protocol import Array, Closing, Executed, Executor, Feeds, executed_by
from qbench.errors import InputError
from qbench.graph import fixed_batch


def in_slices(executor: Executor, model: ir.Model) -> Executor:
    """``executor`` of ``model`` for batches of any size; itself if the graph's batch is free."""
    size = fixed_batch(model)
    return executor if size is None else _Slicing(executor, model, size)


class _Slicing(Closing):
    """An executor that splits batches for the executor of a graph with ``size`` samples, and
    closes that.
    """

    def __init__(self, executor: Executor, model: ir.Model, size: int) -> None:
        self._executor = executor
        self._graph = model.graph.name or "model"
        self._size = size
        self._ranks = {
            str(value.name): len(value.shape)
            for value in model.graph.inputs
            if value.shape is not None
        }
        self._first = next(name for name in self._ranks if name not in model.graph.initializers)
        self._sliced = {
            str(value.name)
            for value in model.graph.inputs
            if value.shape and (not isinstance(value.shape[0], int) or value.shape[0] == size)
        }

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            InputError: an input does not fit the graph, or the slices' results do not fit together.
        """
        first = feeds.get(self._first)
        rows = len(first) if first is not None and np.ndim(first) == self._ranks[self._first] else 0
        if rows in (0, self._size):  # it fits; or it cannot fit, and the executor reports why
            return self._executor.run(feeds)
        parts: dict[str, list[Array]] = {}
        for start in range(0, rows, self._size):
            count = min(self._size, rows - start)
            results = self._executor.run(
                {name: self._part(name, feeds[name], rows, start) for name in feeds}
            )
            for name, result in results.items():
                by_sample = result.ndim > 0 and len(result) == self._size
                parts.setdefault(name, []).append(
                    result[:count] if by_sample else np.atleast_1d(result)
                )
        return {name: self._joined(name, arrays) for name, arrays in parts.items()}

    def _part(self, name: str, feed: Array, rows: int, start: int) -> Array:
        """The slice of ``feed`` from row ``start``, filled up; a feed without an axis over
        samples stays whole.
        """
        if name not in self._sliced or not np.ndim(feed) or len(feed) != rows:
            return feed
        part = feed[start : start + self._size]
        missing = self._size - len(part)
        return (
            part if not missing else np.concatenate([part, np.repeat(part[-1:], missing, axis=0)])
        )

    def _joined(self, name: str, parts: list[Array]) -> Array:
        try:
            return np.concatenate(parts)
        except ValueError as error:
            raise InputError(
                f"Running '{self._graph}' in slices of {self._size}",
                found=(
                    f"'{name}' of the shapes "
                    f"{', '.join(sorted({str(part.shape) for part in parts}))}"
                ),
                expected="results of slices that differ in their first axis only",
                remedy="Export the model with a free batch size.",
            ) from error

    def executed(self) -> Mapping[str, Executed]:
        """As the inner executor."""
        return executed_by(self._executor)

    def close(self) -> None:
        """Close the inner executor."""
        self._executor.close()
