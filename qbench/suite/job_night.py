"""All jobs of a plan on workers: each is submitted, tried again where its process died, and given
up where that goes nowhere.

    done        the store has a complete attempt at each suite of the job, of the wanted samples:
                one of before this night only where it was to measure all cells of the job (-k
                leaves some out). What an executor returns is no evidence of it
    tried again its process died, or the executor lost it, and it got further than the time before,
                or it is the first time
    given up    two deaths before the first cell, or three times no further
"""

import contextlib
import enum
import json
import re
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from qbench.number_text import counted
from qbench.storage import neutral_line, without_secrets
from qbench.suite.job_executors import Pending, Workers
from qbench.suite.job_plan import Job
from qbench.suite.job_process import (
    DIED,
    LAST_OUTPUT,
    MEASURED,
    PLAN_FILE,
    REFUSED,
    how_ended,
    run_job,
)
from qbench.tracking import AXES, HistoryStore, selected_of, store_of

_POLL_S = 0.2
_GRACE_S = 40.0
"""Seconds that processes have after Ctrl-C to write what they measured."""
_DEATHS_BEFORE_ANY_CELL = 2
_TIMES_NO_FURTHER = 3
_TIMES_REFUSED = 3
_TIMES_LOST = 5
"""How often a job is submitted whose executor loses it before it began."""
_AWAY_S = 120.0
"""How long a job that ended well waits for a store that does not answer before it is lost."""


class JobState(enum.StrEnum):
    """How a job ended."""

    KEPT = "kept"
    """A complete attempt was there before."""
    MEASURED = "measured"
    INFRA = "infra"
    """Its process died again and again."""
    REFUSED = "refused"
    """No worker took it."""
    LOST = "lost"
    """The executor never ran it, or its run file is nowhere to be seen."""
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How job ``index`` ended: after ``tries``, with the last ``reason`` and ``output`` of one that
    failed.
    """

    index: int
    state: JobState
    tries: int = 0
    seconds: float = 0.0
    reason: str = ""
    output: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether the store has all of it."""
        return self.state in (JobState.KEPT, JobState.MEASURED)


@dataclass(frozen=True, slots=True)
class JobRuns:
    """What a store holds of one job: for its complete attempts, by suite and id, how many cells
    each was to measure; how many attempts there are, and of how many cells they have a line.
    """

    complete: Mapping[str, Mapping[str, int]]
    attempts: int
    cells: int

    @property
    def ids(self) -> frozenset[str]:
        """Of the complete attempts."""
        return frozenset(one for attempts in self.complete.values() for one in attempts)

    def holds(
        self, job: Job, suites: frozenset[str] | None = None, earlier: Collection[str] | None = None
    ) -> bool:
        """Whether each suite of ``job``, of those in ``suites``, has a complete attempt.

        Args:
            earlier: ids of attempts that count only where they were to measure all cells of the
                job: other commands made them. None: all attempts.
        """
        cells: Counter[str] = Counter()
        for unit in job.units:
            if suites is None or unit.suite in suites:
                cells[unit.suite] += unit.cells
        return all(
            any(
                selected >= count or (earlier is not None and one not in earlier)
                for one, selected in self.complete.get(suite, {}).items()
            )
            for suite, count in cells.items()
        )


_NAME = r"{short}-j(?P<index>\d+)-a\d+-(?P<suite>.+?)(?:\.jsonl)?$"


def _names_by_job(store: HistoryStore, short: str) -> dict[int, list[tuple[str, str]]]:
    """Number of the job → the suite and name of each attempt at it in ``store``."""
    form = re.compile(_NAME.format(short=re.escape(short)))
    names: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for name in store.runs():
        if found := form.search(Path(name).name):
            names[int(found["index"])].append((found["suite"], name))
    return dict(names)


