"""Attempts of one piece of work, of which one counts: those of a job of a plan, and a run with
those that resume it.
"""

import functools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qbench.errors import InputError
from qbench.judging import Cause, Cell, Finding, Suspect
from qbench.storage import digest_plain
from qbench.tracking.finding_lines import finding_line
from qbench.tracking.record import CellRecord, Run, cell_of_line

# Cells are measured at least once and counted exactly once.
#
#     header of a job        "job": {"plan": …, "index": 17, "of": 50, "attempt": 2}
#     header of a resumed    "resumes": the id of the unfinished run that it goes on with
#
# An attempt is complete by its ``end`` line alone. It is whole where no other one selected more
# cells: with ``-k`` an attempt ends after a part of its work. Of the attempts of one piece of work
#
#     a complete one is whole   each cell counts once, by the first complete attempt that has it, by
#                               its number; no unfinished one hides it
#     none is                   each cell counts once, by the first attempt that has a result for it
#
# ``infra`` is no result of a cell: its machine or process failed. The first attempt with a result
# takes its place, also where the attempt that counts is complete. Nothing else of a later complete
# attempt counts; where its predictions differ, that is a finding: the cell is not deterministic.

NO_RESULT = frozenset(("infra", "error"))
"""The outcomes of cells that an attempt tried in vain; a session that resumes runs them again."""
_NO_ANSWER = frozenset(("infra",))
"""The same in a complete attempt: there an error is a result."""

_MOST_JOBS = 100_000
"""Of a plan; a file that says more is damaged."""
_NAMED = 3
"""Cells that one sentence names."""


@dataclass(frozen=True, slots=True)
class JobName:
    """Which job a run is an attempt of: the first digits of the digest of its plan, its number from
    1, and how many jobs the plan has; ``attempt``: from 1, 0 where it is not known.
    """

    plan: str
    index: int
    of: int
    attempt: int = 0


def job_of(header: Mapping[str, Any]) -> JobName | None:
    """The job that the run with this ``run`` line is an attempt of; None: of none, or of one that
    no plan has.
    """
    job = header.get("job")
    if not isinstance(job, Mapping) or not isinstance(job.get("plan"), str):
        return None
    index, of, attempt = job.get("index", 0), job.get("of", 0), job.get("attempt", 0)
    if type(index) is int and type(of) is int and type(attempt) is int:
        return _job_of(job["plan"], index, of, attempt)
    return None


@functools.lru_cache(maxsize=1 << 14)  # a history asks ten times for the job of each of its runs
def _job_of(plan: str, index: int, of: int, attempt: int) -> JobName | None:
    is_one = 0 <= index <= of <= _MOST_JOBS and attempt >= 0
    return JobName(plan, index, of, attempt) if is_one else None


def attempt_id(job: JobName, suite: str) -> str:
    """The id of an attempt: ``<plan>-j0017-a02-<suite>``."""
    return f"{job.plan}-j{job.index:04}-a{job.attempt:02}-{suite}"


def other_attempt(
    header: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """``header`` with an id of its own, where ``known`` has another attempt of its id: two machines
    that see nothing of each other both begin with attempt 1.
    """
    run_id, started = str(header["id"]), str(header.get("started", ""))
    same = known.get(run_id)
    if same is None or job_of(header) is None or same.get("started") == started:
        return header
    return {**header, "id": f"{run_id} of {started}"}


def night_of_jobs(header: Mapping[str, Any]) -> tuple[str, ...]:
    """What the runs of all jobs of one night have in common; empty where the run of ``header`` is
    of no job.
    """
    job = job_of(header)
    if job is None:
        return ()
    return (job.plan, str(header.get("suite")), *selection_of(header))


def selection_of(header: Mapping[str, Any]) -> tuple[str, str]:
    """By which options the run of ``header`` has a part of the samples and of the cells."""
    return str(header.get("limited")), str(header.get("select"))


def night_id(header: Mapping[str, Any]) -> str:
    """The id of the runs of all jobs of the night of ``header`` as one run: ``<plan>-<suite>``."""
    plan, suite, limited, select = night_of_jobs(header)
    part = (limited, select)
    usual = part in (("None", ""), ("None", "None"))
    return f"{plan}-{suite}" if usual else f"{plan}-{suite}-{digest_plain(list(part))[:6]}"


def attempt_groups(headers: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, ...], ...]:
    """Positions in ``headers`` (``run`` lines in the order they began) of the attempts of one
    piece of work, in the order of their numbers; most are alone.
    """
    known = {str(header.get("id", "")): header for header in headers}
    groups: dict[object, list[int]] = {}
    for place, header in enumerate(headers):
        groups.setdefault(_work_of(header, known) or place, []).append(place)
    return tuple(
        tuple(sorted(group, key=lambda place: (_attempt(headers[place]), place)))
        for group in groups.values()
    )


