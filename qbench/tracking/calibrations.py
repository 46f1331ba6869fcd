"""Accepting calibrations: what a baseline holds of them, and what a run's cells were calibrated by instead.

A calibration is one for all cells that are quantized by it, and for all machines. ``new`` and ``all`` take one that the
baseline has not; ``changed`` and ``all`` one that moved, and so does any scope that takes the changed result of a cell
which was calibrated by it.

In a baseline a range is a word, ``-1.25 6``; in a record all of them are one, base64 of the compressed JSON.
"""

import base64
import binascii
import json
import math
import zlib
from collections.abc import Mapping

from qbench.errors import InputError
from qbench.judging import ANY, Calibrated, moved_ranges
from qbench.storage import ArchiveError, current_limits, inflate
from qbench.tracking.accepted_row import AcceptedRow, demand_reason
from qbench.tracking.scope import Scope

Calibrations = Mapping[str, Mapping[str, tuple[float, float]]]
"""Key of a calibration (``Calibrated``) → value → the accepted (low, high)."""

_BYTES_PER_NODE = 40
"""Of the text of calibrated ranges, unpacked: a name and two numbers."""


class TakenCalibrations:
    """The calibrations of one model while a run's results are accepted.

    Args:
        known: what was accepted so far. scope: of the accepting run.
        limit: how far apart ranges may be and still be the accepted ones (``moved_ranges``). reason: of the run.

    ``accepted`` is what stands from now on. ``left_new`` and ``left_moved`` are the keys that a wider scope would take.
    """

    def __init__(self, known: Calibrations, scope: Scope | None, *, limit: float, reason: str) -> None:
        self.accepted = dict(known)
        self.left_new: set[str] = set()
        self.left_moved: set[str] = set()
        self._scope, self._limit, self._reason = scope, limit, reason
        self._met: dict[str, Mapping[str, tuple[float, float]]] = {}

    def take(self, calibrated: Calibrated | None, *, with_cell: bool) -> tuple[AcceptedRow, ...]:
        """Take over what the scope asks for; the row that tells of it, or none.

        Args:
            calibrated: of one cell. with_cell: whether the cell's own result is taken.

        Raises:
            InputError: an accepted range would be replaced without a reason, or cells were calibrated in two ways.
        """
        if calibrated is None:
            return ()
        key, ranges, before = calibrated.key, calibrated.ranges, self.accepted.get(calibrated.key)
        first = self._met.setdefault(key, ranges)
        moved = 0 if before is None else len(moved_ranges(before, ranges, self._limit))
        if before is not None and not moved and ranges.keys() == before.keys():
            return ()
        wanted = (Scope.NEW,) if not moved else (Scope.CHANGED, *((Scope.IMPROVED,) if with_cell else ()))
        if self._scope not in (Scope.ALL, *wanted):
            (self.left_moved if moved else self.left_new).add(key)
            return ()
        if moved:
            self._refuse_second(key, first, ranges)
            demand_reason(f"Accepting the calibration '{key}'", self._reason)
        self.left_new.discard(key)
        self.left_moved.discard(key)
        kept = {} if moved or before is None else before  # last digits of what did not move stay as they were accepted
        self.accepted[key] = {value: kept.get(value, ends) for value, ends in ranges.items()}
        return (
            AcceptedRow(
                cell=calibration_name(key),
                environment_class=ANY,
                metric=f"ranges ({moved} moved)" if moved else "ranges",
                old=None if before is None else len(before),
                new=len(ranges),
                out_of=1,
                unit="values",
            ),
        )

    def _refuse_second(
        self, key: str, first: Mapping[str, tuple[float, float]], second: Mapping[str, tuple[float, float]]
    ) -> None:
        if moved_ranges(first, second, self._limit):
            raise InputError(
                f"Accepting the calibration '{key}'",
                found="cells that were calibrated in two ways",
                expected="one calibration for all cells and machines",
                remedy="Find out why they differ, and accept the cells of one alone.",
            )


def calibration_name(key: str) -> str:
    """What a table of accepted results calls the calibration ``key``, in the column of cells."""
    return f"calibration:{key}"


def variant_of_key(key: str) -> str:
    """The suite's variant whose calibration is called ``key``; empty for that of the model itself."""
    return key.partition("+")[2]


def range_word(ends: tuple[float, float]) -> str:
    """``-1.25 6``: a measurement has five digits of each end."""
    return f"{ends[0]:.5g} {ends[1]:.5g}"


def range_of_word(word: str) -> tuple[float, float]:
    """The (low, high) that ``range_word`` wrote.

    Raises:
        ValueError: ``word`` is no range.
    """
    low, high = map(float, word.split())
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"'{word}' is no range")
    return low, high


def packed_calibration(calibrated: Calibrated) -> dict[str, str]:
    """``calibrated`` for a record."""
    text = json.dumps({value: range_word(ends) for value, ends in calibrated.ranges.items()}, separators=(",", ":"))
    return {"key": calibrated.key, "ranges": base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")}


def unpacked_calibration(table: Mapping[str, str] | None) -> Calibrated | None:
    """What ``packed_calibration`` wrote; None of a record without it.

    Raises:
        ValueError: it is not of that kind.
    """
    if table is None:
        return None
    try:
        packed = base64.b64decode(table["ranges"], validate=True)
        words = json.loads(inflate(packed, most=_BYTES_PER_NODE * current_limits().nodes))
        return Calibrated(key=table["key"], ranges={value: range_of_word(word) for value, word in words.items()})
    except (ArchiveError, binascii.Error, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"calibrated ranges that cannot be read ({type(error).__name__}: {error})") from error