def runs_of_job(
    place: HistoryStore | Path,
    short: str,
    index: int,
    *,
    limit: int | None = None,
    names: Mapping[int, Sequence[tuple[str, str]]] | None = None,
) -> JobRuns:
    """What the store at ``place`` holds of job ``index`` of the plan ``short``.

    Args:
        limit: only attempts with at most that many samples of each data set; None: with all.
        names: suite and name of the attempts by job; None: the store is asked.

    Raises:
        StoreError: it cannot be read.
    """
    store = store_of(place)
    complete: dict[str, dict[str, int]] = {}
    cells: set[tuple[str, ...]] = set()
    attempts = 0
    for named, name in (_names_by_job(store, short) if names is None else names).get(index, ()):
        lines = iter(store.read(name))
        header = _table_of(next(lines, b""))
        if not is_night_of(header, limit):
            continue
        attempts += 1
        suite = str(header.get("suite", named))  # the name may end in a digest
        last = b""
        for line in lines:
            if _type_of(line) == "cell":
                cells.add((suite, *_axes_of(line)))
            last = line
        if _type_of(last) == "end":
            stem = Path(name).name.removesuffix(".jsonl")
            complete.setdefault(suite, {})[stem] = selected_of(header)
    return JobRuns(complete, attempts, len(cells))


def is_night_of(header: Mapping[str, Any], limit: int | None) -> bool:
    """Whether the run of ``header`` is of a night on workers with the option ``--limit`` of that
    number; such a night has no ``--select``.
    """
    return header.get("limited") == limit and not header.get("select")


_TYPE = re.compile(rb'\{"type": ?"(\w+)"')
"""How each line of a run file begins."""


def _type_of(line: bytes) -> str:
    found = _TYPE.match(line)
    return found[1].decode() if found and line.endswith(b"\n") else ""


def _axes_of(line: bytes) -> tuple[str, ...]:
    """The axes of the cell of a line; none of one that cannot be read."""
    with contextlib.suppress(KeyError):
        table = _table_of(line)
        return tuple(str(table[name]) for name in AXES)
    return ()


def _table_of(line: bytes) -> Mapping[str, Any]:
    """The table of a line; empty of one that cannot be read."""
    with contextlib.suppress(ValueError, RecursionError):
        table = json.loads(line)
        return table if isinstance(table, dict) else {}
    return {}


@dataclass(slots=True)
class _Try:
    pending: Pending
    token: str
    started: float
    ended: float | None = None


@dataclass(slots=True)
class _Course:
    """One job on its way; ``earlier``: the ids of its attempts that other nights completed."""

    job: Job
    needs: Collection[str]
    before: JobRuns
    earlier: frozenset[str]
    tries: int = 0
    no_further: int = 0
    early_deaths: int = 0
    refused: int = 0
    lost: int = 0
    seconds: float = 0.0
    reason: str = ""
    output: tuple[str, ...] = ()
    running: _Try | None = None

    def ended(self, state: JobState) -> JobEnd:
        """The end of it, in ``state``."""
        is_done = state in (JobState.KEPT, JobState.MEASURED)
        return JobEnd(
            index=self.job.index,
            state=state,
            tries=self.tries,
            seconds=self.seconds,
            reason="" if is_done else self.reason,
            output=() if is_done else self.output,
        )


class NightPlan(Protocol):
    """What a night needs of a plan."""

    @property
    def short(self) -> str:
        """Digits that name it."""
        ...

    @property
    def jobs(self) -> Sequence[Job]:
        """In the order of their numbers."""
        ...


