"""Shards of one night as one run, and the order of runs."""

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from packaging.version import InvalidVersion, Version

from qbench.tracking.attempts import attempt_groups, job_of, night_id, night_of_jobs, settled
from qbench.tracking.record import Run, release_of

# The order of runs: which began later, and in trends which commit comes later on the main line.
#
# Clocks are wrong at times, so a start is more than a time. A new run writes into its ``run`` line
# what it found in the folder: ``after``, the id of the run that was the last there, and
# ``sequence``, a number larger than every one there.
#
#     time(run)  = started; of a run stamped in the future, or before its own commit was made: when
#                  that was made
#     place(run) = max(time(run), place(the run that it came after))
#                  then sequence, started, id
#
# A run is therefore after every run that it saw, whatever its clock said, and a run stamped in the
# future does not hide later ones. Histories of several computers that never saw each other's files
# are put together by time. Files without ``sequence`` and ``after``, which an older qbench wrote,
# are in order of their times.
#
# Runs of releases (``releases`` in the ``run`` line) were all made at one time, in any order: among
# themselves they are in the order of their versions, by PEP 440. Their commit is the version of the
# release, so that all that is said of commits is said of releases: several runs of one release are
# one point, and a step is at a release.
#
# In a trend the commit comes first: a nightly run of yesterday's commit may end after one of
# today's, and a commit may be measured again a month later; neither is a step back. A run of a
# commit that is not on the line (a branch, a lost clone) stays after the one that began before it.

_SKEW_S = 3600.0
"""How far apart two clocks may be without one of them being wrong."""

_DELETED = 1_000_000
"""How many runs may have been deleted from a history: a sequence number greater by more than
this is ignored.
"""


def start_order(
    headers: Sequence[Mapping[str, Any]], now: datetime.datetime | None = None
) -> tuple[int, ...]:
    """Positions in ``headers`` (``run`` lines of a whole history, of all suites), the run that
    began first first.

    Args:
        now: the time by the reader's clock, with a time zone; None: no run is taken to be stamped
            in the future.
    """
    times = _times(headers, now)
    sequences = _sequences(headers)
    known = {str(header.get("id", "")): position for position, header in enumerate(headers)}
    places = list(times)
    for position in sorted(range(len(headers)), key=sequences.__getitem__):
        before = known.get(str(headers[position].get("after", "")), position)
        if sequences[before] < sequences[position]:
            # else a copy of a number: no evidence, and no circle
            places[position] = max(times[position], places[before])

    def key(position: int) -> tuple[float, int, str, str]:
        header = headers[position]
        return (
            places[position],
            sequences[position],
            str(header.get("started", "")),
            str(header.get("id", "")),
        )

    return _in_release_order(sorted(range(len(headers)), key=key), headers)


