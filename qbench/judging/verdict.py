"""The judgement of one cell: an outcome, the rule that decided, the gates with their numbers, and what to do next."""

import enum
from dataclasses import dataclass

from qbench.judging.decision import Deciding
from qbench.judging.shown import Shown


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
    shown: Shown | None = None
    decided: Deciding | None = None


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
