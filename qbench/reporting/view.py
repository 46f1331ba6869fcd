"""One run and its cells, as a report shows them: values for templates, without HTML, Markdown
or colours.
"""

import functools
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, structs

from qbench.judging import BOUNDING, COSTS, Cell, GateKind, LossParts, Outcome
from qbench.tracking import CellRecord, GateRecord, MetricRecord, Run

# change = value − reference          in the metric's own sense: a lower accuracy is negative
# worse  = change turned so that positive is always worse
# used   = worse / |reference − limit|     share of the margin used up; above 1 the gate is broken

_Record = typing.TypeVar("_Record", bound=Struct)

ABSENT = "absent"
"""The outcome of a cell that the newest run did not run, though an earlier one did."""


class MetricView(MetricRecord, frozen=True, kw_only=True, gc=False):
    """One metric of one cell and of its fp32 reference, with its name and the ``limit`` (a
    fraction) of its gate.
    """

    name: str
    limit: float | None = None

    @property
    def margin(self) -> float | None:
        """|reference − limit|, a fraction; None when no gate set a limit."""
        return None if self.limit is None else abs(self.reference_value - self.limit)

    @property
    def excess(self) -> float:
        """How far beyond its limit, a fraction; without one, how much worse than the reference."""
        return self.worse - (self.margin or 0.0)


