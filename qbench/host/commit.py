"""The git commit a folder is at, asked from git itself."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

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
    environment = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}  # asking must not take the index lock
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
