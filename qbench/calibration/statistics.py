"""Statistics of one value: extremes, counts, sums and a histogram; merging and writing them."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.float_bins import CELL_BITS, FINITE_MAGNITUDES, Ints, keys_of
from qbench.calibration.histogram import Counts, Distribution, Histogram
from qbench.errors import InputError
from qbench.storage import ArchiveError, csv_text, inflate

# Every field is a minimum, a maximum or an integer sum, so that folding is exact in any order:
# statistics(a ∪ b) = merge(statistics(a), statistics(b)), bit for bit.

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Statistics of one value over all samples of a profile.

    Args:
        low, high: exact extremes of the finite numbers; +inf and −inf while there are none.
        zeros: how many of them were zero, of either sign.
        histogram: of the finite numbers.
        infinite: how many numbers were ±Inf, or NaN where an IsNaN reads the value; they count
            nowhere else. (Any other NaN is refused where it is seen.)
        not_negative: how many of ``infinite`` were +Inf or NaN; the others were −Inf, as an
            attention mask has it.
        sample_lows, sample_highs: (n,) extremes of each of the profile's n samples, in its order,
            +inf and −inf of a sample without a finite number; None where the value has no sample
            axis.
        channel_lows, channel_highs: (c,) extremes of every index of axis 1; None unless asked for,
            and where there is no such axis or it changes its length.

    Raises:
        ValueError: the numbers contradict each other.
    """

    low: float
    high: float
    zeros: int
    histogram: Histogram
    infinite: int = 0
    not_negative: int = 0
    sample_lows: Floats | None = None
    sample_highs: Floats | None = None
    channel_lows: Floats | None = None
    channel_highs: Floats | None = None

    def __post_init__(self) -> None:
        if (
            not 0 <= self.not_negative <= self.infinite
            or not 0 <= self.zeros <= self.histogram.zero_cell
        ):
            infinite = f"{self.infinite} infinite numbers, {self.not_negative} of them +Inf or NaN"
            raise ValueError(f"{self.zeros} zeros or {infinite}, which cannot be")
        if self.count:
            largest = float(np.finfo(np.float32).max)
            if not -largest <= self.low <= self.high <= largest:
                raise ValueError(
                    f"extremes {self.low} … {self.high} are not those of finite numbers"
                )
            ends = keys_of(np.array([self.low, self.high], np.float32)).tolist()
            if ends != self.histogram.keys[[0, -1]].tolist():
                raise ValueError(
                    f"extremes {self.low} … {self.high} outside of the histogram's ends"
                )
        for name in ("sample_lows", "sample_highs", "channel_lows", "channel_highs"):
            if (given := getattr(self, name)) is not None:
                copy = np.array(given, np.float64)
                copy.setflags(write=False)
                object.__setattr__(self, name, copy)
        for lows, highs in (
            (self.sample_lows, self.sample_highs),
            (self.channel_lows, self.channel_highs),
        ):
            if (lows is None) != (highs is None):
                raise ValueError("lows and highs come together")
            if lows is not None and highs is not None and len(lows) != len(highs):
                raise ValueError("lows and highs of different number")

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> "Statistics":
        """The statistics of a whole tensor of finite numbers, rounded to float32; not by sample."""
        floats = np.asarray(array, np.float32)
        if not floats.size:
            return cls(np.inf, -np.inf, 0, Histogram.empty())
        zeros = int(np.count_nonzero(floats == 0))
        return cls(
            float(floats.min()) + 0.0, float(floats.max()) + 0.0, zeros, Histogram.of(floats)
        )

    @property
    def count(self) -> int:
        """Finite numbers seen."""
        return self.histogram.count

    @property
    def negative_infinite(self) -> int:
        """How many numbers were −Inf."""
        return self.infinite - self.not_negative

    @property
    def sum(self) -> float:
        """The sum of the finite numbers, exact before it is rounded once."""
        return self.histogram.sum

    @property
    def square_sum(self) -> float:
        """The sum of their squares, as ``Histogram.square_sum`` has it."""
        return self.histogram.square_sum

    @property
    def mean(self) -> float:
        """The mean of the finite numbers, exact before it is rounded once; NaN without any."""
        return (
            float(self.histogram.exact_sum / Fraction(self.count)) if self.count else float("nan")
        )

    def distribution(self) -> Distribution:
        """What is known of the values, for range methods.

        Raises:
            ValueError: no finite number was seen.
        """
        return Distribution(
            self.low,
            self.high,
            np.clip(self.histogram.points(), self.low, self.high),
            self.histogram.counts,
            self.sample_lows,
            self.sample_highs,
            mantissa_bits=CELL_BITS,
        )

    def equal_width(self, bins: int = 2000) -> Counts:
        """Counts of the finite numbers, at least one, in ``bins`` equal bins over [low, high]; each
        number is counted once.
        """
        return self.distribution().equal_width(bins, self.low, self.high)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Statistics):
            return NotImplemented
        return self._numbers == other._numbers and all(
            _same(mine, theirs) for mine, theirs in zip(self._ends, other._ends, strict=True)
        )

    def __hash__(self) -> int:
        return hash(self._numbers)

    @property
    def _numbers(self) -> tuple[object, ...]:
        return self.low, self.high, self.zeros, self.infinite, self.not_negative, self.histogram

    @property
    def _ends(self) -> tuple[Floats | None, ...]:
        return self.sample_lows, self.sample_highs, self.channel_lows, self.channel_highs


