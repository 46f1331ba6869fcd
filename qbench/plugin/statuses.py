"""Outcome of a cell → pytest's category, letter and word; ``-v`` shows how far the score moved."""

from collections.abc import Mapping
from typing import Any

import pytest

Status = tuple[str, str, str | tuple[str, Mapping[str, bool]]]

_OWN = {
    "quarantined": ("q", "yellow"),
    "inconclusive": ("i", "yellow"),
    "accepted": ("A", "green"),
    "missing": ("m", "yellow"),
}


def status_of(report: pytest.TestReport, *, verbose: bool) -> Status | None:
    """The status of a report that carries a record; None where pytest's own is right."""
    record: Mapping[str, Any] = report.qbench
    outcome = record["outcome"]
    change = f" {change_text(record)}" if verbose and change_text(record) else ""
    if report.passed and outcome in _OWN:
        letter, colour = _OWN[outcome]
        return outcome, letter, (outcome.upper() + change, {colour: True})
    if report.passed and outcome == "passed" and change:
        return "passed", ".", (f"PASSED{change}", {"green": True})
    if report.failed and outcome not in ("passed", "inconclusive", "accepted", "quarantined"):
        return "failed", "F", (outcome_word(record).upper() + change, {"red": True})
    return None


def outcome_word(record: Mapping[str, Any]) -> str:
    """What the outcome is called: an entry that is not needed has not run out, though both are ``expired`` in files."""
    from qbench.judging import NO_LONGER_FAILS

    mended = record["outcome"] == "expired" and str(record.get("headline", "")).startswith(NO_LONGER_FAILS)
    return NO_LONGER_FAILS if mended else str(record["outcome"])


def change_text(record: Mapping[str, Any]) -> str:
    """``top1 −0.42 pp`` for the first metric of ``record``; empty when there is none."""
    for name, score in record.get("metrics", {}).items():
        change = (score["hits"] - score["reference_hits"]) / score["out_of"]
        unit = score.get("unit", "%")
        text = f"{100 * change:+.2f} pp" if unit == "%" else f"{change:+.5g} {unit}".rstrip()
        return f"{name} {text}".replace("-", "−")
    return ""