def _in_release_order(order: list[int], headers: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """``order`` with the runs of releases, in the places that they have together, by package
    and version.
    """
    names = {position: name for position in order if (name := release_of(headers[position]))[0]}
    ranked = iter(
        sorted(names, key=lambda position: (names[position][0], _version(names[position][1])))
    )
    return tuple(next(ranked) if position in names else position for position in order)


def _version(text: str) -> tuple[bool, Version]:
    """The place of a version in the order of PEP 440; other texts come first."""
    try:
        return True, Version(text)
    except InvalidVersion:
        return False, Version("0")


def next_start(headers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a new run writes of its place among ``headers``, those in its folder: ``sequence``
    and ``after``.
    """
    order = start_order(headers)
    after = {"after": str(headers[order[-1]].get("id", ""))} if order else {}
    return {"sequence": 1 + max(_sequences(headers), default=0), **after}


def clock_notices(
    headers: Sequence[Mapping[str, Any]], now: datetime.datetime | None
) -> tuple[str, ...]:
    """One sentence about the runs that are stamped later than ``now``; none where there are
    none.
    """
    if now is None:
        return ()
    late = now.timestamp() + _SKEW_S
    started = [_seconds(header.get("started")) for header in headers]
    ahead = [header for header, time in zip(headers, started, strict=True) if time > late]
    if not ahead:
        return ()
    runs = f"{len(ahead)} of {len(headers)} run{' is' if len(headers) == 1 else 's are'}"
    found = f"{runs} stamped later than it is now ({ahead[-1].get('id')})"
    if _latest_time(started, now) == math.inf:
        return (
            f"{found}: these stamps are used, as more than half of all are; check the clock of "
            "this computer.",
        )
    return (
        f"{found}: their place follows from their commit and from the runs that they found in the "
        "history; check the clock of the computer that ran them, and of this one.",
    )


def in_commit_order(runs: Iterable[Run], commits: Sequence[str]) -> tuple[Run, ...]:
    """``runs`` by the place of their commit in ``commits`` (whole hashes, the earliest first),
    then in the given order.

    Args:
        runs: in the order in which they began.
        commits: empty: nothing moves.
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
    """``commits``, or where no run is of one of them the commits of ``runs`` in the order they
    were first measured.
    """
    measured = dict.fromkeys(commit for run in runs if (commit := measured_commit(run)))
    return tuple(commits) if any(commit in measured for commit in commits) else tuple(measured)


def measured_commit(run: Run) -> str:
    """The commit whose code ``run`` measured; empty outside version control, and of files that
    were not committed.
    """
    commit = run.header.get("commit")
    dirty = isinstance(commit, Mapping) and bool(commit.get("dirty"))
    return "" if dirty else run.commit


def _sequences(headers: Sequence[Mapping[str, Any]]) -> list[int]:
    """The sequence number of every ``run`` line; 0 of one without, or with one that qbench
    cannot have written.

    The bound grows with the number of runs, so that one more than the greatest accepted number is
    accepted, too, as soon as its run is there.
    """
    bound = len(headers) + _DELETED
    numbers = [header.get("sequence") for header in headers]
    return [number if type(number) is int and 0 < number <= bound else 0 for number in numbers]


def _times(headers: Sequence[Mapping[str, Any]], now: datetime.datetime | None) -> list[float]:
    """When each run began, in seconds: its stamp, or where that cannot be the time of its
    commit.
    """
    started = [_seconds(header.get("started")) for header in headers]
    late = _latest_time(started, now)
    commits = (header.get("commit") for header in headers)
    committed = [
        _seconds(one.get("committed")) if isinstance(one, Mapping) else -math.inf for one in commits
    ]
    return [
        _believed(time, commit_time, late)
        for time, commit_time in zip(started, committed, strict=True)
    ]


def _latest_time(started: Sequence[float], now: datetime.datetime | None) -> float:
    """The latest start that is believed: now, or infinite where most runs are later: the
    reader's clock is behind.
    """
    late = math.inf if now is None else now.timestamp() + _SKEW_S
    return math.inf if 2 * sum(time > late for time in started) > len(started) else late


def _believed(started: float, committed: float, late: float) -> float:
    if committed > late:
        committed = -math.inf  # the clock of the computer that committed was ahead
    if started > late or committed - started > _SKEW_S:
        return committed
    return started


def _seconds(stamp: object) -> float:
    """An ISO 8601 time in seconds since 1970; −∞ for other texts. A time without a zone is UTC."""
    try:
        time = datetime.datetime.fromisoformat(str(stamp))
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        return -math.inf


# The shards of one night as one run: each computer measured only its share of the models, at one
# commit.
#
# i/1 … i/N of one suite at one commit, each begun within half a day of the first, every i once  →
# one run of their cells
#
# The jobs of one plan, whenever they ran, are one night, too. A share or a job that was tried more
# than once is in it with all its attempts, of which one counts: attempts.py.

NIGHT = datetime.timedelta(hours=12)
"""How much later than the first of its night a shard may begin."""


def shard_groups(headers: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, ...], ...]:
    """Positions in ``headers`` (``run`` lines in the order they began) of what is one run, in
    order; most are alone.

    A share that was measured twice begins another run, and so does one of another commit, or of
    files that were not
    committed: then it is not known whether the computers measured the same code.
    """
    attempts = [sorted(group) for group in attempt_groups(headers)]
    # a run that resumes another is where it ended; a share or a job where it was first tried
    places = {(group[0] if _is_part(headers[group[0]]) else group[-1]): group for group in attempts}
    groups: list[list[int]] = []
    growing: dict[tuple[str, ...], list[int]] = {}
    for place in sorted(places):
        key = _night(headers[place])
        group = growing.get(key, []) if key else []
        is_job = job_of(headers[place]) is not None  # which are of one night whenever they ran
        if group and not is_job and not _continues(headers[place], [headers[i] for i in group]):
            group = []
        if not group:
            groups.append(group)
            if key:
                growing[key] = group
        group.append(place)
    return tuple(tuple(one for place in group for one in places[place]) for group in groups)


def _is_part(header: Mapping[str, Any]) -> bool:
    return "shard" in header or job_of(header) is not None


def joined_shards(runs: Sequence[Run]) -> tuple[Run, ...]:
    """``runs``, in the order they began, with the shards of one night as one run."""
    return tuple(
        joined_run([runs[place] for place in group])
        for group in shard_groups([run.header for run in runs])
    )


def lacking_shares(header: Mapping[str, Any]) -> tuple[str, ...]:
    """The shares of a suite, as ``2/3``, and the jobs of a plan, as ``job 17 of 50``, that the
    night of ``header`` (a ``run`` line) does not hold; of most none.
    """
    if header.get("selected") == header.get("planned"):
        # an empty share writes no file
        return ()
    job = job_of(header)
    if job is not None:
        held = header["job"].get("held")
        held = held if isinstance(held, list) else [job.index]
        return tuple(
            f"job {index} of {job.of}" for index in range(1, job.of + 1) if index not in held
        )
    shares = str(header.get("shard", "")).split()
    count = shares[0].partition("/")[2] if shares else ""
    if not count.isdecimal():
        return ()
    return tuple(
        share
        for share in (f"{place}/{count}" for place in range(1, int(count) + 1))
        if share not in shares
    )


def _night(header: Mapping[str, Any]) -> tuple[str, ...]:
    """What the shards of one night have in common; empty where nothing can be joined to the run
    of ``header``.
    """
    if jobs := night_of_jobs(header):
        return jobs
    commit = measured_commit(Run(header=header))
    count = str(header.get("shard", "")).partition("/")[2]
    if not commit or not count:
        return ()
    return (
        *(str(header.get(key)) for key in ("suite", "planned", "limited", "select")),
        commit,
        count,
    )


def _continues(header: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> bool:
    if header["shard"] in [other["shard"] for other in group]:
        return False
    try:
        first, this = (
            datetime.datetime.fromisoformat(str(one["started"])) for one in (group[0], header)
        )
        return abs(this - first) <= NIGHT
    except (KeyError, TypeError, ValueError, OverflowError):
        return False


def joined_run(runs: Sequence[Run]) -> Run:
    """The shards or jobs of one night as one run, of each the attempt that counts; one alone as it
    is.
    """
    if len(runs) == 1:
        return runs[0]
    groups = attempt_groups([run.header for run in runs])
    parts = [settled([runs[place] for place in group]) for group in groups]
    if len(parts) == 1 and not _is_part(runs[0].header):
        return replace(parts[0], header={**parts[0].header, "id": runs[-1].id})
    first = runs[0]
    counts = [part.header.get("selected") for part in parts]
    selected = sum(count for count in counts if type(count) is int)
    whole = selected == first.header.get("planned") and first.header.get("limited") is None
    processors = dict.fromkeys(str(part.environment.get("processor", "")) for part in parts)
    return replace(
        first,
        header={
            **{key: value for key, value in first.header.items() if key not in ("shard", "job")},
            **_names(first.header, parts, is_whole=selected == first.header.get("planned")),
            "id": _joined_id(runs),
            "selected": selected,
            "complete_selection": whole,
        },
        environment={**first.environment, "processor": ", ".join(sorted(filter(None, processors)))},
        cells=tuple(record for part in parts for record in part.cells),
        findings=tuple(line for part in parts for line in part.findings),
        samples=tuple(line for part in parts for line in part.samples),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        complete=all(part.complete for part in parts),
        ended=all(not part.was_interrupted for part in parts),
        damaged=sum(part.damaged for part in parts),
        notices=tuple(dict.fromkeys(notice for part in parts for notice in part.notices)),
    )


def _joined_id(runs: Sequence[Run]) -> str:
    """The id of several runs as one, by their headers alone; as 'qbench accept' takes it."""
    header = runs[0].header
    return " ".join(run.id for run in runs) if job_of(header) is None else night_id(header)


def _names(header: Mapping[str, Any], parts: Sequence[Run], *, is_whole: bool) -> dict[str, Any]:
    """Which shares or jobs ``parts`` are, for the header of all; nothing of shares that are the
    whole.
    """
    job = job_of(header)
    if job is not None:
        held = [one.index for part in parts if (one := job_of(part.header)) is not None]
        return {"job": {"plan": job.plan, "of": job.of, "index": 0, "held": sorted(held)}}
    return {} if is_whole else {"shard": " ".join(str(part.header["shard"]) for part in parts)}
