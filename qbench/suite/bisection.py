"""Finds the first bad commit between a good one and a bad one by halving the range."""

import enum
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from packaging.version import InvalidVersion, Version

from qbench.errors import IncomparableError, InputError, StoreError, unknown_name
from qbench.host import Worktree, tree_hash
from qbench.number_text import value_text
from qbench.storage import (
    current_factor,
    digest_file,
    digest_plain,
    json_text,
    plain,
    refuse_newer,
    value_from_table,
    write_text,
)
from qbench.tracking import History, cell_of_line

# The criterion is one number: of all metrics of all cells the one that got worse most between the
# two ends. A commit is bad if its value is nearer to that of the bad end than to that of the good
# one. Commits that cannot be built or measured are skipped; if only such are left, the answer is a
# range of commits.

CellLines = Sequence[Mapping[str, Any]]
"""The ``cell`` lines of one run file."""


class Mark(enum.Enum):
    """The result of trying a commit."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The criterion for every commit: a metric of a cell, its values at both ends, in ``unit``
    (``%``: fractions).
    """

    cell: str
    metric: str
    good: float
    bad: float
    unit: str = "%"
    as_good: str = ""

    def text(self, value: float) -> str:
        """``value`` in the unit of the metric; of answers or ranges, whether they are those of
        the good end.
        """
        if self.metric in _COMPARED:
            return "changed" if value else "as at the good end"
        return value_text(value, self.unit)

    def mark(self, value: float | None) -> Mark:
        """The mark of a commit with ``value``; None: it was not measured."""
        if value is None:
            return Mark.SKIPPED
        return Mark.BAD if abs(value - self.bad) <= abs(value - self.good) else Mark.GOOD

    def value(self, lines: CellLines) -> float | None:
        """The value of the metric in ``lines``; None where it is missing."""
        if self.metric in _COMPARED:
            there = _compared(lines, self.metric).get(self.cell)
            return None if there is None else float(there != self.as_good)
        found = _values(lines).get((self.cell, self.metric))
        return None if found is None else found[0]


def ask(good: CellLines, bad: CellLines, *, metric: str = "") -> Question:
    """The metric of a cell that got worse most; where none did, its calibrated ranges or its
    answers, if they changed.

    Args:
        good, bad: the lines of the two ends.
        metric: only this one, or ``ranges`` or ``answers``; empty: any.

    Raises:
        IncomparableError: nothing that both measured is worse or other at the bad end.
    """
    worse = None if metric in _COMPARED else _most_worse(good, bad, metric)
    if worse is not None:
        return worse
    for kind in _COMPARED if metric in ("", *_COMPARED) else ():
        if metric not in ("", kind):
            continue
        before, after = _compared(good, kind), _compared(bad, kind)
        for cell, value in after.items():
            if before.get(cell, value) != value:
                return Question(
                    cell=cell, metric=kind, good=0.0, bad=1.0, unit="", as_good=before[cell]
                )
    both = [
        key
        for key in _values(good).keys() & _values(bad).keys()
        if metric in ("", *_COMPARED, key[1])
    ]
    raise IncomparableError(
        "Bisecting",
        found="nothing that is worse at the bad end, and the same calibrated ranges and answers"
        if both
        else "no metric that both ends measured",
        expected="ends that differ",
        remedy="Check the order of the ends, the build command and the suite.",
    )


_COMPARED = ("ranges", "answers")
"""What is compared with the good end where no metric is worse: what calibration found, and the
predictions.
"""


def _compared(lines: CellLines, kind: str) -> dict[str, str]:
    """Cell → its calibrated ranges or the digests of its answers, as text; cells without are
    left out.
    """
    found = {}
    for line in lines:
        digests = {
            name: one
            for name, one in line.get("digests", {}).items()
            if name.startswith("predictions:")
        }
        value = line.get("calibrated") if kind == "ranges" else digests
        if value:
            found[str(cell_of_line(line))] = json.dumps(value, sort_keys=True)
    return found


def _most_worse(good: CellLines, bad: CellLines, metric: str) -> Question | None:
    """The metric of a cell that is worse by most at the bad end; None: none is."""
    before, after = _values(good), _values(bad)
    worse = {
        key: (before[key][0] - after[key][0]) * (-1 if is_lower else 1)
        for key, (_, is_lower) in after.items()
        if key in before and metric in ("", key[1])
    }
    key = max(worse, key=lambda one: worse[one], default=None)
    if key is None or worse[key] <= 0:
        return None
    return Question(
        cell=key[0], metric=key[1], good=before[key][0], bad=after[key][0], unit=_unit_of(bad, key)
    )


