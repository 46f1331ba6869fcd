"""What a baseline expects of one cell, as plain values."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qbench.judging.cell import ANY, EnvironmentClass, are_equivalent
from qbench.judging.measurement import Measurement
from qbench.judging.noise import Repeats
from qbench.judging.statistics import ALPHA, loss_midp
from qbench.judging.verdict import Gate
from qbench.metrics import Against, Direction, Score

if TYPE_CHECKING:
    from qbench.metrics import Answers


_ROUNDING = 1e-9
"""Two shares of the same counts may differ by this, because of rounding."""


class State(enum.Enum):
    """Whether a stored fp32 reference can judge what was measured."""

    KNOWN = "known"
    MISSING = "missing"  # no baseline for this model
    STALE = "stale"  # it is of another model, data or preprocessing


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A result that a user accepted for one cell in one environment class.

    Args:
        metrics: metric as the suite writes it → hits.
        predictions: data set → digest of the predictions.
        reason: why it replaced an earlier one; empty for the first.
        arithmetic: digest of the arithmetic of the backend; empty where it is unknown, or the
            backend declares none.
        kept: data set → digest of the answers that are kept next to the baseline; empty where the
            suite asks for none.
        executed_macs: the share of multiply-accumulates that the engine ran in integers; None: it
            was not known.
        made: as of ``Measurement``; empty: an older qbench accepted it.
        remembered: kind of gate → the number of its evidence.
    """

    metrics: Mapping[str, int]
    predictions: Mapping[str, str]
    reason: str = ""
    arithmetic: str = ""
    kept: Mapping[str, str] = field(default_factory=dict)
    executed_macs: float | None = None
    made: Mapping[str, str] = field(default_factory=dict)
    remembered: Mapping[str, float] = field(default_factory=dict)

    def is_worse(self, measurement: Measurement) -> bool:
        """Whether some metric of ``measurement`` is worse than here; not known of a part of the
        samples.
        """
        if measurement.stopped is not None:
            return False
        sign = {Direction.HIGHER: 1, Direction.LOWER: -1}
        both = (score for score in measurement.scores if score.metric in self.metrics)
        return any(
            sign[score.direction] * (score.hits - self.metrics[score.metric]) < 0 for score in both
        )

    def fell_to_float(self, measurement: Measurement) -> bool:
        """Whether ``measurement`` ran less in integers than here; False where one of the two is
        not known.
        """
        before, now = self.executed_macs, measurement.executed_macs
        return before is not None and now is not None and now < before - _ROUNDING

    def numbers_now(self, measurement: Measurement) -> dict[str, float]:
        """Kind of gate → the number that is kept once ``measurement`` is accepted: its own, or the
        accepted one where the two do not differ.
        """
        now = dict(measurement.remembered)
        for kind, (low, high) in measurement.remembered_range.items():
            before = self.remembered.get(kind)
            if before is not None and low <= before <= high:
                now[kind] = before
        return now

    def gains(self, measurement: Measurement) -> list[tuple[Score, int]]:
        """Each score against labels that this result has too, with the number of units by which
        ``measurement`` is better. Empty where only a part of the samples was run.
        """
        if measurement.stopped is not None:
            return []
        both = [
            s
            for s in measurement.scores
            if s.against is Against.LABELS and s.metric in self.metrics
        ]
        better = {Direction.HIGHER: 1, Direction.LOWER: -1}
        return [(s, better[s.direction] * (s.hits - self.metrics[s.metric])) for s in both]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The accepted facts that one cell is judged by.

    Args:
        state: of the model's baseline.
        what: what is missing or differs, in words; empty when KNOWN.
        reference: data set → digest of the stored fp32 answers.
        accepted: environment class, as text → what was accepted there.
        kept: environment class → data set → the answers accepted there, where they are kept.
        floors: metric against the reference → least hits.
        noise: environment class → the runs by which its noise was measured before.
        calibrations: key of a calibration → value → the (low, high) that was accepted
            (``Calibrated``).
        cell_known: whether anything was ever accepted for this cell, in any class.
        whole: whether all samples were scored: a few cannot show that a known-bad cell no longer
            fails.
        stored: whether results of the cell are stored; those that are only compared with another
            backend are not.
        retrained: where the baseline is STALE because of another model: what today's fp32 answers
            lost and gained against the stored ones, on the samples that are the same, each judged
            as a loss.
    """

    state: State = State.KNOWN
    what: str = ""
    reference: Mapping[str, str] = field(default_factory=dict)
    accepted: Mapping[str, Accepted] = field(default_factory=dict)
    kept: Mapping[str, Mapping[str, "Answers"]] = field(default_factory=dict, compare=False)
    floors: Mapping[str, int] = field(default_factory=dict)
    noise: Mapping[str, Repeats] = field(default_factory=dict)
    calibrations: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    cell_known: bool = True
    whole: bool = True
    stored: bool = True
    retrained: tuple[tuple[Score, Gate], ...] = ()

    def here(
        self, environment: EnvironmentClass, equivalents: tuple[tuple[str, ...], ...]
    ) -> "AcceptedHere":
        """What results of ``environment`` are compared with.

        Args:
            equivalents: groups of classes whose results are comparable.
        """
        name = inherited(self.accepted, environment, equivalents)
        noise = inherited(self.noise, environment, equivalents)
        return AcceptedHere(
            environment=environment,
            name=name,
            result=self.accepted[name] if name is not None else None,
            kept=self.kept.get(name, {}) if name is not None else {},
            others=tuple(sorted(self.accepted)),
            floors=Floors.on(self.floors, self.accepted, inherits=name is not None),
            noise=self.noise[noise] if noise is not None else None,
        )

    @classmethod
    def missing(cls, what: str) -> "Expectation":
        """Nothing is stored; ``what`` names the model or file that is missing."""
        return cls(state=State.MISSING, what=what, cell_known=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """The least agreement with fp32 that is accepted for one cell in one environment class.

    Engines of another class decide ties differently, so a result slightly under the accepted
    agreement may be chance. Such a class has a lower floor: the least agreement that a one-sided
    test on the differing samples of both classes does not distinguish from the accepted one
    (``loss_midp``, 5 %).

    Args:
        stored: metric → least hits, as the baseline has them for the classes with an accepted
            result.
        elsewhere: metric → the lowest hits that other classes were accepted with; empty where this
            class has a result.
    """

    stored: Mapping[str, int] = field(default_factory=dict)
    elsewhere: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def on(
        cls, stored: Mapping[str, int], accepted: Mapping[str, Accepted], *, inherits: bool
    ) -> "Floors":
        """Those of a class: ``stored`` alone where it ``inherits`` one of the ``accepted``
        results.
        """
        if inherits:
            return cls(stored=stored)
        lowest = {
            metric: min(hits)
            for metric in stored
            if (hits := [one.metrics[metric] for one in accepted.values() if metric in one.metrics])
        }
        return cls(stored=stored, elsewhere=lowest)

    def least(self, metric: str, out_of: int) -> int | None:
        """The least hits of ``out_of``; None: nothing was accepted."""
        if metric not in self.elsewhere:
            return self.stored.get(metric)
        return min(self.stored[metric], _within_chance(self.elsewhere[metric], out_of))

    def rule(self, metric: str) -> str:
        """What set it, for a gate."""
        if metric in self.elsewhere:
            return "accepted floor (baseline) of another class, less what chance explains"
        return "accepted floor (baseline)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedHere:
    """What one environment class is compared with, resolved once for a cell.

    Args:
        environment: the class of the results that are judged.
        name: the class, as text, whose accepted result is compared with them; None: nothing
            accepted is comparable.
        result: what was accepted under ``name``; None where ``name`` is.
        kept: data set → the answers of ``result`` that are kept.
        others: every class, as text, with an accepted result of the cell.
        floors: the least agreement with fp32.
        noise: the runs by which the noise was measured; None: it was not.
    """

    environment: EnvironmentClass
    name: str | None = None
    result: Accepted | None = None
    kept: Mapping[str, "Answers"] = field(default_factory=dict, compare=False)
    others: tuple[str, ...] = ()
    floors: Floors = field(default_factory=Floors)
    noise: Repeats | None = None

    @property
    def in_words(self) -> str:
        """Where the accepted result comes from, if not from this very class: ``for any class``;
        else empty.
        """
        if self.name is None or self.name == str(self.environment):
            return ""
        return "for any class" if self.name == ANY else f"for {self.name}, declared equivalent"

    @property
    def is_noisy(self) -> bool:
        """Whether runs of the same code are known to differ."""
        return self.noise is not None and self.noise.is_noisy

    def is_worse(self, measurement: Measurement) -> bool:
        """Whether a metric of ``measurement`` is worse than accepted."""
        return self.result is not None and self.result.is_worse(measurement)

    def noise_with(self, measurement: Measurement) -> tuple[Repeats | None, bool]:
        """How far runs of this cell differ, and whether ``measurement`` is one of these runs;
        None: it is not known.

        Its own repeats; where these do not differ or were not made, those that the baseline holds.
        """
        own = measurement.repeats
        if self.is_noisy and (own is None or not own.is_noisy):
            return self.noise, False
        return own, True


def _within_chance(hits: int, out_of: int) -> int:
    """The least hits that are not shown to be fewer than ``hits``: both miss samples,
    independently, of ``out_of``.
    """
    missed = out_of - hits
    more = missed
    while more < out_of and loss_midp(more + 1, missed) >= ALPHA:
        more += 1
    return out_of - more


def accepted_on(
    accepted: Mapping[str, Accepted], processor: str, *, device: str | None = None
) -> bool:
    """Whether one of the ``accepted`` results (environment class, as text → result) is of this
    class of processor, and of this device; None: of any device.
    """
    return any(
        one.processor == processor and device in (None, one.device)
        for one in map(EnvironmentClass.parse, accepted)
    )


def inherited(
    accepted: Mapping[str, object],
    environment: EnvironmentClass,
    equivalents: Iterable[tuple[str, ...]],
) -> str | None:
    """Which of the ``accepted`` classes a result of ``environment`` is compared with; None: it
    is incomparable.

    ``accepted``: class, as text → what is known there. Its own class first, then one declared
    equivalent (the first by name), then ``any``.
    """
    if str(environment) in accepted:
        return str(environment)
    groups = tuple(equivalents)
    others = (name for name in sorted(accepted) if name != ANY)
    found = next(
        (
            name
            for name in others
            if are_equivalent(EnvironmentClass.parse(name), environment, groups)
        ),
        None,
    )
    return found or (ANY if ANY in accepted else None)
