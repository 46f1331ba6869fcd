"""What an accepting run takes over, the rows that it replaces, and calibrated ranges."""

import base64
import binascii
import enum
import json
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qbench.errors import InputError
from qbench.judging import (
    ANY,
    Accepted,
    Calibrated,
    Measurement,
    Repeats,
    moved_ranges,
    within_noise,
)
from qbench.number_text import value_text
from qbench.storage import ArchiveError, current_limits, inflate

if TYPE_CHECKING:  # records of results are read without arrays
    from qbench.metrics import Answers

# Which measurements an accepting run takes over, and the accepted results that it makes of them.
#
# Scopes, for each cell and environment class: ``new`` takes what has nothing accepted; ``improved``
# takes a change in which no metric against labels got worse and one got better; ``changed`` takes
# any change of what was accepted; ``all`` takes new and changed.


class Scope(enum.Enum):
    """What an accepting run takes over."""

    NEW = "new"
    IMPROVED = "improved"
    CHANGED = "changed"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNoise:
    """How far runs of a cell differ. ``kept``: data set → the accepted answers, where they are
    kept.

    ``averaged``: whether the measurement at hand is one of these runs.
    """

    repeats: Repeats
    averaged: bool
    kept: Mapping[str, "Answers"]


def is_in_scope(
    scope: Scope | None,
    measurement: Measurement,
    old: Accepted | None,
    noise: KnownNoise | None = None,
) -> bool:
    """Whether ``scope`` (None: nothing) takes ``measurement`` instead of ``old`` (None: nothing
    was accepted).
    """
    if scope is None:
        return False
    if old is None:
        return scope in (Scope.NEW, Scope.ALL)
    if not is_change(measurement, old, noise):
        # the suite has one more metric
        more = any(s.metric not in old.metrics for s in measurement.scores)
        # or judges a time or a size
        more = more or any(kind not in old.remembered for kind in measurement.remembered)
        # or keeps the answers themselves
        more = more or any(data not in old.kept for data in measurement.kept)
        if scope is Scope.ALL and measurement.executed_macs is not None:
            # not known when it was accepted, or more
            more = more or measurement.executed_macs != old.executed_macs
        # another one with the same answers
        return more or _arithmetic(measurement) not in ("", old.arithmetic)
    if scope is Scope.IMPROVED:
        gains = [gain for _, gain in old.gains(measurement)]
        return bool(gains) and min(gains) >= 0 and max(gains) > 0
    return scope in (Scope.CHANGED, Scope.ALL)


def is_change(
    measurement: Measurement, old: Accepted | None, noise: KnownNoise | None = None
) -> bool:
    """Whether something that was accepted would be replaced by something else than ``noise``
    explains.
    """
    if old is None:
        return False
    new = accepted_of(measurement, "", old)
    if old.fell_to_float(measurement) or _another(new.remembered, old.remembered):
        return True
    if noise is not None:
        within, _ = within_noise(
            measurement, old, noise.kept, noise.repeats, averaged=noise.averaged
        )
        return not within
    changed = _another(new.metrics, old.metrics) or _another(new.kept, old.kept)
    return changed or any(
        old.predictions.get(data) != digest for data, digest in new.predictions.items()
    )


def _another(now: Mapping[str, object], before: Mapping[str, object]) -> bool:
    """Whether something that both have is not the same."""
    return any(before.get(name, value) != value for name, value in now.items())


def accepted_of(measurement: Measurement, reason: str, old: Accepted | None = None) -> Accepted:
    """``measurement`` as an accepted result, instead of ``old`` of the same model and data."""
    from qbench.metrics import kept_digest, unpacked_answers

    remembered = measurement.remembered if old is None else old.numbers_now(measurement)
    return Accepted(
        metrics={score.metric: score.hits for score in measurement.scores},
        predictions=measurement.predictions,
        reason=reason,
        arithmetic=_arithmetic(measurement),
        kept={data: kept_digest(unpacked_answers(word)) for data, word in measurement.kept.items()},
        executed_macs=measurement.executed_macs,
        made=measurement.made,
        remembered=remembered,
    )


