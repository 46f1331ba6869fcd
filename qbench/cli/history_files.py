"""Finding runs, and what trends are read from."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.options import declare_baselines
from qbench.cli.printing import say
from qbench.errors import InputError, StoreError, UnavailableError, unknown_name
from qbench.number_text import counted

if TYPE_CHECKING:
    from qbench.tracking import AcceptedLevels, Annotation, History, Run, Series


# Finding runs: a path, an id (or the beginning of one), or ``latest`` in the history folder.


DEFAULT_HISTORY = "reports/history"


def declare_history(parser: argparse.ArgumentParser, more: str = "") -> None:
    """``--history DIR``; ``more``: what else it takes."""
    parser.add_argument(
        "--history",
        metavar="DIR",
        default=DEFAULT_HISTORY,
        help=f"folder of run files (default: {DEFAULT_HISTORY}){more}",
    )


def open_history(folder: str) -> "History":
    """The history in ``folder``.

    Raises:
        InputError: there is no such folder.
    """
    from qbench.host import utc_now
    from qbench.tracking import History

    if not Path(folder).is_dir():
        raise InputError(
            f"Reading the history in '{folder}'",
            found="no such folder",
            expected="a folder of run files",
            remedy="Name it with --history, or run a suite first.",
        )
    return History(Path(folder), now=utc_now())


def find_run(text: str, folder: str, keys: "Sequence[str]" = ()) -> "Run":
    """The run that ``text`` names: a file, ``latest``, or an id of the history in ``folder``, whole or its beginning.

    Of the history one run alone is read. ``latest`` is the last night: its shards are one run.

    Args:
        keys: what is kept of each cell; none: everything.

    Raises:
        InputError: no such run, or several begin with this text.
        StoreError: the file is no run file.
    """
    from qbench.tracking import kept_keys, read_run

    keep = kept_keys(*keys) if keys else None
    if Path(text).is_file():
        return read_run(Path(text), keep)
    history = open_history(folder) if Path(folder).is_dir() else None
    runs = () if history is None else history.heads
    if history is not None and text == "latest":
        for notice in history.clock_notices:
            say(notice)
        found = list(history.nights()[-1:])
    else:
        found = [run for run in runs if run.id.startswith(text)]
        found = [run for run in found if run.id == text] or found
    if history is not None and len(found) == 1:
        found = list(history.each(found, keep))
    if len(found) != 1:
        raise InputError(
            f"Looking for the run '{text}'",
            found=f"{len(found)} runs of that name among {len(runs)} in '{folder}'"
            if found
            else f"no such file, and no such run among {len(runs)} in '{folder}'",
            expected="a run file, the id of a run, or 'latest'",
            remedy="Give more of its id." if found else "Check the path, or name the folder with --history.",
        )
    return found[0]


# What trends are read from: run files, the commits of the project under test, its baselines, the annotations.


def declare_trends(parser: argparse.ArgumentParser) -> None:
    """``--history``, ``--suite``, ``--baselines``, ``--project``, ``--annotations``."""
    declare_history(parser)
    parser.add_argument("--suite", metavar="NAME", help="only runs of this suite")
    declare_baselines(parser)
    parser.add_argument(
        "--project", metavar="DIR", default=".", help="checkout whose commits order the runs (default: this folder)"
    )
    declare_annotations(parser)


def declare_annotations(parser: argparse.ArgumentParser) -> None:
    """``--annotations FILE``."""
    parser.add_argument(
        "--annotations", metavar="FILE", help="file of annotations (default: annotations.toml in the history)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """Everything a trend is made of.

    Args:
        runs: the shards of one night are one.
        problems: sentences about run files that could not be read, or not whole.
        commits: the main line, the earliest first: git's, or where that knows none of them that of the runs.
    """

    runs: "tuple[Run, ...]"
    problems: tuple[str, ...]
    commits: tuple[str, ...]
    series: "tuple[Series, ...]"
    accepted: "AcceptedLevels"
    annotations: "tuple[Annotation, ...]"
    annotations_path: Path


def read_trends(arguments: argparse.Namespace, cell: str | None = None) -> Trends:
    """What the options of ``declare_trends`` name, of the ``cell`` alone where there is an index to find it by.

    Where the history folder has an index, it is brought up to date and asked: it takes a quarter of the time that the
    files take.

    Raises:
        InputError: there is no history, no such suite in it, or a mistake in annotations or a suite.
        StoreError: a baseline is damaged.
    """
    from qbench.host import first_parents
    from qbench.tracking import ANNOTATIONS_FILE, INDEX_FILE, load_annotations, main_line, measured_commit

    history = open_history(arguments.history)
    path = Path(arguments.annotations or Path(arguments.history) / ANNOTATIONS_FILE)
    parents = first_parents(arguments.project)
    index = Path(arguments.history) / INDEX_FILE
    indexed = _from_index(history, index, arguments.suite, cell, parents) if index.is_file() else None
    runs, problems, series = indexed or _from_files(history, arguments.suite, parents)
    if arguments.suite is not None and not runs and history.heads:
        known = {run.suite for run in history.heads}
        raise unknown_name(f"Reading the history in '{arguments.history}'", "suite", arguments.suite, known)
    for notice in history.clock_notices:
        say(notice)
    commits = main_line(runs, parents)
    unordered = {commit for run in runs if (commit := measured_commit(run))} - set(commits)
    if unordered:
        verb = "is" if len(unordered) == 1 else "are"
        say(f"{counted(len(unordered), 'commit')} of the history {verb} not on the main line here: ordered by time")
    return Trends(
        runs=runs,
        problems=problems,
        commits=commits,
        series=series,
        accepted=_accepted(series, Path(arguments.baselines), Path(arguments.project) / "suites"),
        annotations=load_annotations(path),
        annotations_path=path,
    )


_Read = tuple["tuple[Run, ...]", tuple[str, ...], "tuple[Series, ...]"]
"""Runs by time (from an index without their cells), what was wrong with files, series."""


def _from_files(history: "History", suite: str | None, parents: Sequence[str]) -> _Read:
    """Every run is read once, and let go when its points are known."""
    from qbench.tracking import TREND_KEYS, in_commit_order, kept_keys, main_line, ordered_trends

    nights = history.nights(suite)
    read: dict[str, Run] = {}

    def each() -> "Iterator[Run]":
        for run in history.each(in_commit_order(nights, main_line(nights, parents)), kept_keys(*TREND_KEYS)):
            read[run.id] = replace(run, cells=(), findings=())
            yield run

    series = ordered_trends(each())
    return tuple(read[night.id] for night in nights if night.id in read), history.problems, series


def _from_index(
    history: "History", place: Path, suite: str | None, cell: str | None, parents: Sequence[str]
) -> _Read | None:
    """What the updated index at ``place`` has; None where it cannot be read, or does not have it."""
    from qbench.host import utc_now
    from qbench.tracking import HistoryIndex, Wanted, joined_shards, main_line

    wanted = Wanted(suite=suite)
    if cell is not None:
        model, _, slug = cell.partition("::")
        backend, schema, variant = (*slug.split("+", 2), "", "")[:3]
        wanted = Wanted(suite=suite, model=model, backend=backend, schema=schema, variant=variant)
    try:
        with HistoryIndex(str(place), now=utc_now()) as index:
            done = index.update(history.store)
            runs = joined_shards(index.starts(suite))
            series = index.series(wanted, commits=main_line(runs, parents))
    except (StoreError, UnavailableError, InputError) as error:
        say(f"{error} The run files are read instead.")
        return None
    return None if cell and not series else (runs, done.problems, series)  # the files know what there is instead


def _accepted(series: "Sequence[Series]", folder: Path, suites: Path) -> "AcceptedLevels":
    """What baselines in ``folder`` hold for the cells of ``series``; ``suites`` say which classes are one.

    Raises:
        InputError: a suite has a mistake. StoreError: a baseline is damaged.
    """
    from qbench.tracking import accepted_levels, baseline_path, load_baseline

    models: dict[str, set[str]] = {}
    for one in series:
        models.setdefault(one.cell.suite, set()).add(one.cell.model)
    classes = {one.environment_class for one in series}
    levels: AcceptedLevels = {}
    equivalents = equivalents_of(models, suites)
    for suite, names in models.items():
        paths = [path for name in sorted(names) if (path := baseline_path(folder, suite, name)).exists()]
        baselines = map(load_baseline, paths)
        levels = {**levels, **accepted_levels(suite, baselines, classes=classes, equivalents=equivalents[suite])}
    return levels


def equivalents_of(names: Iterable[str], suites: Path) -> "dict[str, tuple[tuple[str, ...], ...]]":
    """Suite → the groups of classes that it declares equivalent; none where its file is not in ``suites``.

    Raises:
        InputError: a suite has a mistake.
    """
    from qbench.suite import SUFFIX, load_suite

    files = {name: suites / f"{name}{SUFFIX}" for name in names}
    return {name: load_suite(file).table.equivalents if file.is_file() else () for name, file in files.items()}
