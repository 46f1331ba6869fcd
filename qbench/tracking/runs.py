"""A run as it is remembered: lines of JSON, each with a ``type``; unknown types and keys are ignored by readers.

    {"type": "run", "format": "qbench-run/1", "id": …, "suite": …, "started": …, "sequence": …, "after": …,
     "commit": {…}, "complete_selection": …}               what tells which run is later: ordering.py
    {"type": "environment", "processor": …, "versions": {…}, …}
    {"type": "cell", "model": …, "backend": …, "schema": …, "outcome": …, "metrics": {…}, …}     one a cell
    {"type": "finding", "model": …, …, "finding": {…}}         where and why a cell went wrong: findings.py
    {"type": "note", "text": …}
    {"type": "end", "cells": …, "exit_code": …}                              absent: the run was interrupted

A cell line is ``cell_line(cell, …)``; what it holds never needs qbench's code to be read again.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from qbench.errors import InputError
from qbench.judging import Cell, Compared, EnvironmentClass, FirstNode, Measurement, PassNote, RewriteNote, Verdict
from qbench.metrics import Against, Direction, Score
from qbench.storage import plain
from qbench.tracking.calibrations import packed_calibration, unpacked_calibration

FORMAT = "qbench-run/1"

_REFUSALS = 5
"""Refusals that a cell's line tells: a transformer has hundreds, and ``qbench quantize --why`` lists them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished or interrupted run, read back.

    Args:
        header: the ``run`` line. environment: the ``environment`` line (empty when there is none).
        cells, findings: the lines of these types in file order. notes: texts.
        complete: whether the ``end`` line was found.
        damaged: how many lines could not be read. notices: what a reader should know, such as a newer format.
        path: the file, for messages.
    """

    header: Mapping[str, Any]
    environment: Mapping[str, Any] = field(default_factory=dict)
    cells: tuple[Mapping[str, Any], ...] = ()
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
            s.metric: {k: v for k, v in plain(s).items() if k != "metric" and v is not None} | {"value": s.value}
            for s in measurement.scores
        },
        "digests": plain(measurement.digests),
        "changed": plain(measurement.changed),
        "changed_count": plain(measurement.changed_count),
        "ties": plain(measurement.ties),
        "macs": measurement.macs,
        "integer_macs": measurement.integer_macs,
        "refusals": list(measurement.refusals[:_REFUSALS]),
        "refusal_count": len(measurement.refusals),
        "seconds": plain(measurement.seconds),
    }
    if measurement.weight_macs is not None:
        line["weight_macs"] = measurement.weight_macs
    if measurement.kept:
        line["kept"] = plain(measurement.kept)
    if measurement.compared is not None:
        line["compared"] = plain(measurement.compared)
    if measurement.rewritten is not None:
        line["rewritten"] = plain(measurement.rewritten)
    if measurement.calibrated is not None:
        line["calibrated"] = packed_calibration(measurement.calibrated)
    if measurement.idle_rules:
        line["idle_rules"] = list(measurement.idle_rules)
    return line


def cell_of_line(line: Mapping[str, Any]) -> Cell:
    """The cell a ``cell`` line is about.

    Raises:
        KeyError, ValueError, TypeError: the line names none.
    """
    return _cell(line["suite"], line["model"], line["backend"], line["schema"], line.get("variant", ""))


@functools.lru_cache(maxsize=1 << 14, typed=True)  # a history names few cells, millions of times
def _cell(suite: str, model: str, backend: str, schema: str, variant: str) -> Cell:
    if not isinstance(variant, str):
        raise TypeError(f"the variant {variant!r} is no text")
    return Cell(suite, model, backend, schema, variant)


def measurement_of_line(line: Mapping[str, Any]) -> Measurement | None:
    """The numbers of a ``cell`` line as a Measurement again; None when the cell was skipped or broken.

    Raises:
        InputError: the line does not hold what ``cell_line`` writes.
    """
    if "metrics" not in line:
        return None
    try:
        return Measurement(
            cell=cell_of_line(line),
            environment=EnvironmentClass.parse(line["environment_class"]),
            scores=tuple(_score(name, table) for name, table in line["metrics"].items()),
            digests=dict(line["digests"]),
            changed={name: tuple(ids) for name, ids in line.get("changed", {}).items()},
            changed_count=dict(line.get("changed_count", {})),
            ties=dict(line.get("ties", {})),
            macs=int(line.get("macs", 0)),
            integer_macs=float(line.get("integer_macs", 0.0)),
            weight_macs=None if line.get("weight_macs") is None else float(line["weight_macs"]),
            refusals=tuple(line.get("refusals", ())),
            idle_rules=tuple(line.get("idle_rules", ())),
            seconds=dict(line.get("seconds", {})),
            compared=_compared(line.get("compared")),
            kept=dict(line.get("kept", {})),
            rewritten=_rewritten(line.get("rewritten")),
            calibrated=unpacked_calibration(line.get("calibrated")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"Reading the cell '{line.get('model')}::{line.get('backend')}+{line.get('schema')}' of a run file",
            found=f"a line without sense ({type(error).__name__}: {error})",
            expected="metrics in whole numbers, digests and an environment class",
            remedy="Take another run file.",
        ) from error


def _compared(table: Mapping[str, Any] | None) -> Compared | None:
    if table is None:
        return None
    first = table.get("first")
    known = {field.name: table[field.name] for field in fields(Compared) if field.name in table}
    node = {field.name: first[field.name] for field in fields(FirstNode) if field.name in first} if first else None
    return Compared(**{**known, "first": None if node is None else FirstNode(**node)})


def _rewritten(table: Mapping[str, Any] | None) -> RewriteNote | None:
    if table is None:
        return None
    known = {field.name: table[field.name] for field in fields(RewriteNote) if field.name in table}
    passes = [
        PassNote(**{field.name: one[field.name] for field in fields(PassNote) if field.name in one})
        for one in table.get("passes", ())
    ]
    return RewriteNote(**{**known, "passes": tuple(passes)})


def _score(name: str, table: Mapping[str, Any]) -> Score:
    counts = {key: table[key] for key in ("n", "hits", "out_of", "reference_hits", "losses", "gains")}
    for key, count in counts.items():
        if type(count) is not int:
            raise ValueError(f"{key} of {name} is {count!r}, not a whole number")
    low_high = table.get("interval")
    return Score(
        metric=name,
        direction=Direction(table["direction"]),
        against=Against(table["against"]),
        unit=str(table["unit"]),
        proportion=bool(table["proportion"]),
        least_margin=float(table["least_margin"]),
        interval=None if low_high is None else (float(low_high[0]), float(low_high[1])),
        **counts,
    )
