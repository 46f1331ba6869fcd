"""The path of each page and picture of a report, and the removal of outdated pages."""

import contextlib
import functools
import hashlib
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from qbench.errors import InputError, StoreError
from qbench.storage import read_project

KINDS = ("html", "md", "png")
"""The kinds of report that ``qbench report`` writes where none is named; the others are for
automatic jobs.
"""
GITHUB = "github"
"""Annotations and the summary of the job: a kind that is printed, not written."""
FRONT: Mapping[str, str] = MappingProxyType(
    {
        "html": "index.html",
        "md": "report.md",
        "png": "matrix.png",
        "badge": "badge.json",
        "comment": "comment.md",
    }
)
"""Kind → the file of it that a person opens; its other files are linked there."""
ALL_KINDS = (*FRONT, GITHUB)

TABS: Mapping[str, str] = MappingProxyType(
    {
        "index": "Overview",
        "cells": "Cells",
        "findings": "Findings",
        "known": "Known",
        "compare": "Compare",
        "run": "Run",
    }
)
"""The pages of a suite that each of its pages links to, in order: name → the words of the link."""


@dataclass(frozen=True, slots=True)
class Places:
    """The pages of one suite below ``root``, a path that ends with ``/`` or is empty."""

    root: str = ""

    @classmethod
    def of_suite(cls, suite: str, *, is_first: bool) -> "Places":
        """The suite of the newest run has the folder itself, each other one a folder of its own."""
        return cls("" if is_first else f"suites/{file_name(suite)}/")

    def page(self, name: str) -> str:
        """The page ``name``, one of ``TABS``."""
        return f"{self.root}{name}.html"

    def model(self, model: str) -> str:
        """The page of ``model``."""
        return f"{self.root}models/{file_name(model)}.html"

    def finding(self, *names: str) -> str:
        """The page of the finding on the cell of these ``names``: model, backend and column."""
        # "+" adds a digest: no two cells share a page
        joint = "+" if any("--" in name for name in names) else "--"
        return f"{self.root}findings/{file_name(joint.join(names))}.html"

    def samples(self, model: str, column: str) -> str:
        """The page of the samples that ``model`` lost and gained under the schema ``column``."""
        joint = "+" if "--" in model or "--" in column else "--"
        return f"{self.root}samples/{file_name(joint.join((model, column)))}.html"


def link(target: str, page: str) -> str:
    """The relative path from the page ``page`` to the page ``target``."""
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def file_name(text: str) -> str:
    """``text`` as the name of a file: letters, digits, ``_``, ``.`` and ``-``; one that lost
    letters gets a digest.
    """
    plain = re.sub(r"[^a-z0-9_.-]", "-", text).lstrip(".")[:80]
    return (
        plain if plain == text != "" else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    )


_NO_LETTER = re.compile(r"[^A-Za-z0-9_-]")


@functools.lru_cache(maxsize=1 << 16)  # each page of a suite has the same ones
def anchor_of(*names: str) -> str:
    """An id for a page: readable letters of ``names`` and, where letters were lost, a short
    digest.
    """
    text = "--".join(names)
    plain = _NO_LETTER.sub("-", text)
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


# Commits on pages lead to the repository of the project, where pyproject.toml names it:
#
#     [tool.qbench]
#     repository = "https://github.com/owner/name"
#
# or an address with {commit} where the commit belongs.

_HASH = re.compile(r"[0-9a-f]{7,64}")
_ADDRESS = re.compile(r"https?://[^\s\"'<>\\{}]+")
COMMIT = "{commit}"


def read_repository(folder: Path) -> str:
    """``[tool.qbench] repository`` of the pyproject.toml in ``folder``: where commits are
    shown; empty: not set.

    Raises:
        InputError: it is not the http or https address of a repository, or holds a user's name or
            password.
    """
    text = read_project(folder).get("repository", "")
    if text == "":
        return ""
    plain = text.replace(COMMIT, "", 1) if isinstance(text, str) else ""
    try:
        is_address = _ADDRESS.fullmatch(plain) is not None and bool(urlsplit(plain).hostname)
        is_public = "@" not in urlsplit(plain).netloc
    except ValueError:  # such as brackets that do not match
        is_address = is_public = False
    if not is_address or not is_public:
        raise InputError(
            "Reading [tool.qbench] of 'pyproject.toml'",
            found="a repository with a user's name" if is_address else f"repository = {text!r}",
            expected=(
                "an http or https address such as https://github.com/owner/name, or one with "
                f"{COMMIT}"
            ),
            remedy="Correct it, or leave it out: commits are then not linked.",
        )
    return str(text)


def commit_address(repository: str, commit: str) -> str:
    """Where ``repository`` shows ``commit``; empty where one of them is not known."""
    if not repository or not _HASH.fullmatch(commit):
        return ""
    if COMMIT in repository:
        return repository.replace(COMMIT, commit)
    base = repository.rstrip("/").removesuffix(".git")
    return (
        f"{base}/{'commits' if urlsplit(base).hostname == 'bitbucket.org' else 'commit'}/{commit}"
    )


# Pages of an earlier report whose suite, model or cell has moved or no longer exists: a reader
# would take them for new.
#
# Only pages with the mark of this package are removed, and only in the folder of reports, its
# ``models/``, ``findings/`` and ``samples/``, and the same below ``suites/<suite>/``. A compare
# page next to pages that stay is kept: the user may have made it by ``qbench compare``.

MARK = '<meta name="generator" content="qbench">'
"""It is near the beginning of every page."""

_HEAD = 1024
_BELOW = ("models", "findings", "samples")


def remove_outdated(folder: Path, written: Collection[Path]) -> None:
    """Remove the pages below ``folder`` that are not among those ``written`` just now, and
    folders left empty.

    Raises:
        StoreError: a page cannot be removed.
    """
    kept = {path.parent for path in written if path.name == "index.html"}
    for site in (folder, *sorted(path for path in (folder / "suites").glob("*") if path.is_dir())):
        for page in _pages(site):
            is_kept = page.name == "compare.html" and page.parent in kept
            if page not in written and not is_kept and _is_ours(page):
                _remove(page)
        for place in (*(site / name for name in _BELOW), site, folder / "suites"):
            with contextlib.suppress(OSError):  # not empty, or not there
                place.rmdir()


def _pages(site: Path) -> Iterator[Path]:
    for name in TABS:
        yield site / f"{name}.html"
    for below in _BELOW:
        yield from sorted((site / below).glob("*.html"))


def _is_ours(page: Path) -> bool:
    """Whether it is a page of a qbench report; a link is not."""
    if page.is_symlink() or not page.is_file():
        return False
    with page.open("rb") as file:
        return MARK.encode() in file.read(_HEAD)


def _remove(page: Path) -> None:
    try:
        page.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"Removing the outdated page '{page}'",
            found=error.strerror or str(error),
            expected="a folder that can be written",
            remedy="Make the folder writable, or draw the report into another one with -o.",
        ) from error
