"""What a hypothesis answers, and what comes of all of them.

weight = explained / (differing + disturbed)        levels that the hypothesis explains, of those that differ,
                                                    and levels that agree and that it would have changed
"""

from collections.abc import Iterable
from dataclasses import dataclass

from qbench.judging import Cause

SURE = 0.999
"""A weight from which on no other hypothesis is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One cause that may be it: ``evidence`` is a sentence with numbers, ``weight`` (0 … 1) how much it explains."""

    cause: Cause
    evidence: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCause:
    """Why a node is off.

    Args:
        cause: None: nothing is.
        evidence: one sentence with numbers. weight: 0 … 1, how much of it the cause explains.
        others: what else was considered and explains something, the heaviest first.
        notes: hypotheses that could not be tried, and why.
    """

    cause: Cause | None
    evidence: str
    weight: float = 0.0
    others: tuple[Explanation, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_mistake(self) -> bool:
        """Whether it says what is wrong: something is, by a rule that is known, and it is not what a grid costs."""
        return self.cause is not None and self.cause is not Cause.WRONG_KERNEL and self.cause not in OF_GRIDS


OF_GRIDS = frozenset({Cause.GRID, Cause.RANGE_OUTLIER, Cause.CLIPPING, Cause.DEAD_RANGE, Cause.CHANNELS_DIFFER})
"""What a grid costs that was chosen so; a cell that holds can afford it."""


def heaviest(found: Iterable[Explanation | None]) -> Explanation | None:
    """The first of the heaviest; it stops at one that is sure."""
    best: Explanation | None = None
    for one in found:
        if one is not None and (best is None or one.weight > best.weight + 1e-9):
            best = one
            if best.weight >= SURE:
                break
    return best