def _same(a: Floats | None, b: Floats | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b)


# Statistics ↔ a row of plain values, for profiles on disk; ``profile`` says what a row holds.
#
#     histogram = base64(zlib(planes(key steps) ‖ planes(counts) ‖ planes(Σ low)))    int64, n each
#
# The first key step is the first key, the others what each key is above the one before. Planes: of
# all n numbers first the least significant byte, then the next, so that bytes that are mostly zero
# are adjacent and compress well.

_MOST_BYTES = 3 * 8 * 2 * FINITE_MAGNITUDES
"""The most bytes of an unpacked histogram: three integers for every cell that finite numbers can
be in.
"""
_ENDS = ("sample_lows", "sample_highs", "channel_lows", "channel_highs")


def statistics_row(statistics: Statistics, *, histogram: str) -> dict[str, Any]:
    """The row of ``statistics``, with the text ``histogram`` as its histogram."""
    ends = {name: getattr(statistics, name) for name in _ENDS}
    return {
        "low": statistics.low if statistics.count else None,
        "high": statistics.high if statistics.count else None,
        "count": statistics.count,
        "zeros": statistics.zeros,
        "infinite": statistics.infinite,
        **({"not_negative": statistics.not_negative} if statistics.not_negative else {}),
        **{
            name: None if values is None else [_or_null(v) for v in values.tolist()]
            for name, values in ends.items()
        },
        "histogram": histogram,
    }


def statistics_of(row: Mapping[str, Any]) -> Statistics:
    """The statistics that ``row`` was made of.

    Raises:
        KeyError, TypeError, ValueError: a field is missing or wrong.
    """
    found = Statistics(
        low=np.inf if row["low"] is None else float(row["low"]),
        high=-np.inf if row["high"] is None else float(row["high"]),
        zeros=int(row["zeros"]),
        histogram=unpacked_histogram(row["histogram"]),
        infinite=int(row["infinite"]),
        not_negative=int(row.get("not_negative", 0)),
        **{
            name: _numbers(row[name], np.inf if name.endswith("lows") else -np.inf)
            for name in _ENDS
        },
    )
    if found.count != row["count"]:
        raise ValueError(f"a histogram of {found.count} numbers where {row['count']} were counted")
    return found


def packed_histogram(histogram: Histogram) -> str:
    """``histogram`` as text."""
    steps = np.diff(histogram.keys, prepend=np.int64(0))
    planes = b"".join(_planes(array) for array in (steps, histogram.counts, histogram.lows))
    return base64.b64encode(zlib.compress(planes, 4)).decode("ascii")


def unpacked_histogram(text: str) -> Histogram:
    """The histogram that ``text`` was made of.

    Raises:
        ValueError: the text is damaged.
    """
    try:
        planes = inflate(base64.b64decode(text, validate=True), most=_MOST_BYTES)
    except ArchiveError as error:
        raise ValueError(f"a histogram that cannot be unpacked ({error})") from error
    if len(planes) % 24:
        raise ValueError(f"a histogram of {len(planes)} bytes, which are no three arrays")
    steps, counts, lows = np.frombuffer(planes, np.uint8).reshape(3, 8, -1)
    return Histogram(np.cumsum(_from_planes(steps)), _from_planes(counts), _from_planes(lows))


def _planes(array: Ints) -> bytes:
    return array.astype("<i8").view(np.uint8).reshape(-1, 8).T.tobytes()


