"""The git repository a folder belongs to: its commit, its main line, second working trees, and
branches of files.
"""

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from qbench.errors import StoreError

_TIMEOUT_S = 20
_SHORT = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit.

    Args:
        sha: 40 hexadecimal digits (64 in a SHA-256 repository).
        short: its first 9.
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
    """The commit checked out in ``folder``'s repository; None outside one, before its first
    commit, or without git.
    """
    folder = Path(folder)
    shown = run_git(folder, "show", "--no-patch", "--no-show-signature", "--format=%H %cI", "HEAD")
    if shown is None:
        return None
    sha, committed = shown.split()
    branch = run_git(folder, "symbolic-ref", "--quiet", "--short", "HEAD")
    changed = run_git(folder, "status", "--porcelain", "--untracked-files=no")
    return Commit(
        sha=sha, short=sha[:_SHORT], committed=committed, branch=branch or "", dirty=bool(changed)
    )


def run_git(folder: Path, *arguments: str, timeout_s: float = _TIMEOUT_S) -> str | None:
    """What ``git arguments`` prints in ``folder``, stripped; None when it fails or is not there."""
    # a query must not take the index lock
    environment = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
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


OURS_BASE_THEIRS = (2, 1, 3)
"""The numbers by which git's index calls the sides of a merge and what they come from."""


