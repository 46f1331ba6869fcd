"""Red cells are localised where they were measured, within a budget of time; the finding travels on the report.

A failure to do so is one sentence of the finding: it never turns a red cell into an error of its own.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.plugin.opening import OpenSuite
from qbench.plugin.options import OPTIONS

if TYPE_CHECKING:
    from qbench.diagnosis import Budget
    from qbench.judging import Finding, Verdict
    from qbench.suite import JudgedCell

CELLS = 6
"""Times the seconds of one cell that a process spends on all of them: many red cells have few causes."""
FOLDER = "overrides"
_SPENT = pytest.StashKey[list[float]]()


def finding_of(opened: OpenSuite, judged: "JudgedCell", config: pytest.Config) -> dict[str, Any] | None:
    """The ``finding`` line of a red cell; None where there is nothing to localise, or no time left in this process.

    Args:
        opened: the suite. judged: a red cell of it.
    """
    seconds, spent = config.stash[OPTIONS].localize, config.stash.setdefault(_SPENT, [])
    left = min(seconds, CELLS * seconds - sum(spent))
    cell = judged.planned.cell
    if judged.measurement is None or not _is_wrong(judged.verdict):
        return None
    if left <= 0 or cell.is_fp32:
        return None
    from qbench.diagnosis import Budget
    from qbench.judging import Finding
    from qbench.tracking import finding_line

    budget = Budget.begin(left, time.perf_counter)
    try:
        line = finding_line(cell, _localized(opened, judged, budget))
    except Exception as error:  # the cell is red for its own reason: this must not take its place
        said = " ".join(str(error).split()) or type(error).__name__
        finding = Finding(
            model=cell.model,
            backend=cell.backend,
            schema=cell.schema,
            samples=0,
            notes=(f"could not be localised: {said}",),
            complete=False,
        )
        line = finding_line(cell, finding)
    spent.append(budget.spent)
    return line


def _is_wrong(verdict: "Verdict") -> bool:
    """Whether something is to be found: the cell fails, drifts, or would fail if it had been accepted before."""
    from qbench.judging import FAILING, GateState, Outcome

    if verdict.outcome is not Outcome.MISSING:
        return verdict.outcome in (Outcome.FAILED, Outcome.DRIFTED)
    return any(gate.kind in FAILING and gate.state is GateState.BROKEN for gate in verdict.gates)


def _localized(opened: OpenSuite, judged: "JudgedCell", budget: "Budget") -> "Finding":
    from qbench.diagnosis import LocalizeOptions, localize, samples_that_moved
    from qbench.suite import repeatable_cell

    cell = repeatable_cell(opened.bench, judged.planned)
    moved = () if judged.measurement is None else samples_that_moved(judged.measurement)
    wishes = LocalizeOptions(first=moved, suspects=3, override=_name(_axes(judged)))
    return localize(cell, judged.verdict, budget, wishes=wishes)


def _axes(judged: "JudgedCell") -> Mapping[str, str]:
    """The axes of the cell."""
    cell = judged.planned.cell
    return {"model": cell.model, "backend": cell.backend, "schema": cell.schema, "variant": cell.variant}


def keep_overrides(finding: Mapping[str, Any], reports: Path) -> Path | None:
    """Write the schema file of a ``finding`` line that repairs its cell under ``reports``; None: it has none.

    Raises:
        StoreError: the folder cannot be written.
    """
    from qbench.storage import write_text

    text = finding["finding"].get("repair", {}).get("overrides", "")
    if not text:
        return None
    path = overrides_path(finding, reports)
    write_text(path, text)
    return path


def overrides_path(finding: Mapping[str, Any], reports: Path) -> Path:
    """``reports/overrides/<suite>/<model>.<backend>.<schema>[.<variant>].toml``."""
    return reports / FOLDER / str(finding["suite"]) / f"{_name(finding)}.toml"


def _name(axes: Mapping[str, Any]) -> str:
    """What the repaired schema is called, and its file."""
    return ".".join(str(axes[name]) for name in ("model", "backend", "schema", "variant") if axes[name])
