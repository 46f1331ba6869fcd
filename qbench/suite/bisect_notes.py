"""The notebook of a bisection, one JSON file: what was asked, what each artifact measured, what each commit was.

It is written after every commit, so that a bisection that was interrupted goes on where it stopped. What equal
artifacts measured is measured once.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from qbench.errors import InputError, StoreError
from qbench.storage import json_text, plain, value_from_table, write_text
from qbench.suite.bisection import CellLines

FORMAT = "qbench-bisect/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is bisected; another task is another notebook.

    Args:
        good, bad: whole hashes. build: the command. suite: path in the project. select: which cells.
        artifacts: paths in the project that decide what is measured; none: all files of the commit.
    """

    good: str
    bad: str
    build: str
    suite: str
    select: str = ""
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One commit: the digest of its artifact, or why it could not be measured."""

    artifact: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Everything known so far; ``measured`` maps the digest of an artifact to the cell lines of its run."""

    format: str
    task: Task
    trials: Mapping[str, Trial] = field(default_factory=dict)
    measured: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)

    def lines(self, commit: str) -> CellLines | None:
        """What ``commit`` measured; None where it was not tried, or could not be."""
        trial = self.trials.get(commit)
        return self.measured.get(trial.artifact) if trial is not None and trial.artifact else None

    def with_trial(self, commit: str, trial: Trial, lines: CellLines = ()) -> "Notes":
        """These, and what ``commit`` turned out to be; ``lines`` where its artifact is new."""
        measured = self.measured
        if trial.artifact and trial.artifact not in measured:
            kept = tuple({key: line[key] for key in _KEPT if key in line} for line in lines)
            measured = {**measured, trial.artifact: kept}
        return replace(self, trials={**self.trials, commit: trial}, measured=measured)


_KEPT = ("suite", "model", "backend", "schema", "variant", "outcome", "environment_class", "metrics", "digests")


def open_notes(path: Path, task: Task) -> Notes:
    """The notebook at ``path``, or a new one where there is none.

    Raises:
        InputError: it is of another task, or no notebook.
    """
    return reopened(path, Notes(format=FORMAT, task=task))


class Notebook(Protocol):
    """What is written down of any bisection: a frozen value."""

    @property
    def format(self) -> str:
        """Which kind of notebook."""
        ...

    @property
    def task(self) -> object:
        """What is bisected."""
        ...


AnyNotes = TypeVar("AnyNotes", bound=Notebook)


def _is_never_over(_: object) -> bool:
    return False


def reopened(path: Path, blank: AnyNotes, *, is_over: Callable[[AnyNotes], bool] = _is_never_over) -> AnyNotes:
    """The notebook at ``path`` of the kind and the task of ``blank``, or ``blank`` where there is none.

    Args:
        path: of the file. blank: what is begun.
        is_over: whether there is nothing to go on with in a notebook, so that one of another task gives way.

    Raises:
        InputError: it is of another task, or no notebook.
    """
    if not path.exists():
        return blank
    doing = f"Going on with the bisection in '{path}'"
    try:
        table = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(
            doing, found=f"a file that cannot be read ({error})", expected="JSON", remedy="Remove it to begin anew."
        ) from error
    notes = value_from_table(type(blank), table, f"'{path}'")
    if notes.format != blank.format:
        raise InputError(
            doing, found=f"notes of the format {notes.format}", expected=blank.format, remedy="Name another file."
        )
    if notes.task == blank.task:
        return notes
    if is_over(notes):
        return blank
    kept, asked = _told(notes.task), _told(blank.task)
    other = [name for name in {**kept, **asked} if kept.get(name) != asked.get(name)]
    raise InputError(
        doing,
        found="another task that has not ended: " + _listed(other, kept),
        expected="the task that is asked for: " + _listed(other, asked),
        remedy=f"Give the same arguments again to go on with it; to begin anew, type rm '{path}' first, or name "
        "another file with --state.",
    )


def _told(task: object) -> dict[str, str]:
    """What a task says, name → words."""
    told: dict[str, str] = {}
    for name, value in plain(task).items():
        if isinstance(value, Mapping):
            told |= {str(key): str(one) for key, one in value.items()}
        else:
            told[name] = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return {name: text for name, text in told.items() if text}


def _listed(names: Iterable[str], told: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {told[name]}" if name in told else f"no {name}" for name in names)


def save_notes(path: Path, notes: Notebook) -> None:
    """Write ``notes`` to ``path``, whole or not at all.

    Raises:
        StoreError: the folder cannot be written.
    """
    write_text(path, json_text(plain(notes)))
