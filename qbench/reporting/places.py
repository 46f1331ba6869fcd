"""Where each page and picture of a report lies in its folder, and how one links to another."""

import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

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
        joint = "+" if any("--" in name for name in names) else "--"  # "+" gets a digest: no two cells share a page
        return f"{self.root}findings/{file_name(joint.join(names))}.html"


def link(target: str, page: str) -> str:
    """How the page at ``page`` names the page at ``target``: a relative path."""
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def file_name(text: str) -> str:
    """``text`` as the name of a file: letters, digits, ``_``, ``.`` and ``-``; what lost letters gets a digest."""
    plain = re.sub(r"[^a-z0-9_.-]", "-", text).lstrip(".")[:80]
    return plain if plain == text != "" else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def anchor_of(*names: str) -> str:
    """An id for a page: readable letters of ``names`` and, where letters were lost, a short digest."""
    text = "--".join(names)
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in text)
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
