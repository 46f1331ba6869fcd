"""Folding one value, run by run, into its statistics."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.calibration.float_bins import MOST, Counter, new_table, unpacked
from qbench.calibration.histogram import Histogram
from qbench.calibration.statistics import Statistics
from qbench.calibration.watched import WatchedValue
from qbench.errors import InputError

# Extremes of every channel of a value: of every index of its axis 1, over all else.

ChannelFloats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Channels:
    """Folds runs into the extremes of channels, as long as their number stays the same.

    A value without an axis 1, or with another length of it in another run, has no channels to keep
    apart.
    """

    _lows: ChannelFloats | None = None
    _highs: ChannelFloats | None = None
    _varied: bool = False

    def fold(self, batch: npt.NDArray[np.float32]) -> None:
        """Add the value of one run (at least one number, no NaN); infinite numbers are left out."""
        if (
            self._varied
            or batch.ndim < 2
            or (self._lows is not None and len(self._lows) != batch.shape[1])
        ):
            self._varied, self._lows, self._highs = True, None, None
            return
        rows = batch.reshape(*batch.shape[:2], -1)
        lows, highs = rows.min(axis=2), rows.max(axis=2)
        if not (np.isfinite(lows).all() and np.isfinite(highs).all()):
            finite = np.isfinite(rows)
            lows = rows.min(axis=2, where=finite, initial=np.inf)
            highs = rows.max(axis=2, where=finite, initial=-np.inf)
        low = (lows.min(axis=0) + np.float32(0)).astype(np.float64)
        high = highs.max(axis=0).astype(np.float64) + 0.0
        self._lows = low if self._lows is None else np.minimum(self._lows, low)
        self._highs = high if self._highs is None else np.maximum(self._highs, high)

    @property
    def ends(self) -> tuple[ChannelFloats, ChannelFloats] | tuple[None, None]:
        """Lows and highs, or nothing where channels are not kept apart."""
        if self._lows is None or self._highs is None:
            return None, None
        return self._lows.copy(), self._highs.copy()


# Folding one value, run by run, into its statistics; nothing of a run is kept but counts and
# extremes.

Floats = npt.NDArray[np.float32]

_PIECE = 1 << 17
"""Numbers that numpy looks at three times in a row (least, greatest, count), which stay in the
cache meanwhile.
"""


class Observer:
    """Watches one value.

    Args:
        value: its name and where it runs over samples.
        counter: counts into tables; one for all values of a graph.
        alone: every run is of one sample, so that all numbers are that sample's.
        fed: it is an input of the graph, where infinite numbers are a mistake, not a result.
        guarded: an IsNaN reads it, so that NaN is expected (a Softmax of a row that is masked
            entirely).
        channels: also keep the extremes of every channel.
    """

    def __init__(
        self,
        value: WatchedValue,
        counter: Counter,
        *,
        alone: bool = False,
        fed: bool = False,
        guarded: bool = False,
        channels: bool = False,
    ) -> None:
        self._value = value
        self._counter = counter
        self._alone = alone
        self._fed = fed
        self._guarded = guarded
        self._channels = Channels() if channels and value.sample_axis != 1 else None
        self._low, self._high = np.inf, -np.inf
        self._infinite = self._not_negative = 0
        self._zeros, self._histogram = 0, Histogram.empty()
        self._table, self._tabled = new_table(), 0
        self._extremes: dict[str, tuple[float, float]] = {}

    def fold(self, batch: Floats, samples: Sequence[str]) -> None:
        """Add ``batch``, the value for ``samples`` (their keys).

        Raises:
            InputError: the batch holds NaN and is not guarded, or is fed and holds ±Inf; the sample
                is named.
        """
        if not batch.size:
            return
        axis, given = self._value.sample_axis, batch
        by_sample = self._alone
        if (
            not by_sample
            and axis is not None
            and batch.ndim > axis
            and batch.shape[axis] == len(samples)
        ):
            by_sample, batch = True, np.moveaxis(batch, axis, 0)
        rows = np.ascontiguousarray(batch, np.float32).reshape(len(samples) if by_sample else 1, -1)
        names = samples if by_sample else [" or ".join(samples)]
        for row, name in zip(rows, names, strict=True):
            low, high = self._fold_row(row, name)
            self._low, self._high = min(self._low, low), max(self._high, high)
            if by_sample:
                known = self._extremes.get(name, (np.inf, -np.inf))
                self._extremes[name] = (min(known[0], low), max(known[1], high))
        if self._channels is not None:
            self._channels.fold(given)

    def statistics(self, samples: Sequence[str]) -> Statistics:
        """What was seen, extremes of samples in the order of ``samples``."""
        keys, counts, lows, zeros = unpacked(self._table, self._tabled)
        sample_lows = sample_highs = None
        if all(sample in self._extremes for sample in samples):
            ends = np.array([self._extremes[sample] for sample in samples], np.float64).reshape(
                -1, 2
            )
            sample_lows, sample_highs = ends[:, 0].copy(), ends[:, 1].copy()
        channel_lows, channel_highs = (
            (None, None) if self._channels is None else self._channels.ends
        )
        return Statistics(
            low=self._low,
            high=self._high,
            zeros=self._zeros + zeros,
            histogram=self._histogram.merge(Histogram(keys, counts, lows)),
            infinite=self._infinite,
            not_negative=self._not_negative,
            sample_lows=sample_lows,
            sample_highs=sample_highs,
            channel_lows=channel_lows,
            channel_highs=channel_highs,
        )

    def _fold_row(self, row: Floats, sample: str) -> tuple[float, float]:
        """Count the numbers of ``row`` (1-D), piece by piece; its extremes."""
        lowest, highest = np.inf, -np.inf
        self._counter.warm(self._table, self._low, self._high, row.size)
        for start in range(0, row.size, _PIECE):
            piece = row[start : start + _PIECE]
            counted, low, high = self._count(piece)
            lowest, highest = min(lowest, low), max(highest, high)
            if counted < piece.size:
                _, low, high = self._count(self._finite(piece[counted:], sample))
                lowest, highest = min(lowest, low), max(highest, high)
        # Adding 0.0 makes −0.0 a plain zero: which of the two a minimum picks depends on the order.
        return lowest + 0.0, highest + 0.0

    def _finite(self, numbers: Floats, sample: str) -> Floats:
        """The finite ones among ``numbers``; the others are counted here."""
        if self._fed or (np.isnan(numbers).any() and not self._guarded):
            raise not_finite(self._value.name, sample, fed=self._fed)
        finite = numbers[np.isfinite(numbers)]
        infinite = numbers.size - finite.size
        self._infinite += infinite
        self._not_negative += infinite - int(np.count_nonzero(np.isneginf(numbers)))
        return finite

    def _count(self, numbers: Floats) -> tuple[int, float, float]:
        """As ``Counter.fold``, into a table that has room for ``numbers``."""
        if self._tabled + numbers.size > MOST:
            keys, counts, lows, zeros = unpacked(self._table, self._tabled)
            self._histogram = self._histogram.merge(Histogram(keys, counts, lows))
            self._zeros += zeros
            self._table, self._tabled = new_table(), 0
        found = self._counter.fold(numbers, self._table)
        self._tabled += found[0]
        return found


def not_finite(value: str, sample: str, *, fed: bool) -> InputError:
    """The error for a value that holds NaN, or is ``fed`` and holds NaN or Inf, on ``sample``."""
    return InputError(
        f"Watching value '{value}' on calibration sample '{sample}'",
        found="NaN or Inf" if fed else "NaN",
        expected="finite numbers" if fed else "numbers",
        remedy="Correct or remove the sample.",
    )