def indexed_file(path: Path, stage: int) -> bytes | None:
    """The file at ``path`` as git's index has it; None: not at this stage, or without git.

    Args:
        stage: 0, or in a merge that is not finished one of ``OURS_BASE_THEIRS``.
    """
    name = f":{stage}:./{path.name}"
    try:
        done = subprocess.run(
            ["git", "-C", str(path.parent), "show", name],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


# The main line of a repository: its commits by first parents, the earliest first.


def first_parents(
    folder: Path | str = ".", *, behind: str = "", until: str = "HEAD"
) -> tuple[str, ...]:
    """Whole hashes of the commits up to ``until`` (behind ``behind`` only), the earliest first.

    Empty outside a repository, without git, or where a name means no commit. In a shallow clone it
    begins late.
    """
    # Names that begin with a dash would be options.
    span = ["--end-of-options", f"{behind}..{until}" if behind else until]
    listed = run_git(Path(folder), "rev-list", "--first-parent", "--reverse", *span)
    return tuple(listed.split()) if listed else ()


def whole_hash(name: str, folder: Path | str = ".") -> str:
    """The whole hash of the commit that ``name`` means; empty where there is none.

    ``name`` is a tag, a branch or some digits.
    """
    return (
        run_git(
            Path(folder),
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            f"{name}^{{commit}}",
        )
        or ""
    )


def git_user(folder: Path | str = ".") -> str:
    """``user.name`` as git knows it in ``folder``; empty where it knows none."""
    return run_git(Path(folder), "config", "user.name") or ""


def subject_line(commit: str, folder: Path | str = ".") -> str:
    """The first line of the message of ``commit``; empty where there is no such commit."""
    return (
        run_git(Path(folder), "show", "--no-patch", "--no-show-signature", "--format=%s", commit)
        or ""
    )


def tree_hash(commit: str, folder: Path | str = ".") -> str:
    """The hash of all files of ``commit``; empty where there is no such commit."""
    return (
        run_git(
            Path(folder),
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            f"{commit}^{{tree}}",
        )
        or ""
    )


class PublishedCommit(NamedTuple):
    """Where another computer finds a commit.

    ``address`` is as the configuration has it and may hold a login; ``folder`` is below the root
    (empty: the root).
    """

    address: str
    sha: str
    folder: str


def published_commit(folder: Path | str) -> PublishedCommit | None:
    """What is checked out in ``folder``, as another computer finds it.

    None where no remote repository has the commit, as far as its branches were fetched, or where
    the remote is a folder of this computer.
    """
    folder = Path(folder)
    branches = (
        run_git(folder, "for-each-ref", "--contains=HEAD", "--format=%(refname)", "refs/remotes")
        or ""
    )
    inside = run_git(folder, "rev-parse", "--show-prefix") or ""
    for branch in branches.splitlines():
        remote = branch.split("/")[2]
        address = run_git(folder, "config", "--get", f"remote.{remote}.url") or ""
        if _is_elsewhere(address):
            return PublishedCommit(address, whole_hash("HEAD", folder), inside.rstrip("/"))
    return None


def _is_elsewhere(address: str) -> bool:
    """Whether a remote is on another computer: ``scheme://…`` other than file, or ``host:path``
    of a secure shell.
    """
    scheme, separator, _ = address.partition("://")
    if separator:
        return scheme != "file"
    host, colon, _ = address.partition(":")
    return bool(colon) and "/" not in host


# A second working tree of a repository, for building old commits: the user's own checkout is never
# touched.
#
#     git worktree add --detach FOLDER COMMIT
#     git checkout --force COMMIT
#     git worktree remove --force FOLDER

_WORKTREE_TIMEOUT_S = 1800
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""Hooks of the user are meant for the own checkout and are not run here."""


class Worktree:
    """A working tree of ``repository`` at ``folder``, which must not exist; removed at the end,
    with all in it.
    """

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
        if (
            done is None
            or run_git(self.folder, "clean", "-ffdxq", timeout_s=_WORKTREE_TIMEOUT_S) is None
        ):
            raise self._failed(f"Checking out {commit[:9]}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run_git(self._repository, "worktree", "remove", "--force", "--force", str(self.folder))

    def _failed(self, doing: str) -> StoreError:
        return StoreError(
            f"{doing} in '{self.folder}'",
            found="that git cannot",
            expected=(
                "a repository whose commits are all here, and a disk with room for a second copy "
                "of its files"
            ),
            remedy=f"Try 'git worktree add {self.folder}' by hand.",
        )


# A branch of a remote repository that only holds files, such as run files: read and added to
# without a checkout.
#
#     git ls-remote, git fetch, git archive
#     read-tree, hash-object, update-index, write-tree, commit-tree, git push
#
# The index is a file of its own, so that neither the working tree nor the index of the user
# changes.

_REMOTE_TIMEOUT_S = 600
PUSH_TRIES = 5
"""Pushes are tried again so often when another process pushed first."""
_AUTHOR = "qbench"
"""The author of commits where git knows none, as on a machine of continuous integration."""


class _Task(NamedTuple):
    """What is being done, for the error when git refuses."""

    doing: str
    expected: str
    remedy: str


class FileBranch:
    """The branch ``name`` of ``remote`` of the repository at ``folder``; it may not exist yet."""

    def __init__(self, folder: Path | str, remote: str, name: str) -> None:
        self.name = name
        self.remote = remote
        self._folder = Path(folder)

    def __str__(self) -> str:
        return f"{self.remote}/{self.name}"

    def fetch(self) -> str:
        """Get its newest commit; the hash, empty where the remote has no such branch.

        Raises:
            StoreError: the remote does not answer, or this is not a repository.
        """
        task = _Task(
            f"Fetching the branch '{self.name}' of '{self.remote}'",
            "a repository with that remote, and permission to read it",
            "Look at 'git remote --verbose', and name another one with --remote.",
        )
        listed = self._git(task, "ls-remote", "--", self.remote, f"refs/heads/{self.name}").decode()
        if not listed.strip():
            return ""
        # A shallow clone stays one. A whole one stays whole: --depth would make its history end at
        # this commit.
        is_shallow = run_git(self._folder, "rev-parse", "--is-shallow-repository") == "true"
        depth = ("--depth=1",) if is_shallow else ()
        self._git(
            task,
            "fetch",
            "--quiet",
            "--no-tags",
            *depth,
            "--",
            self.remote,
            f"refs/heads/{self.name}",
        )
        return whole_hash("FETCH_HEAD", self._folder)

    def files(self, tip: str, suffix: str) -> dict[str, bytes]:
        """The files of the commit ``tip`` whose name ends with ``suffix``, without their
        folders; none of no commit.

        Raises:
            StoreError: git cannot read it.
        """
        if not tip:
            return {}
        task = _Task(
            f"Reading the branch '{self.name}'", "a commit that is here", "Run 'git fsck'."
        )
        packed = self._git(task, "archive", "--format=tar", tip)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            found = {}
            for member in archive:
                content = (
                    archive.extractfile(member)
                    if member.isfile() and member.name.endswith(suffix)
                    else None
                )
                if content is not None:
                    found[member.name.rpartition("/")[2]] = content.read()
        return found

    def add(
        self,
        files: Mapping[str, bytes],
        message: str,
        *,
        replaced: Mapping[str, bytes] | None = None,
    ) -> int:
        """Commit the ``files`` that the branch lacks, push, and return their number; the branch
        is made where needed.

        Where another process pushed first, its commit is fetched and this one is made again after
        it.

        Args:
            replaced: files that are written whether the branch has them or not.

        Raises:
            StoreError: the push is refused, or git cannot make the commit.
        """
        task = _Task(
            f"Pushing to the branch '{self.name}' of '{self.remote}'",
            "permission to push to it ('contents: write' in a workflow of GitHub)",
            "Give it and push again: no file of the history was changed.",
        )
        tip = self.fetch()
        for left in reversed(range(PUSH_TRIES)):
            here = (
                set(self._git(task, "ls-tree", "--name-only", "-z", tip).decode().split("\0"))
                if tip
                else set()
            )
            fresh = {name: data for name, data in files.items() if name not in here}
            commit = self._commit(task, tip, {**fresh, **(replaced or {})}, message)
            if not commit:
                return 0
            try:
                self._git(
                    task,
                    *_NO_HOOKS,
                    "push",
                    "--quiet",
                    "--",
                    self.remote,
                    f"{commit}:refs/heads/{self.name}",
                )
            except StoreError:
                before, tip = tip, self.fetch()
                if tip == before or not left:
                    raise
            else:
                return len(fresh)
        raise AssertionError

    def _commit(self, task: _Task, tip: str, files: Mapping[str, bytes], message: str) -> str:
        """A commit after ``tip`` with ``files`` added; empty where they change nothing."""
        with tempfile.TemporaryDirectory(prefix="qbench-") as scratch:
            index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
            self._git(task, "read-tree", tip or "--empty", extra=index)
            lines = []
            for name, data in files.items():
                blob = self._git(task, "hash-object", "-w", "--stdin", text=data).decode().strip()
                lines.append(f"100644 {blob}\t{name}\0".encode())
            self._git(task, "update-index", "-z", "--index-info", text=b"".join(lines), extra=index)
            tree = self._git(task, "write-tree", extra=index).decode().strip()
        if tip and tree == tree_hash(tip, self._folder):
            return ""
        parent = ("-p", tip) if tip else ()
        author: dict[str, str] = {}
        if run_git(self._folder, "var", "GIT_COMMITTER_IDENT") is None:
            author = {
                f"GIT_{who}_{what}": _AUTHOR
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            }
        return (
            self._git(task, "commit-tree", tree, *parent, "-m", message, extra=author)
            .decode()
            .strip()
        )

    def _git(
        self,
        task: _Task,
        *arguments: str,
        text: bytes = b"",
        extra: Mapping[str, str] | None = None,
    ) -> bytes:
        """What ``git arguments`` prints; it never asks for a password.

        Raises:
            StoreError: it fails.
        """
        environment = {**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **(extra or {})}
        command = ["git", "-C", str(self._folder), *arguments]
        try:
            done = subprocess.run(
                command,
                input=text,
                capture_output=True,
                timeout=_REMOTE_TIMEOUT_S,
                check=False,
                env=environment,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _refused(task, str(error)) from error
        if done.returncode:
            raise _refused(task, done.stderr.decode(errors="replace"))
        return done.stdout


def _refused(task: _Task, words: str) -> StoreError:
    """The error with git's own words: of several lines the first that names the failure."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    starts = ("remote: error", "remote: permission", "error:", "fatal:", "!")
    named = [line for line in lines if line.lower().startswith(starts)]
    found = f"'{(named or lines or ['no answer'])[0].rstrip('.')}'"
    return StoreError(task.doing, found=found, expected=task.expected, remedy=task.remedy)
