"""A run as it is remembered: lines of JSON, each with a ``type``; unknown types and keys are ignored by readers.

    {"type": "run", "format": "qbench-run/1", "id": …, "suite": …, "started": …, "commit": {…}, "complete_selection": …}
    {"type": "environment", "processor": …, "versions": {…}, …}
    {"type": "cell", "model": …, "backend": …, "schema": …, "outcome": …, "metrics": {…}, …}     one a cell
    {"type": "note", "text": …}
    {"type": "end", "cells": …, "exit_code": …}                              absent: the run was interrupted

A cell line is ``cell_line(cell, …)``; what it holds never needs qbench's code to be read again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qbench.judging import Cell, Measurement, Verdict
from qbench.storage import plain

FORMAT = "qbench-run/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished or interrupted run, read back.

    Args:
        header: the ``run`` line. environment: the ``environment`` line (empty when there is none).
        cells: the ``cell`` lines in file order. notes: texts. complete: whether the ``end`` line was found.
        damaged: how many lines could not be read. path: the file, for messages.
    """

    header: Mapping[str, Any]
    environment: Mapping[str, Any] = field(default_factory=dict)
    cells: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = False
    damaged: int = 0
    path: str = ""

    @property
    def id(self) -> str:
        """``<UTC time>-<short commit>-<random>``; sorts by time."""
        return str(self.header["id"])

    @property
    def suite(self) -> str:
        """The suite that was run."""
        return str(self.header["suite"])


def cell_line(cell: Cell, verdict: Verdict, measurement: Measurement | None) -> dict[str, Any]:
    """The ``cell`` line of one judged cell; ``measurement`` is None when it was skipped or could not be measured.

    ``n``, ``fp32_correct``, ``correct``, ``losses`` and ``gains`` repeat the first metric of the suite, which for an
    error rate counts errors.
    """
    line: dict[str, Any] = {
        "type": "cell",
        "suite": cell.suite,
        "model": cell.model,
        "backend": cell.backend,
        "schema": cell.schema,
        "variant": cell.variant,
        "outcome": verdict.outcome.value,
        "headline": verdict.headline,
        "rule": verdict.rule,
        "gates": plain(verdict.gates),
        "notices": list(verdict.notices),
        "remedy": verdict.remedy,
    }
    if measurement is None:
        return line
    first = measurement.scores[0]
    line |= {
        "environment_class": str(measurement.environment),
        "n": first.n,
        "fp32_correct": first.reference_hits,
        "correct": first.hits,
        "losses": first.losses,
        "gains": first.gains,
        "metrics": {
            s.metric: {k: v for k, v in plain(s).items() if k != "metric"} | {"value": s.value} for s in measurement.scores
        },
        "digests": plain(measurement.digests),
        "changed": plain(measurement.changed),
        "changed_count": plain(measurement.changed_count),
        "ties": plain(measurement.ties),
        "macs": measurement.macs,
        "integer_macs": measurement.integer_macs,
        "refusals": list(measurement.refusals),
        "seconds": plain(measurement.seconds),
    }
    return line
