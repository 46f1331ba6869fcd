"""The main line of a repository: its commits by first parents, the earliest first, asked from git itself."""

from pathlib import Path

from qbench.host.commit import run_git


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


def subject_line(commit: str, folder: Path | str = ".") -> str:
    """The first line of the message of ``commit``; empty where there is no such commit."""
    return run_git(Path(folder), "show", "--no-patch", "--no-show-signature", "--format=%s", commit) or ""


def tree_hash(commit: str, folder: Path | str = ".") -> str:
    """The hash of all files of ``commit``; empty where there is no such commit."""
    return run_git(Path(folder), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{tree}}") or ""
