"""The numbers that cells are judged by, with the places that set them."""

import datetime
import enum
import fnmatch
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from qbench.judging.cell import Cell, EnvironmentClass
from qbench.judging.format import apart
from qbench.judging.statistics import POINT, Decision
from qbench.metrics import Score
from qbench.number_text import counted, short_percent

# How far the answers of a cell may be from the accepted ones of its class; where nothing is set,
# not at all.
#
# flips: samples whose best answer is another one, whatever moved in the ranks below it
# probabilities: |p − p_accepted| ≤ max(absolute, relative × p_accepted), for each of the best
# classes of every sample
#
# Both need the accepted answers themselves, not their digest: they are kept next to the baseline if
# the suite asks so.


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What drift admits; ``flips_rule`` and ``moves_rule`` name the places that set it.

    Args:
        flips: at most that many; None: predictions must be identical, in all ranks.
        absolute, relative: of probabilities, either suffices; both None: they are not compared.
    """

    flips: int | None = None
    absolute: float | None = None
    relative: float | None = None
    flips_rule: str = "default"
    moves_rule: str = "default"

    def __post_init__(self) -> None:
        for name in ("flips", "absolute", "relative"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} = {value} is impossible: a difference is at least 0")

    @property
    def compares_probabilities(self) -> bool:
        """Whether probabilities are compared."""
        return self.absolute is not None or self.relative is not None

    @property
    def keeps_answers(self) -> bool:
        """Whether answers have to be kept with accepted results."""
        return self.flips is not None or self.compares_probabilities

    @property
    def flips_text(self) -> str:
        """``at most 3 flips (suite smoke)``."""
        return f"at most {counted(self.flips or 0, 'flip')} ({self.flips_rule})"

    @property
    def moves_text(self) -> str:
        """``probabilities within 0.001 or 1 % (suite smoke)``."""
        limits = [] if self.absolute is None else [f"{self.absolute:g}"]
        limits += [] if self.relative is None else [f"{100 * self.relative:g} %"]
        return f"probabilities within {' or '.join(limits)} ({self.moves_rule})"


IDENTICAL = Allowance()
"""Nothing may differ."""


DEFAULT_INTEGER_MACS = 0.5
DEFAULT_AGREEMENT = 0.85
DEFAULT_RANGES = 0.01


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest or smallest ``value`` of a distance, in its unit; ``rule`` names the place."""

    value: float
    rule: str = "default"


class Stop(enum.Enum):
    """When a cell ends."""

    ALL = "all"  # when all samples were run
    DECIDED = "decided"  # when its verdict on losses and floors cannot change, or is proven


