"""Statistics ↔ a row of plain values, for profiles on disk; ``profile`` says what a row holds.

    histogram = base64(zlib(planes(key steps) ‖ planes(counts) ‖ planes(Σ low)))        int64, n each

The first key step is the first key, the others what each key is above the one before. Planes: of all n numbers first
the least significant byte, then the next, so that bytes that are mostly zero stand together and pack well.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from qbench.calibration.cells import FINITE_MAGNITUDES, Ints
from qbench.calibration.histogram import Histogram
from qbench.calibration.statistics import Floats, Statistics
from qbench.storage import ArchiveError, inflate

_MOST_BYTES = 3 * 8 * 2 * FINITE_MAGNITUDES
"""Of an unpacked histogram: three integers of every cell that finite numbers can be in."""
_ENDS = ("sample_lows", "sample_highs", "channel_lows", "channel_highs")


def statistics_row(statistics: Statistics, *, histogram: str) -> dict[str, Any]:
    """The row of ``statistics``, with ``histogram`` standing for its histogram."""
    ends = {name: getattr(statistics, name) for name in _ENDS}
    return {
        "low": statistics.low if statistics.count else None,
        "high": statistics.high if statistics.count else None,
        "count": statistics.count,
        "zeros": statistics.zeros,
        "infinite": statistics.infinite,
        **({"not_negative": statistics.not_negative} if statistics.not_negative else {}),
        **{name: None if values is None else [_or_null(v) for v in values.tolist()] for name, values in ends.items()},
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
        **{name: _numbers(row[name], np.inf if name.endswith("lows") else -np.inf) for name in _ENDS},
    )
    if found.count != row["count"]:
        raise ValueError(f"a histogram of {found.count} numbers where {row['count']} were counted")
    return found


def packed_histogram(histogram: Histogram) -> str:
    """``histogram`` as text."""
    steps = np.diff(histogram.keys, prepend=np.int64(0))
    planes = b"".join(_planes(array) for array in (steps, histogram.counts, histogram.lows))
    return base64.b64encode(zlib.compress(planes, level=4)).decode("ascii")


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
    return None if values is None else np.array([null if v is None else float(v) for v in values], np.float64)
