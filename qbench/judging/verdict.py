"""The judgement of one cell: an outcome, the rule that decided, and the gates with their
numbers.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from qbench.judging.format import apart, valued
from qbench.judging.kinds import GateKind
from qbench.judging.measurement import Measurement
from qbench.judging.noise import Noise
from qbench.judging.statistics import (
    DecisionRule,
    Evidence,
    LossEvidence,
    amount_text,
    sample_text,
    too_few_text,
)
from qbench.metrics import Against, Direction, Score


class Outcome(enum.Enum):
    """How a cell ended. Only the second group turns a run red."""

    PASSED = "passed"
    INCONCLUSIVE = (
        "inconclusive"  # not by the counts: proven neither within its margin nor beyond it
    )
    QUARANTINED = "quarantined"  # failed, as its quarantine entry expects
    UNSUPPORTED = "unsupported"  # skipped with a reason; never counted as passed
    ACCEPTED = "accepted"  # the options of the run accept what it measured

    # loss beyond tolerance, agreement below its floor, or different from another backend
    FAILED = "failed"
    DRIFTED = "drifted"  # within tolerance, but not the accepted result of this environment class
    MISSING = "missing"  # no baseline for this model or cell
    STALE = "stale"  # the baseline is of another model, data or preprocessing
    EXPIRED = "expired"  # the quarantine entry has run out, or the cell no longer fails
    ERROR = "error"  # it could not be measured
    INFRA = "infra"  # the process that ran it died: killed, out of memory, or crashed by its engine

    @property
    def is_red(self) -> bool:
        """Whether this outcome fails a run."""
        return self not in _GREEN


_GREEN = (
    Outcome.PASSED,
    Outcome.INCONCLUSIVE,
    Outcome.QUARANTINED,
    Outcome.UNSUPPORTED,
    Outcome.ACCEPTED,
)


class GateState(enum.Enum):
    """The result of one gate."""

    HOLDS = "holds"
    BROKEN = "broken"
    SHOWN = "shown"  # no rule is set: displayed, does not gate
    INCOMPARABLE = "incomparable"  # nothing accepted for this environment class
    INCONCLUSIVE = "inconclusive"  # a rule is set, and too few samples or noise do not decide it


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One check of a measurement.

    ``detail`` is one line with the numbers; ``rule`` names the setting that decided and where it
    was set; ``limit`` is the value of the metric (a fraction) beyond which the gate is broken,
    exactly the margin away from fp32, or None. ``value``: the time or size that was measured; it
    and its ``limit`` are in the unit that ``gates.COSTS`` has. ``shown`` is the statistical
    evidence of a loss gate (None: it cannot be computed), and ``decided`` the rule that decided
    (``ci`` also where the default rule found a proven loss under a margin of less than one sample).
    ``noise``: how far runs of the cell differ, where that is known and not nothing; no record has
    it, only its numbers.
    """

    kind: GateKind
    metric: str
    state: GateState
    detail: str
    rule: str
    limit: float | None = None
    value: float | None = None
    shown: LossEvidence | None = None
    decided: DecisionRule | None = None
    noise: Noise | None = field(default=None, compare=False)

    @property
    def is_noise(self) -> bool:
        """Whether noise is the reason why it is not decided."""
        return (
            self.state is GateState.INCONCLUSIVE and self.noise is not None and self.noise.exceeds
        )

    @property
    def sentence(self) -> str:
        """``detail``; of a loss without its statistics, but with what the sample proves in
        words.
        """
        if self.kind not in (GateKind.LOSS, GateKind.RETRAINED):
            return self.detail
        return self.detail.partition("; losses")[0] + _proven(self)


