"""qbench run: measure and judge the cells of a suite."""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.history_files import DEFAULT_HISTORY, declare_history
from qbench.cli.options import (
    declare_baselines,
    declare_cache,
    declare_json,
    suite_path,
    with_hint,
)
from qbench.cli.printing import complain, print_json, print_tones, put, say
from qbench.cli.report import declare_output
from qbench.errors import InputError
from qbench.number_text import counted
from qbench.reporting import KINDS
from qbench.storage import current_factor, is_url, neutral_line

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from qbench.plugin import JobCommand, Progress, SuiteRun
    from qbench.reporting import Pace


_NAMED = 6
"""Missing cells that one line names."""


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench run``."""
    declare_selection(parser, may_lack=True)
    parser.add_argument(
        "--job",
        metavar="PLAN#N",
        default="",
        help="the cells of job N of a plan that 'qbench plan' wrote, which names the suites; "
        "without #N the scheduler says",
    )
    declare_workers(parser)
    parser.add_argument(
        "--plan",
        metavar="PLAN.json",
        help="with --cluster or --executor: the jobs of this plan; what is measured of them is not "
        "measured again (default: a new plan)",
    )
    declare_baselines(parser)
    declare_cache(parser)
    parser.add_argument(
        "--limit",
        metavar="N",
        type=int,
        help="use at most N samples of each data set; such results cannot be accepted",
    )
    parser.add_argument(
        "--release",
        metavar="NAME=PYTHON",
        default="",
        help="run ONNX Runtime under another Python, and mark the run file with the release of "
        "NAME there; 'qbench backfill' does so for many releases",
    )
    parser.add_argument(
        "--carry",
        metavar="AGE",
        default="",
        help="carry over green cells whose whole key was measured within AGE: 7d, 12h; 0d: only "
        "note the keys",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the newest unfinished run: what it measured is taken over",
    )
    declare_history(parser, "; off: keep no run file")
    parser.add_argument(
        "--report", action="listed", among=KINDS, default=[], help="write a report; repeatable"
    )
    declare_output(parser)
    declare_json(parser)


def declare_workers(
    parser: argparse.ArgumentParser, usual: str = "up to 4 for each worker"
) -> None:
    """What runs the work as jobs elsewhere; ``usual``: how many, where nothing is said."""
    parser.add_argument(
        "--cluster",
        metavar="WHERE",
        default="",
        help="run as jobs, local:N at a time here, or on the cluster of Dask at tcp://…",
    )
    parser.add_argument(
        "--executor",
        metavar="MODULE:FACTORY",
        default="",
        help="run as jobs on the concurrent.futures.Executor that the factory makes",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=count_from_one,
        help=f"with --cluster or --executor: divide into N jobs (default: {usual})",
    )
    parser.add_argument(
        "--worker-folder",
        metavar="DIR",
        help="with --cluster or --executor: the checkout on the workers (default: the path of this "
        "folder)",
    )


def declare_selection(parser: argparse.ArgumentParser, *, may_lack: bool = False) -> None:
    """The suite, and which of its cells; ``may_lack``: a plan may name the suite."""
    parser.add_argument(
        "suite",
        metavar="SUITE",
        nargs="?" if may_lack else None,
        help="a suite file, suites/<name>.qbench.toml, or its name",
    )
    parser.add_argument(
        "--select",
        metavar="E",
        default="",
        help="cells by axis: 'model=mobilenet_v2 backend=ort-*,onnx-reference'",
    )
    parser.add_argument(
        "--shard", metavar="I/N", default="", help="run only the models of shard I of N"
    )
    parser.set_defaults(job="")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Run, remember, report; INCOMPLETE after Ctrl-C, with everything kept that was measured.

    Raises:
        QbenchError: the suite is wrong, nothing is selected, or the history cannot be written.
    """
    from qbench.plugin import run_suite
    from qbench.suite import Selection, Shard

    Selection.parse(arguments.select)
    Shard.parse(arguments.shard)
    if arguments.limit is not None and arguments.limit < 1:
        raise InputError(
            "Reading --limit",
            found=str(arguments.limit),
            expected="a whole number from 1",
            remedy="Correct the option.",
        )
    suites = _suites(arguments)
    progress = partial(
        show_progress,
        history=Path(DEFAULT_HISTORY if arguments.history == "off" else arguments.history),
    )
    codes = []
    for suite in suites:
        done = run_suite(
            suite, _options(arguments), progress, Path.cwd(), _job_command(arguments, suite)
        )
        code = ended_early(arguments, done)
        codes.append(_finished(arguments, done) if code is None else code)
    return max(codes)


_WORKERS = ("cluster", "executor", "plan", "jobs", "worker-folder")


