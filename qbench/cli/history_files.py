"""Finding runs, and what trends are read from."""

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.options import declare_baselines
from qbench.cli.printing import say
from qbench.errors import InputError, StoreError, UnavailableError, nearest, unknown_name
from qbench.number_text import counted
from qbench.storage import ObjectFile, PlaceError, file_at, is_url, place_of

if TYPE_CHECKING:
    from qbench.tracking import AcceptedLevels, Annotation, History, Run, Series, Standing


# Finding runs, wherever a verb takes one.


DEFAULT_HISTORY = "reports/history"


def declare_history(parser: argparse.ArgumentParser, more: str = "") -> None:
    """``--history DIR``, a folder or a URL; ``more``: what else it takes."""
    parser.add_argument(
        "--history",
        metavar="DIR",
        default=DEFAULT_HISTORY,
        help=f"folder of run files, or s3://, gs:// or file:// (default: {DEFAULT_HISTORY}){more}",
    )


def open_history(folder: str) -> "History":
    """The history in ``folder``, or behind that URL.

    Raises:
        InputError: there is no such folder.
        UnavailableError: a package that reaches the store is not installed.
    """
    history = find_history(folder)
    if history is None:
        raise InputError(
            f"Reading the history in '{folder}'",
            found="no such folder",
            expected="a folder of run files",
            remedy="Name it with --history, or run a suite first.",
        )
    return history


def find_history(folder: str) -> "History | None":
    """The history in ``folder``, or behind that URL; None: there is no such folder, also behind
    ``file://``. A bucket has no folders: nothing there is an empty history.
    """
    from qbench.host import utc_now
    from qbench.tracking import History, history_at

    place = history_at(folder)
    if not (place.is_dir() if isinstance(place, Path) else place.may_exist):
        return None
    return History(place, now=utc_now())


def folder_around(history: str) -> Path:
    """The folder of reports that belongs to a history: the one that holds it, or for a URL that of
    the default history.
    """
    return Path(DEFAULT_HISTORY if is_url(history) else history).resolve().parent


def index_of(history: str) -> Path:
    """Where the index of a history is by default: in its folder, or for a URL in the user's cache
    folder.
    """
    from qbench.tracking import INDEX_FILE, history_at

    place = history_at(history)
    return (place if isinstance(place, Path) else place.kept) / INDEX_FILE


def annotations_of(arguments: argparse.Namespace) -> Path | ObjectFile:
    """The file or the object that ``--annotations`` names, or that of the history."""
    from qbench.tracking import ANNOTATIONS_FILE

    if arguments.annotations:
        return file_at(arguments.annotations)
    return place_of(arguments.history) / ANNOTATIONS_FILE


def _run_at(text: str, folder: str, keys: "Sequence[str]") -> "Run | None":
    """The run in the file or the object that ``text`` names, alone or in the ``folder``."""
    from qbench.tracking import history_at, kept_keys, parse_run, read_run

    keep = kept_keys(*keys) if keys else None

    if is_url(text):
        store = history_at(text.rpartition("/")[0])
        assert not isinstance(store, Path)
        return parse_run(b"".join(store.read(text)), text, keep)
    for path in (Path(text), *([] if is_url(folder) else [Path(folder) / text])):
        if path.is_file():
            return read_run(path, keep)
    return None


def find_run(text: str, folder: str, keys: "Sequence[str]" = ()) -> "Run":
    """The run that ``text`` names in the history in ``folder``.

        a path, or the name of a file in the folder    that file
        the URL of an object                           that object
        latest, previous, latest~2                     the newest run, the one before it, … of the
                                                       newest run's suite
        last-green                                     of that suite, the newest run all of whose
                                                       gates passed, in an environment class of the
                                                       newest run where there is one
        an id, or its beginning                        that run
        a commit, or at least four digits of it        the newest run of it; one without
                                                       uncommitted changes first
        a version                                      the newest run of that release, of a backfill

    The shards of one night are one run, unless an id or a file names one. Of the history as little
    as needed is read.

    Args:
        keys: what is kept of each cell; none: everything.

    Raises:
        InputError: no such run, or several begin with this text.
        StoreError: the file is not a run file.
    """
    return next(find_runs((text,), folder, keys))


def find_runs(texts: "Sequence[str]", folder: str, keys: "Sequence[str]" = ()) -> "Iterator[Run]":
    """The runs that ``texts`` name in the history in ``folder``, as of ``find_run``; the history is
    opened once, and a line that repeats one of the run before is not decoded again.

    Raises:
        InputError, StoreError: as ``find_run``.
    """
    from qbench.tracking import RepeatedLines, kept_keys

    keep = kept_keys(*keys) if keys else None
    # a reader of one run holds no lines: they are as large as its file
    repeated = RepeatedLines() if len(texts) > 1 else None
    history: History | None = None
    for text in texts:
        run = _run_at(text, folder, keys)
        if run is not None:
            yield run
            continue
        history = history or find_history(folder)
        found = [] if history is None else _named(text, history)
        if history is not None and len(found) == 1:
            found = list(history.each(found, keep, repeated=repeated))
        if len(found) != 1:
            raise _unknown_run(text, folder, history, found)
        yield found[0]


