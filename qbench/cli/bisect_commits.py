"""qbench bisect commits."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import ExitCode
from qbench.cli.history_files import declare_history, find_run, is_run_name
from qbench.cli.options import declare_json
from qbench.cli.printing import print_json, put, say
from qbench.errors import InputError
from qbench.number_text import counted
from qbench.working import working

if TYPE_CHECKING:
    from qbench.suite import Mark, Notes, Question, Task


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench bisect commits``."""
    parser.add_argument(
        "--good",
        required=True,
        metavar="A",
        help=(
            "a commit at which the cell was good, or the run of one: 'last-green', 'previous', an "
            "id"
        ),
    )
    parser.add_argument(
        "--bad",
        default="HEAD",
        metavar="B",
        help="a commit at which the cell is bad, or the run of one (default: HEAD)",
    )
    declare_history(parser)
    parser.add_argument(
        "--build",
        default="true",
        metavar="CMD",
        help="command that builds a checkout; sh runs it in the root of the checkout",
    )
    parser.add_argument(
        "--artifact",
        action="append",
        default=[],
        metavar="PATH",
        help="file that the build writes and the cell depends on; commits with equal files are "
        "measured once; repeatable",
    )
    parser.add_argument(
        "--metric",
        default="",
        metavar="M",
        help="decide by this metric, or by 'ranges' (of the calibration) or 'answers' "
        "(default: the metric with the largest loss, else what changed)",
    )
    parser.add_argument(
        "--project", metavar="DIR", default=".", help="the checkout (default: this folder)"
    )
    parser.add_argument(
        "--state",
        metavar="FILE",
        help="file that keeps the state, so that a bisection can be continued (default: "
        "reports/bisect/<good>-<bad>.json, with --extension of another name)",
    )
    declare_json(parser)
    parser.add_argument(
        "target",
        metavar="SUITE[::CELL]",
        help="suite file in the project; its cells, or model::backend+schema",
    )


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Halve until one commit, or a stretch that cannot be measured, is left; print it.

    Raises:
        InputError: a commit that is not there or not after the other, or an end that cannot be
            measured.
        IncomparableError: nothing is worse at the bad end.
        StoreError: git cannot make a working tree, or the notebook cannot be written.
    """
    from qbench.host import Worktree
    from qbench.suite import ask, next_commit, open_notes, save_notes, suspects, try_commit

    project = Path(arguments.project)
    task = _task(arguments, project)
    commits = _between(task, project)
    path = Path(arguments.state or project / f"reports/bisect/{_name(task)}.json")
    notes = open_notes(path, task)
    with tempfile.TemporaryDirectory() as folder, Worktree(project, Path(folder) / "tree") as tree:

        def tried(notes: "Notes", commit: str) -> "Notes":
            if commit not in notes.trials:
                with working(f"trying {commit[:9]}"):
                    notes = try_commit(tree, commit, notes)
                save_notes(path, notes)
            return notes

        for end in (task.good, task.bad):  # one that failed is tried again: the reason may be gone
            if notes.lines(end) is None:
                with working(f"trying {end[:9]}"):
                    notes = try_commit(tree, end, notes)
                _demand_measured(notes, end, path)
                save_notes(path, notes)
        question = ask(
            notes.lines(task.good) or (), notes.lines(task.bad) or (), metric=arguments.metric
        )
        good, bad = question.text(question.good), question.text(question.bad)
        say(f"{question.metric} of {question.cell}: {good} good, {bad} bad")
        marks = _marks(notes, question, commits)
        while (commit := next_commit(commits, marks)) is not None:
            notes = tried(notes, commit)
            marks = _marks(notes, question, commits)
            left = counted(len(suspects(commits, marks)), "commit")
            say(f"{commit[:9]} is {_said(notes, question, commit)}; {left} left")
    _print(suspects(commits, marks), marks, question, arguments)
    return ExitCode.FINE


def _task(arguments: argparse.Namespace, project: Path) -> "Task":
    from qbench.host import whole_hash
    from qbench.suite import Task

    ends = {}
    for name, text in (("--good", arguments.good), ("--bad", arguments.bad)):
        commit = "" if is_run_name(text) else whole_hash(text, project)
        commit = commit or whole_hash(
            _commit_of_run(text, arguments.history, is_certain=is_run_name(text)), project
        )
        ends[name] = commit
        if not commit:
            raise InputError(
                f"Reading {name} '{text}'",
                found=f"no such commit in '{project}'",
                expected="a commit of the project under test, or a run that measured one",
                remedy=(
                    "Name the checkout with --project; fetch the whole history where the clone is "
                    "shallow."
                ),
            )
    suite, _, cell = arguments.target.partition("::")
    path = (project / suite).resolve()
    if not path.is_relative_to(project.resolve()):
        raise InputError(
            f"Reading '{arguments.target}'",
            found=f"a suite outside the project '{project.resolve().name}'",
            expected="a suite that is in its commits",
            remedy="Name the checkout with --project.",
        )
    return Task(
        good=ends["--good"],
        bad=ends["--bad"],
        build=arguments.build,
        suite=path.relative_to(project.resolve()).as_posix(),
        select=_selection(cell),
        artifacts=tuple(arguments.artifact),
        extensions=tuple(arguments.extension),
    )


def _name(task: "Task") -> str:
    """Of the file of its notes."""
    from qbench.storage import digest_plain

    others = f"-{digest_plain(list(task.extensions))[:6]}" if task.extensions else ""
    return f"{task.good[:9]}-{task.bad[:9]}{others}"


def _commit_of_run(text: str, history: str, *, is_certain: bool) -> str:
    """The commit that the run ``text`` measured; empty where there is no such run.

    Args:
        is_certain: whether ``text`` can only be a run: then it must be there, and of a commit
            without changes.

    Raises:
        InputError: no such run, or it measured files that were not committed.
    """
    from qbench.tracking import measured_commit

    try:
        run = find_run(text, history, ("outcome",))
    except InputError:
        if is_certain:
            raise
        return ""
    commit = measured_commit(run)
    if not commit:
        raise InputError(
            f"Reading the commit of the run '{run.id}'",
            found="files that were not committed" if run.commit else "no commit",
            expected="a run of a commit",
            remedy="Name a commit.",
        )
    return commit


def _selection(cell: str) -> str:
    """``model::backend+schema[+variant]`` as a selection by axes; less of it selects more."""
    model, _, slug = cell.partition("::")
    values = [model, *slug.split("+")] if slug else [model]
    axes = ("model", "backend", "schema", "variant")
    return " ".join(f"{axis}={value}" for axis, value in zip(axes, values, strict=False) if value)


def _between(task: "Task", project: Path) -> tuple[str, ...]:
    """The commits after the good one, up to and with the bad one, by first parents."""
    from qbench.host import first_parents

    line = first_parents(project, until=task.bad)
    if task.good not in line[:-1]:
        raise InputError(
            f"Bisecting from {task.good[:9]} to {task.bad[:9]}",
            found="a good commit that is not an ancestor of the bad one by first parents",
            expected="an earlier commit on the same line",
            remedy="Choose the merge that contains it, or exchange the two.",
        )
    return line[line.index(task.good) + 1 :]


def _demand_measured(notes: "Notes", end: str, path: Path) -> None:
    if notes.lines(end) is None:
        kept = f" What was measured before is kept in '{path}'." if path.exists() else ""
        raise InputError(
            f"Measuring {end[:9]}, an end of the bisection",
            found=notes.trials[end].problem,
            expected="an end that can be built and measured",
            remedy=(
                "Correct --build or the commit's files, or choose another commit for this "
                f"end.{kept}"
            ),
        )


def _marks(notes: "Notes", question: "Question", commits: Sequence[str]) -> "dict[str, Mark]":
    tried = [commit for commit in commits if commit in notes.trials]
    return {commit: question.mark(question.value(notes.lines(commit) or ())) for commit in tried}


def _said(notes: "Notes", question: "Question", commit: str) -> str:
    value = question.value(notes.lines(commit) or ())
    if value is None:
        return f"skipped ({notes.trials[commit].problem or 'it did not measure the cell'})"
    return f"{question.mark(value).value}, {question.text(value)}"


def _print(
    found: Sequence[str],
    marks: "dict[str, Mark]",
    question: "Question",
    arguments: argparse.Namespace,
) -> None:
    from qbench.host import subject_line

    subjects = {commit: subject_line(commit, arguments.project) for commit in found}
    if arguments.json:
        tried = {commit: mark.value for commit, mark in marks.items()}
        print_json(
            {"question": question, "suspects": list(found), "subjects": subjects, "tried": tried}
        )
        return
    good, bad = question.text(question.good), question.text(question.bad)
    numbers = f"{question.metric} of {question.cell} goes from {good} to {bad}"
    put(
        f"{numbers} at "
        + (
            "commit"
            if len(found) == 1
            else f"one of {len(found)} commits that cannot be distinguished"
        )
    )
    for commit in found:
        put(f"  {commit[:9]}  {subjects[commit]}")
