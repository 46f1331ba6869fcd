"""Two runs side by side: every cell old → new, and whether its numbers may be compared at all.

Comparable are results of one cell in one environment class on the same samples; between classes int8 results differ
without anything being wrong.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from qbench.errors import IncomparableError
from qbench.judging import Cell, arithmetic_change
from qbench.tracking.counts import metrics_of_line, nature_of
from qbench.tracking.record import AXES
from qbench.tracking.runs import Run, cell_of_line

COMPARED_KEYS = (*AXES, "outcome", "environment_class", "metrics", "digests", "changed_count")
"""What of a ``cell`` line a comparison is made of."""


class Relation(enum.Enum):
    """How a cell's two results stand to each other."""

    SAME = "same"  # the same predictions, and every metric that both have as it was
    CHANGED = "changed"
    INCOMPARABLE = "incomparable"  # measured elsewhere, on other samples, or on one side not at all
    ONLY_OLD = "only in the old run"
    ONLY_NEW = "only in the new run"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChange:
    """Hits of one metric old → new (None: not measured there), out of how many in the new run or else the old.

    ``unit`` is that of hits / out_of: ``"%"`` is a share. ``is_distance``: it tells how far from fp32 the answers are.
    """

    metric: str
    old: int | None
    new: int | None
    out_of: int
    unit: str = "%"
    lower_is_better: bool = False
    is_distance: bool = False

    @property
    def moved(self) -> float | None:
        """The new value less the old, in the unit (a fraction where that is ``%``); None where one is not known."""
        return None if self.old is None or self.new is None else (self.new - self.old) / self.out_of

    @property
    def is_worse(self) -> bool:
        """Whether it moved for the worse, whichever way that is."""
        return bool(self.moved) and ((self.moved or 0.0) > 0) is self.lower_is_better


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

    @property
    def moved(self) -> tuple[MetricChange, ...]:
        """The metrics whose values are others."""
        return tuple(metric for metric in self.metrics if metric.moved)


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
    why, metrics = _incomparable(old, new), _metrics(old, new)
    before, after = (_digests(line, "predictions:") for line in (old, new))
    same = before == after
    moved = any(metric.moved for metric in metrics)  # a distance may, where no prediction does
    relation = Relation.INCOMPARABLE if why else Relation.CHANGED if moved or not same else Relation.SAME
    if relation is Relation.CHANGED:
        why = arithmetic_change(*(_digests(line, "arithmetic").get("arithmetic", "") for line in (old, new)))
        why = why or ("the same predictions by other numbers" if same and before else "")
        why = why or ("" if moved else _other_predictions(old, new))
    return CellChange(
        cell=cell,
        relation=relation,
        old_outcome=_outcome(old),
        new_outcome=_outcome(new),
        metrics=metrics,
        why=why,
    )


def _other_predictions(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What two lines with equal values tell of their predictions, which are others."""
    before, after = (_digests(line, "predictions:") for line in (old, new))
    names = sorted(key.partition(":")[2] for key in {*before, *after} if before.get(key) != after.get(key))
    told = f"other predictions on {', '.join(names)}, which count the same"
    counts = (line.get("changed_count") for line in (old, new))
    then, now = (dict(one) if isinstance(one, Mapping) else {} for one in counts)
    turned = [
        f"{then[name]} → {now[name]} of {name} unlike fp32"
        for name in names
        if then.get(name) is not None and now.get(name) is not None and then[name] != now[name]
    ]
    return "; ".join([told, *turned])


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
    before, after = dict(_counted(old)), dict(_counted(new))
    return tuple(
        MetricChange(
            metric=name,
            old=before[name]["hits"] if name in before else None,
            new=after[name]["hits"] if name in after else None,
            out_of=table["out_of"],
            unit=nature.unit,
            lower_is_better=nature.lower_is_better,
            is_distance=nature.is_distance,
        )
        for name, table in {**before, **after}.items()
        for nature in (nature_of(table),)
    )


def _counted(line: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The metrics of ``line`` whose values can be told; a distance in dB may be below zero."""
    for name, table in metrics_of_line(line).items():
        if type(table.get("hits")) is type(table.get("out_of")) is int and table["out_of"] > 0:
            yield name, table


def _digests(line: Mapping[str, Any], prefix: str) -> dict[str, str]:
    return {key: value for key, value in line.get("digests", {}).items() if key.startswith(prefix)}


def _outcome(line: Mapping[str, Any] | None) -> str:
    return "" if line is None else str(line.get("outcome", ""))