def _arithmetic(measurement: Measurement) -> str:
    return measurement.digests.get("arithmetic", "")


# What accepting replaces, one row for each number, and the reason that it requires.


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRow:
    """One line of the table old → new; ``old`` is None where nothing was accepted.

    ``cell`` is a slug, ``fp32``, or ``calibration:KEY``. ``unit`` is that of the metric. Of a
    metric ``old`` and ``new`` are hits; a time or a size has ``out_of`` 1.
    """

    cell: str
    environment_class: str
    metric: str
    old: float | None
    new: float
    out_of: int
    unit: str = "%"


def demand_reason(doing: str, reason: str) -> None:
    """Refuse to replace anything without a reason.

    Raises:
        InputError: the reason has no letter and no digit: it is blank, or the placeholder of a
            printed command.
    """
    if not any(character.isalnum() for character in reason):
        raise InputError(
            doing,
            found="no reason for replacing what was accepted"
            + (f", only '{reason.strip()}'" if reason.strip() else ""),
            expected="one in words",
            remedy='Add --qbench-reason "…" and say in it why the results changed.',
        )


# Accepting calibrations: what a baseline holds of them, and what a run's cells were calibrated by
# instead.
#
# One calibration holds for all cells that are quantized by it, and on all computers. ``new`` and
# ``all`` take one that the baseline does not have; ``changed`` and ``all`` one that moved, and so
# does any scope that takes the changed result of a cell which was calibrated by it.
#
# In a baseline a range is stored as a string, ``-1.25 6``; in a record all ranges are one string,
# base64 of the compressed JSON.

Calibrations = Mapping[str, Mapping[str, tuple[float, float]]]
"""Key of a calibration (``Calibrated``) → value → the accepted (low, high)."""

_BYTES_PER_NODE = 40
"""Of the text of calibrated ranges, unpacked: a name and two numbers."""


class TakenCalibrations:
    """The calibrations of one model while a run's results are accepted.

    Args:
        known: what was accepted so far.
        scope: of the accepting run.
        limit: how far apart ranges may be and still be the accepted ones (``moved_ranges``).
        reason: of the run.

    ``accepted`` is what the new baseline holds; ``left_new`` and ``left_moved`` are the keys that a
    wider scope would take.
    """

    def __init__(
        self, known: Calibrations, scope: Scope | None, *, limit: float, reason: str
    ) -> None:
        self.accepted = dict(known)
        self.left_new: set[str] = set()
        self.left_moved: set[str] = set()
        self._scope, self._limit, self._reason = scope, limit, reason
        self._first: dict[str, Mapping[str, tuple[float, float]]] = {}

    def take(self, calibrated: Calibrated | None, *, with_cell: bool) -> tuple[AcceptedRow, ...]:
        """Take over what is in the scope; the row about it, or none.

        Args:
            calibrated: of one cell.
            with_cell: whether the cell's own result is taken.

        Raises:
            InputError: an accepted range would be replaced without a reason, or cells were
                calibrated in two ways.
        """
        if calibrated is None:
            return ()
        key, ranges, before = calibrated.key, calibrated.ranges, self.accepted.get(calibrated.key)
        self._first.setdefault(key, ranges)
        moved = 0 if before is None else len(moved_ranges(before, ranges, self._limit))
        if before is not None and not moved and ranges.keys() == before.keys():
            return ()
        if not self._is_in_scope(is_moved=moved > 0, with_cell=with_cell):
            left = self.left_moved if moved else self.left_new
            left.add(key)
            return ()
        if moved:
            self._refuse_two_ways(key, ranges)
            demand_reason(f"Accepting the calibration '{key}'", self._reason)
        self.left_new.discard(key)
        self.left_moved.discard(key)
        if moved or before is None:
            self.accepted[key] = dict(ranges)
        else:  # last digits of what did not move stay as they were accepted
            self.accepted[key] = {value: before.get(value, ends) for value, ends in ranges.items()}
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

    def _is_in_scope(self, *, is_moved: bool, with_cell: bool) -> bool:
        """Whether the scope takes a calibration that moved, or else one that is new or has
        other values.
        """
        if self._scope is Scope.ALL:
            return True
        if not is_moved:
            return self._scope is Scope.NEW
        return self._scope is Scope.CHANGED or (with_cell and self._scope is Scope.IMPROVED)

    def _refuse_two_ways(self, key: str, ranges: Mapping[str, tuple[float, float]]) -> None:
        if moved_ranges(self._first[key], ranges, self._limit):
            raise InputError(
                f"Accepting the calibration '{key}'",
                found="cells that were calibrated in two ways",
                expected="one calibration for all cells and computers",
                remedy="Find out why they differ, and accept the cells of one alone.",
            )