def _proven(gate: Gate) -> str:
    """What the sample proves about a loss, where that is not the expected: empty of a loss
    within its margin.
    """
    if gate.shown is None or gate.state in (GateState.HOLDS, GateState.SHOWN):
        return ""
    if gate.shown.evidence is Evidence.FAIL:
        return "; the samples prove it"
    if gate.is_noise:
        return "; runs of the same code differ by more than the margin"
    if gate.state is GateState.INCONCLUSIVE:
        return "; too few samples to decide"
    if gate.decided is DecisionRule.STRICT:
        return "; not proven to lose less than the margin"
    return "; with so few samples it may be chance"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRange:
    """A value of the float graph whose calibrated (low, high) moved from ``before`` to ``after``.

    ``apart``: their distance as a share of the range that covers both; see ``moved_ranges``.
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
class KnownValue:
    """What was known of one metric when its cell was judged.

    ``accepted``: the hits accepted in its environment class, on the same samples; None: nothing
    was. ``noise``: the standard deviations (fractions) by noise alone of what is judged, and of one
    run; zeros where the engine does not repeat its answers, but the size is not known; None: no
    noise is known.
    """

    accepted: int | None = None
    noise: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``headline`` is one line for a table; ``remedy`` is the next action, empty when green.

    ``moved``: the values whose calibrated range differs from the accepted one, in the order of the
    graph. ``tolerance``: of a score, relative to that of fp32; None where the cell is not judged
    against a stored fp32. ``known``: metric → what was known of it before. ``ungated``: whether no
    gate judges the answers of a measured cell, so that any answers would end like these.
    """

    outcome: Outcome
    headline: str
    rule: str
    gates: tuple[Gate, ...] = ()
    notices: tuple[str, ...] = ()
    remedy: str = ""
    moved: tuple[MovedRange, ...] = ()
    tolerance: float | None = None
    known: Mapping[str, KnownValue] = field(default_factory=dict)
    ungated: bool = False


UNGATED = (
    "no gate judges its answers: it has no limit, no floor, no sufficient samples and no accepted "
    "result here"
)
"""The notice of a cell that is ``ungated``."""

# The lines of a verdict about numbers.

WIDTH = 100
"""Characters that a terminal has next to the mark of a cell: a headline lists only what fits in
them.
"""
LONGEST = 300
"""Characters of a headline; a terminal or pytest's short summary may cut it further."""


def drop_text(score: Score, noise: Noise | None = None) -> str:
    """How far ``score`` moved: ``drop 0.45 pp`` or ``gain 0.03 pp``, of an error rate ``rise``
    or ``fall``.
    """
    worse, better = ("drop", "gain") if score.direction is Direction.HIGHER else ("rise", "fall")
    drop = score.drop / score.out_of if noise is None else float(noise.drop(score))
    return f"{worse if drop >= 0 else better} {apart(score, abs(drop))}"


def listed(names: Mapping[str, tuple[str, ...]], most: int = 5) -> str:
    """The first ``most`` sample ids of all data sets, for one line."""
    every = [sample for data in sorted(names) for sample in names[data]]
    return ", ".join(every[:most]) + (", …" if len(every) > most else "")