def _job_command(arguments: argparse.Namespace, suite: Path) -> "JobCommand | None":
    """How a worker runs a job of ``suite``: this verb with the same options; None: the cells run
    here.
    """
    if not (arguments.cluster or arguments.executor):
        return None
    from qbench.plugin import JobCommand
    from qbench.suite import DIED, MEASURED, REFUSED

    given = {
        "baselines": arguments.baselines,
        "cache": arguments.cache,
        "limit": arguments.limit,
        "release": arguments.release,
        "carry": arguments.carry,
        "history": arguments.history,
    }
    limits = ("--size-limits", str(current_factor())) if current_factor() > 1 else ()
    options = (f"--{name}={value}" for name, value in given.items() if value not in (None, ""))
    extensions = (f"--extension={name}" for name in arguments.extension)
    codes = {
        ExitCode.FINE: MEASURED,
        ExitCode.GATE_FAILED: MEASURED,
        ExitCode.INCOMPLETE: DIED,
        ExitCode.USAGE: REFUSED,
        ExitCode.INCOMPARABLE: REFUSED,
    }
    return JobCommand(
        words=(
            *("-P", "-m", "qbench", *limits, "run", os.path.relpath(suite), "--resume"),
            *options,
            *extensions,
        ),
        option="--job=",
        codes={str(int(code)): how for code, how in codes.items()},
    )


def _suites(arguments: argparse.Namespace) -> tuple[Path, ...]:
    """The suite that is named, or those of the job; the job is then named by its number.

    Raises:
        InputError: neither is named, the plan or the job is wrong, or there are several suites and
            one JSON.
    """
    if not arguments.job:
        if arguments.suite is None:
            raise InputError(
                "Running a suite",
                found="no suite",
                expected="one, or the job of a plan",
                remedy="Name it: qbench run SUITE, or qbench run --job PLAN#N.",
            )
        return (suite_path(arguments.suite),)
    _refuse_nested(arguments)
    from qbench.suite import choose_job

    choice = choose_job(arguments.job, Path.cwd(), os.environ)
    arguments.job = choice.text
    if arguments.suite is not None:
        return (suite_path(arguments.suite),)
    suites = choice.suites(Path.cwd())
    if arguments.json and len(suites) > 1:
        raise InputError(
            f"Running job {choice.job.index} of plan {choice.plan.short}",
            found=f"{len(suites)} suites and --json",
            expected="one suite, as the output is one JSON",
            remedy="Name a suite, or leave --json out.",
        )
    return suites


def _refuse_nested(arguments: argparse.Namespace) -> None:
    if arguments.cluster or arguments.executor:
        raise InputError(
            "Running a job of a plan",
            found="--cluster or --executor next to --job",
            expected="one job here, or all jobs there",
            remedy="Leave one out; all jobs of a plan are run with --plan.",
        )


def ended_early(arguments: argparse.Namespace, done: "SuiteRun") -> ExitCode | None:
    """The exit code of a run in which no cell was measured, once it is said why; None: some were.

    Raises:
        InputError: nothing is selected.
    """
    for sentence in done.refused:
        say(with_hint(_in_our_options(sentence), arguments.extension))
    if done.refused:
        return ExitCode.USAGE
    if done.is_broken:
        return ExitCode.GATE_FAILED
    is_of_empty_job = bool(arguments.job) and done.run is None and not done.code
    if done.is_empty or is_of_empty_job:
        return _nothing_selected(arguments, done)
    return ExitCode.INCOMPLETE if done.run is None else None


def _options(arguments: argparse.Namespace) -> list[str]:
    """The arguments as options of pytest; failed cells are not localized here, as ``qbench
    localize`` does that.
    """
    more = {
        "job": arguments.job,
        **{name: getattr(arguments, name.replace("-", "_")) for name in _WORKERS},
        "limit": arguments.limit,
        "release": arguments.release,
        "carry": arguments.carry,
        "history": arguments.history,
        "reports": arguments.output,
        "localize": 0,
    }
    return [
        *options_of_plugin(arguments, more),
        *(["--qbench-resume"] if arguments.resume else []),
        *(f"--qbench-report={kind}" for kind in arguments.report),
    ]


def options_of_plugin(arguments: argparse.Namespace, more: Mapping[str, Any]) -> list[str]:
    """What ``declare_selection``, ``declare_baselines`` and ``declare_cache`` declare, and
    ``more``, for pytest.
    """
    given = {
        "select": arguments.select,
        "shard": arguments.shard,
        "baselines": arguments.baselines,
        "cache": _absolute(arguments.cache),
        **more,
    }
    return [f"--qbench-{name}={value}" for name, value in given.items() if value not in (None, "")]


def _absolute(cache: str | None) -> str | None:
    """The folder of a cache from the root of the disk; a URL as it is."""
    return str(Path(cache).absolute()) if cache and not is_url(cache) else cache