def attempt_ranks(runs: Sequence[Run]) -> dict[int, tuple[int, int]]:
    """Position in ``runs``, which need no cells, → (piece of work, number of the attempt), of the
    attempts that can count.
    """
    ranks: dict[int, tuple[int, int]] = {}
    for work, group in enumerate(attempt_groups([run.header for run in runs])):
        counted, _ = _that_count([runs[place] for place in group])
        ranks |= {group[one]: (work, rank) for rank, one in enumerate(counted)}
    return ranks


def _that_count(attempts: Sequence[Run]) -> tuple[list[int], bool]:
    """The positions of those of the ``attempts`` at one piece of work that can count, and whether
    a complete one of them is whole: then these are the complete ones, else all.
    """
    complete = [place for place, run in enumerate(attempts) if run.complete]
    most = max(selected_of(run.header) for run in attempts)
    if any(selected_of(attempts[place].header) == most for place in complete):
        return complete, True
    return list(range(len(attempts))), False


def selected_of(header: Mapping[str, Any]) -> int:
    """How many cells the run of ``header`` was to measure; 0 where it has no number."""
    count = header.get("selected")
    return count if type(count) is int else 0


def _attempt(header: Mapping[str, Any]) -> int:
    job = job_of(header)
    return 0 if job is None else job.attempt


