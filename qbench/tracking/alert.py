"""One alert: what got worse in one series, and the state of it."""

import enum
from dataclasses import dataclass

from qbench.judging import Cell


class Kind(enum.Enum):
    """How something got worse."""

    STEP = "step"
    SLIDE = "slide"


class State(enum.Enum):
    """The state of an alert: what a ``Ruling`` can say, and what follows from the series alone."""

    DETECTED = "detected"
    PROVISIONAL = "provisional"  # too few points yet
    ACKNOWLEDGED = "acknowledged"
    EXPECTED = "expected"
    INVALID = "invalid"
    ACCEPTED = "accepted"  # what was measured since is what was accepted
    FIXED = "fixed"  # the old level came back


ENDED = (State.FIXED, State.ACCEPTED)
RULED = (State.ACKNOWLEDGED, State.EXPECTED, State.INVALID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One series that got worse.

    Args:
        before, after: levels, as fractions: medians of the runs; of a slide the accepted share, and
            the median of the last points without the loss of steps that are alerts of their own.
        run, commit: the first at which it is seen; the commit is empty where it is not known.
        unit: of the levels; ``"%"`` ones are shares.
        own_past: whether ``before`` of a slide is an earlier level of the series, not what was
            accepted.
        suspects: the commits of which one caused a step, the earliest first; empty for a slide,
            which no single commit caused.
        stretch: the commits after the last good point, up to ``commit``. They are the suspects of
            a step.
        why: who decided the state and why, or what it follows from.
        annotation: the commit, as it is written in the annotation that is about this alert; empty
            where none is.
    """

    kind: Kind
    state: State
    cell: Cell
    metric: str
    environment_class: str
    before: float
    after: float
    run: str
    commit: str
    unit: str = "%"
    own_past: bool = False
    suspects: tuple[str, ...] = ()
    stretch: tuple[str, ...] = ()
    why: str = ""
    annotation: str = ""

    @property
    def is_new(self) -> bool:
        """Whether it is confirmed and no annotation is about it."""
        return self.state is State.DETECTED

    @property
    def loss(self) -> float:
        """How much was lost: of a share, and of a value in another unit the share of what it
        was before.
        """
        return change_size(self.before, self.after, self.unit)


def change_size(before: float, after: float, unit: str) -> float:
    """The size of a change: a share's difference, or of another unit its share of ``before``."""
    change = abs(after - before)
    return change if unit == "%" else change / max(abs(before), 1e-9)
