"""Means of values over samples and positions, one a channel, summed in float64 batch by batch.

E[v]_c = Σ over samples and positions of v_c / how many there were
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import Array, Backend, Executor, Feeds, in_slices

Doubles = npt.NDArray[np.float64]


class ChannelMeans:
    """The running means of one value; ``axis`` of it runs over channels."""

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._sums: Doubles | None = None
        self._count = 0

    def add(self, batch: Array) -> None:
        """Count in a batch of the value; the channels are the same in all batches."""
        kept = self._axis % batch.ndim
        sums = np.asarray(batch.sum(axis=tuple(i for i in range(batch.ndim) if i != kept), dtype=np.float64))
        self._sums = sums if self._sums is None else self._sums + sums
        self._count += batch.size // max(batch.shape[kept], 1)

    @property
    def value(self) -> Doubles:
        """The means so far, shape [channels]; NaN while nothing was counted."""
        return np.full(0, np.nan) if self._sums is None or not self._count else self._sums / self._count


def channel_means(
    model: ir.Model, axes: Mapping[str, int], batches: Iterable[Feeds], backend: Backend, *, threads: int
) -> tuple[dict[str, Doubles], list[dict[str, Array]]]:
    """The means of the values named in ``axes`` (name → axis of channels), and what the graph was fed.

    The feeds are ``batches``, or slices of them where the graph takes a fixed number of samples.

    Raises:
        QbenchError: what the backend raises.
    """
    means = {name: ChannelMeans(axis) for name, axis in axes.items()}
    with _Recording(backend.prepare(model, taps=tuple(axes), threads=threads), means) as recording:
        runner = in_slices(recording, model)
        for feeds in batches:
            runner.run(feeds)
        return {name: mean.value for name, mean in means.items()}, recording.fed


class _Recording:
    """An executor that counts the means of its taps and remembers what it was fed."""

    def __init__(self, executor: Executor, means: Mapping[str, ChannelMeans]) -> None:
        self.fed: list[dict[str, Array]] = []
        self._executor = executor
        self._means = means

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch, of the size that the graph takes."""
        results = self._executor.run(feeds)
        for name, mean in self._means.items():
            mean.add(results[name])
        self.fed.append({name: np.asarray(array) for name, array in feeds.items()})
        return results

    def close(self) -> None:
        """Close the executor inside."""
        self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def samples_in(feeds: Sequence[Feeds]) -> int:
    """Rows of the first input over all of ``feeds``."""
    return sum(len(next(iter(batch.values()))) for batch in feeds if batch)
