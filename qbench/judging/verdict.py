"""The judgement of one cell: an outcome, the rule that decided, and the gates with their numbers."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from qbench.judging.format import apart, valued
from qbench.judging.measurement import Measurement
from qbench.judging.statistics import DecisionRule, LossEvidence
from qbench.metrics import Against, Direction, Score

# The judgement of one cell: an outcome, the rule that decided, the gates with their numbers, and what to do next.


class Outcome(enum.Enum):
    """How a cell ended. Only the second group turns a run red."""

    PASSED = "passed"
    INCONCLUSIVE = "inconclusive"  # by the decision "ci": not shown to lose more than it may, nor less
    QUARANTINED = "quarantined"  # failed, as its quarantine entry expects
    UNSUPPORTED = "unsupported"  # skipped with a reason; never counted as passed
    ACCEPTED = "accepted"  # the run was told to accept what it measured

    FAILED = "failed"  # loss beyond tolerance, agreement below its floor, or not what another backend is
    DRIFTED = "drifted"  # within tolerance, but not the accepted result of this environment class
    MISSING = "missing"  # no baseline for this model or cell
    STALE = "stale"  # the baseline is of another model, data or preprocessing
    EXPIRED = "expired"  # the quarantine entry has run out, or the cell no longer fails
    ERROR = "error"  # it could not be measured

    @property
    def is_red(self) -> bool:
        """Whether this outcome fails a run."""
        return self not in _GREEN


_GREEN = (Outcome.PASSED, Outcome.INCONCLUSIVE, Outcome.QUARANTINED, Outcome.UNSUPPORTED, Outcome.ACCEPTED)


class GateState(enum.Enum):
    """What one gate said."""

    HOLDS = "holds"
    BROKEN = "broken"
    SHOWN = "shown"  # its sample cannot tell, or no rule is set: displayed, does not gate
    INCOMPARABLE = "incomparable"  # nothing accepted for this environment class
    INCONCLUSIVE = "inconclusive"  # by the decision "ci": the sample cannot tell


FAILING = ("loss", "floor", "limit", "equality")
"""The gates that fail a cell, whatever was accepted for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One question asked of a measurement.

    ``loss`` of a metric, agreement ``floor``, ``limit`` of a distance to fp32, ``equality`` with another backend,
    ``calibration``, ``drift``, ``integer`` share.

    ``detail`` is one line with the numbers; ``rule`` says which setting decided and where it was set; ``limit`` is
    the value of the metric (a fraction) beyond which it is broken, the exact margin away from fp32; None when the gate
    has none. A loss gate has what the sample shows, whatever decided (None: nothing to show it by), and how it was
    decided (``ci`` too where the default rule found a loss proven under a margin of less than one sample).
    """

    kind: str
    metric: str
    state: GateState
    detail: str
    rule: str
    limit: float | None = None
    shown: LossEvidence | None = None
    decided: DecisionRule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRange:
    """A value of the float graph whose calibrated (low, high) is ``after``, and was accepted as ``before``.

    ``apart``: by which share of what a grid of both spans; see ``calibrated``.
    """

    value: str
    before: tuple[float, float]
    after: tuple[float, float]
    apart: float

    @property
    def text(self) -> str:
        """``−2 … 6 → −2 … 1.5``."""
        ends = (f"{low:.4g} … {high:.4g}" for low, high in (self.before, self.after))
        return " → ".join(ends).replace("-", "−")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``headline`` is one line for a table; ``remedy`` the command or act that comes next, empty when green.

    ``moved``: the values that were calibrated otherwise than accepted, in the order of the graph.
    """

    outcome: Outcome
    headline: str
    rule: str
    gates: tuple[Gate, ...] = ()
    notices: tuple[str, ...] = ()
    remedy: str = ""
    moved: tuple[MovedRange, ...] = ()


# What a verdict says of numbers, one line each.

WIDTH = 100
"""Characters of a line of a terminal beside a cell's mark: what is counted up in a headline ends there."""
LONGEST = 300
"""Characters of a headline: who has less room (a terminal, pytest's short summary) cuts for itself."""


