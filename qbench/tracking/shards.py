"""The shards of one night as one run: each machine measured its share of the models, at one commit, and nobody else's.

i/1 … i/N of one suite at one commit, each begun within half a day of the first, every i once  →  one run of their cells
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from qbench.tracking.ordering import measured_commit
from qbench.tracking.runs import Run

NIGHT = datetime.timedelta(hours=12)
"""How much later than the first of its night a shard may begin."""


def shard_groups(headers: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, ...], ...]:
    """Positions in ``headers`` (``run`` lines in the order they began) of what is one run, in order; most are alone.

    A share that was measured twice begins another run, and so does one of another commit, or of files that were not
    committed: nobody knows then that the machines measured the same code.
    """
    groups: list[list[int]] = []
    growing: dict[tuple[str, ...], list[int]] = {}
    for place in range(len(headers)):
        key = _night(headers[place])
        group = growing.get(key, []) if key else []
        if group and not _continues(headers[place], [headers[other] for other in group]):
            group = []
        if not group:
            groups.append(group)
            if key:
                growing[key] = group
        group.append(place)
    return tuple(map(tuple, groups))


def joined_shards(runs: Sequence[Run]) -> tuple[Run, ...]:
    """``runs``, in the order they began, with the shards of one night as one run."""
    return tuple(joined_run([runs[place] for place in group]) for group in shard_groups([run.header for run in runs]))


def lacking_shares(header: Mapping[str, Any]) -> tuple[str, ...]:
    """The shares of a suite, as ``2/3``, that the night of ``header`` (a ``run`` line) does not hold; of most none."""
    shares = str(header.get("shard", "")).split()
    count = shares[0].partition("/")[2] if shares else ""
    if not count.isdecimal() or header.get("selected") == header.get("planned"):  # an empty share writes no file
        return ()
    return tuple(share for share in (f"{place}/{count}" for place in range(1, int(count) + 1)) if share not in shares)


def _night(header: Mapping[str, Any]) -> tuple[str, ...]:
    """What the shards of one night have in common; empty where nothing can be joined to the run of ``header``."""
    commit, count = measured_commit(Run(header=header)), str(header.get("shard", "")).partition("/")[2]
    if not commit or not count:
        return ()
    return (*(str(header.get(key)) for key in ("suite", "planned", "limited", "select")), commit, count)


def _continues(header: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> bool:
    if header["shard"] in [other["shard"] for other in group]:
        return False
    try:
        first, this = (datetime.datetime.fromisoformat(str(one["started"])) for one in (group[0], header))
        return abs(this - first) <= NIGHT
    except (KeyError, TypeError, ValueError, OverflowError):
        return False


def joined_run(runs: Sequence[Run]) -> Run:
    """The shards of one night as one run; one alone as it is."""
    first = runs[0]
    if len(runs) == 1:
        return first
    counts = [run.header.get("selected") for run in runs]
    selected = sum(count for count in counts if type(count) is int)
    whole = selected == first.header.get("planned") and first.header.get("limited") is None
    header = {key: value for key, value in first.header.items() if key != "shard"}
    if selected != first.header.get("planned"):
        header["shard"] = " ".join(str(run.header["shard"]) for run in runs)
    processors = dict.fromkeys(str(run.environment.get("processor", "")) for run in runs)
    return replace(
        first,
        header={
            **header,
            "id": " ".join(run.id for run in runs),  # as 'qbench accept' takes them
            "selected": selected,
            "complete_selection": whole,
        },
        environment={**first.environment, "processor": ", ".join(sorted(filter(None, processors)))},
        cells=tuple(record for run in runs for record in run.cells),
        findings=tuple(line for run in runs for line in run.findings),
        notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
        complete=all(run.complete for run in runs),
        damaged=sum(run.damaged for run in runs),
        notices=tuple(dict.fromkeys(notice for run in runs for notice in run.notices)),
    )
