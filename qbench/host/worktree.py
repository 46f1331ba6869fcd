"""A second working tree of a repository, for building old commits: the user's own checkout is never touched.

git worktree add --detach FOLDER COMMIT     git checkout --force COMMIT     git worktree remove --force FOLDER
"""

from pathlib import Path
from types import TracebackType
from typing import Self

from qbench.errors import StoreError
from qbench.host.commit import run_git

_TIMEOUT_S = 1800
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""A hook of the user's, meant for his own checkout, is not run in this one."""


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
        if run_git(self._repository, *_NO_HOOKS, *add, timeout_s=_TIMEOUT_S) is None:
            raise self._failed("Making a working tree")
        return self

    def check_out(self, commit: str) -> None:
        """Put exactly the files of ``commit`` there: what an earlier build left behind is removed.

        Raises:
            StoreError: git cannot.
        """
        checkout = ("checkout", "--force", "--detach", commit)
        done = run_git(self.folder, *_NO_HOOKS, *checkout, timeout_s=_TIMEOUT_S)
        if done is None or run_git(self.folder, "clean", "-ffdxq", timeout_s=_TIMEOUT_S) is None:
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
