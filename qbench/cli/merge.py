"""qbench merge: the run files of several computers in one folder, and both sides of a file that
git could not join.
"""

import argparse
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import declare_json, hinted
from qbench.cli.printing import print_json, put, say
from qbench.errors import InputError
from qbench.number_text import counted

if TYPE_CHECKING:
    from qbench.judging import Cell
    from qbench.suite import JobPlan
    from qbench.tracking import HistoryStore, Merge, ObjectStore


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench merge``."""
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="FROM",
        help="folders of run files, run files, or URLs of them",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="folder, or s3://, gs:// or file://, that the missing run files are copied to",
    )
    parser.add_argument(
        "--conflict",
        metavar="FILE",
        help=(
            "instead: take both sides of a baseline or a TOML file of entries that git could not "
            "join"
        ),
    )
    parser.add_argument(
        "--expect",
        metavar="PLAN",
        help="name the cells of the plan that no run has, by job; ends with 4 where there are some",
    )
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Merge and report; USAGE when a file was not a run file, or two files of one run differ;
    INCOMPLETE when cells of the expected plan are missing.

    Raises:
        InputError: there is no such folder, file or plan, or the plan was made for other suites.
        StoreError: the target cannot be written, or the plan is damaged.
    """
    if arguments.conflict:
        return _joined(arguments)
    for given, found in (
        (arguments.sources, "no folder of run files"),
        (arguments.output, "no -o DIR, the folder to copy them to"),
    ):
        if not given:
            raise InputError(
                "Merging run files",
                found=found,
                expected="both FROM and -o DIR",
                remedy="Name them: qbench merge FROM… -o DIR.",
            )
    _refuse_plans(arguments.sources)
    from qbench.tracking import history_at, merge_run_files

    expected = _Expected.of(arguments)
    sources = [history_at(text) for text in arguments.sources]
    target = history_at(arguments.output)
    if expected is None:
        done, night = merge_run_files(sources, target), None
    else:
        done, night = expected.merged(sources, target)
    about = () if night is None else (night.refusal, night.mixed)
    for sentence in filter(None, (*done.problems, *done.conflicts, *about)):
        say(sentence)
    if arguments.json:
        print_json(_facts(done, night))
    elif night is None or not night.refusal:
        _print(arguments.output, done, night)
    return _code(done, night)


def _refuse_plans(sources: "Sequence[str]") -> None:
    from qbench.suite import is_job_plan

    plans = [text for text in sources if is_job_plan(Path(text))]
    if plans:
        raise InputError(
            "Merging run files",
            found=f"{counted(len(plans), 'plan')} among them ({', '.join(plans)})",
            expected="run files, or folders of them",
            remedy="Name the runs of its jobs; --expect PLAN names the cells that they lack.",
        )