@dataclass(slots=True)
class Night:
    """The jobs of ``plan`` on ``workers``, whose run files are in ``history``.

    Args:
        order: what ``run_job`` takes, for all jobs.
        needs: what a worker must offer for a job.
        tell: receives a line about each end and each new try, without secrets.
        suites: those whose cells are to be measured; None: all of the plan.
        limit: at most that many samples of each data set are measured; None: all.
    """

    plan: NightPlan
    workers: Workers
    history: HistoryStore | Path
    order: Mapping[str, Any]
    needs: Callable[[Job], Collection[str]]
    tell: Callable[[str], None]
    suites: frozenset[str] | None = None
    limit: int | None = None
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    token: Callable[[], str] = secrets.token_hex
    is_interrupted: bool = False
    _avoided: set[str] = field(default_factory=set)
    _seen: dict[str, int] = field(default_factory=dict)
    _ends: dict[int, JobEnd] = field(default_factory=dict)

    def run(self) -> tuple[JobEnd, ...]:
        """Run every job that the store does not hold yet; how each ended, by number. Ctrl-C ends
        the processes and is remembered in ``is_interrupted``.

        Raises:
            StoreError: the store cannot be read.
        """
        courses: list[_Course] = []
        try:
            names = self._names()
            for job in sorted(self.plan.jobs, key=lambda one: -one.seconds):
                before = self._runs_of(job, names)
                course = _Course(job, self.needs(job), before, before.ids)
                if before.holds(job, self.suites, course.earlier):
                    self._end(course, JobState.KEPT)
                else:
                    courses.append(course)
            for sentence in self.workers.notices({need for one in courses for need in one.needs}):
                self.tell(sentence)
            for course in courses:
                self._submit(course)
            self._settle_all(courses)
        except KeyboardInterrupt:
            self.is_interrupted = True
            self._stop([one for one in courses if one.job.index not in self._ends])
        return tuple(
            self._ends.get(job.index) or JobEnd(index=job.index, state=JobState.INTERRUPTED)
            for job in self.plan.jobs
        )

    def _names(self) -> Mapping[int, Sequence[tuple[str, str]]] | None:
        """Suite and name of what the store holds by job, so that it is listed once for all."""
        return _names_by_job(store_of(self.history), self.plan.short)

    def _runs_of(
        self, job: Job, names: Mapping[int, Sequence[tuple[str, str]]] | None = None
    ) -> JobRuns:
        return runs_of_job(self.history, self.plan.short, job.index, limit=self.limit, names=names)

    def _settle_all(self, courses: Iterable[_Course]) -> None:
        waiting = list(courses)
        while waiting:
            for course in waiting:
                self._settle(course)
            waiting = [one for one in waiting if one.job.index not in self._ends]
            if waiting:
                self.wait(_POLL_S)

    def _submit(self, course: _Course) -> None:
        token = self.token()
        self._seen[token] = course.job.index
        said = " ".join(course.output)
        variables = {**self.order["variables"], **({LAST_OUTPUT: said} if said else {})}
        order = {
            **self.order,
            "job": course.job.index,
            "token": token,
            "variables": variables,
        }
        course.tries += 1
        try:
            pending = self.workers.submit(run_job, order, course.needs, self._avoided)
            _require_pending(pending)
        except Exception as error:  # of any library
            pending = _Failed(error)
        course.running = _Try(pending, token, self.clock())

    def _settle(self, course: _Course) -> None:
        """Take the result of ``course`` if there is one; end it or submit it again."""
        running = course.running
        if running is None or not _is_done(running.pending):
            return
        if running.ended is None:
            running.ended = self.clock()
        result, trouble = self._result(running)
        now = self._runs_of(course.job)
        is_held = now.holds(course.job, self.suites, course.earlier)
        if not is_held and result.get("state") == MEASURED and self._is_away(running.ended):
            return  # its run file may be there
        course.running = None
        course.seconds += running.ended - running.started
        if is_held:
            if trouble:
                self.tell(f"{self._name(course)}: {trouble}")
            self._end(course, JobState.MEASURED)
            return
        course.reason = trouble or str(result.get("reason") or "")
        course.output = tuple(_text_lines(result.get("output")))
        state = self._next(course, result, now)
        course.before = now
        if state is not None:
            self._end(course, state)
            return
        self.tell(f"{self._name(course)} is tried again: {course.reason}")
        self._submit(course)

    def _is_away(self, ended: float) -> bool:
        """Whether the store did not answer, and may soon, for a job that ``ended`` then."""
        outage = getattr(self.history, "outage", None)
        return outage is not None and self.clock() < ended + _AWAY_S

    def _next(self, course: _Course, result: Mapping[str, Any], now: JobRuns) -> JobState | None:
        """The state that ``course`` ends in after a try that did not complete it; None: it is tried
        again.
        """
        has_begun = now.attempts > course.before.attempts
        state = result.get("state")
        if state == MEASURED:
            course.reason = self.unseen
            return JobState.LOST
        if state == REFUSED:
            course.refused += 1
            self._avoided.add(str(result.get("worker")))
            return JobState.REFUSED if course.refused >= _TIMES_REFUSED else None
        if state == DIED or has_begun:
            if state == DIED:
                course.reason = f"its process ended {how_ended(result.get('code'))}"
            course.early_deaths += not has_begun
            course.no_further = 0 if now.cells > course.before.cells else course.no_further + 1
            is_over = (
                course.early_deaths >= _DEATHS_BEFORE_ANY_CELL
                or course.no_further >= _TIMES_NO_FURTHER
            )
            return JobState.INFRA if is_over else None
        course.lost += 1
        return JobState.LOST if course.lost >= _TIMES_LOST else None

    def _result(self, running: _Try) -> tuple[Mapping[str, Any], str]:
        """What the executor gave, empty where it is not of this try; and a sentence about that."""
        try:
            value = running.pending.result()
        except Exception as error:  # of any library
            text = without_secrets(neutral_line(f"{type(error).__name__}: {error}"))[:_SHOWN]
            return {}, f"{self.workers.name} lost it or could not run it ({text.rstrip('.')})"
        if isinstance(value, Mapping) and value.get("token") == running.token:
            return value, ""
        return {}, (
            f"found {self._other(value)} from {self.workers.name}; expected its own result. "
            "Nothing of it is used, as what was measured is in the history; correct the executor."
        )

    def _other(self, value: object) -> str:
        """What a result is that is not of the job it was returned for."""
        if value is None:
            return "no result"
        index = self._seen.get(str(value.get("token"))) if isinstance(value, Mapping) else None
        if index is None:
            return f"something else, of type {type(value).__name__},"
        return f"the result of a try of job {index}"

    def _end(self, course: _Course, state: JobState) -> None:
        end = self._ends[course.job.index] = course.ended(state)
        if state is JobState.KEPT:
            return
        what = f"{state} after {counted(end.tries, 'try', 'tries')} in {end.seconds:.0f} s"
        self.tell(
            f"[{len(self._ends)}/{len(self.plan.jobs)}] {self._name(course)}: {what}"
            + (f": {end.reason}" if end.reason else "")
        )
        for line in end.output:
            self.tell(f"    {line}")

    def _stop(self, courses: Collection[_Course]) -> None:
        """End what runs, wait until it has written its cells, and take what there is."""
        for course in courses:
            if course.running is not None:
                with contextlib.suppress(Exception):  # an executor may not be able to
                    course.running.pending.cancel()
        self.workers.stop(self.mark)
        limit = self.clock() + _GRACE_S
        while self.clock() < limit and not all(
            one.running is None or _is_done(one.running.pending) for one in courses
        ):
            self.wait(_POLL_S)
        for course in courses:
            now = self._runs_of(course.job)
            course.reason = ""
            is_done = now.holds(course.job, self.suites, course.earlier)
            self._end(course, JobState.MEASURED if is_done else JobState.INTERRUPTED)

    @property
    def mark(self) -> str:
        """What is in the command line of every process of the night."""
        return PLAN_FILE.format(short=self.plan.short)

    @property
    def unseen(self) -> str:
        """The reason where a process did all, and nothing of it is to be seen here."""
        return (
            "found no complete run file of it in the history here, though its process measured all "
            "cells; expected one history for all workers and this computer. Name a folder that all "
            "of them have, or a store by its address."
        )

    def _name(self, course: _Course) -> str:
        return f"job {course.job.index} of {self.order['of']}"


_SHOWN = 300
"""Characters of an error of an executor."""


class _Failed:
    """A try that the executor did not even take."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def done(self) -> bool:
        """True."""
        return True

    def result(self) -> object:
        """The error.

        Raises:
            Exception: always.
        """
        raise self._error

    def cancel(self) -> bool:
        """False: there is nothing to cancel."""
        return False


def _require_pending(value: object) -> None:
    if not (callable(getattr(value, "done", None)) and callable(getattr(value, "result", None))):
        raise TypeError(f"submit returned {value!r:.40}, which is no future")


def _is_done(pending: Pending) -> bool:
    try:
        return bool(pending.done())
    except Exception:  # its result will raise it again
        return True


def _text_lines(value: object) -> list[str]:
    return [neutral_line(str(one)) for one in value] if isinstance(value, list | tuple) else []