def _in_our_options(sentence: str) -> str:
    """``sentence`` of the plugin, with the options as this verb calls them."""
    return sentence.replace("--qbench-reports", "--output").replace("--qbench-", "--")


def _nothing_selected(arguments: argparse.Namespace, done: "SuiteRun") -> ExitCode:
    if done.planned and arguments.job and not arguments.select:
        say(f"nothing to run: {arguments.job} holds no cell of this suite")
        return ExitCode.FINE
    if done.planned and arguments.shard:
        say(f"nothing to run: no selected model is in shard {arguments.shard}")
        return ExitCode.FINE
    raise InputError(
        f"Running '{arguments.suite}'",
        found=f"no cell that '{arguments.select}' selects among {done.planned}"
        if done.planned
        else "no cells",
        expected="at least one",
        remedy="Correct the selection; 'qbench doctor' lists what a suite holds.",
    )


def _finished(arguments: argparse.Namespace, done: "SuiteRun") -> ExitCode:
    """Print what was found; the exit code."""
    run = done.run
    assert run is not None
    path = run.path if not run.path or is_url(run.path) else os.path.relpath(run.path)
    for sentence in done.problems:
        say(sentence)
    if done.missing:
        say(f"{counted(len(done.missing), 'cell')} missing: {_some_of(done.missing)}")
    elif done.is_interrupted:
        say(
            f"interrupted; {len(run.cells)} of {run.header['selected']} cells are kept in "
            f"{path or 'no file'}"
        )
    code = ExitCode.GATE_FAILED if done.code else ExitCode.FINE
    if done.is_interrupted or done.missing:
        code = ExitCode.INCOMPLETE
    if arguments.json:
        print_json(
            {
                "run": run.id,
                "path": path,
                "exit_code": int(code),
                "missing": done.missing,
                "cells": [one.line() for one in run.cells],
            }
        )
    else:
        from qbench.reporting import styled_lines

        print_tones(lambda width, unicode: styled_lines(run, width, unicode=unicode))
        if not done.is_of_jobs:
            put(f"run file: {path or 'none'}")
    for sentence in done.messages:
        say(_in_our_options(sentence) if done.is_of_jobs else sentence)
    return code


def _some_of(names: Sequence[str]) -> str:
    """The first of ``names``, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


@contextmanager
def show_progress(cells: Sequence[str], history: Path) -> "Iterator[Progress]":
    """What shows the progress over ``cells``, ``suite::model::backend+schema[+variant]``, here.

    Args:
        history: folder of run files, from which the expected time is computed.
    """
    total = len(cells)
    if not sys.stderr.isatty():
        yield _Log(total)
        return
    from qbench.reporting import Pace, last_seconds

    pace = Pace(cells, last_seconds(history), started=time.monotonic())
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    words = (TextColumn("{task.fields[left]}"), TextColumn("{task.description}", markup=False))
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), *words)
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, bar.add_task("", total=total, left=""), pace)


class _Log:
    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def begin(self, cell: str) -> None:
        """Nothing: a log wants results."""

    def end(self, line: Mapping[str, Any], *, is_red: bool) -> None:
        """One line."""
        del is_red
        self._done += 1
        complain(f"[{self._done}/{self._total}] {_line_text(line)}")


class _Bar:
    def __init__(self, bar: "RichProgress", task: "TaskID", pace: "Pace") -> None:
        self._bar = bar
        self._task = task
        self._pace = pace

    def begin(self, cell: str) -> None:
        """Show the cell that runs, and the time that is left."""
        from qbench.working import left_text

        self._bar.update(
            self._task,
            description=neutral_line(cell),
            left=left_text(self._pace.left(time.monotonic())),
        )

    def end(self, line: Mapping[str, Any], *, is_red: bool) -> None:
        """Advance; what is red is said at once, above the bar."""
        self._bar.advance(self._task)
        self._pace.finish("::".join((line["suite"], _cell_text(line))))
        if is_red:
            self._bar.console.print(
                neutral_line(_line_text(line)), style="red", markup=False, highlight=False
            )


def _line_text(line: Mapping[str, Any]) -> str:
    """A ``cell`` line of a run file as one line of a log."""
    outcome = "carried" if line.get("carried") else line["outcome"]
    taken = "taken over: " if line.get("resumed_from") else ""
    return f"{outcome:11} {_cell_text(line)}  {taken}{line['headline']}"


def _cell_text(line: Mapping[str, Any]) -> str:
    """``model::backend+schema[+variant]`` of a ``cell`` line."""
    slug = "+".join(filter(None, (line["backend"], line["schema"], line["variant"])))
    return f"{line['model']}::{slug}"


COMMAND = Command(
    name="run",
    summary="measure and judge the cells of a suite, by pytest",
    example="qbench run suites/smoke.qbench.toml --select 'backend=ort-*' --report html",
    declare=declare,
    execute=execute,
)
