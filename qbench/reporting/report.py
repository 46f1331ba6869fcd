"""All that is to be said about one suite, as a value without a shape; pages, tables and pictures are drawn from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from qbench.reporting.found import Found
from qbench.reporting.timeline import StepGroup, Trend
from qbench.reporting.view import ABSENT, CellKey, CellView, RunView
from qbench.tracking import Regression


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Red cells that are red for the same kind of reason, worst first, and what to do next (most frequent first)."""

    name: str
    title: str
    cells: tuple[CellView, ...]
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One backend: models down, schemas (with variants) across; None where the suite has no such cell."""

    backend: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[CellView | None, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that is to be said about one suite: its newest run, and the runs before it.

    ``runs`` are oldest → newest and positions in series count them. ``unsupported`` groups cells by reason.
    ``regressions`` got worse and stayed, or slid away from what was accepted; with them what people said of it.
    ``findings`` are of those cells that were localised: which node went wrong, why, and what repairs the cell.
    """

    suite: str
    headline: str
    is_red: bool
    run: RunView | None = None
    runs: tuple[RunView, ...] = ()
    tallies: tuple[tuple[str, int], ...] = ()
    cells: tuple[CellView, ...] = ()
    causes: tuple[Cause, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    trends: Mapping[CellKey, tuple[Trend, ...]] = field(default_factory=dict)
    step_groups: tuple[StepGroup, ...] = ()
    notices: tuple[str, ...] = ()
    quarantined: tuple[CellView, ...] = ()
    unsupported: tuple[tuple[str, tuple[CellKey, ...]], ...] = ()
    regressions: tuple[Regression, ...] = ()
    findings: Mapping[CellKey, Found] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """How the run stands in one word: red, incomplete, empty (nothing was measured) or green."""
        if self.is_red:
            return "red"
        if self.run is not None and not self.run.complete:
            return "incomplete"
        return "green" if any(cell.outcome not in (ABSENT, "unsupported") for cell in self.cells) else "empty"

    @property
    def models(self) -> tuple[str, ...]:
        """Every model, sorted."""
        return tuple(sorted({cell.key.model for cell in self.cells}))