def _from_planes(planes: Any) -> Ints:  # noqa: ANN401 - (8, n) bytes
    return np.asarray(np.ascontiguousarray(planes.T).view("<i8").reshape(-1).astype(np.int64))


def _or_null(number: float) -> float | None:
    return number if np.isfinite(number) else None


def _numbers(values: list[float | None] | None, null: float) -> Floats | None:
    if values is None:
        return None
    return np.array([null if value is None else float(value) for value in values], np.float64)


# Statistics of the same value over two sets of samples → those over both: minima, maxima and sums.


def merged_statistics(
    a: Statistics, b: Statistics, own: Sequence[str], others: Sequence[str], samples: Sequence[str]
) -> Statistics:
    """What was seen in ``a`` over the samples ``own`` and in ``b`` over ``others``; ``samples``
    are all, in order.
    """
    sample_lows = sample_highs = None
    if a.sample_lows is not None and b.sample_lows is not None:
        sample_lows = np.minimum(
            _among(samples, own, a.sample_lows, np.inf),
            _among(samples, others, b.sample_lows, np.inf),
        )
    if a.sample_highs is not None and b.sample_highs is not None:
        sample_highs = np.maximum(
            _among(samples, own, a.sample_highs, -np.inf),
            _among(samples, others, b.sample_highs, -np.inf),
        )
    lows, highs = _channels(a, b)
    return Statistics(
        low=min(a.low, b.low),
        high=max(a.high, b.high),
        zeros=a.zeros + b.zeros,
        histogram=a.histogram.merge(b.histogram),
        infinite=a.infinite + b.infinite,
        not_negative=a.not_negative + b.not_negative,
        sample_lows=sample_lows,
        sample_highs=sample_highs,
        channel_lows=lows,
        channel_highs=highs,
    )


def _among(samples: Sequence[str], own: Sequence[str], ends: Floats, fill: float) -> Floats:
    """``ends`` of the samples ``own`` at their places among ``samples``, and ``fill`` at the
    others'.
    """
    known = dict(zip(own, ends.tolist(), strict=True))
    return np.array([known.get(sample, fill) for sample in samples], np.float64)


def _channels(a: Statistics, b: Statistics) -> tuple[Floats, Floats] | tuple[None, None]:
    """The extremes of each channel of both; statistics without numbers change nothing. None where
    the numbers of channels differ.
    """
    for one, other in ((a, b), (b, a)):
        if not one.count and not one.infinite:
            lows, highs = other.channel_lows, other.channel_highs
            return (None, None) if lows is None or highs is None else (lows, highs)
    if (
        a.channel_lows is None
        or b.channel_lows is None
        or len(a.channel_lows) != len(b.channel_lows)
    ):
        return None, None
    assert a.channel_highs is not None
    assert b.channel_highs is not None
    return np.minimum(a.channel_lows, b.channel_lows), np.maximum(a.channel_highs, b.channel_highs)


# Histograms as other tools know them: counts in bins of equal width between the least and the
# greatest value.
#
#     bin i holds the values in [low + i·w, low + (i+1)·w)        w = (high − low) / bins
#
# A cell of a histogram can be wider than a bin: its values count as spread evenly about their mean
# (``Distribution``).

BINS = 2000


def equal_width_text(values: Mapping[str, Statistics], path: Path, bins: int = BINS) -> str:
    """The histograms of ``values`` in the format that the suffix of ``path`` names.

    ``.csv``: one line per value: its name, low, high, and the counts. ``.json``: name → {"low",
    "high", "counts"}. Values that hold no finite number are left out.

    Raises:
        InputError: another suffix.
    """
    seen = {name: statistics for name, statistics in values.items() if statistics.count}
    if path.suffix == ".json":
        rows = {
            name: {"low": found.low, "high": found.high, "counts": found.equal_width(bins).tolist()}
            for name, found in seen.items()
        }
        return (
            "{\n"
            + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
            + "\n}\n"
        )
    if path.suffix == ".csv":
        header = ["value", "low", "high", *(f"bin{index}" for index in range(bins))]
        lines = [
            [name, float(found.low), float(found.high), *found.equal_width(bins).tolist()]
            for name, found in seen.items()
        ]
        return csv_text([header, *lines], end="\n")
    raise InputError(
        f"Writing histograms to '{path}'",
        found=f"the suffix '{path.suffix}'",
        expected="'.csv' or '.json'",
        remedy="Name the file after one of them.",
    )
