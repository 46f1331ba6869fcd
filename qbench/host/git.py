"""The git repository a folder belongs to: its commit, its main line, and second working trees."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from qbench.errors import StoreError

_TIMEOUT_S = 20
_SHORT = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit.

    Args:
        sha: 40 hexadecimal digits (64 in a SHA-256 repository). short: its first 9.
        committed: committer time, ISO 8601 in UTC offset form as git writes it.
        branch: the branch that is checked out; empty when detached.
        dirty: whether tracked files differ from the commit.
    """

    sha: str
    short: str
    committed: str
    branch: str
    dirty: bool


def current_commit(folder: Path | str = ".") -> Commit | None:
    """The commit checked out in ``folder``'s repository; None outside one, before its first commit, or without git."""
    folder = Path(folder)
    shown = run_git(folder, "show", "--no-patch", "--no-show-signature", "--format=%H %cI", "HEAD")
    if shown is None:
        return None
    sha, committed = shown.split()
    branch = run_git(folder, "symbolic-ref", "--quiet", "--short", "HEAD")
    changed = run_git(folder, "status", "--porcelain", "--untracked-files=no")
    return Commit(sha=sha, short=sha[:_SHORT], committed=committed, branch=branch or "", dirty=bool(changed))


def run_git(folder: Path, *arguments: str, timeout_s: float = _TIMEOUT_S) -> str | None:
    """What ``git arguments`` prints in ``folder``, stripped; None when it fails or is not there."""
    environment = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}  # a query must not take the index lock
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


# The main line of a repository: its commits by first parents, the earliest first.


def first_parents(folder: Path | str = ".", *, behind: str = "", until: str = "HEAD") -> tuple[str, ...]:
    """Whole hashes of the commits up to ``until`` (those behind ``behind`` only), the earliest first.

    Empty outside a repository, without git, or where a name means no commit. In a shallow clone it begins late.
    """
    # Names that begin with a dash would be options.
    span = ["--end-of-options", f"{behind}..{until}" if behind else until]
    listed = run_git(Path(folder), "rev-list", "--first-parent", "--reverse", *span)
    return tuple(listed.split()) if listed else ()


def whole_hash(name: str, folder: Path | str = ".") -> str:
    """The whole hash of the commit that ``name`` (a tag, a branch, some digits) means; empty where there is none."""
    return run_git(Path(folder), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}") or ""


def git_user(folder: Path | str = ".") -> str:
    """``user.name`` as git knows it in ``folder``; empty where it knows none."""
    return run_git(Path(folder), "config", "user.name") or ""


def subject_line(commit: str, folder: Path | str = ".") -> str:
    """The first line of the message of ``commit``; empty where there is no such commit."""
    return run_git(Path(folder), "show", "--no-patch", "--no-show-signature", "--format=%s", commit) or ""


def tree_hash(commit: str, folder: Path | str = ".") -> str:
    """The hash of all files of ``commit``; empty where there is no such commit."""
    return run_git(Path(folder), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{tree}}") or ""


# A second working tree of a repository, for building old commits: the user's own checkout is never touched.
#
# git worktree add --detach FOLDER COMMIT     git checkout --force COMMIT     git worktree remove --force FOLDER

_WORKTREE_TIMEOUT_S = 1800
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""Hooks of the user are meant for the own checkout and are not run here."""


class Worktree:
    """A working tree of ``repository`` at ``folder``, which must not exist; removed at the end, with all in it."""

    def __init__(self, repository: Path, folder: Path) -> None:
        self.folder = folder
        self._repository = repository

    def __enter__(self) -> Self:
        """Make it, at HEAD.

        Raises:
            StoreError: git cannot.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        run_git(self._repository, "worktree", "prune")
        add = ("worktree", "add", "--force", "--detach", str(self.folder), "HEAD")
        if run_git(self._repository, *_NO_HOOKS, *add, timeout_s=_WORKTREE_TIMEOUT_S) is None:
            raise self._failed("Making a working tree")
        return self

    def check_out(self, commit: str) -> None:
        """Put exactly the files of ``commit`` there: files of an earlier build are removed.

        Raises:
            StoreError: git cannot.
        """
        checkout = ("checkout", "--force", "--detach", commit)
        done = run_git(self.folder, *_NO_HOOKS, *checkout, timeout_s=_WORKTREE_TIMEOUT_S)
        if done is None or run_git(self.folder, "clean", "-ffdxq", timeout_s=_WORKTREE_TIMEOUT_S) is None:
            raise self._failed(f"Checking out {commit[:9]}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_git(self._repository, "worktree", "remove", "--force", "--force", str(self.folder))

    def _failed(self, doing: str) -> StoreError:
        return StoreError(
            f"{doing} in '{self.folder}'",
            found="that git cannot",
            expected="a repository whose commits are all here, and a disk with room for a second copy of its files",
            remedy=f"Try 'git worktree add {self.folder}' by hand.",
        )
