"""What a report says, as values without a shape: no HTML, no Markdown, no colours.

change = value − reference          in the metric's own sense: an accuracy falls with −, an error rate rises with +
worse  = change turned so that positive is always worse
used   = worse / |reference − limit|     share of the margin used up; above 1 the gate is broken
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from qbench.judging import LossParts
from qbench.tracking import Regression

ABSENT = "absent"
"""The outcome of a cell that the newest run did not run, though an earlier one did."""


@dataclass(frozen=True, slots=True, order=True)
class CellKey:
    """Where a cell stands: model, backend, schema and variant, as the run file spells them."""

    model: str
    backend: str
    schema: str
    variant: str = ""

    @property
    def column(self) -> str:
        """``schema[+variant]``: its column in the matrix of its backend."""
        return f"{self.schema}+{self.variant}" if self.variant else self.schema

    @property
    def name(self) -> str:
        """``model::backend+schema[+variant]``."""
        return f"{self.model}::{self.backend}+{self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricView:
    """One metric of one cell beside the fp32 reference: whole numbers, and the ``limit`` (a fraction) of its gate."""

    name: str
    n: int
    hits: int
    out_of: int
    reference_hits: int
    losses: int = 0
    gains: int = 0
    unit: str = "%"
    lower_is_better: bool = False
    against_labels: bool = True
    proportion: bool = True
    limit: float | None = None

    @property
    def value(self) -> float:
        """The value hits / out_of, a fraction."""
        return self.hits / self.out_of

    @property
    def reference(self) -> float:
        """The fp32 reference's value, a fraction."""
        return self.reference_hits / self.out_of

    @property
    def change(self) -> float:
        """The difference value − reference, a fraction with its sign."""
        return (self.hits - self.reference_hits) / self.out_of

    @property
    def worse(self) -> float:
        """How much worse than the reference, a fraction; negative is better."""
        return self.change if self.lower_is_better else -self.change

    @property
    def margin(self) -> float | None:
        """|reference − limit|, a fraction; None when no gate set a limit."""
        return None if self.limit is None else abs(self.reference - self.limit)

    @property
    def excess(self) -> float:
        """How far beyond its limit, a fraction; without one, how much worse than the reference."""
        return self.worse - (self.margin or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """What one gate said, in words; ``state`` is holds, broken, shown or incomparable."""

    kind: str
    metric: str
    state: str
    detail: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """One cell of the newest run.

    ``lead`` is the metric to show first: the one a broken gate names, else the first that gates, else the first.
    ``moved`` is its change since the cell's previous run in the same environment class, a fraction. ``red_runs``
    counts how many runs in a row, this one included, the cell has been red (0 when no earlier run has it);
    ``red_since`` names the first of them. ``data`` names the samples by their digests; ``digests`` are all of the line.
    ``parts`` are those of the lead's change: what the schema costs, and what counting adds.
    """

    key: CellKey
    outcome: str
    is_red: bool
    headline: str = ""
    rule: str = ""
    remedy: str = ""
    notices: tuple[str, ...] = ()
    gates: tuple[GateView, ...] = ()
    metrics: tuple[MetricView, ...] = ()
    lead: MetricView | None = None
    environment_class: str = ""
    data: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    integer_macs: float | None = None
    refusals: tuple[str, ...] = ()
    refusal_count: int = 0
    changed: int = 0
    seconds: float | None = None
    moved: float | None = None
    red_runs: int = 0
    red_since: str = ""
    parts: LossParts | None = None

    @property
    def equality(self) -> GateView | None:
        """What its comparison with another backend said, where one was asked for."""
        return next((gate for gate in self.gates if gate.kind == "equality"), None)

    @property
    def is_unequal(self) -> bool:
        """Whether it is red because it is not what another backend is: its metrics do not tell why."""
        broken = next((gate for gate in self.gates if gate.state == "broken"), None)
        return self.is_red and broken is not None and broken.kind == "equality"

    @property
    def excess(self) -> float:
        """How bad it is, for sorting: a red cell without numbers is worse than any with them."""
        return self.lead.excess if self.lead else 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The facts of one run: (name, text) pairs, ready to be listed; how many cells it holds, and how many are red."""

    id: str
    suite: str
    started: str
    commit: str
    processor: str
    facts: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = True
    whole_selection: bool = True
    damaged: int = 0
    path: str = ""
    cells: int = 0
    red: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A new level of a series, first seen in run ``position``; means before and after, fractions.

    ``provisional``: too few runs since to be sure. ``causes``: what else is new since the last run of the level before.
    """

    position: int
    before: float
    after: float
    provisional: bool = False
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The values of one metric of one cell in one environment class: run positions, ascending, and fractions.

    ``band``: the ends of the 95 % interval of each value; empty where the metric is no share of samples.
    ``flips``: losses and gains of each run against fp32.
    """

    environment_class: str
    positions: tuple[int, ...]
    values: tuple[float, ...]
    steps: tuple[Step, ...] = ()
    band: tuple[tuple[float, float], ...] = ()
    flips: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """From run ``position`` on, another environment class or other samples: ``label`` says what is new."""

    position: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The reference and the limit (None: no gate) as they were in runs ``first`` … ``last``, fractions."""

    first: int
    last: int
    reference: float
    limit: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The history of one metric of one cell: one series a class, with the reference and limit of each time.

    ``accepted``: what people approved for the newest class, a fraction; None where that is not known.
    """

    key: CellKey
    metric: MetricView
    series: tuple[Series, ...]
    switches: tuple[Switch, ...] = ()
    marks: tuple[Mark, ...] = ()
    accepted: float | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step of every series, oldest first."""
        return tuple(sorted((s for line in self.series for s in line.steps), key=lambda s: s.position))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGroup:
    """Every step that was first seen in one run: most likely one cause."""

    position: int
    run: RunView
    steps: tuple[tuple[CellKey, MetricView, Step], ...]


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
