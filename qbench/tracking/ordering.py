"""The order of runs: which began later, and in trends which commit comes later on the main line.

Clocks are wrong at times, so a start is more than a time. A new run writes into its ``run`` line what it found in the
folder: ``after``, the id of the run that was the last there, and ``sequence``, a number larger than every one there.

    time(run)  = started; of a run stamped in the future, or before its own commit was made: when that was made
    place(run) = max(time(run), place(the run that it came after))        then sequence, started, id

A run is therefore behind every run that it saw, whatever its clock said, and a run stamped in the future does not hide
later ones. Histories of several computers that never saw each other's files are put together by time. Files without
``sequence`` and ``after``, which an older qbench wrote, are in order of their times.

In a trend the commit comes first: a nightly run of yesterday's commit may end after one of today's, and a commit may be
measured again a month later; neither is a step back. A run of a commit that is not on the line (a branch, a lost clone)
stays behind the one that began before it.
"""

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from qbench.tracking.runs import Run

_SKEW_S = 3600.0
"""How far apart two clocks may be without one of them being wrong."""

_DELETED = 1_000_000
"""How many runs may have been deleted from a history: a sequence number greater by more than this is ignored."""


def start_order(headers: Sequence[Mapping[str, Any]], now: datetime.datetime | None = None) -> tuple[int, ...]:
    """Positions in ``headers`` (``run`` lines of a whole history, of all suites), the run that began first first.

    Args:
        now: the time by the reader's clock, with a time zone; None: no run is taken to be stamped in the future.
    """
    times = _times(headers, now)
    sequences = _sequences(headers)
    known = {str(header.get("id", "")): position for position, header in enumerate(headers)}
    places = list(times)
    for position in sorted(range(len(headers)), key=sequences.__getitem__):
        before = known.get(str(headers[position].get("after", "")), position)
        if sequences[before] < sequences[position]:  # else a copy of a number: no evidence, and no circle
            places[position] = max(times[position], places[before])

    def key(position: int) -> tuple[float, int, str, str]:
        header = headers[position]
        return places[position], sequences[position], str(header.get("started", "")), str(header.get("id", ""))

    return tuple(sorted(range(len(headers)), key=key))


def next_start(headers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a new run writes of its place among ``headers``, those in its folder: ``sequence`` and ``after``."""
    order = start_order(headers)
    after = {"after": str(headers[order[-1]].get("id", ""))} if order else {}
    return {"sequence": 1 + max(_sequences(headers), default=0), **after}


def clock_notices(headers: Sequence[Mapping[str, Any]], now: datetime.datetime | None) -> tuple[str, ...]:
    """One sentence about the runs that are stamped later than ``now``; none where there are none."""
    if now is None:
        return ()
    late, started = now.timestamp() + _SKEW_S, [_seconds(header.get("started")) for header in headers]
    ahead = [header for header, time in zip(headers, started, strict=True) if time > late]
    if not ahead:
        return ()
    runs = f"{len(ahead)} of {len(headers)} run{' is' if len(headers) == 1 else 's are'}"
    found = f"{runs} stamped later than it is now ({ahead[-1].get('id')})"
    if _latest_time(started, now) == math.inf:
        return (f"{found}: these stamps are used, as more than half of all are; check the clock of this computer.",)
    return (
        f"{found}: their place follows from their commit and from the runs that they found in the history; check the "
        "clock of the computer that ran them, and of this one.",
    )


def in_commit_order(runs: Iterable[Run], commits: Sequence[str]) -> tuple[Run, ...]:
    """``runs`` by their commit's place in ``commits`` (whole hashes, the earliest first), then as they are given.

    Args:
        runs: in the order in which they began. commits: empty: nothing moves.
    """
    places = {commit: place for place, commit in enumerate(commits)}
    last = -1
    keyed = []
    for run in runs:
        place = places.get(run.commit)
        last = last if place is None else place
        keyed.append((last, run))
    return tuple(run for _, run in sorted(keyed, key=lambda pair: pair[0]))


def main_line(runs: Iterable[Run], commits: Sequence[str]) -> tuple[str, ...]:
    """``commits``, or where no run is of one of them the commits of ``runs`` in the order they were first measured."""
    measured = dict.fromkeys(commit for run in runs if (commit := measured_commit(run)))
    return tuple(commits) if any(commit in measured for commit in commits) else tuple(measured)


def measured_commit(run: Run) -> str:
    """The commit whose code ``run`` measured; empty outside version control, and of files that were not committed."""
    commit = run.header.get("commit")
    dirty = isinstance(commit, Mapping) and bool(commit.get("dirty"))
    return "" if dirty else run.commit


def _sequences(headers: Sequence[Mapping[str, Any]]) -> list[int]:
    """The sequence number of every ``run`` line; 0 of one without, or with one that qbench cannot have written.

    The bound grows with the number of runs, so that one more than the greatest accepted number is accepted, too, as
    soon as its run is there.
    """
    bound = len(headers) + _DELETED
    numbers = [header.get("sequence") for header in headers]
    return [number if type(number) is int and 0 < number <= bound else 0 for number in numbers]


def _times(headers: Sequence[Mapping[str, Any]], now: datetime.datetime | None) -> list[float]:
    """When each run began, in seconds: its stamp, or where that cannot be the time of its commit."""
    started = [_seconds(header.get("started")) for header in headers]
    late = _latest_time(started, now)
    return [_believed(time, committed, late) for time, committed in zip(started, map(_committed, headers), strict=True)]


def _latest_time(started: Sequence[float], now: datetime.datetime | None) -> float:
    """The latest start that is believed: now, or infinite where most runs are later: the reader's clock is behind."""
    late = math.inf if now is None else now.timestamp() + _SKEW_S
    return math.inf if 2 * sum(time > late for time in started) > len(started) else late


def _believed(started: float, committed: float, late: float) -> float:
    if committed > late:
        committed = -math.inf  # the clock of who committed it was ahead
    if started > late or committed - started > _SKEW_S:
        return committed
    return started


def _committed(header: Mapping[str, Any]) -> float:
    commit = header.get("commit")
    return _seconds(commit.get("committed")) if isinstance(commit, Mapping) else -math.inf


def _seconds(stamp: object) -> float:
    """An ISO 8601 time in seconds since 1970; −∞ for what is none. A time without a zone is UTC."""
    try:
        time = datetime.datetime.fromisoformat(str(stamp))
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        return -math.inf