RUN_NAMES = (
    "a file, an id or its beginning, a commit, 'latest', 'previous', 'latest~2' or 'last-green'"
)
"""The names of runs, for the help of a verb."""
LAST_GREEN = "last-green"
_BEFORE = re.compile(r"latest~([0-9]{1,9})")
_COMMIT = re.compile(r"[0-9a-f]{4,64}")


def is_run_name(text: str) -> bool:
    """Whether ``text`` is one of the names that are resolved anew each time, such as ``latest``."""
    return text in ("latest", "previous", LAST_GREEN) or _BEFORE.fullmatch(text) is not None


def _named(text: str, history: "History") -> "list[Run]":
    """The heads of ``history`` that ``text`` may mean: one, none, or several that begin alike."""
    from qbench.tracking import measured_commit

    if is_run_name(text):
        return _relative(text, history)
    heads = history.heads
    if alike := [
        run for run in (*history.nights(), *heads) if text in (run.id, Path(run.path).name)
    ]:
        return alike[-1:]
    if alike := [run for run in heads if run.id.startswith(text)]:
        return alike
    if alike := [run for run in heads if run.releases and run.commit == text]:
        return alike[-1:]
    nights = (
        [run for run in history.nights() if run.commit.startswith(text)]
        if _COMMIT.fullmatch(text)
        else []
    )
    if len({run.commit for run in nights}) > 1:
        return nights
    return ([run for run in nights if measured_commit(run)] or nights)[-1:]


def _relative(text: str, history: "History") -> "list[Run]":
    """``latest`` and what is counted from there, of the suite of the newest run."""
    for notice in history.clock_notices:
        say(notice)
    newest = history.nights()[-1:]
    if not newest:
        return []
    nights = history.nights(newest[0].suite)
    if text == LAST_GREEN:
        return _last_green(nights, history)
    before = _BEFORE.fullmatch(text)
    back = int(before[1]) if before else int(text == "previous")
    return [nights[-1 - back]] if back < len(nights) else []


def _last_green(nights: "Sequence[Run]", history: "History") -> "list[Run]":
    from qbench.tracking import AXES, kept_keys, last_green

    keep = kept_keys(*AXES, "outcome", "excused", "environment_class")
    green = last_green(history.each(reversed(nights), keep), next(history.each(nights[-1:], keep)))
    if green is None:
        return []
    return [night for night in nights if night.id == green.id]


def _unknown_run(
    text: str, folder: str, history: "History | None", found: "Sequence[Run]"
) -> InputError:
    heads = () if history is None else history.heads
    if found:
        what = f"{len(found)} runs of that name among {len(heads)} in '{folder}'"
    elif text == LAST_GREEN and heads:
        what = (
            f"no run of the suite '{heads[-1].suite}' all of whose gates passed, among "
            f"{len(heads)} in '{folder}'"
        )
    else:
        what = f"no such file, and no such run among {len(heads)} in '{folder}'"
    newest = ", ".join(f"'{run.id}'" for run in (found or heads)[-_NAMED:])
    expected = f"{RUN_NAMES}; the newest are {newest}" if newest else RUN_NAMES
    remedy = "Give more of its name."
    if not found:
        remedy = f"{_meant(text)}Correct the name, or name the folder with --history."
    return InputError(f"Looking for the run '{text}'", found=what, expected=expected, remedy=remedy)


def _meant(text: str) -> str:
    """``Did you mean 'latest'? ``; empty where ``text`` is like none of the words."""
    if is_run_name(text):
        return ""
    close = nearest(text, ("latest", "previous", LAST_GREEN), cutoff=0.7)
    return f"Did you mean '{close}'? " if close else ""


_NAMED = 3
"""Runs that an error names."""


# What trends are read from: run files, the commits of the project under test, its baselines, the
# annotations.


def declare_trends(parser: argparse.ArgumentParser) -> None:
    """``--history``, ``--suite``, ``--baselines``, ``--project``, ``--annotations``."""
    declare_history(parser)
    parser.add_argument("--suite", metavar="NAME", help="only runs of this suite")
    declare_baselines(parser)
    parser.add_argument(
        "--project",
        metavar="DIR",
        default=".",
        help="checkout whose commits order the runs (default: this folder)",
    )
    declare_annotations(parser)


