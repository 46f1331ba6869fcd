"""Two runs compared cell by cell: old → new."""

import enum
from dataclasses import dataclass

from qbench.errors import IncomparableError
from qbench.judging import Cell, arithmetic_change
from qbench.tracking.record import AXES, CellRecord, MetricRecord, Run

COMPARED_KEYS = (*AXES, "outcome", "environment_class", "metrics", "digests", "changed_count")
"""What of a ``cell`` line a comparison is made of."""


class Relation(enum.Enum):
    """How the two results of a cell differ."""

    SAME = "same"  # the same predictions, and every metric that both have as it was
    CHANGED = "changed"
    INCOMPARABLE = "incomparable"  # measured elsewhere, on other samples, or on one side not at all
    ONLY_OLD = "only in the old run"
    ONLY_NEW = "only in the new run"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChange:
    """Hits of one metric old → new (None: not measured there), out of how many in the new run or else the old.

    ``unit`` is that of hits / out_of: ``"%"`` is a share. ``is_distance``: it is how far the answers are from fp32.
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

    ``why`` says why a cell is incomparable, or, where the digests show it, why it changed.
    """

    cell: Cell
    relation: Relation
    old_outcome: str = ""
    new_outcome: str = ""
    metrics: tuple[MetricChange, ...] = ()
    why: str = ""

    @property
    def outcome_changed(self) -> bool:
        """Whether the cell is in both runs and its outcome differs."""
        return bool(self.old_outcome and self.new_outcome) and self.old_outcome != self.new_outcome

    @property
    def moved(self) -> tuple[MetricChange, ...]:
        """The metrics whose values changed."""
        return tuple(metric for metric in self.metrics if metric.moved)


def compare_runs(old: Run, new: Run) -> tuple[CellChange, ...]:
    """A row for each cell of either run, sorted by cell.

    Raises:
        IncomparableError: not one cell can be compared.
    """
    before = {record.cell: record for record in old.cells}
    after = {record.cell: record for record in new.cells}
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


def _change(cell: Cell, old: CellRecord | None, new: CellRecord | None) -> CellChange:
    if old is None or new is None:
        return CellChange(
            cell=cell,
            relation=Relation.ONLY_NEW if old is None else Relation.ONLY_OLD,
            old_outcome="" if old is None else old.outcome,
            new_outcome="" if new is None else new.outcome,
            metrics=_metrics(old, new),
        )
    why, metrics = _incomparable(old, new), _metrics(old, new)
    before, after = (record.digests_of("predictions") for record in (old, new))
    same = before == after
    moved = any(metric.moved for metric in metrics)  # a distance may, where no prediction does
    relation = Relation.INCOMPARABLE if why else Relation.CHANGED if moved or not same else Relation.SAME
    if relation is Relation.CHANGED:
        why = arithmetic_change(*(record.digests.get("arithmetic", "") for record in (old, new)))
        why = why or ("the same predictions by other numbers" if same and before else "")
        why = why or ("" if moved else _other_predictions(old, new))
    return CellChange(
        cell=cell,
        relation=relation,
        old_outcome=old.outcome,
        new_outcome=new.outcome,
        metrics=metrics,
        why=why,
    )


def _other_predictions(old: CellRecord, new: CellRecord) -> str:
    """How the predictions of two records with equal values differ."""
    before, after = (record.digests_of("predictions") for record in (old, new))
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    different = f"other predictions on {', '.join(names)}, which count the same"
    then, now = old.changed_count, new.changed_count
    counts = [
        f"{then[name]} → {now[name]} of {name} unlike fp32"
        for name in names
        if name in then and name in now and then[name] != now[name]
    ]
    return "; ".join([different, *counts])


def _incomparable(old: CellRecord, new: CellRecord) -> str:
    for name, record in (("old", old), ("new", new)):
        if not record.is_measured:
            return f"the {name} run did not measure it ({record.outcome})"
    if old.environment_class != new.environment_class:
        return f"environment class {old.environment_class} against {new.environment_class}"
    if old.digests_of("data") != new.digests_of("data"):
        return "other samples or labels"
    return ""


def _metrics(old: CellRecord | None, new: CellRecord | None) -> tuple[MetricChange, ...]:
    before, after = _valued(old), _valued(new)
    return tuple(
        MetricChange(
            metric=name,
            old=before[name].hits if name in before else None,
            new=after[name].hits if name in after else None,
            out_of=metric.out_of,
            unit=metric.unit,
            lower_is_better=metric.lower_is_better,
            is_distance=metric.is_distance,
        )
        for name, metric in {**before, **after}.items()
    )


def _valued(record: CellRecord | None) -> dict[str, MetricRecord]:
    """The metrics that have a value; a distance in dB may be below zero."""
    return {} if record is None else {name: one for name, one in record.metrics.items() if one.out_of > 0}
