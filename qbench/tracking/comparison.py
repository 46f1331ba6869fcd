"""Two runs side by side: every cell old → new, and whether its numbers may be compared at all.

Comparable are results of one cell in one environment class on the same samples; between classes int8 results differ
without anything being wrong.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qbench.errors import IncomparableError
from qbench.judging import Cell, arithmetic_change
from qbench.tracking.runs import Run, cell_of_line


class Relation(enum.Enum):
    """How a cell's two results stand to each other."""

    SAME = "same"  # the same predictions
    CHANGED = "changed"
    INCOMPARABLE = "incomparable"  # measured elsewhere, on other samples, or on one side not at all
    ONLY_OLD = "only in the old run"
    ONLY_NEW = "only in the new run"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChange:
    """Hits of one metric old → new (None: not measured there), out of how many in the new run or else the old."""

    metric: str
    old: int | None
    new: int | None
    out_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellChange:
    """One row of a comparison; outcomes are empty where the cell is absent.

    ``why`` says why a cell is incomparable, or, where the digests tell, why it changed.
    """

    cell: Cell
    relation: Relation
    old_outcome: str = ""
    new_outcome: str = ""
    metrics: tuple[MetricChange, ...] = ()
    why: str = ""

    @property
    def outcome_changed(self) -> bool:
        """Whether the cell is in both runs and ended otherwise."""
        return bool(self.old_outcome and self.new_outcome) and self.old_outcome != self.new_outcome


def compare_runs(old: Run, new: Run) -> tuple[CellChange, ...]:
    """A row for each cell of either run, sorted by cell.

    Raises:
        IncomparableError: not one cell can be compared.
    """
    before = {cell_of_line(line): line for line in old.cells}
    after = {cell_of_line(line): line for line in new.cells}
    rows = tuple(_change(cell, before.get(cell), after.get(cell)) for cell in sorted({*before, *after}))
    if not any(row.relation in (Relation.SAME, Relation.CHANGED) for row in rows):
        why = next((row.why for row in rows if row.why), "no cell that is in both")
        raise IncomparableError(
            f"Comparing run '{old.id}' with run '{new.id}'",
            found=why,
            expected="a cell measured by both in one environment class on the same samples",
            remedy="Compare with a run of this suite from a machine of the same class.",
        )
    return rows


def _change(cell: Cell, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> CellChange:
    if old is None or new is None:
        return CellChange(
            cell=cell,
            relation=Relation.ONLY_NEW if old is None else Relation.ONLY_OLD,
            old_outcome=_outcome(old),
            new_outcome=_outcome(new),
            metrics=_metrics(old or {}, new or {}),
        )
    why = _incomparable(old, new)
    same = _digests(old, "predictions:") == _digests(new, "predictions:")
    relation = Relation.INCOMPARABLE if why else Relation.SAME if same else Relation.CHANGED
    if relation is Relation.CHANGED:
        why = arithmetic_change(*(_digests(line, "arithmetic").get("arithmetic", "") for line in (old, new)))
    return CellChange(
        cell=cell,
        relation=relation,
        old_outcome=_outcome(old),
        new_outcome=_outcome(new),
        metrics=_metrics(old, new),
        why=why,
    )


def _incomparable(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    for name, line in (("old", old), ("new", new)):
        if "metrics" not in line:
            return f"the {name} run did not measure it ({_outcome(line)})"
    if old.get("environment_class") != new.get("environment_class"):
        return f"environment class {old.get('environment_class')} against {new.get('environment_class')}"
    if _digests(old, "data:") != _digests(new, "data:"):
        return "other samples or labels"
    return ""


def _metrics(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[MetricChange, ...]:
    before, after = old.get("metrics", {}), new.get("metrics", {})
    return tuple(
        MetricChange(
            metric=name,
            old=before.get(name, {}).get("hits"),
            new=after.get(name, {}).get("hits"),
            out_of=(after.get(name) or before[name])["out_of"],
        )
        for name in dict.fromkeys([*before, *after])
    )


def _digests(line: Mapping[str, Any], prefix: str) -> dict[str, str]:
    return {key: value for key, value in line.get("digests", {}).items() if key.startswith(prefix)}


def _outcome(line: Mapping[str, Any] | None) -> str:
    return "" if line is None else str(line.get("outcome", ""))
