"""Runs written and read; what cannot be read is counted and named, nothing is rewritten."""

import contextlib
import datetime
import io
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from qbench.errors import StoreError
from qbench.storage import json_line
from qbench.tracking.attempts import (
    JobName,
    attempt_groups,
    attempt_id,
    checked_job,
    other_attempt,
    settled,
)
from qbench.tracking.record import FORMAT, CellRecord, Run
from qbench.tracking.repeated_lines import RepeatedLines
from qbench.tracking.run_lines import (
    LINE_ERRORS,
    Keep,
    RunReading,
    damaged_text,
    decoded_line,
    is_header,
    reading_notices,
)
from qbench.tracking.shards import clock_notices, joined_run, next_start, shard_groups, start_order
from qbench.tracking.store import (
    FolderStore,
    HistoryStore,
    shown_path,
    store_of,
    unreadable,
    unwritable,
)

if TYPE_CHECKING:
    import pandas as pd

# Two years of nights are a gigabyte: the first line of every run gives the order, and runs are read
# one at a time, when they are needed.

_NO_RUN = (
    "Move it out of the history; if it is a log of lm-eval or Inspect, 'qbench import' writes its "
    "answers, which 'qbench compare' reads."
)


def read_run(path: Path, keep: Keep | None = None) -> Run:
    """The run in the file at ``path``; a damaged file gives what is left of it.

    Args:
        keep: what is kept of each cell; left out: all of it.

    Raises:
        StoreError: the file cannot be read, or has no ``run`` line, so that it is not known what it
            is.
    """
    return _parsed(FolderStore(path.parent).read(str(path)), str(path), keep)


def parse_run(data: bytes, path: Path | str, keep: Keep | None = None) -> Run:
    """The run in the bytes of a file; ``path`` is for messages.

    Raises:
        StoreError: it has no ``run`` line.
    """
    return _parsed(io.BytesIO(data), str(path), keep)


def _parsed(
    blocks: Iterable[bytes],
    name: str,
    keep: Keep | None,
    *,
    samples: bool = False,
    repeated: RepeatedLines | None = None,
) -> Run:
    """The run in ``blocks``: lines, or several at once where they are compared in their order."""
    reading = RunReading(keep, repeated, with_samples=samples or keep is None)
    in_order = repeated is not None and repeated.in_order
    take = reading.take_lines if in_order else reading.take
    for block in blocks:
        take(block)
    if not reading.header:
        found = f"no 'run' line with its id, suite and start ({damaged_text(reading)})"
        raise unreadable(name, found, remedy=_NO_RUN)
    return Run(
        header=reading.header,
        environment=reading.environment,
        cells=tuple(reading.cells),
        findings=tuple(reading.findings),
        samples=tuple(reading.samples),
        notes=tuple(reading.notes),
        complete=reading.complete,
        ended=reading.ended,
        damaged=reading.damaged,
        notices=tuple(reading_notices(shown_path(name), reading)),
        path=shown_path(name),
    )


def kept_keys(*keys: str) -> Keep:
    """A reader that keeps these fields of each cell, as if the others were not in its line."""
    return lambda record: CellRecord(**{key: getattr(record, key) for key in keys})


