"""One commit of a project under test: checked out, built by its user's command, measured by a ``qbench`` of its own.

The measuring process runs in the working tree, with the suite, machines, schemas and extensions that the commit holds.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from qbench.errors import StoreError
from qbench.host import Worktree, tree_hash
from qbench.storage import current_factor, digest_file, digest_plain
from qbench.suite.bisect_notes import Notes, Task, Trial
from qbench.suite.bisection import CellLines
from qbench.tracking import History

_MEASURED = (0, 1)
"""Exit codes of ``qbench run`` behind which every cell was run; red cells are what is looked for."""


def try_commit(tree: Worktree, commit: str, notes: Notes, *, extensions: Sequence[str] = ()) -> Notes:
    """``notes`` and what ``commit`` turned out to be; nothing is measured where an equal artifact was.

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
    lines, problem = _measured(tree.folder, task, extensions)
    trial = Trial(problem=problem) if problem else Trial(artifact=artifact)
    return notes.with_trial(commit, trial, lines)


def _measured(folder: Path, task: Task, extensions: Sequence[str]) -> tuple[CellLines, str]:
    """The cell lines of a run of the suite in ``folder``, and why there are none."""
    with tempfile.TemporaryDirectory() as history:
        command = [sys.executable, "-m", "qbench"]
        if current_factor() > 1:  # an older qbench in the commit knows no such option
            command += ["--size-limits", str(current_factor())]
        command += ["run", task.suite, "--select", task.select, "--history", history]
        for extension in extensions:
            command += ["--extension", extension]
        problem = _problem_of(command, folder, "the run", fine=_MEASURED)
        run = History(Path(history)).latest()
        cells = () if run is None else run.cells
        lines = tuple(record.line() for record in cells if record.is_measured)
        if not lines:
            told = filter(None, (record.headline for record in cells))
            return (), problem or next(told, "the run measured no cell")
        return lines, ""


def _problem_of(command: Sequence[str], folder: Path, what: str, *, fine: Sequence[int] = (0,)) -> str:
    """Why ``command`` failed in ``folder``: the last line it wrote; empty when it did not."""
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
            f"Running {what} in '{folder}'", found=str(error), expected="a shell", remedy="Check the command."
        ) from error
    if done.returncode in fine:
        return ""
    last = next((line.strip() for line in reversed(done.stdout.splitlines()) if line.strip()), "no word")
    return f"{what} failed ({done.returncode}): {last}"


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what git sets for its hooks, which would lead a build's git to the user's checkout."""
    return {name: value for name, value in own.items() if not name.startswith("GIT_")}


def _digests(folder: Path, artifacts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(path, digest) of every file of the artifacts, in order."""
    for name in artifacts:
        root = folder / name
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file():
                yield path.relative_to(folder).as_posix(), digest_file(path)
