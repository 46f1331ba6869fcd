"""What unfinished runs hold that another session takes over instead of measuring it again.

A line is copied as it is, with one more key, ``resumed_from``: the id of the run that measured it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from qbench.errors import StoreError
from qbench.judging import Cell
from qbench.tracking.attempts import (
    NO_RESULT,
    attempt_groups,
    job_of,
    night_of_jobs,
    selected_of,
)
from qbench.tracking.history import History
from qbench.tracking.record import cell_of_line, known_record
from qbench.tracking.run_lines import LINE_ERRORS, decoded_line
from qbench.tracking.store import HistoryStore

MOST_DEATHS = 2
"""A cell whose process died so often is not run again."""
MOST_MODEL_DEATHS = 3
"""A model whose process died so often, in whichever of its cells, is not run again: a network that
kills every engine would use up all attempts of its job.
"""
_MOST_GROUPS = 8
"""Unfinished runs of one suite that are looked at, the newest first."""

Axes = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class TakenLines:
    """The lines of one cell in the run ``run``: of the cell, and where they are there its finding
    and its samples.
    """

    cell: dict[str, Any]
    finding: dict[str, Any] | None
    samples: dict[str, Any] | None
    run: str


@dataclass(slots=True)
class _Attempt:
    """The lines of one run file, by cell; of the long ones the bytes."""

    header: Mapping[str, Any] = field(default_factory=dict)
    processor: str = ""
    cells: dict[Axes, bytes] = field(default_factory=dict)
    outcomes: dict[Axes, str] = field(default_factory=dict)
    findings: dict[Axes, bytes] = field(default_factory=dict)
    samples: dict[Axes, bytes] = field(default_factory=dict)
    started: set[Axes] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    ended: bool = False
    grows: bool = False

    def take(self, text: bytes) -> None:
        """Keep what ``text`` holds; of a line that cannot be read, nothing."""
        try:
            record = known_record(text)
            if record is not None:
                self._take_cell(_axes(record.cell), text, record.outcome)
                return
            line = decoded_line(text)
            keep = self._keeps.get(line["type"])
            if keep is not None:
                keep(self, text, line)
        except LINE_ERRORS:
            return

    def _take_cell(self, axes: Axes, text: bytes, outcome: str) -> None:
        self.cells[axes] = text
        self.outcomes[axes] = outcome

    def _take_other_cell(self, text: bytes, line: Mapping[str, Any]) -> None:
        """Keep a cell of an older or a newer form, or with keys that a hook added."""
        self._take_cell(_axes(cell_of_line(line)), text, str(line.get("outcome")))

    def _take_finding(self, text: bytes, line: Mapping[str, Any]) -> None:
        self.findings[_axes(cell_of_line(line))] = text

    def _take_samples(self, text: bytes, line: Mapping[str, Any]) -> None:
        self.samples[_axes(cell_of_line(line))] = text

    def _take_start(self, _text: bytes, line: Mapping[str, Any]) -> None:
        act = self.started.discard if line.get("stopped") else self.started.add
        act(_axes(cell_of_line(line)))

    def _take_header(self, _text: bytes, line: Mapping[str, Any]) -> None:
        self.header = self.header or line

    def _take_environment(self, _text: bytes, line: Mapping[str, Any]) -> None:
        self.processor = str(line.get("processor", ""))

    def _take_note(self, _text: bytes, line: Mapping[str, Any]) -> None:
        self.notes.append(str(line.get("text", "")))

    def _take_end(self, _text: bytes, _line: Mapping[str, Any]) -> None:
        self.ended = True

    _keeps: ClassVar[Mapping[str, Callable[["_Attempt", bytes, Mapping[str, Any]], None]]] = {
        "cell": _take_other_cell,
        "finding": _take_finding,
        "samples": _take_samples,
        "started": _take_start,
        "run": _take_header,
        "environment": _take_environment,
        "note": _take_note,
        "end": _take_end,
    }

    def died_in(self, axes: Axes) -> bool:
        """Whether a cell was begun and left without a result; a worker of xdist that dies does not
        always get to say that it began.
        """
        outcome = self.outcomes.get(axes)
        return outcome == "infra" or (outcome is None and axes in self.started)


def _axes(cell: Cell) -> Axes:
    return cell.model, cell.backend, cell.schema, cell.variant


class Held:
    """What the ``attempts`` at one piece of work hold, in the order of their numbers.

    Args:
        givers: those of them whose lines may be taken over; the others tell of deaths alone.
    """

    def __init__(
        self, attempts: Sequence[_Attempt], givers: Sequence[_Attempt] | None = None
    ) -> None:
        self._attempts = attempts
        self._givers = attempts if givers is None else givers

    def given_by(self, fits: Callable[[Mapping[str, Any], str], bool]) -> "Held | None":
        """This with the lines of those attempts whose header and class of processor ``fits``;
        None: no attempt does.
        """
        givers = [one for one in self._givers if fits(one.header, one.processor)]
        return Held(self._attempts, givers) if givers else None

    @property
    def run(self) -> str:
        """The id of the last attempt whose lines may be taken over: what a session that takes over
        resumes.
        """
        return str(self._givers[-1].header["id"])

    def lines(self, cell: Cell) -> TakenLines | None:
        """The lines of ``cell`` in the first attempt that has a result for it; None: in none."""
        axes = _axes(cell)
        for one in self._givers:
            if one.outcomes.get(axes, "infra") not in NO_RESULT:
                run_id = str(one.header["id"])
                line = decoded_line(one.cells[axes])
                return TakenLines(
                    cell={**line, "resumed_from": line.get("resumed_from", run_id)},
                    finding=_decoded(one.findings.get(axes)),
                    samples=_decoded(one.samples.get(axes)),
                    run=run_id,
                )
        return None

    def deaths(self, cell: Cell) -> tuple[tuple[str, ...], str]:
        """The ids of the attempts whose process died after it had begun ``cell``, and the last that
        is known of it.
        """
        axes = _axes(cell)
        died = [one for one in self._killed if one.died_in(axes)]
        said = [_last_words(one, axes) for one in died]
        return _ids(died), next(filter(None, reversed(said)), "")

    def deaths_of_model(self, model: str) -> tuple[str, ...]:
        """The ids of the attempts whose process died after it had begun some cell of ``model``."""
        return _ids(
            one
            for one in self._killed
            if any(axes[0] == model and one.died_in(axes) for axes in {*one.started, *one.outcomes})
        )

    @property
    def _killed(self) -> Sequence[_Attempt]:
        return [one for one in self._attempts if not (one.ended or one.grows)]

    def given_up(self, cell: Cell) -> dict[str, Any] | None:
        """The line of ``cell`` in the first attempt that gave it up without running it; None: in
        none.
        """
        axes = _axes(cell)
        lines = (
            one.cells[axes]
            for one in self._attempts
            if one.outcomes.get(axes) == "infra" and axes not in one.started
        )
        return _decoded(next(lines, None))


def _ids(attempts: Iterable[_Attempt]) -> tuple[str, ...]:
    return tuple(str(one.header["id"]) for one in attempts)


def _last_words(attempt: _Attempt, axes: Axes) -> str:
    """What a run file says of the end of the process that ran a cell; empty: nothing."""
    line = _decoded(attempt.cells.get(axes))
    if line is not None:
        return str(line.get("headline", ""))
    return attempt.notes[-1] if attempt.notes else ""


def _decoded(text: bytes | None) -> dict[str, Any] | None:
    return None if text is None else decoded_line(text)


def unfinished_runs(
    store: HistoryStore, wanted: Callable[[Mapping[str, Any]], bool]
) -> dict[str, list[list[str]]]:
    """Suite → the runs in ``store`` that a session can go on with, each as the names of its
    attempts: the newest first.

    That is where no attempt is complete and the last is not being written; of a job also where one
    is, because its results are taken over by a job that is tried once more.

    Args:
        wanted: of the ``run`` line of the last attempt.
    """
    history = History(store)
    heads = history.heads
    found: dict[str, list[list[str]]] = {}
    for group in sorted(attempt_groups([head.header for head in heads]), key=max, reverse=True):
        last = heads[group[-1]]
        groups = found.setdefault(last.suite, [])
        if len(groups) >= _MOST_GROUPS or not wanted(last.header):
            continue
        attempts = [heads[place] for place in group]
        names = [history.name_of(head) for head in attempts]
        is_job = job_of(last.header) is not None
        if is_job or not (
            _grows(store, names[-1]) or any(run.complete for run in history.ends(attempts))
        ):
            groups.append(names)
    return {suite: groups for suite, groups in found.items() if groups}


def complete_attempt(place: HistoryStore | Path, header: Mapping[str, Any]) -> str:
    """The id of the attempt that counts before the one with this ``run`` line, where the job has
    a complete one of the same samples and of as many cells; else empty.
    """
    job = job_of(header)
    if job is None or job.attempt < 2:
        return ""
    history = History(place)
    of_job = [
        head
        for head in history.heads
        if (other := job_of(head.header)) is not None
        and night_of_jobs(head.header) == night_of_jobs(header)
        and other.index == job.index
        and other.attempt < job.attempt
        and selected_of(head.header) >= selected_of(header)
    ]
    ended = (run for run in history.ends(of_job) if run.complete)
    return min((run.id for run in ended), default="")


def held_results(store: HistoryStore, names: Iterable[str]) -> Held | None:
    """What the runs of these ``names`` hold; None where none of them can be read."""
    attempts = []
    for name in names:
        attempt = _Attempt()
        try:
            for text in store.read(name):
                attempt.take(text)
        except StoreError:
            continue  # moved or removed meanwhile: its cells are measured
        if "id" in attempt.header:
            attempt.grows = _grows(store, name)
            attempts.append(attempt)
    return Held(attempts) if attempts else None


def _grows(store: HistoryStore, name: str) -> bool:
    """Whether a living process is known to write the run; of most stores nothing is known."""
    is_growing = getattr(store, "is_growing", None)
    return bool(is_growing is not None and is_growing(name))