def _work_of(
    header: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]
) -> tuple[object, ...]:
    """What all attempts at the work of ``header`` have in common: the job, or the run that was
    resumed first; empty for a run that cannot be named.
    """
    job = job_of(header)
    if job is not None:
        return (*night_of_jobs(header), job.index)
    seen: dict[str, None] = {}
    while (run_id := str(header.get("id", ""))) not in seen:
        seen[run_id] = None
        before = known.get(str(header.get("resumes", "")))
        if before is None or before.get("suite") != header.get("suite") or job_of(before):
            break
        header = before
    return (run_id,) if run_id else ()


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which of several attempts counts for each cell, by its axes; ``order``: of the cells."""

    attempts: Sequence[Run]
    order: Mapping[tuple[str, ...], int]

    def lines(self) -> Iterator[tuple[int, CellRecord]]:
        """(position of the attempt, record) of what counts, in the order of the cells."""
        held: dict[tuple[str, ...], list[tuple[int, CellRecord]]] = {}
        for place, run in enumerate(self.attempts):
            for record in run.cells:
                if self.order.get(axes := _axes(record)) == place:
                    held.setdefault(axes, []).append((place, record))
        for axes in self.order:
            yield from held.get(axes, ())

    def counts(self, place: int, line: Mapping[str, Any]) -> bool:
        """Whether ``line``, with the axes of a cell, is of the attempt that counts for it; one of
        no known cell is of the first.
        """
        try:
            cell = cell_of_line(line)
        except (KeyError, TypeError, ValueError):
            return place == 0
        return self.order.get((cell.model, cell.backend, cell.schema, cell.variant), 0) == place


def _axes(record: CellRecord) -> tuple[str, ...]:
    return record.model, record.backend, record.schema, record.variant


def settled(attempts: Sequence[Run]) -> Run:
    """What counts of the ``attempts`` at one piece of work, which are in the order of their
    numbers; one alone as it is.

    It has the header of the first complete attempt that is whole; where none is, that of the last
    one that was to run the most cells.
    """
    if len(attempts) == 1:
        return attempts[0]
    places, is_whole = _that_count(attempts)
    counted = [attempts[place] for place in places]
    choice = _Choice(counted, _chosen(counted, _NO_ANSWER if is_whole else NO_RESULT))
    most = max(selected_of(run.header) for run in counted)
    fullest = [run for run in counted if selected_of(run.header) == most]
    main = fullest[0] if is_whole else fullest[-1]
    findings, sentences = _differing([run for run in counted if run.complete])
    by_attempt = list(enumerate(counted))
    return replace(
        main,
        cells=tuple(record for _, record in choice.lines()),
        findings=(
            *(
                line
                for place, run in by_attempt
                for line in run.findings
                if choice.counts(place, line)
            ),
            *findings,
        ),
        samples=tuple(
            line
            for place, run in by_attempt
            for line in run.samples
            if choice.counts(place, _decoded(line))
        ),
        notes=tuple(dict.fromkeys((*_notes(main, counted, is_whole), *sentences))),
        damaged=main.damaged if is_whole else sum(run.damaged for run in counted),
        notices=tuple(dict.fromkeys(notice for run in counted for notice in run.notices)),
    )


def _notes(main: Run, counted: Sequence[Run], is_whole: bool) -> Iterator[str]:
    yield from main.notes if is_whole else (note for run in counted for note in run.notes)


def _decoded(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _chosen(attempts: Sequence[Run], wanting: Collection[str]) -> dict[tuple[str, ...], int]:
    """Axes of a cell → the position of the attempt that counts for it: the first that has it, or
    where its outcome there is one of ``wanting`` the first with another one.
    """
    chosen: dict[tuple[str, ...], int] = {}
    without: set[tuple[str, ...]] = set()
    for place, run in enumerate(attempts):
        for record in run.cells:
            axes, lacks = _axes(record), record.outcome in wanting
            if axes in without and not lacks:
                without.remove(axes)
                chosen[axes] = place
            elif axes not in chosen:
                chosen[axes] = place
                if lacks:
                    without.add(axes)
    return chosen


def _differing(complete: Sequence[Run]) -> tuple[list[dict[str, Any]], list[str]]:
    """A finding for each cell that a later complete attempt answered otherwise than the first, and
    a sentence about each such attempt.
    """
    if len(complete) < 2:
        return [], []
    first, *later = complete
    known = {_axes(record): record for record in first.cells}
    found: dict[Cell, Finding] = {}
    sentences = []
    for run in later:
        cells = [one for one in run.cells if _differs(known.get(_axes(one)), one)]
        if not cells:
            continue
        for record in cells:
            found.setdefault(record.cell, _finding(record, first, run))
        named = ", ".join(str(one.cell) for one in cells[:_NAMED])
        more = f" and {len(cells) - _NAMED} more" if len(cells) > _NAMED else ""
        count = f"{len(cells)} cell{' is' if len(cells) == 1 else 's are'}"
        sentences.append(
            f"{count} not deterministic: '{run.id}' has other answers than '{first.id}', "
            f"which counts: {named}{more}"
        )
    told = {cell for cell in map(_cell_or_none, first.findings) if cell is not None}
    return [finding_line(cell, one) for cell, one in found.items() if cell not in told], sentences


def _cell_or_none(line: Mapping[str, Any]) -> Cell | None:
    try:
        return cell_of_line(line)
    except (KeyError, TypeError, ValueError):
        return None


def _differs(first: CellRecord | None, later: CellRecord) -> bool:
    """Whether two attempts gave other predictions for the same samples on the same class of
    processor and packages.
    """
    if first is None or first.environment_class != later.environment_class:
        return False
    kinds = ("data", "model", "quantized")
    if any(first.digests_of(kind) != later.digests_of(kind) for kind in kinds[:1]) or any(
        first.digests.get(kind) != later.digests.get(kind) for kind in kinds[1:]
    ):
        return False
    ours, theirs = first.digests_of("predictions"), later.digests_of("predictions")
    return any(ours[name] != theirs[name] for name in ours.keys() & theirs.keys())


def _finding(record: CellRecord, first: Run, later: Run) -> Finding:
    """What is found of a cell with other predictions in a later attempt."""
    cell = record.cell
    suspect = Suspect(
        node="the whole model",
        cause=Cause.NONDETERMINISM,
        evidence=f"'{later.id}' has other answers to the same samples than '{first.id}', both on "
        f"{record.environment_class}",
        remedy="Measure it several times on one machine (--qbench-repeats=5): if that repeats its "
        "answers, the machines differ.",
    )
    return Finding(
        model=cell.model,
        backend=cell.backend,
        schema=cell.schema,
        samples=record.n or 0,
        suspects=(suspect,),
    )


def checked_job(header: Mapping[str, Any]) -> JobName | None:
    """``job_of`` of a header that is to be written.

    Raises:
        InputError: it has a job that cannot be named.
    """
    job = job_of(header)
    if job is None and "job" in header:
        raise InputError(
            f"Beginning the run file of the suite '{header.get('suite')}'",
            found=f"the job {header['job']!r:.80}",
            expected="a table with plan, index and of",
            remedy="Make the plan again with 'qbench plan'.",
        )
    return job