def one_line(text: str) -> str:
    """``text`` on one line, cut to ``LONGEST`` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST else flat[: LONGEST - 1].rstrip() + "…"


def move(score: Score, noise: Noise | None = None) -> str:
    """One score in short: ``top1 90.00 → 88.25 %``; a metric against the reference has no value
    before.
    """
    value = score.value if noise is None else float(noise.value(score))
    mean = f" (mean of {noise.runs} runs)" if noise is not None and noise.averaged else ""
    if score.against is Against.REFERENCE:
        return f"{score.metric} {valued(score, value)}{mean}"
    if score.unit != "%":
        return f"{score.metric} {score.reference_value:.5g} → {valued(score, value)}{mean}"
    return f"{score.metric} {100 * score.reference_value:.2f} → {100 * value:.2f} %{mean}"


def numbers(measurement: Measurement, gates: Iterable[Gate] = ()) -> str:
    """The line of a cell that passes: the scores that fit, its planned share in integers, and
    the backend it equals.

    The scores are what the ``gates`` judged: of several runs the mean.
    """
    noises = {gate.metric: gate.noise for gate in gates if gate.noise is not None}
    parts = [move(score, noises.get(score.metric)) for score in measurement.scores]
    facts = []
    if not measurement.cell.is_fp32:
        verb = "came" if measurement.cell.is_by_others else "planned"
        share = f"{100 * measurement.planned_share:.0f} % of MACs"
        facts.append(f"{share} {verb} {measurement.planned_words}")
        if measurement.simulated:
            facts.append(f"simulated {', '.join(measurement.simulated)}")
        if measurement.executed_words:
            facts.append(measurement.executed_words)
    compared = measurement.compared
    if compared is not None:
        relation = "close to" if compared.differing else "equals"
        facts.append(f"{relation} {compared.backend}")
    while len(parts) > 1 and len(", ".join([*parts, *facts])) > WIDTH:
        parts.pop()
    return ", ".join([*parts, *facts])


def breach(measurement: Measurement, gate: Gate, limit: str = "") -> str:
    """The line of a cell whose ``gate`` of a score is broken.

    ``limit``: in words; empty: its value.
    """
    score = measurement.score(gate.metric)
    assert gate.limit is not None
    if gate.kind in (GateKind.FLOOR, GateKind.LIMIT):
        side = "over" if score.direction is Direction.LOWER else "under"
        ends = f"its {gate.kind.value} of {limit or valued(score, gate.limit)}"
        return f"{move(score, gate.noise)} is {side} {ends}: {gate.rule}"
    return f"{_with_margin(score, gate)}: {gate.rule}"


def retrained(score: Score, gate: Gate) -> str:
    """What the float model lost or gained: ``fp32 top1 98.00 → 97.50 %, drop 0.50 pp within its
    margin of 0.98 pp``.
    """
    if score.against is Against.REFERENCE:
        return f"fp32 has {valued(score, score.value)} {score.metric} with the stored one"
    text = f"fp32 {move(score)}, {drop_text(score)}"
    if score.drop <= 0:
        return text
    if gate.limit is None:
        return f"{text}, too few samples to decide"
    margin = f"its margin of {apart(score, abs(score.reference_value - gate.limit))}"
    by_evidence = gate.shown is not None and gate.decided is not DecisionRule.POINT
    within = {
        GateState.HOLDS: "within",
        GateState.BROKEN: "not proven within" if by_evidence else "beyond",
    }
    return f"{text} {within.get(gate.state, 'not decided against')} {margin}"


def undecided(measurement: Measurement, gate: Gate) -> str:
    """The line of a cell with too few samples to decide the loss of ``gate``."""
    return _with_margin(measurement.score(gate.metric), gate)


def wanting(measurement: Measurement, gate: Gate) -> str:
    """How many samples would decide an INCONCLUSIVE loss ``gate``, and how, if they lose and
    gain as these do.
    """
    score = measurement.score(gate.metric)
    if gate.is_noise and gate.noise is not None:
        return _noise_wanting(score, gate.noise)
    assert gate.shown is not None
    assert gate.limit is not None
    found = f"{score.metric}: {sample_text(score)} do not decide"
    if nothing := too_few_text(score):
        units = "samples" if score.clusters is None else "sources"
        return f"{score.metric}: {nothing}; more {units} are needed"
    if gate.shown.deciding is None:
        return f"{found}; the loss equals the margin, so more samples like these decide nothing"
    lost = abs(score.reference_value - gate.limit) < score.drop / score.out_of
    return (
        f"{found}; with {amount_text(score, gate.shown.deciding)} like these it would "
        f"{'FAIL' if lost else 'PASS'}"
    )


def _noise_wanting(score: Score, noise: Noise) -> str:
    """How many runs would bring the noise of an undecided gate under its margin."""
    found = f"{score.metric}: {noise.text(score)}, the margin is {apart(score, noise.margin)}"
    if noise.runs_needed is None:
        return f"{found}; no number of runs decides a margin of 0"
    return (
        f"{found}; the mean of {noise.runs_needed} runs would tell them apart (repeats = "
        f"{noise.runs_needed})"
    )


def _with_margin(score: Score, gate: Gate) -> str:
    """How far ``score`` moved, its margin, and the statistical evidence where that decides."""
    assert gate.limit is not None
    margin = abs(score.reference_value - gate.limit)
    word = ""
    if gate.shown is not None and gate.decided is not DecisionRule.POINT:
        is_unproven = (
            gate.shown.evidence is Evidence.INCONCLUSIVE and gate.state is GateState.BROKEN
        )
        word = "not proven, " if is_unproven else f"{gate.shown.evidence.value.upper()}, "
    text = (
        f"{move(score, gate.noise)}: {word}{drop_text(score, gate.noise)}, margin "
        f"{apart(score, margin)}"
    )
    return text if gate.noise is None else f"{text}, noise ±{apart(score, gate.noise.spread)}"