def calibration_name(key: str) -> str:
    """What a table of accepted results calls the calibration ``key``, in the column of cells."""
    return f"calibration:{key}"


def variant_of_key(key: str) -> str:
    """The suite's variant whose calibration is called ``key``; empty for that of the model
    itself.
    """
    return key.partition("+")[2]


def range_text(ends: tuple[float, float]) -> str:
    """``-1.25 6``: a measurement has five digits of each end."""
    return f"{ends[0]:.5g} {ends[1]:.5g}"


def parsed_range(text: str) -> tuple[float, float]:
    """The (low, high) that ``range_text`` wrote.

    Raises:
        ValueError: ``text`` is not a range.
    """
    low, high = map(float, text.split())
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"'{text}' is not a range")
    return low, high


def packed_calibration(calibrated: Calibrated) -> dict[str, str]:
    """``calibrated`` for a record."""
    text = json.dumps(
        {value: range_text(ends) for value, ends in calibrated.ranges.items()},
        separators=(",", ":"),
    )
    return {
        "key": calibrated.key,
        "ranges": base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii"),
    }


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
        return Calibrated(
            key=table["key"], ranges={value: parsed_range(word) for value, word in words.items()}
        )
    except (
        ArchiveError,
        binascii.Error,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ValueError(
            f"calibrated ranges that cannot be read ({type(error).__name__}: {error})"
        ) from error


# What was accepted, as text: old → new in the unit of each metric.
#
# Files hold whole parts of a metric (a decibel is a thousand parts per sample).

NOTHING = "—"


def parts_text(row: AcceptedRow, parts: float | None) -> str:
    """``parts`` of what ``row`` counts out of: ``88.25 %``, ``20.368 dB``; a dash for None."""
    if parts is None:
        return NOTHING
    return value_text(parts / row.out_of, row.unit)


def accepted_lines(model: str, rows: Iterable[AcceptedRow], *, most: int) -> tuple[str, ...]:
    """A heading for each environment class, and a line for each metric of a cell below it.

    ``most`` cells of a class are listed, and the others counted: the diff of the baseline shows
        them all.
    """
    classes: dict[str, dict[str, list[AcceptedRow]]] = {}
    for row in rows:
        classes.setdefault(row.environment_class, {}).setdefault(row.cell, []).append(row)
    lines = []
    for where, cells in classes.items():
        listed = list(cells) if len(cells) <= most else list(cells)[: most - 1]
        table = [
            (
                f"{model}::{slug}" if not index else "",
                row.metric,
                parts_text(row, row.old),
                parts_text(row, row.new),
            )
            for slug in listed
            for index, row in enumerate(cells[slug])
        ]
        widths = [max(len(line[column]) for line in table) for column in range(3)]
        lines.append(f"accepted in {where}:")
        lines += [
            f"  {cell:<{widths[0]}}  {metric:<{widths[1]}}  {old:>{widths[2]}} → {new}"
            for cell, metric, old, new in table
        ]
        if len(cells) > len(listed):
            lines.append(f"  and {len(cells) - len(listed)} more cells of {model}")
    return tuple(lines)
