"""Which commit did it: halving a line of commits between a good one and a bad one.

What is good or bad is a number: of all metrics of all cells the one that got worse the most between the two ends; a
commit is bad where that lies nearer to the bad end than to the good one. A commit that cannot be built or measured is
passed over, and where only such are left the answer is a stretch.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qbench.errors import IncomparableError
from qbench.tracking import cell_of_line

CellLines = Sequence[Mapping[str, Any]]
"""The ``cell`` lines of one run file."""


class Mark(enum.Enum):
    """What a commit turned out to be."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of every commit: on which side of the middle a metric of a cell lies; values are fractions."""

    cell: str
    metric: str
    good: float
    bad: float

    def mark(self, value: float | None) -> Mark:
        """What a commit with ``value`` is; None: it was not measured."""
        if value is None:
            return Mark.SKIPPED
        return Mark.BAD if abs(value - self.bad) <= abs(value - self.good) else Mark.GOOD

    def value(self, lines: CellLines) -> float | None:
        """The metric asked about in ``lines``; None where it is not there."""
        found = _values(lines).get((self.cell, self.metric))
        return None if found is None else found[0]


def ask(good: CellLines, bad: CellLines, *, metric: str = "") -> Question:
    """The question that tells the two ends apart best.

    Args:
        good, bad: what the ends measured. metric: only this one; empty: any.

    Raises:
        IncomparableError: nothing that both measured is worse at the bad end.
    """
    before, after = _values(good), _values(bad)
    worse = {
        key: (before[key][0] - after[key][0]) * (-1 if is_lower else 1)
        for key, (_, is_lower) in after.items()
        if key in before and metric in ("", key[1])
    }
    key = max(worse, key=lambda one: worse[one], default=None)
    if key is None or worse[key] <= 0:
        raise IncomparableError(
            "Bisecting",
            found="nothing that is worse at the bad end" if worse else "no metric that both ends measured",
            expected="ends that differ",
            remedy="Check that the ends are in the right order, and that what is built and measured is what you mean.",
        )
    return Question(cell=key[0], metric=key[1], good=before[key][0], bad=after[key][0])


def suspects(commits: Sequence[str], marks: Mapping[str, Mark]) -> tuple[str, ...]:
    """The commits among which the first bad one is: behind the last good one before the first bad one.

    Args:
        commits: behind the good end, up to and with the bad end, the earliest first. marks: of those that were tried.
    """
    bad = next((i for i, commit in enumerate(commits) if marks.get(commit) is Mark.BAD), len(commits) - 1)
    good = max((i for i in range(bad) if marks.get(commits[i]) is Mark.GOOD), default=-1)
    return tuple(commits[good + 1 : bad + 1])


def next_commit(commits: Sequence[str], marks: Mapping[str, Mark]) -> str | None:
    """The commit to try next: nearest to the middle of what is left; None when no trial can tell more."""
    left = suspects(commits, marks)
    untried = [place for place, commit in enumerate(left[:-1]) if commit not in marks]
    middle = (len(left) - 2) / 2
    return left[min(untried, key=lambda place: abs(place - middle))] if untried else None


def _values(lines: CellLines) -> dict[tuple[str, str], tuple[float, bool]]:
    """(cell, metric) → its value and whether lower is better."""
    return {
        (str(cell_of_line(line)), metric): (counts["hits"] / counts["out_of"], counts.get("direction") == "lower")
        for line in lines
        for metric, counts in line.get("metrics", {}).items()
    }
