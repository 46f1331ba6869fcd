"""qbench plan: the cells of suites divided into jobs, for as many machines as there are."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.history_files import DEFAULT_HISTORY, declare_history, open_history
from qbench.cli.options import check_outputs, declare_json, hinted, suite_path
from qbench.cli.printing import print_columns, print_json, put, say
from qbench.errors import InputError, StoreError
from qbench.number_text import counted

if TYPE_CHECKING:
    from qbench.suite import JobPlan, Planning

_HERE = "here"
_CLASS = re.compile(r"[a-z0-9][a-z0-9_.-]*")


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench plan``."""
    parser.add_argument(
        "suites",
        nargs="+",
        metavar="SUITE",
        help="suite files, suites/<name>.qbench.toml, or their names",
    )
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--jobs", metavar="N", type=count_from_one, help="divide into N jobs")
    size.add_argument(
        "--minutes", metavar="M", type=_minutes, help="divide into jobs of at most M minutes"
    )
    parser.add_argument("-o", "--output", metavar="PLAN.json", required=True, help="file to write")
    parser.add_argument(
        "--environment-class",
        metavar="C",
        help=(
            "the class of processor that every job must run on, as 'qbench doctor' shows it, or "
            "'here' for that of this computer (default: any)"
        ),
    )
    parser.add_argument(
        "--night",
        metavar="NAME",
        help=(
            "a name of the night: the same plan again is another attempt at the same night "
            "(default: the time)"
        ),
    )
    declare_history(parser, "; says how long cells take")
    declare_json(parser)


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"found '{text}'; expected a number above 0")
    return value


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Write the plan and say how even it is.

    Raises:
        InputError: a suite is wrong, or has no cells; there is no such history; git tracks the
            file to write, or it is there and no plan.
        StoreError: the file cannot be written.
    """
    from qbench.host import utc_now
    from qbench.suite import Source, plan_jobs, save_job_plan

    suites = [suite_path(text) for text in arguments.suites]
    output = Path(arguments.output)
    check_outputs("Planning jobs", {"--output": str(output)}, map(str, suites))
    _refuse_tracked(output)
    _refuse_other_file(output)
    is_there = arguments.history != DEFAULT_HISTORY or Path(arguments.history).is_dir()
    history = open_history(arguments.history) if is_there else None
    with hinted(arguments.extension):
        done = plan_jobs(
            suites,
            history,
            jobs=arguments.jobs,
            minutes=arguments.minutes,
            environment_class=_wanted_class(arguments.environment_class, suites),
            night=arguments.night or utc_now().isoformat(timespec="milliseconds"),
        )
    save_job_plan(done.plan, output)
    if arguments.minutes is not None and not done.sources.get(Source.HISTORY):
        say("note: no run in the history says how long a cell takes: each is taken as one second")
    elif arguments.minutes is not None and _times(done.plan)[0] > 60 * arguments.minutes:
        say("note: a job takes longer where one backend and schema of a model alone does")
    if arguments.json:
        print_json(_facts(done, output))
    else:
        _print(done, output)
    return ExitCode.FINE


def _refuse_tracked(output: Path) -> None:
    """Check that the plan changes no file of the code that it is made for.

    Raises:
        InputError: git tracks ``output``: each job would be refused for an uncommitted change.
    """
    from qbench.host import run_git

    if run_git(output.parent, "ls-files", "--error-unmatch", "--", output.name) is not None:
        raise InputError(
            "Planning jobs",
            found=f"--output '{output}', a file that git tracks",
            expected="another one: its jobs would be refused for an uncommitted change",
            remedy="Name another one, such as in a folder that .gitignore lists.",
        )


def _refuse_other_file(output: Path) -> None:
    """Check that the plan takes the place of nothing but a plan.

    Raises:
        InputError: there is a file of another kind at ``output``.
    """
    from qbench.suite import load_job_plan

    if not output.is_file() or not output.stat().st_size:
        return
    try:
        load_job_plan(output)
    except StoreError:
        return  # a damaged plan, or one of a newer qbench
    except InputError as error:
        raise InputError(
            "Planning jobs",
            found=f"--output '{output}', a file that is no plan",
            expected="a new file, or a plan to write over",
            remedy="Name another one, or remove it.",
        ) from error


def _wanted_class(text: str | None, suites: Sequence[Path]) -> str | None:
    if text == _HERE:
        from qbench.plugin import session_processor

        return session_processor(suites)
    if text is not None and not _CLASS.fullmatch(text):
        raise InputError(
            f"Reading --environment-class '{text}'",
            found="no class of processors",
            expected="one such as x64-avx512-vnni, or 'here'",
            remedy="Take the first part of what 'qbench doctor' shows.",
        )
    return text


def _facts(done: "Planning", output: Path) -> dict[str, object]:
    plan = done.plan
    longest, mean = _times(plan)
    return {
        "path": str(output),
        "digest": plan.digest,
        "night": plan.night,
        "suites": [suite.name for suite in plan.suites],
        "environment_class": plan.environment_class,
        "jobs": [
            {
                "index": job.index,
                "units": len(job.units),
                "cells": sum(unit.cells for unit in job.units),
                "seconds": job.seconds,
            }
            for job in plan.jobs
        ],
        "cells": sum(suite.cells for suite in plan.suites),
        "longest_seconds": longest,
        "mean_seconds": mean,
        "longest_of_mean": done.imbalance,
        "durations": {source.value: count for source, count in done.sources.items()},
    }


def _print(done: "Planning", output: Path) -> None:
    from qbench.suite import Source

    plan = done.plan
    longest, _ = _times(plan)
    units = [unit for job in plan.jobs for unit in job.units]
    models = len({(unit.suite, unit.model) for unit in units})
    parts = len(units) - models
    empty = sum(not job.units for job in plan.jobs)
    names = {
        Source.HISTORY: "from the history",
        Source.MACS: "estimated from multiply-accumulates",
        Source.MEDIAN: "estimated as the median of the known",
    }
    if not done.sources.get(Source.HISTORY):
        names[Source.MEDIAN] = "not known, taken as equal"
    cells = sum(suite.cells for suite in plan.suites)
    print_columns(
        [
            ("jobs", str(len(plan.jobs)) + (f", {empty} of them empty" if empty else "")),
            ("cells", f"{cells} of {counted(models, 'model')}"),
            ("units", str(len(units)) + (f": {parts} more than models" if parts else "")),
            ("longest", f"{longest:.0f} s of cells; starting a job is not in it"),
            ("longest/mean", f"{done.imbalance:.2f}"),
            (
                "durations",
                ", ".join(
                    f"{done.sources[source]} {text}"
                    for source, text in names.items()
                    if done.sources.get(source)
                ),
            ),
            ("class", plan.environment_class or "any"),
        ]
    )
    put(f"wrote {output}: plan {plan.short}")


def _times(plan: "JobPlan") -> tuple[float, float]:
    """Seconds of the longest job, and of their mean."""
    times = [job.seconds for job in plan.jobs]
    return max(times), sum(times) / len(times)


COMMAND = Command(
    name="plan",
    summary="divide the cells of suites into jobs for several machines",
    example="qbench plan suites/smoke.qbench.toml --jobs 50 -o plan.json",
    declare=declare,
    execute=execute,
)