def declare_annotations(parser: argparse.ArgumentParser) -> None:
    """``--annotations FILE``."""
    parser.add_argument(
        "--annotations",
        metavar="FILE",
        help="file of annotations (default: annotations.toml in the history)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """Everything a trend is made of.

    Args:
        runs: the shards of one night are one.
        problems: sentences about run files that could not be read, or not whole.
        commits: the main line, the earliest first: git's, or where that knows none of them that of
            the runs.
        newest: the newest result of every cell, suite by suite.
    """

    runs: "tuple[Run, ...]"
    problems: tuple[str, ...]
    commits: tuple[str, ...]
    series: "tuple[Series, ...]"
    accepted: "AcceptedLevels"
    annotations: "tuple[Annotation, ...]"
    annotations_path: Path | ObjectFile
    newest: "tuple[Standing, ...]"


def read_trends(arguments: argparse.Namespace, cell: str | None = None) -> Trends:
    """What the options of ``declare_trends`` name, of the ``cell`` alone where there is an
    index to find it by.

    Where the history folder has an index, it is brought up to date and asked: it takes a quarter of
    the time that the files take.

    Raises:
        InputError: there is no history, no such suite in it, or a mistake in annotations or a
            suite.
        StoreError: a baseline is damaged.
    """
    from qbench.host import first_parents
    from qbench.tracking import load_annotations, main_line, measured_commit

    history = open_history(arguments.history)
    path = annotations_of(arguments)
    parents = first_parents(arguments.project)
    index = index_of(arguments.history)
    indexed = (
        _from_index(history, index, arguments.suite, cell, parents) if index.is_file() else None
    )
    runs, problems, series = indexed or _from_files(history, arguments.suite, parents)
    if arguments.suite is not None and not runs and history.heads:
        known = {run.suite for run in history.heads}
        raise unknown_name(
            f"Reading the history in '{arguments.history}'", "suite", arguments.suite, known
        )
    for notice in history.clock_notices:
        say(notice)
    commits = main_line(runs, parents)
    unordered = {commit for run in runs if (commit := measured_commit(run))} - set(commits)
    if unordered:
        verb = "is" if len(unordered) == 1 else "are"
        say(
            f"{counted(len(unordered), 'commit')} of the history {verb} not on the main line here: "
            "ordered by time"
        )
    return Trends(
        runs=runs,
        problems=problems,
        commits=commits,
        series=series,
        accepted=_accepted(series, Path(arguments.baselines), Path(arguments.project) / "suites"),
        annotations=load_annotations(path),
        annotations_path=path,
        newest=tuple(standings_of(history, arguments.suite, Path(arguments.baselines))),
    )


def standings_of(history: "History", suite: str | None, baselines: Path) -> "Iterator[Standing]":
    """The newest result of every cell of ``suite``, or of each suite, with the cells that were
    lost.

    Runs of releases are not nights: nothing is accepted from them.
    """
    from qbench.tracking import STANDING_KEYS, accepted_cells, kept_keys, standing_of

    for name in dict.fromkeys(night.suite for night in history.nights(suite) if not night.releases):
        runs = history.each(reversed(history.nights(name)), kept_keys(*STANDING_KEYS))
        found = standing_of(name, runs, accepted_cells(baselines, name))
        if found is not None:
            yield found


def released_package(runs: "Iterable[Run]") -> str:
    """The package whose releases all of ``runs`` measured, so that it is spoken of releases;
    else empty.
    """
    packages = {run.releases for run in runs}
    return packages.pop() if len(packages) == 1 else ""


_Read = tuple["tuple[Run, ...]", tuple[str, ...], "tuple[Series, ...]"]
"""Runs by time (from an index without their cells), what was wrong with files, series."""


def _from_files(history: "History", suite: str | None, parents: Sequence[str]) -> _Read:
    """Every run is read once, and let go when its points are known."""
    from qbench.tracking import TREND_KEYS, in_commit_order, kept_keys, main_line, ordered_trends

    nights = history.nights(suite)
    read: dict[str, Run] = {}

    def each() -> "Iterator[Run]":
        for run in history.each(
            in_commit_order(nights, main_line(nights, parents)), kept_keys(*TREND_KEYS)
        ):
            read[run.id] = replace(run, cells=(), findings=())
            yield run

    series = ordered_trends(each(), [night.id for night in nights])
    return tuple(read[night.id] for night in nights if night.id in read), history.problems, series


def _from_index(
    history: "History", place: Path, suite: str | None, cell: str | None, parents: Sequence[str]
) -> _Read | None:
    """What the updated index at ``place`` has; None where it cannot be read, or does not have
    it.
    """
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
    except PlaceError:  # the run files are in the store that does not answer
        raise
    except (StoreError, UnavailableError, InputError) as error:
        say(f"{error} The run files are read instead.")
        return None
    # the files know what there is instead
    return None if cell and not series else (runs, done.problems, series)


def _accepted(series: "Sequence[Series]", folder: Path, suites: Path) -> "AcceptedLevels":
    """What baselines in ``folder`` hold for the cells of ``series``; ``suites`` say which
    classes are one.

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
        paths = [
            path for name in sorted(names) if (path := baseline_path(folder, suite, name)).exists()
        ]
        baselines = map(load_baseline, paths)
        levels = {
            **levels,
            **accepted_levels(suite, baselines, classes=classes, equivalents=equivalents[suite]),
        }
    return levels


def equivalents_of(names: Iterable[str], suites: Path) -> "dict[str, tuple[tuple[str, ...], ...]]":
    """Suite → the groups of classes that it declares equivalent; none where its file is not in
    ``suites``.

    Raises:
        InputError: a suite has a mistake.
    """
    from qbench.suite import SUFFIX, load_suite

    files = {name: suites / f"{name}{SUFFIX}" for name in names}
    return {
        name: load_suite(file).table.equivalents if file.is_file() else ()
        for name, file in files.items()
    }
