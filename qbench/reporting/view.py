"""One run and its cells, as a report shows them: values without a shape, no HTML, no Markdown, no colours.

change = value − reference          in the metric's own sense: an accuracy falls with −, an error rate rises with +
worse  = change turned so that positive is always worse
used   = worse / |reference − limit|     share of the margin used up; above 1 the gate is broken
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from qbench.judging import LossParts

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
    ``parts`` are those of the lead's change: what the schema costs, and what counting adds. ``found``: where it went
    wrong, and why, in a line.
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
    found: str = ""
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
    """The facts of one run: (name, text) pairs, ready to be listed; how many cells it holds, and how many are red.

    Of ``planned`` cells it ``selected`` so many (0: unknown), each over ``limited`` samples of a data set (0: all).
    """

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
    planned: int = 0
    selected: int = 0
    limited: int = 0
    damaged: int = 0
    path: str = ""
    cells: int = 0
    red: int = 0