def suspects(commits: Sequence[str], marks: Mapping[str, Mark]) -> tuple[str, ...]:
    """The commits that may be the first bad one: after the last good one, up to the first bad.

    Args:
        commits: after the good end, up to and including the bad end, the earliest first.
        marks: of tried commits.
    """
    bad = next(
        (i for i, commit in enumerate(commits) if marks.get(commit) is Mark.BAD), len(commits) - 1
    )
    good = max((i for i in range(bad) if marks.get(commits[i]) is Mark.GOOD), default=-1)
    return tuple(commits[good + 1 : bad + 1])


def next_commit(commits: Sequence[str], marks: Mapping[str, Mark]) -> str | None:
    """The commit to try next: nearest to the middle of the suspects; None: none helps."""
    left = suspects(commits, marks)
    untried = [place for place, commit in enumerate(left[:-1]) if commit not in marks]
    middle = (len(left) - 2) / 2
    return left[min(untried, key=lambda place: abs(place - middle))] if untried else None


def _unit_of(lines: CellLines, key: tuple[str, str]) -> str:
    found = (line["metrics"][key[1]] for line in lines if str(cell_of_line(line)) == key[0])
    return str(next(found).get("unit", "%"))


def _values(lines: CellLines) -> dict[tuple[str, str], tuple[float, bool]]:
    """(cell, metric) → its value and whether lower is better."""
    return {
        (str(cell_of_line(line)), metric): (
            counts["hits"] / counts["out_of"],
            counts.get("direction") == "lower",
        )
        for line in lines
        for metric, counts in line.get("metrics", {}).items()
    }


# The notes of a bisection, one JSON file: the task, the result of each artifact, the trial of each
# commit.
#
# They are written after every commit, so that an interrupted bisection can be resumed. Equal
# artifacts are measured once.

FORMAT = "qbench-bisect/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is bisected; notes belong to one task.

    Args:
        good, bad: whole hashes.
        build: the command.
        suite: path in the project.
        select: which cells.
        artifacts: paths in the project that the results depend on; none: all files of the commit.
        extensions: ``MODULE:NAME`` of each that is named on the command line.
    """

    good: str
    bad: str
    build: str
    suite: str
    select: str = ""
    artifacts: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One commit: the digest of its artifact, or why it could not be measured."""

    artifact: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """All results so far; ``measured``: digest of an artifact → the cell lines of its run."""

    format: str
    task: Task
    trials: Mapping[str, Trial] = field(default_factory=dict)
    measured: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)

    def lines(self, commit: str) -> CellLines | None:
        """The cell lines of ``commit``; None where it was not tried or could not be measured."""
        trial = self.trials.get(commit)
        return self.measured.get(trial.artifact) if trial is not None and trial.artifact else None

    def with_trial(self, commit: str, trial: Trial, lines: CellLines = ()) -> "Notes":
        """These notes and the trial of ``commit``; ``lines`` where its artifact is new."""
        measured = self.measured
        if trial.artifact and trial.artifact not in measured:
            kept = tuple({key: line[key] for key in _KEPT if key in line} for line in lines)
            measured = {**measured, trial.artifact: kept}
        return replace(self, trials={**self.trials, commit: trial}, measured=measured)


_KEPT = (
    "suite",
    "model",
    "backend",
    "schema",
    "variant",
    "outcome",
    "environment_class",
    "metrics",
    "digests",
)


def open_notes(path: Path, task: Task) -> Notes:
    """The notes at ``path``, or new ones where there are none.

    Raises:
        InputError: the file holds notes of another task, or no notes.
    """
    return reopened(path, Notes(format=FORMAT, task=task))


class Notebook(Protocol):
    """The notes of any kind of bisection: a frozen value."""

    @property
    def format(self) -> str:
        """The kind of notes."""
        ...

    @property
    def task(self) -> object:
        """What is bisected."""
        ...


AnyNotes = TypeVar("AnyNotes", bound=Notebook)