def drop_text(score: Score) -> str:
    """How far ``score`` moved: ``drop 0.45 pp`` or ``gain 0.03 pp``, of an error rate ``rise`` or ``fall``."""
    worse, better = ("drop", "gain") if score.direction is Direction.HIGHER else ("rise", "fall")
    return f"{worse if score.drop >= 0 else better} {apart(score, abs(score.drop) / score.out_of)}"


def listed(names: Mapping[str, tuple[str, ...]], most: int = 5) -> str:
    """The first ``most`` sample ids of all data sets, for one line."""
    every = [sample for data in sorted(names) for sample in names[data]]
    return ", ".join(every[:most]) + (", …" if len(every) > most else "")


def one_line(text: str) -> str:
    """``text`` on one line, cut where it is no headline any more."""
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST else flat[: LONGEST - 1].rstrip() + "…"


def move(score: Score) -> str:
    """One score in short: ``top1 90.00 → 88.25 %``; a metric against the reference has no value before."""
    if score.against is Against.REFERENCE:
        return f"{score.metric} {valued(score, score.value)}"
    if score.unit != "%":
        return f"{score.metric} {score.reference_value:.5g} → {valued(score, score.value)}"
    return f"{score.metric} {100 * score.reference_value:.2f} → {100 * score.value:.2f} %"


def numbers(measurement: Measurement) -> str:
    """The line of a cell that holds: its scores, as many as fit, its planned share in integers, and whom it equals."""
    parts = [move(score) for score in measurement.scores]
    compared = measurement.compared
    beside = "" if compared is None else f"{'close to' if compared.differing else 'equals'} {compared.backend}"
    share = f"{100 * measurement.planned_share:.0f} % of MACs {measurement.planned_words}"
    facts = [text for text in ("" if measurement.cell.is_fp32 else share, beside) if text]
    while len(parts) > 1 and len(", ".join([*parts, *facts])) > WIDTH:
        parts.pop()
    return ", ".join([*parts, *facts])


def breach(measurement: Measurement, gate: Gate) -> str:
    """The line of a cell whose ``gate`` of a score is broken."""
    score = measurement.score(gate.metric)
    assert gate.limit is not None
    if gate.kind in ("floor", "limit"):
        side = "over" if score.direction is Direction.LOWER else "under"
        ends = f"its {gate.kind} of {valued(score, gate.limit)}"
        return f"{gate.metric} {valued(score, score.value)} is {side} {ends}: {gate.rule}"
    return f"{_beside_margin(score, gate)}: {gate.rule}"


def undecided(measurement: Measurement, gate: Gate) -> str:
    """The line of a cell whose sample cannot tell whether the loss ``gate`` holds."""
    return f"{_beside_margin(measurement.score(gate.metric), gate)}"


def wanting(measurement: Measurement, gate: Gate) -> str:
    """What a larger sample would do about an INCONCLUSIVE loss ``gate``: which way it would go, did nothing change."""
    score = measurement.score(gate.metric)
    assert gate.shown is not None
    assert gate.limit is not None
    found = f"{score.metric}: {score.n} samples find a drop of {apart(score, gate.shown.detectable)}"
    if gate.shown.deciding is None:
        return f"{found}; the loss is just the margin: more samples like these decide nothing"
    lost = abs(score.reference_value - gate.limit) < score.drop / score.out_of
    return f"{found}, {gate.shown.deciding} like these would {'FAIL' if lost else 'PASS'}"


def _beside_margin(score: Score, gate: Gate) -> str:
    """How far ``score`` moved beside its margin, and what that shows where it is what decides."""
    assert gate.limit is not None
    margin = abs(score.reference_value - gate.limit)
    by_evidence = gate.shown is not None and gate.decided is not DecisionRule.POINT
    word = f"{gate.shown.evidence.value.upper()}, " if by_evidence and gate.shown is not None else ""
    return f"{move(score)}: {word}{drop_text(score)}, margin {apart(score, margin)}"