UNJUDGED = "unjudged"
"""The outcome that reports show for a cell that passes because no gate judges its answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """One cell of the newest run: its record, and what the runs before it and the report add.

    ``record`` is what the run file has, each text on one line. ``lead`` is the metric to show
    first: the one that a broken gate names, else the first that gates, else the first. ``moved`` is
    its change since the previous run of the cell in the same environment class, a fraction.
    ``red_runs`` is how many runs in a row, this one included, the cell has been red (0: no earlier
    run has it); ``red_since`` names the first of them. ``parts`` split the change of the lead
    metric into the cost of the schema and that of counting. ``found`` is the finding on the cell in
    one line.
    """

    key: Cell
    record: CellRecord
    metrics: tuple[MetricView, ...] = ()
    lead: MetricView | None = None
    moved: float | None = None
    red_runs: int = 0
    red_since: str = ""
    found: str = ""
    parts: LossParts | None = None

    @property
    def is_red(self) -> bool:
        """Whether it fails the run; an outcome that this version does not know is red, so that
        it is seen.
        """
        return self.record.outcome != ABSENT and self.record.is_red

    @property
    def shown_outcome(self) -> str:
        """Its outcome, or ``UNJUDGED`` where it passes because no gate judges its answers."""
        is_vacuous = self.record.ungated and self.record.outcome in ("passed", "accepted")
        return UNJUDGED if is_vacuous else self.record.outcome

    @property
    def outcome_words(self) -> str:
        """``passed``, or ``passed (carried)`` where an earlier run measured it."""
        return f"{self.shown_outcome} (carried)" if self.record.is_carried else self.shown_outcome

    @property
    def seconds(self) -> float | None:
        """How long it took; None: not recorded, or not in this run."""
        if self.record.is_carried or not self.record.seconds:
            return None
        return sum(self.record.seconds.values())

    @property
    def equality(self) -> GateRecord | None:
        """The gate of its comparison with another backend; None: the suite asks for none."""
        return next((gate for gate in self.record.gates if gate.kind == GateKind.EQUALITY), None)

    @property
    def is_below_tolerance(self) -> bool:
        """Whether it passes by its floor alone: it agrees with fp32 less than its tolerance
        would allow a score.

        The floor is what was accepted, or the minimum of the suite. A cell that is judged without a
        stored fp32 has no tolerance.
        """
        if self.lead is None or self.record.outcome not in ("passed", "accepted"):
            return False
        gate = next((one for one in self.record.gates if one.metric == self.lead.name), None)
        tolerance = self.record.tolerance
        if gate is None or gate.kind != GateKind.FLOOR or tolerance is None:
            return False
        return self.lead.worse > tolerance * self.lead.reference_value + 1e-9

    @property
    def is_retrained(self) -> bool:
        """Whether its headline tells what the fp32 model lost: its own numbers are counted
        against the new model.
        """
        return self.record.outcome == Outcome.STALE.value and any(
            gate.kind == GateKind.RETRAINED for gate in self.record.gates
        )

    @property
    def told_by_gate(self) -> GateRecord | None:
        """The gate whose sentence says why it is red, where its metrics do not: time, size,
        values of its listing.
        """
        if not self.is_red:
            return None
        broken = [gate for gate in self.record.gates if gate.state == "broken"]
        listed = [gate for gate in broken if gate.kind == GateKind.KNOWN_BAD]
        first = (listed or broken)[:1]
        return next((gate for gate in first if gate.kind in (*COSTS, GateKind.KNOWN_BAD)), None)

    @property
    def undecided_gate(self) -> GateRecord | None:
        """The gate for which it is inconclusive; None: it is not, or the line does not name one."""
        if self.record.outcome != Outcome.INCONCLUSIVE.value:
            return None
        known = (gate for gate in self.record.gates if gate.kind in {*GateKind})
        return next((gate for gate in known if gate.state == "inconclusive"), None)

    @property
    def wanting(self) -> str:
        """How many samples would decide it where it is inconclusive, or what noise is too wide;
        empty where no notice says so.
        """
        if self.record.outcome != Outcome.INCONCLUSIVE.value:
            return ""
        gate = self.undecided_gate
        if gate is not None and gate.kind in COSTS:
            return next(
                (text for text in self.record.notices if text and gate.detail.startswith(text)), ""
            )
        start = f"{self.lead.name}: " if self.lead else "?"
        return next((text for text in self.record.notices if text.startswith(start)), "")

    @property
    def is_unequal(self) -> bool:
        """Whether it is red because it differs from another backend: its metrics do not show
        why.
        """
        broken = next((gate for gate in self.record.gates if gate.state == "broken"), None)
        return self.is_red and broken is not None and broken.kind == GateKind.EQUALITY

    @property
    def excess(self) -> float:
        """How bad it is, for sorting: a red cell without numbers is worse than any with them."""
        return self.lead.excess if self.lead else 2.0


Cells = Mapping[Cell, CellView]
"""The cells of one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The facts of one run: (name, text) pairs, ready to be listed; how many cells it holds, and
    how many are red.

    ``release_of``: the package of whose release it is a measurement; ``commit`` and ``sha`` are
        then the version.
    ``selected``: how many of the ``planned`` cells it was to measure (0: unknown). ``limited``: the
    samples of a data set over which each was measured (0: all).
    ``absent``: selected cells without a line. ``backends``: in the order of the suite; of a run
    without it, in the order in which they were measured.
    """

    id: str
    suite: str
    started: str
    commit: str
    processor: str
    sha: str = ""
    release_of: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = True
    whole_selection: bool = True
    planned: int = 0
    selected: int = 0
    limited: int = 0
    damaged: int = 0
    absent: int = 0
    path: str = ""
    cells: int = 0
    red: int = 0
    backends: tuple[str, ...] = ()


# Lines of a run file → view values. A value that is missing or of the wrong type becomes empty,
# never an error: a run file outlives the code that wrote it.

GREEN = frozenset((*(outcome.value for outcome in Outcome if not outcome.is_red), ABSENT))


def text_of(value: object, default: str = "") -> str:
    """``value`` as one line of text: strings and numbers as they are, anything else ``default``."""
    if type(value) is str:
        return value if _is_line(value) else " ".join(value.split())
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return default
    return " ".join(str(value).split())


@functools.lru_cache(maxsize=1 << 16)  # the cells of a report share nearly all of their texts
def _is_line(text: str) -> bool:
    return " ".join(text.split()) == text


def _shown_gate(gate: GateRecord) -> GateRecord:
    """``gate`` with each of its texts on one line: itself where they are, as nearly all are."""
    words = (gate.kind, gate.metric, gate.state, gate.detail, gate.rule)
    if all(map(_is_line, words)):
        return gate
    names = ("kind", "metric", "state", "detail", "rule")
    return structs.replace(gate, **dict(zip(names, map(text_of, words), strict=True)))


def whole_of(value: object) -> int | None:
    """``value`` as a whole number, or None."""
    number = real_of(value)
    # not the float: it may have lost digits
    return None if number is None else int(typing.cast(float, value))


def real_of(value: object) -> float | None:
    """``value`` as a finite float, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        return None
    return number if math.isfinite(number) else None