def reopened(
    path: Path, blank: AnyNotes, *, is_over: Callable[[AnyNotes], bool] = lambda _: False
) -> AnyNotes:
    """The notes at ``path`` of the kind and the task of ``blank``, else ``blank``.

    Args:
        path: of the file.
        blank: new notes.
        is_over: whether a bisection has ended, so that its notes may be replaced by those of
            another task.

    Raises:
        InputError: the file holds notes of another task that has not ended, or no notes.
    """
    if not path.exists():
        return blank
    doing = f"Resuming the bisection in '{path}'"
    try:
        table = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(
            doing,
            found=f"a file that cannot be read ({error})",
            expected="JSON",
            remedy="Move it aside to start again.",
        ) from error
    refuse_newer(doing, table.get("format") if isinstance(table, dict) else None, blank.format)
    notes = value_from_table(type(blank), table, f"'{path}'")
    if notes.format != blank.format:
        raise InputError(
            doing,
            found=f"notes of the format {notes.format}",
            expected=blank.format,
            remedy="Name another file.",
        )
    if notes.task == blank.task:
        return notes
    if is_over(notes):
        return blank
    kept, asked = _task_texts(notes.task), _task_texts(blank.task)
    other = [name for name in {**kept, **asked} if kept.get(name) != asked.get(name)]
    raise InputError(
        doing,
        found="another task that has not ended: " + _listed(other, kept),
        expected="the task of this command: " + _listed(other, asked),
        remedy=f"Give the same arguments again to resume it; to start again, type mv '{path}' "
        f"'{path}.old' first, or name another file with --state.",
    )


def _task_texts(task: object) -> dict[str, str]:
    """Field of a task → its value as text; without empty fields."""
    texts: dict[str, str] = {}
    for name, value in plain(task).items():
        if isinstance(value, Mapping):
            texts |= {str(key): str(one) for key, one in value.items()}
        else:
            texts[name] = (
                ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            )
    return {name: text for name, text in texts.items() if text}