class History:
    """The runs in a store, or in the folder of run files at a path; a folder that does not
    exist holds none.

    Args:
        now: the time by the reader's clock, with a time zone: runs stamped later than that are put
            in order by their commits (``start_order``); None: by their stamps.
        known: runs that this process has just written there; these are not read.
    """

    def __init__(
        self,
        place: HistoryStore | Path,
        *,
        now: datetime.datetime | None = None,
        known: Iterable[Run] = (),
    ) -> None:
        self.store = store_of(place)
        self._now = now
        self._known = {run.path: run for run in known}
        self._names: dict[str, list[str]] = {}
        """Id of a run → the names of its copies in the store."""
        self._sentences: dict[str, list[str]] = {}
        """Name of a run that was read → what is wrong with it."""

    @cached_property
    def heads(self) -> tuple[Run, ...]:
        """Every run with its header alone, in the order of their starts."""
        headers: dict[str, Mapping[str, Any]] = {}
        for name in self.store.runs():
            header = self._first_line(name)
            if header is None:
                run = self._read_copy(name, _no_cell)
                if run is None:
                    continue
                header = run.header
            header = other_attempt(header, headers)
            headers.setdefault(str(header["id"]), header)
            self._names.setdefault(str(header["id"]), []).append(name)
        lines = tuple(headers.values())
        return tuple(
            Run(header=lines[place], path=shown_path(self._names[str(lines[place]["id"])][0]))
            for place in start_order(lines, self._now)
        )

    def nights(self, suite: str | None = None) -> tuple[Run, ...]:
        """``heads`` (of ``suite``) with the shards of one night as one run."""
        return tuple(
            night for night in self._nights.values() if suite is None or night.suite == suite
        )

    def runs(self, suite: str | None = None) -> tuple[Run, ...]:
        """Every readable run (of ``suite``), the earliest first, all in memory: ``each`` reads
        them one at a time. Attempts at one piece of work are runs of their own: see ``counted``.
        """
        return tuple(self.each(head for head in self.heads if suite is None or head.suite == suite))

    def each(
        self,
        heads: Iterable[Run],
        keep: Keep | None = None,
        *,
        samples: Collection[str] = (),
        repeated: RepeatedLines | None = None,
    ) -> Iterator[Run]:
        """The runs of ``heads`` (of ``self.heads`` or ``self.nights()``), in their order, each
        read when it is needed.

        A run that cannot be read any more is left out. ``keep``: as of ``read_run``; ``samples``:
        the ids of the runs that have their lines of samples all the same; ``repeated``: where
        ``keep`` keeps the same of equal records, the lines that are read once.
        """
        for head in heads:
            shards = self._shards.get(head.id, (head,))
            read = (
                self._read(shard.id, keep, samples=head.id in samples, repeated=repeated)
                for shard in shards
            )
            found = [run for run in read if run is not None]
            if found:
                yield joined_run(found)

    def counted(self, suite: str | None = None, keep: Keep | None = None) -> Iterator[Run]:
        """The runs (of ``suite``) that count, the earliest first, each read when it is needed: of
        several attempts at one piece of work what counts of them, as one run.

        ``keep``: as of ``read_run``.
        """
        heads = [head for head in self.heads if suite is None or head.suite == suite]
        for group in attempt_groups([head.header for head in heads]):
            read = (self._read(heads[place].id, keep) for place in group)
            if found := [run for run in read if run is not None]:
                yield settled(found)

    def read_each(self, heads: Iterable[Run], keep: Keep | None = None) -> Iterator[Run]:
        """The runs of ``heads``, each by itself, however they are counted.

        ``keep``: as of ``read_run``.
        """
        read = (self._read(head.id, keep) for head in heads)
        return (run for run in read if run is not None)

    def ends(self, heads: Iterable[Run]) -> Iterator[Run]:
        """``read_each`` without cells: whether the runs are complete."""
        return self.read_each(heads, _no_cell)

    def name_of(self, head: Run) -> str:
        """The name in the store of a run of ``heads``; of several copies the first."""
        return self._names[head.id][0]

    def latest(self, suite: str | None = None) -> Run | None:
        """The last run (of ``suite``) that began, complete or not; the shards of one night are
        one run.
        """
        return next(self.each(reversed(self.nights(suite))), None)

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each file that could not be read, or not whole; what was not read yet
        is read for it.
        """
        for head in self.heads:
            if any(name not in self._sentences for name in self._names[head.id]):
                self._read(head.id, _no_cell)
        return self.noticed

    @property
    def noticed(self) -> tuple[str, ...]:
        """The ``problems`` of the files that were read so far, and of the files that hold no
        run.
        """
        assert self.heads is not None
        return tuple(
            sentence for name in sorted(self._sentences) for sentence in self._sentences[name]
        )

    @property
    def clock_notices(self) -> tuple[str, ...]:
        """One sentence about runs that are stamped in the future; none where there are none."""
        return clock_notices([head.header for head in self.heads], self._now)

    @cached_property
    def _nights(self) -> dict[str, Run]:
        joined = (joined_run([self.heads[place] for place in group]) for group in self._groups)
        return {night.id: night for night in joined}

    @cached_property
    def _groups(self) -> tuple[tuple[int, ...], ...]:
        return shard_groups([head.header for head in self.heads])

    @cached_property
    def _shards(self) -> dict[str, tuple[Run, ...]]:
        """Id of a run that joins several → the heads of those."""
        several = [
            tuple(self.heads[place] for place in group) for group in self._groups if len(group) > 1
        ]
        return {joined_run(heads).id: heads for heads in several}

    def _read(
        self,
        run_id: str,
        keep: Keep | None,
        *,
        samples: bool = False,
        repeated: RepeatedLines | None = None,
    ) -> Run | None:
        """The run of that id; of several copies the fullest."""
        names = self._names[run_id]
        if len(names) == 1:
            return self._read_copy(names[0], keep, samples=samples, repeated=repeated)
        best: Run | None = None
        for name in names:
            run = self._read_copy(name, None)
            if run is None or best is None:
                best = best or run
                continue
            best, other = (run, best) if fullness(run) > fullness(best) else (best, run)
            self._sentences[name] += disagreement(other, best)
        return None if best is None else _kept(best, keep)

    def _read_copy(
        self,
        name: str,
        keep: Keep | None,
        *,
        samples: bool = False,
        repeated: RepeatedLines | None = None,
    ) -> Run | None:
        known = self._known.get(shown_path(name))
        try:
            run = (
                _parsed(
                    self._blocks(name, repeated), name, keep, samples=samples, repeated=repeated
                )
                if known is None
                else _kept(known, keep)
            )
        except StoreError as error:
            self._sentences[name] = [str(error)]
            return None
        self._sentences[name] = list(run.notices)
        return run

    def _blocks(self, name: str, repeated: RepeatedLines | None) -> Iterator[bytes]:
        """The lines of a run, several at once where the store has them so and they are compared
        with those of earlier runs.
        """
        in_order = repeated is not None and repeated.in_order
        if in_order and type(self.store) is FolderStore:  # another kind may read lines otherwise
            return self.store.blocks(name)
        return self.store.read(name)

    def _first_line(self, name: str) -> Mapping[str, Any] | None:
        """The ``run`` line that a run begins with; None when its first line is another one."""
        try:
            line = decoded_line(next(self.store.read(name), b""))
            return line if is_header(line) else None
        except (StoreError, *LINE_ERRORS):
            return None


def _kept(run: Run, keep: Keep | None) -> Run:
    """``run`` with what ``keep`` keeps of its cells."""
    return (
        run
        if keep is None
        else replace(run, cells=tuple(one for one in map(keep, run.cells) if one is not None))
    )


def _no_cell(_record: CellRecord) -> None:
    """Keep no cell: the run is only read to see whether it is whole."""


def fullness(run: Run) -> tuple[bool, int]:
    """Which of two copies of one run is used: the one with the greater value."""
    return run.complete, len(run.cells)


def disagreement(other: Run, fuller: Run) -> list[str]:
    """A sentence if ``other``, a copy of the run ``fuller``, is neither its beginning nor torn;
    else none.
    """
    rest = iter(fuller.cells)
    # each after the one before it
    torn = other.damaged > 0 and all(cell in rest for cell in other.cells)
    if other.header == fuller.header and (torn or other.cells == fuller.cells[: len(other.cells)]):
        return []
    return [
        f"'{other.path}' has other content for run '{fuller.id}' than '{fuller.path}', which is "
        "used."
    ]


class RunWriter:
    """One run as it is written; ``name`` is its name in the store, ``header`` its first line."""

    def __init__(self, store: HistoryStore, run_id: str, name: str) -> None:
        self.id = run_id
        self.name = name
        self.header: dict[str, Any] = {}
        self.cells = 0
        self._store = store
        self._is_open = True

    @classmethod
    def open(
        cls,
        place: HistoryStore | Path,
        header: Mapping[str, Any],
        *,
        started: datetime.datetime,
        commit: str | None,
        token: str,
    ) -> "RunWriter":
        """A new run ``<UTC time>-<commit>-<token>`` in a store or a folder, begun with its
        ``run`` line; an attempt of a job has the name of ``attempt_id``, and its number.

        Args:
            header: what the ``run`` line holds besides ``type``, ``format``, ``id``, ``started``
                and its place among the runs in ``place`` (``next_start``); ``suite`` at least.
            started: with a time zone.
            commit: full or short hash; None outside version control.
            token: a few random letters, so that two machines that start at once do not collide.

        Raises:
            StoreError: the store cannot be written.
            InputError: the header has a job that cannot be named.
        """
        store = store_of(place)
        moment = started.astimezone(datetime.UTC)
        # Milliseconds, because where two runs saw nothing of each other they are put in order by
        # this.
        stem = (
            f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03}Z-{(commit or 'nogit')[:7]}"
            f"-{token}"
        )
        position = next_start([head.header for head in History(store).heads])
        job = checked_job(header)
        if job is None:
            writer, named = cls(store, *_created(store, stem)), {}
        else:
            job, run_id, name = _begun(store, job, str(header["suite"]))
            writer, named = cls(store, run_id, name), {"job": {**header["job"], **asdict(job)}}
        first = {
            "type": "run",
            "format": FORMAT,
            "id": writer.id,
            "started": moment.isoformat(timespec="milliseconds"),
        }
        writer.header = {**first, **position, **header, **named}
        writer.write(writer.header)
        return writer

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one line, whole on return.

        Raises:
            StoreError: the disk is full, or the run was closed.
        """
        if not self._is_open:
            raise unwritable(self.name, "that it is closed")
        self._store.append(self.name, json_line(line).encode("utf-8"))
        self.cells += line.get("type") == "cell"

    def close(self, *, exit_code: int) -> None:
        """Write the ``end`` line and close, with everything on the disk; further calls do nothing.

        Raises:
            StoreError: the disk is full, or gone.
        """
        if self._is_open:
            self.write({"type": "end", "cells": self.cells, "exit_code": exit_code})
            self._is_open = False
            self._store.close(self.name, complete=True)

    def abandon(self) -> None:
        """Close without an ``end`` line: the run stays incomplete."""
        if self._is_open:
            self._is_open = False
            self._store.close(self.name, complete=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """A run that was not closed before was interrupted."""
        self.abandon()


def _created(store: HistoryStore, stem: str) -> tuple[str, str]:
    """The id and the name of a new run; an id that is taken gets a number."""
    for number in itertools.count(1):
        run_id = stem if number == 1 else f"{stem}-{number}"
        with contextlib.suppress(FileExistsError):
            return run_id, store.create(run_id)
    raise AssertionError


def _begun(store: HistoryStore, job: JobName, suite: str) -> tuple[JobName, str, str]:
    """The next attempt of ``job``, the id and the name of its run: the first number that is not
    taken, so that of two processes that begin at once each has one of its own.
    """
    for number in itertools.count(max(job.attempt, 1)):
        attempt = replace(job, attempt=number)
        run_id = attempt_id(attempt, suite)
        with contextlib.suppress(FileExistsError):
            return attempt, run_id, store.create(run_id)
    raise AssertionError


# Runs as rows and as one pandas frame: a row for each metric of each measured cell of each run.


class MetricRow(NamedTuple):
    """One metric of one measured cell of one run.

    ``started`` is a UTC time (ISO 8601), values are fractions, ``data`` names the samples of all
    metrics of the cell.
    """

    run: str
    started: str
    commit: str
    complete: bool
    suite: str
    model: str
    backend: str
    schema: str
    variant: str
    environment_class: str
    outcome: str
    metric: str
    hits: int
    out_of: int
    value: float
    reference_hits: int
    reference_value: float
    losses: int
    gains: int
    n: int
    integer_macs: float
    data: str


COLUMNS = MetricRow._fields


def metric_rows(runs: Iterable[Run]) -> Iterator[MetricRow]:
    """The rows of ``runs``, in their order and that of their files. A cell that was skipped or
    broken has none.
    """
    for run in runs:
        started = str(run.header.get("started", ""))
        for record in run.cells:
            label = data_label(record.digests_of("data"))
            for name, metric in record.counted():
                yield MetricRow(
                    run.id,
                    started,
                    run.commit,
                    run.complete,
                    record.suite,
                    record.model,
                    record.backend,
                    record.schema,
                    record.variant,
                    record.environment_class,
                    record.outcome,
                    name,
                    metric.hits,
                    metric.out_of,
                    metric.value,
                    metric.reference_hits,
                    metric.reference_value,
                    metric.losses,
                    metric.gains,
                    metric.n,
                    record.integer_share,
                    label,
                )


_DIGITS_OF_DATA = 12


def data_label(digests: Mapping[str, str]) -> str:
    """``photos:0f3a…``: the data sets of a cell with the beginnings of their digests."""
    return "+".join(f"{name}:{digest[:_DIGITS_OF_DATA]}" for name, digest in digests.items())


def cell_frame(runs: Iterable[Run]) -> "pd.DataFrame":
    """``metric_rows(runs)`` as a frame of ``COLUMNS``; ``started`` is a UTC time, or NaT."""
    return frame_of_rows(metric_rows(runs))


def frame_of_rows(rows: Iterable[tuple[object, ...]]) -> "pd.DataFrame":
    """A frame of tuples that are laid out as ``MetricRow`` is."""
    import pandas as pd

    frame = pd.DataFrame(list(rows), columns=list(COLUMNS))
    frame["started"] = pd.to_datetime(frame["started"], utc=True, format="ISO8601", errors="coerce")
    return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which results: of this suite, model, …; None: of any."""

    suite: str | None = None
    model: str | None = None
    backend: str | None = None
    schema: str | None = None
    variant: str | None = None
    metric: str | None = None
    environment_class: str | None = None
