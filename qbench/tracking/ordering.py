"""The order of runs in a trend: that of their commits on the main line, first parents only; time where it is unknown.

A nightly run of yesterday's commit may end after one of today's, and a commit may be measured again a month later:
neither is a step back. A run of a commit that is not on the line (a branch, a lost clone) stays behind the one that was
started before it.
"""

from collections.abc import Iterable, Mapping, Sequence

from qbench.tracking.runs import Run


def in_commit_order(runs: Iterable[Run], commits: Sequence[str]) -> tuple[Run, ...]:
    """``runs`` by their commit's place in ``commits`` (whole hashes, the earliest first), then by start."""
    places = {commit: place for place, commit in enumerate(commits)}
    last = -1
    keyed = []
    for run in sorted(runs, key=started_and_id):
        place = places.get(run.commit)
        last = last if place is None else place
        keyed.append((last, run))
    return tuple(run for _, run in sorted(keyed, key=lambda pair: pair[0]))


def main_line(runs: Iterable[Run], commits: Sequence[str]) -> tuple[str, ...]:
    """``commits``, or where no run is of one of them the commits of ``runs`` in the order they were first measured."""
    measured = dict.fromkeys(commit for run in sorted(runs, key=started_and_id) if (commit := measured_commit(run)))
    return tuple(commits) if any(commit in measured for commit in commits) else tuple(measured)


def started_and_id(run: Run) -> tuple[str, str]:
    """What runs are sorted by where commits say nothing."""
    return str(run.header.get("started", "")), run.id


def measured_commit(run: Run) -> str:
    """The commit whose code ``run`` measured; empty outside version control, and of files that were not committed."""
    commit = run.header.get("commit")
    dirty = isinstance(commit, Mapping) and bool(commit.get("dirty"))
    return "" if dirty else run.commit