def table_of(value: object) -> Mapping[str, Any]:
    """``value`` when it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def read_metrics(record: CellRecord) -> tuple[MetricView, ...]:
    """The metrics of a record that have a value, in its order, with the limits that its gates
    name.
    """
    limits = {
        text_of(gate.metric): real_of(gate.limit)
        for gate in record.gates
        if gate.kind in BOUNDING and real_of(gate.limit) is not None
    }
    return tuple(
        MetricView(name=text_of(name), limit=limits.get(text_of(name)), **structs.asdict(metric))
        for name, metric in record.metrics.items()
        if metric.out_of > 0
    )


def lead_metric(
    metrics: tuple[MetricView, ...], gates: tuple[GateRecord, ...]
) -> MetricView | None:
    """The metric to show first: that of a broken gate, else of an undecided one, of the first
    that holds, the first.
    """
    named = {metric.name: metric for metric in metrics}
    for state in ("broken", "inconclusive", "holds"):
        for gate in gates:
            if gate.state == state and gate.kind in BOUNDING and gate.metric in named:
                return named[gate.metric]
    return metrics[0] if metrics else None


def shown_cell(record: CellRecord) -> Cell:
    """The cell of ``record``, also where its axes are not names: each of them on one line."""
    try:
        return record.cell
    except ValueError:
        axes = (record.suite, record.model, record.backend, record.schema)
        suite, model, backend, schema = (text_of(axis) or "?" for axis in axes)
        return Cell.as_written(suite, model, backend, schema, text_of(record.variant))


def read_cell(record: CellRecord) -> CellView:
    """The view of one record: each of its texts on one line."""
    key = shown_cell(record)
    read = {
        "outcome": text_of(record.outcome) or "unknown",
        "headline": text_of(record.headline),
        "rule": text_of(record.rule),
        "remedy": text_of(record.remedy),
        "environment_class": text_of(record.environment_class),
        "notices": tuple(filter(None, map(text_of, record.notices))),
        "refusals": tuple(filter(None, map(text_of, record.refusals))),
        "digests": {text_of(name): text_of(digest) for name, digest in record.digests.items()},
        "gates": tuple(map(_shown_gate, record.gates)),
    }
    record = _changed_fields(record, read)
    metrics = read_metrics(record)
    return CellView(
        key=key, record=record, metrics=metrics, lead=lead_metric(metrics, record.gates)
    )


def _changed_fields(record: _Record, fields: Mapping[str, Any]) -> _Record:
    """``record`` with these ``fields``: itself where all are equal, so that nothing is in
    memory twice.
    """
    changed = {name: value for name, value in fields.items() if getattr(record, name) != value}
    return structs.replace(record, **changed) if changed else record


def shown_suite(run: Run) -> str:
    """The suite of ``run`` on one line, also where its header has none."""
    return text_of(table_of(run.header).get("suite"), "?")


def read_run(run: Run) -> RunView:
    """The facts of ``run``, for people."""
    header, environment = table_of(run.header), table_of(run.environment)
    versions = tuple(
        (text_of(k), text_of(v)) for k, v in table_of(environment.get("versions")).items()
    )
    return RunView(
        id=text_of(header.get("id"), "?"),
        suite=shown_suite(run),
        started=readable_time(text_of(header.get("started"))),
        commit=commit_text(header.get("commit")),
        processor=text_of(environment.get("processor")),
        sha=text_of(table_of(header.get("commit")).get("sha") or header.get("commit")),
        release_of=text_of(run.releases),
        facts=tuple(_facts(environment)),
        versions=versions,
        notes=tuple(filter(None, map(text_of, run.notes))),
        complete=run.complete,
        whole_selection=header.get("complete_selection") is not False,
        planned=whole_of(header.get("planned")) or 0,
        selected=whole_of(header.get("selected")) or 0,
        limited=whole_of(header.get("limited")) or 0,
        damaged=run.damaged,
        path=run.path,
        backends=_backends_of(run),
    )


def _backends_of(run: Run) -> tuple[str, ...]:
    named = run.header.get("backends")
    known = filter(None, map(text_of, named)) if isinstance(named, list | tuple) else ()
    measured = dict.fromkeys(one.backend for one in run.cells)
    return tuple(dict.fromkeys((*known, *(text_of(name) or "?" for name in measured))))


def commit_text(commit: object) -> str:
    """``1a2b3c4`` or ``1a2b3c4 (with uncommitted changes)``; empty when the run was made
    outside a repository.
    """
    if isinstance(commit, str):
        return text_of(commit)[:9]
    table = table_of(commit)
    short = text_of(table.get("short")) or text_of(table.get("sha"))[:9]
    return short + (" (with uncommitted changes)" if short and table.get("dirty") else "")


def readable_time(started: str) -> str:
    """``2026-01-31T04:05:06Z`` → ``2026-01-31 04:05 UTC``; any other spelling stays as it is."""
    day, mark, clock = started.partition("T")
    if mark and clock.endswith(("Z", "+00:00")) and len(clock) >= 5:
        return f"{day} {clock[:5]} UTC"
    return started


def _facts(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every plain entry of the ``environment`` line but its versions; lists as words."""
    found = []
    for name, value in environment.items():
        if name in ("type", "versions"):
            continue
        text = " ".join(map(text_of, value)) if isinstance(value, list | tuple) else text_of(value)
        if text:
            found.append((text_of(name).replace("_", " "), text))
    return found
