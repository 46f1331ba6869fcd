"""What trends are read from: run files, the commits of the project under test, its baselines, what people ruled."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.history_files import declare_history, open_history
from qbench.cli.printing import counted, say
from qbench.errors import InputError, StoreError, UnavailableError

if TYPE_CHECKING:
    from qbench.tracking import AcceptedLevels, Annotation, History, Run, Series


def declare_trends(parser: argparse.ArgumentParser) -> None:
    """``--history``, ``--suite``, ``--baselines``, ``--project``, ``--annotations``."""
    declare_history(parser)
    parser.add_argument("--suite", metavar="NAME", help="of this suite only")
    parser.add_argument("--baselines", metavar="DIR", default="baselines", help="folder of baselines")
    parser.add_argument(
        "--project", metavar="DIR", default=".", help="checkout whose commits order the runs (default: this folder)"
    )
    parser.add_argument("--annotations", metavar="FILE", help="default: annotations.toml in the history")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """Everything a trend is made of.

    Args:
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

    Raises:
        InputError: there is no history, or a mistake in annotations or a suite. StoreError: a baseline is damaged.
    """
    from qbench.host import first_parents
    from qbench.tracking import ANNOTATIONS_FILE, load_annotations, main_line, measured_commit, trend_series

    runs, problems = _read_runs(open_history(arguments.history), arguments.suite, cell)
    path = Path(arguments.annotations or Path(arguments.history) / ANNOTATIONS_FILE)
    known = first_parents(arguments.project)
    commits = main_line(runs, known)
    strangers = {commit for run in runs if (commit := measured_commit(run))} - set(commits)
    if strangers:
        verb = "is" if len(strangers) == 1 else "are"
        say(f"{counted(len(strangers), 'commit')} of the history {verb} not on the main line here: ordered by time")
    return Trends(
        runs=runs,
        problems=problems,
        commits=commits,
        series=trend_series(runs, commits=commits),
        accepted=_accepted(runs, Path(arguments.baselines), Path(arguments.project) / "suites"),
        annotations=load_annotations(path),
        annotations_path=path,
    )


def _read_runs(history: "History", suite: str | None, cell: str | None) -> "tuple[tuple[Run, ...], tuple[str, ...]]":
    """(runs, problems): those of one cell from the index, brought up to date; else what the files hold.

    Who asks for everything reads the files: an index finds one series of many, and is no faster with all.
    """
    from qbench.tracking import INDEX_FILE, HistoryIndex, Wanted

    place = history.folder / INDEX_FILE
    if cell and place.is_file():
        model, _, slug = cell.partition("::")
        backend, schema, variant = (*slug.split("+", 2), "", "")[:3]
        try:
            with HistoryIndex(str(place)) as index:
                done = index.update(history.folder)
                wanted = Wanted(suite=suite, model=model, backend=backend, schema=schema, variant=variant)
                runs = index.runs(wanted)
        except (StoreError, UnavailableError, InputError) as error:
            say(f"{error} The run files are read instead.")
        else:
            if any(run.cells for run in runs):  # else the files know what there is instead
                return runs, done.problems
    return history.runs(suite), history.problems


def _accepted(runs: "Sequence[Run]", folder: Path, suites: Path) -> "AcceptedLevels":
    """What baselines in ``folder`` hold for the cells of ``runs``; the suites in ``suites`` say which classes are one.

    Raises:
        InputError: a suite has a mistake. StoreError: a baseline is damaged.
    """
    from qbench.suite import SUFFIX, load_suite
    from qbench.tracking import accepted_levels, baseline_path, load_baseline

    models: dict[str, set[str]] = {}
    for run in runs:
        models.setdefault(run.suite, set()).update(str(line["model"]) for line in run.cells)
    classes = {str(line.get("environment_class", "")) for run in runs for line in run.cells}
    levels: AcceptedLevels = {}
    for suite, names in models.items():
        file = suites / f"{suite}{SUFFIX}"
        equivalents = load_suite(file).table.equivalents if file.is_file() else ()
        paths = [path for name in sorted(names) if (path := baseline_path(folder, suite, name)).exists()]
        baselines = map(load_baseline, paths)
        levels = {**levels, **accepted_levels(suite, baselines, classes=classes, equivalents=equivalents)}
    return levels