def _listed(names: Iterable[str], texts: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {texts[name]}" if name in texts else f"no {name}" for name in names)


def save_notes(path: Path, notes: Notebook) -> None:
    """Write ``notes`` to ``path`` atomically.

    Raises:
        StoreError: the folder cannot be written.
    """
    write_text(path, json_text(plain(notes)))


# One commit of a project: checked out, built by the user's command, measured by a child process.
#
# The child process runs in the working tree, with the suite, arithmetics, schemas and extensions of
# the commit.

_MEASURED = (0, 1)
"""Exit codes of ``qbench run`` after which every cell was run; red cells are expected here."""


def try_commit(tree: Worktree, commit: str, notes: Notes) -> Notes:
    """``notes`` and the trial of ``commit``; an artifact that was measured is not run again.

    Raises:
        StoreError: git cannot check it out.
    """
    task = notes.task
    tree.check_out(commit)
    if not task.artifacts:  # the same files, built by the same command
        artifact = digest_plain([tree_hash(commit, tree.folder), task.build])
        if artifact in notes.measured:
            return notes.with_trial(commit, Trial(artifact=artifact))
    if problem := _problem_of(["sh", "-c", task.build], tree.folder, "the build"):
        return notes.with_trial(commit, Trial(problem=problem))
    if task.artifacts:
        missing = [name for name in task.artifacts if not (tree.folder / name).exists()]
        if missing:
            return notes.with_trial(commit, Trial(problem=f"the build left no '{missing[0]}'"))
        artifact = digest_plain(list(_digests(tree.folder, task.artifacts)))
        if artifact in notes.measured:
            return notes.with_trial(commit, Trial(artifact=artifact))
    lines, problem = _measured(tree.folder, task)
    trial = Trial(problem=problem) if problem else Trial(artifact=artifact)
    return notes.with_trial(commit, trial, lines)


def _measured(folder: Path, task: Task) -> tuple[CellLines, str]:
    """The cell lines of a run of the suite in ``folder``; without any, the reason."""
    with tempfile.TemporaryDirectory() as history:
        command = [sys.executable, "-m", "qbench"]
        if current_factor() > 1:  # an older qbench in the commit may not have this option
            command += ["--size-limits", str(current_factor())]
        command += ["run", task.suite, "--select", task.select, "--history", history]
        for extension in task.extensions:
            command += ["--extension", extension]
        problem = _problem_of(command, folder, "the run", fine=_MEASURED)
        run = History(Path(history)).latest()
        cells = () if run is None else run.cells
        lines = tuple(record.line() for record in cells if record.is_measured)
        if not lines:
            headlines = filter(None, (record.headline for record in cells))
            return (), problem or next(headlines, "the run measured no cell")
        return lines, ""


def _problem_of(
    command: Sequence[str], folder: Path, what: str, *, fine: Sequence[int] = (0,)
) -> str:
    """Why ``command`` failed in ``folder``: the last line of its output; empty when it
    succeeded.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise StoreError(
            f"Running {what} in '{folder}'",
            found=str(error),
            expected="a shell",
            remedy="Check the command.",
        ) from error
    if done.returncode in fine:
        return ""
    last = next(
        (line.strip() for line in reversed(done.stdout.splitlines()) if line.strip()), "no output"
    )
    return f"{what} failed ({done.returncode}): {last}"


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """``own`` without the variables that git sets for hooks: they would lead git to the
    checkout of the user.
    """
    return {name: value for name, value in own.items() if not name.startswith("GIT_")}


def _digests(folder: Path, artifacts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(path, digest) of every file of the artifacts, in order."""
    for name in artifacts:
        root = folder / name
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file():
                yield path.relative_to(folder).as_posix(), digest_file(path)


# A bisection over the releases of a package: its notes, and the versions between the two ends.

PACKAGE_FORMAT = "qbench-bisect-package/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageTask:
    """What is bisected; notes belong to one task.

    Args:
        package: its name.
        line: versions from the good end to the bad one, both included.
        asked: all other arguments that the result depends on, name → text.
    """

    package: str
    line: tuple[str, ...]
    asked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageTrial:
    """One version.

    Args:
        mark: ``good``, ``bad`` or ``skipped``; empty where ``lines`` decide, compared with those of
            the ends.
        says: what was observed, or why nothing was; for people.
        numbers: counts.
        lines: the cell's line with its metrics.
    """

    mark: str = ""
    says: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[Mapping[str, Any], ...] = ()

    def marked(self, question: Question | None) -> Mark:
        """The mark of the version; by ``question`` where the trial has none."""
        if self.mark:
            return Mark(self.mark)
        return Mark.SKIPPED if question is None else question.mark(question.value(self.lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageNotes:
    """All results so far, version → trial; ``ended``: no version is left to try."""

    format: str = PACKAGE_FORMAT
    task: PackageTask
    trials: Mapping[str, PackageTrial] = field(default_factory=dict)
    ended: bool = False

    def with_trial(self, version: str, trial: PackageTrial) -> "PackageNotes":
        """These notes and ``trial`` of ``version``."""
        return replace(self, trials={**self.trials, version: trial})

    def marks(self, question: Question | None) -> dict[str, Mark]:
        """Version → its mark."""
        return {version: trial.marked(question) for version, trial in self.trials.items()}


def versions_between(package: str, known: Iterable[str], good: str, bad: str) -> tuple[str, ...]:
    """The versions from ``good`` to ``bad``, both included, in the order of PEP 440, backwards
    if ``bad`` is older.

    Pre-releases are included only as ends.

    Raises:
        InputError: an end is no version, is not known, or both are the same.
    """
    doing = f"Bisecting {package} from {good} to {bad}"
    first, last = (_version(doing, one) for one in (good, bad))
    found = {_version(doing, one): one for one in known}
    for end, name in ((first, good), (last, bad)):
        if end not in found:
            raise unknown_name(doing, "version", name, found.values())
    if first == last:
        raise InputError(
            doing, found="one version at both ends", expected="two", remedy="Name another end."
        )
    low, high = min(first, last), max(first, last)
    line = [
        one
        for one in sorted(found)
        if low <= one <= high and (not one.is_prerelease or one in (low, high))
    ]
    return tuple(found[one] for one in (line if first < last else reversed(line)))


def versions_from(package: str, known: Iterable[str], first: str, last: str) -> tuple[str, ...]:
    """The versions of ``known`` from ``first`` to ``last``, both included, in the order of PEP 440.

    ``1.31`` as the last one includes its patch releases, 1.31.1; pre-releases are left out. An
    empty end is open.

    Raises:
        InputError: an end is no version, or there is no version between them.
    """
    doing = (
        f"Listing the releases of {package} from {first or 'the earliest'} to "
        f"{last or 'the latest'}"
    )
    low, high = (_version(doing, one) if one else None for one in (first, last))
    found = {_version(doing, one): one for one in known}

    def is_within(one: Version) -> bool:
        begun = low is None or low <= one
        return begun and (
            high is None or one <= high or one.release[: len(high.release)] == high.release
        )

    line = [found[one] for one in sorted(found) if not one.is_prerelease and is_within(one)]
    if not line:
        names = [found[one] for one in sorted(found)]
        raise InputError(
            doing,
            found=f"none among {len(names)}, {names[0]} … {names[-1]}" if names else "none",
            expected="at least one",
            remedy="Correct --from and --to.",
        )
    return tuple(line)


def _version(doing: str, text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise InputError(
            doing,
            found=f"'{text}' for a version",
            expected="one as PEP 440 writes it, 1.17.3",
            remedy="Correct it.",
        ) from error
