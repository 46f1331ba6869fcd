"""A run as it is remembered: lines of JSON, each with a ``type``; unknown types and keys are ignored by readers.

    {"type": "run", "format": "qbench-run/1", "id": …, "suite": …, "started": …, "sequence": …, "after": …,
     "commit": {…}, "complete_selection": …}               what tells which run is later: ordering.py
    {"type": "environment", "processor": …, "versions": {…}, …}
    {"type": "cell", "model": …, "backend": …, "schema": …, "outcome": …, "metrics": {…}, …}     one a cell
    {"type": "finding", "model": …, …, "finding": {…}}         where and why a cell went wrong: findings.py
    {"type": "note", "text": …}
    {"type": "end", "cells": …, "exit_code": …}                              absent: the run was interrupted

A cell line is ``CellRecord.line()``; what it holds never needs qbench's code to be read again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qbench.tracking.record import CellRecord

FORMAT = "qbench-run/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished or interrupted run, read back.

    Args:
        header: the ``run`` line. environment: the ``environment`` line (empty when there is none).
        cells: in file order. findings: the lines of this type in file order. notes: texts.
        complete: whether the ``end`` line was found.
        damaged: how many lines could not be read. notices: what a reader should know, such as a newer format.
        path: the file, for messages.
    """

    header: Mapping[str, Any]
    environment: Mapping[str, Any] = field(default_factory=dict)
    cells: tuple[CellRecord, ...] = ()
    findings: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = False
    damaged: int = 0
    notices: tuple[str, ...] = ()
    path: str = ""

    @property
    def id(self) -> str:
        """``<UTC time>-<short commit>-<random>``."""
        return str(self.header["id"])

    @property
    def suite(self) -> str:
        """The suite that was run."""
        return str(self.header["suite"])

    @property
    def commit(self) -> str:
        """The commit that was checked out, whole; empty when unknown."""
        commit = self.header.get("commit")
        return str(commit.get("sha", "")) if isinstance(commit, Mapping) else str(commit or "")