@dataclass(frozen=True, slots=True)
class Setting:
    """The ``value`` of a key of the suite for one cell; ``rule`` names the place that set it,
    e.g. ``suite smoke``.
    """

    value: Any
    rule: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Shares and limits; ``rule``, ``agreement_rule`` and ``ranges_rule`` name what set them,
    e.g. ``suite smoke``.

    Args:
        integer_macs: planned share of multiply-accumulates in integers (of a schema of weights
            alone: by quantized weights) below which a cell is unsupported.
        agreement: share of samples that must agree with the fp32 reference, whatever was accepted
            for a cell.
        decision: what makes a loss red.
        allowance: how far answers may be from the accepted ones.
        ranges: share of its span by which a calibrated range may differ from the accepted one.
        executed_macs: share of multiply-accumulates that the engine must have run in integers;
            None: only what was accepted for its class gates.
        limits: metric, as the suite writes it → the limit of that distance; others are shown and do
            not gate.
        equivalents: groups of environment classes whose results are comparable
            (``cell.are_equivalent``).
        recovery: the least share of today's fp32 score that a cell must reach, counted by the same
            rule; None: none.
        slices: what samples are told apart by for the gate of the worst part: ``class`` or a column
            of the data; empty: nothing.
        no_worse_than: the backend whose loss on the same samples that of the cell may exceed by
            ``no_worse_margin`` at most; empty: none.
        repeats: how many times a cell runs; ``repeats_rule`` names what set it.
        stop: when it ends.
        more: key of the suite → its value for the cell, of the gates that keep their settings under
            that name.
    """

    integer_macs: float = DEFAULT_INTEGER_MACS
    agreement: float = DEFAULT_AGREEMENT
    rule: str = "default"
    agreement_rule: str = "default"
    ranges: float = DEFAULT_RANGES
    ranges_rule: str = "default"
    executed_macs: float | None = None
    executed_rule: str = "default"
    decision: Decision = POINT
    allowance: Allowance = IDENTICAL
    equivalents: tuple[tuple[str, ...], ...] = ()
    limits: Mapping[str, Limit] = field(default_factory=dict)
    no_worse_than: str = ""
    no_worse_margin: "Tolerance | None" = None
    recovery: float | None = None
    recovery_rule: str = "default"
    slices: str = ""
    slices_rule: str = "default"
    repeats: int = 1
    repeats_rule: str = "default"
    stop: Stop = Stop.ALL
    more: Mapping[str, "Setting"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("integer_macs", "agreement", "ranges", "executed_macs", "recovery"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} = {value} is impossible: it is a share in [0, 1]")


# How much loss a cell may show: one number, layered default < suite < model < cell.
#
#     relative_to   margin of a score          margin of an error rate (0 is best)
#     score         tolerance × fp32 score     tolerance × fp32 rate
#     error         tolerance × (1 − score)    tolerance × fp32 rate
#     nothing       tolerance                  tolerance
#
# One-sided; for an error rate at least the metric's ``least_margin``. The name of the layer is
# kept, so that every verdict can name where its number was set. ``Tolerance.margin`` is the only
# place that computes a margin, in exact fractions: 0.76 − 0.755 ≤ 0.005 cannot go wrong.

DEFAULT_TOLERANCE = 0.005


class RelativeTo(enum.Enum):
    """What a tolerance is a share of."""

    SCORE = "score"
    ERROR = "error"
    NOTHING = "nothing"


def exact(share: float) -> Fraction:
    """The decimal fraction as written, not the nearest binary one: 0.005 is 1/200."""
    return Fraction(repr(float(share)))


@dataclass(frozen=True, slots=True)
class Tolerance:
    """``value`` is a share of the stored fp32 score (``relative_to``), or a margin as it is.

    ``rule`` names the place that set it, e.g. ``suite smoke``. ``by_metric``: metric, as the suite
    writes it → its own tolerance: 35 % more errors are not 35 % fewer hits.
    """

    value: float = DEFAULT_TOLERANCE
    rule: str = "default"
    by_metric: Mapping[str, "Tolerance"] = field(default_factory=dict)
    relative_to: RelativeTo = RelativeTo.SCORE

    def __post_init__(self) -> None:
        if self.relative_to is RelativeTo.SCORE and not 0 <= self.value < 1:
            raise ValueError(
                f"a tolerance of {self.value} is impossible: it is a fraction in [0, 1), such as "
                "0.05 for 5 %"
            )
        if not 0 <= self.value < math.inf:
            raise ValueError(
                f"a tolerance of {self.value} is impossible: it is 0 or more, such as 0.05 for 5 %"
            )

    def of(self, metric: str) -> "Tolerance":
        """The tolerance of ``metric``."""
        return self.by_metric.get(metric, self)

    def margin(self, score: Score) -> Fraction:
        """How many units (samples, edits) worse than the reference ``score`` may be."""
        return max(self._own(score), _least(score))

    def margin_rule(self, score: Score) -> str:
        """What set the margin of ``score``: the tolerance, or the least margin of its metric
        where that is wider.
        """
        if _least(score) > self._own(score):
            return (
                f"least margin {apart(score, score.least_margin)} (metric "
                f"{score.metric.partition('@')[0]})"
            )
        return self.of(score.metric).text

    def _own(self, score: Score) -> Fraction:
        own = self.of(score.metric)
        units = {
            RelativeTo.SCORE: score.reference_hits,
            RelativeTo.ERROR: score.reference_errors,
            RelativeTo.NOTHING: score.out_of,
        }
        return exact(own.value) * units[own.relative_to]

    @property
    def text(self) -> str:
        """``tolerance 0.5 % (suite smoke)``, ``tolerance 10 % of the error (…)``, ``tolerance
        0.01 absolute (…)``.
        """
        if self.relative_to is RelativeTo.NOTHING:
            return f"tolerance {self.value:g} absolute ({self.rule})"
        of_error = " of the error" if self.relative_to is RelativeTo.ERROR else ""
        return f"tolerance {short_percent(self.value)}{of_error} ({self.rule})"

    @property
    def numbers(self) -> dict[str, float]:
        """Its numbers without the places that set them, for digests; the key ``""`` is for all
        other metrics.
        """
        every = {"": self, **self.by_metric}
        return {metric + _UNITS[one.relative_to]: one.value for metric, one in every.items()}


_UNITS = {RelativeTo.SCORE: "", RelativeTo.ERROR: " of the error", RelativeTo.NOTHING: " absolute"}


def _least(score: Score) -> Fraction:
    return exact(score.least_margin) * score.out_of


# Known-bad cells: each with what was measured, the reason, the owner, and the last day of the
# entry.

ANY_CLASS = "*"
"""The class of values in a quarantine file of version 2, which does not say where they were
measured.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineEntry:
    """A cell that is expected to fail while listed.

    Args:
        cell: ``model::backend+schema[+variant]``, where ``*`` matches anything.
        measured: the numbers, in words.
        reason, owner: why it is bad; who is responsible.
        expires: the last day, ``YYYY-MM-DD``, on which the entry holds.
        when: environment classes or processors to which it applies; None: everywhere.
        values: environment class or processor, ``ANY_CLASS`` where it is not known → cell → metric
            → the value that it had when it was listed, a fraction or in the metric's unit; a cell
            that falls beyond them fails. Empty: an entry of an older qbench, under which any fall
            passes.

    Raises:
        ValueError: no such day, or a value that is no finite number.
    """

    cell: str
    measured: str
    reason: str
    owner: str
    expires: str
    when: str | tuple[str, ...] | None = None
    values: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for cells in self.values.values():
            for cell, metrics in cells.items():
                for metric, value in metrics.items():
                    if not math.isfinite(value):
                        raise ValueError(
                            f"the value {value} of {metric} of '{cell}', which is no finite number"
                        )
        try:
            datetime.date.fromisoformat(self.expires)
        except ValueError as error:
            raise ValueError(
                f"expires = '{self.expires}', which is no day such as 2027-03-31 ({error})"
            ) from error

    def covers(self, cell: Cell, environment: EnvironmentClass) -> bool:
        """Whether this entry is about ``cell`` on this machine."""
        return self.is_about(cell) and environment.matches(self.when)

    def is_about(self, cell: Cell) -> bool:
        """Whether this entry is about ``cell``, on any machine."""
        return fnmatch.fnmatchcase(str(cell), self.cell)

    def values_of(
        self, cell: Cell, environment: EnvironmentClass
    ) -> tuple[tuple[str, Mapping[str, float]], ...]:
        """The values that ``cell`` is compared with in ``environment``, each with the class
        that they were measured in.

        Those of the class itself; else of its hardware; else those whose class is not known; else
        of every other class that has some: a cell may not be worse than in the class where it is
        worst.
        """
        held = {
            name: cells[str(cell)] for name, cells in self.values.items() if cells.get(str(cell))
        }
        for name in (str(environment), environment.hardware, ANY_CLASS):
            if name in held:
                return ((name, held[name]),)
        return tuple(sorted(held.items(), key=lambda one: one[0]))

    @property
    def is_pattern(self) -> bool:
        """Whether it may be about several cells; it is needed as long as one of them fails."""
        return any(character in self.cell for character in "*?[")

    def expired(self, today: datetime.date) -> bool:
        """Whether ``today`` is past the last day."""
        return today > datetime.date.fromisoformat(self.expires)
