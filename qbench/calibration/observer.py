"""Folding one value, batch by batch, into its statistics; nothing of the batch is kept but its extremes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.statistics import Statistics
from qbench.errors import InputError

_CHUNK = 1 << 16
"""Elements whose comparison with zero stays in the cache between making and counting."""


class Observer:
    """Watches one value; ``per_sample`` says that its first axis runs over samples."""

    def __init__(self, value: str, *, per_sample: bool) -> None:
        self._value = value
        self._per_sample = per_sample
        self._low, self._high = np.inf, -np.inf
        self._count = self._zeros = 0
        self._extremes: dict[str, tuple[float, float]] = {}

    def fold(self, batch: npt.NDArray[np.float32], samples: Sequence[str]) -> None:
        """Add ``batch``, the value for ``samples`` (their keys, as many as the first axis of the graph's feeds).

        Raises:
            InputError: the batch holds NaN or Inf; the sample is named.
        """
        if not batch.size:
            return
        by_sample = self._per_sample and batch.ndim > 0 and len(batch) == len(samples)
        rows = batch.reshape(len(batch) if by_sample else 1, -1)
        # Adding 0.0 makes −0.0 a plain zero: which of the two a minimum picks depends on the order.
        lows = rows.min(axis=1).astype(np.float64) + 0.0
        highs = rows.max(axis=1).astype(np.float64) + 0.0
        finite = np.isfinite(lows) & np.isfinite(highs)
        if not finite.all():
            self._refuse(samples[int(np.argmin(finite))] if by_sample else " or ".join(samples))
        self._low, self._high = min(self._low, float(lows.min())), max(self._high, float(highs.max()))
        self._count += batch.size
        self._zeros += _zeros(rows)
        if by_sample:
            for sample, low, high in zip(samples, lows.tolist(), highs.tolist(), strict=True):
                self._note(sample, low, high)

    def statistics(self, samples: Sequence[str]) -> Statistics:
        """What was seen, extremes of samples in the order of ``samples``."""
        if not self._per_sample or any(sample not in self._extremes for sample in samples):
            return Statistics(self._low, self._high, self._count, self._zeros)
        ends = np.array([self._extremes[sample] for sample in samples], np.float64).reshape(-1, 2)
        return Statistics(self._low, self._high, self._count, self._zeros, ends[:, 0].copy(), ends[:, 1].copy())

    def _note(self, sample: str, low: float, high: float) -> None:
        known = self._extremes.get(sample, (np.inf, -np.inf))
        self._extremes[sample] = (min(known[0], low), max(known[1], high))

    def _refuse(self, sample: str) -> None:
        raise InputError(
            f"Watching value '{self._value}' on calibration sample '{sample}'",
            found="NaN or Inf",
            expected="finite numbers",
            remedy="Mend or remove the sample.",
        )


def _zeros(rows: npt.NDArray[Any]) -> int:
    flat = rows.reshape(-1)
    return sum(int(np.count_nonzero(flat[start : start + _CHUNK] == 0)) for start in range(0, flat.size, _CHUNK))