_JOBS, _CELLS = 10, 3
"""Jobs with missing cells, and cells of a job, that are named; ``--json`` names all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Night:
    """What a merged history has of a plan.

    Args:
        cells, jobs: how many the plan has.
        missing: number of a job → its cells without a line.
        refusal: why nothing is said of its cells; empty: it is.
        mixed: a sentence on runs of other plans among them; empty: there is none.
    """

    plan: "JobPlan"
    cells: int
    jobs: int
    missing: "Mapping[int, Sequence[Cell]]" = field(default_factory=dict)
    refusal: str = ""
    mixed: str = ""

    @property
    def outcome(self) -> str:
        """The word for it in ``--json``."""
        if self.refusal:
            return "other plan"
        return "incomplete" if self.missing else "complete"


@dataclass(frozen=True, slots=True)
class _Expected:
    """A plan, and the cells of its jobs."""

    plan: "JobPlan"
    path: str
    jobs: "Mapping[int, Sequence[Cell]]"

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "_Expected | None":
        """What ``--expect`` names; None: nothing. It is read before anything is merged.

        Raises:
            InputError, StoreError: as of ``load_job_plan`` and ``cells_by_job``.
        """
        if not arguments.expect:
            return None
        from qbench.suite import cells_by_job, load_job_plan

        plan = load_job_plan(Path(arguments.expect))
        with hinted(arguments.extension):
            return cls(plan, arguments.expect, cells_by_job(plan, Path()))

    def merged(
        self, sources: "Sequence[Path | ObjectStore]", target: "HistoryStore | Path"
    ) -> "tuple[Merge, _Night]":
        """What was merged, and what ``target`` has of the plan then. Sources with runs, none of
        which is of the plan, are refused: nothing is merged.
        """
        from qbench.tracking import Merge, merge_run_files, missing_cells, plans_of

        plans = plans_of(sources)
        if plans and self.plan.short not in plans:
            nothing = Merge(added=(), same=0, conflicts=(), problems=(), unreadable=0)
            return nothing, replace(self._night, refusal=self._refusal(plans))
        done = merge_run_files(sources, target)
        missing = missing_cells(target, self.plan.short, self.jobs)
        return done, replace(self._night, missing=missing, mixed=self._mixed(plans))

    @property
    def _night(self) -> _Night:
        return _Night(plan=self.plan, cells=sum(map(len, self.jobs.values())), jobs=len(self.jobs))

    def _refusal(self, found: Collection[str]) -> str:
        """A sentence for sources with runs, none of which is of this plan."""
        return (
            f"Looking for the cells of plan '{self.path}': found runs {_of_plans(found)}; expected "
            f"runs of plan '{self.plan.short}'. Name the plan that these jobs were started with, "
            "or merge the runs of its jobs."
        )

    def _mixed(self, found: Collection[str]) -> str:
        """A sentence for sources with runs of this plan and of others."""
        others = {*found} - {self.plan.short}
        if not others:
            return ""
        return (
            f"Looking for the cells of plan '{self.path}': found runs {_of_plans(others)}, too; "
            f"expected runs of plan '{self.plan.short}' alone. They were copied, and none of their "
            "cells counts for this plan."
        )


def _of_plans(found: Collection[str]) -> str:
    others = ", ".join(f"'{plan}'" for plan in sorted(filter(None, found)))
    return f"of plan {others}" if others else "of no plan"


def _code(done: "Merge", night: _Night | None) -> ExitCode:
    if night is not None and night.missing:
        return ExitCode.INCOMPLETE
    refused = night is not None and night.refusal
    return ExitCode.USAGE if done.conflicts or done.unreadable or refused else ExitCode.FINE


def _facts(done: "Merge", night: _Night | None) -> dict[str, object]:
    """The result for ``--json``."""
    facts: dict[str, object] = {
        "added": list(done.added),
        "same": done.same,
        "conflicts": list(done.conflicts),
        "problems": list(done.problems),
    }
    if night is None:
        return facts
    missing = {
        str(index): [f"{cell.suite}::{cell}" for cell in cells]
        for index, cells in night.missing.items()
    }
    known = {"outcome": night.outcome, "plan": night.plan.digest, "cells": night.cells}
    return {**facts, **known, "missing": missing}


def _print(output: str, done: "Merge", night: _Night | None) -> None:
    conflicts = f", {counted(len(done.conflicts), 'conflict')}" if done.conflicts else ""
    put(f"{output}: {counted(len(done.added), 'run')} added, {done.same} there already{conflicts}")
    if night is not None and not night.refusal:
        _print_missing(night)


def _print_missing(night: _Night) -> None:
    """How many cells the night lacks, and the first of them by job."""
    cells, missing = counted(night.cells, "cell"), night.missing
    if not missing:
        put(f"plan {night.plan.short}: all {cells} are there")
        return
    put(
        f"plan {night.plan.short}: {sum(map(len, missing.values()))} of {cells} missing, of "
        f"{len(missing)} of {counted(night.jobs, 'job')}; run again: {','.join(map(str, missing))}"
    )
    for index, several in list(missing.items())[:_JOBS]:
        named = ", ".join(f"{cell.suite}::{cell}" for cell in several[:_CELLS])
        more = f" and {len(several) - _CELLS} more" if len(several) > _CELLS else ""
        put(f"  job {index}: {named}{more}")
    if len(missing) > _JOBS:
        put(f"  and {counted(len(missing) - _JOBS, 'job')} more: --json names all cells")


def _joined(arguments: argparse.Namespace) -> ExitCode:
    from qbench.cli.git_conflict import join_conflict

    if arguments.sources or arguments.output:
        raise InputError(
            f"Joining both sides of '{arguments.conflict}'",
            found="folders of run files, too",
            expected="one of the two",
            remedy="Merge them by another command.",
        )
    written = [str(path) for path in join_conflict(Path(arguments.conflict))]
    if arguments.json:
        print_json({"joined": written})
    else:
        put(f"both sides are in it now: {shlex.join(['git', 'add', *written])}")
    return ExitCode.FINE


COMMAND = Command(
    name="merge",
    summary="copy the run files of several computers into one folder",
    example="qbench merge ci-artifacts/one ci-artifacts/two -o reports/history",
    declare=declare,
    execute=execute,
)
