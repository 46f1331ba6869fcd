"""The names of the suspects above a chart of nodes, each over its own line, so that nothing covers another.

A label lies in one of several lanes, lane 0 nearest to the chart, and a line leads from it straight down. It is free
where no other label lies in its lane, its line crosses none in the lanes below, and none from above crosses it.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LETTER = 6.3
"""Width of a letter, in SVG units, on the wide side."""
_GAP = 3.0
_LONGEST = 30
"""Letters of a name; what is longer is cut in its middle, since layers differ at both ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """``text`` to the right (``start``) or left (``end``) of the line at ``x``, in ``lane``."""

    x: float
    lane: int
    text: str
    anchor: str

    @property
    def at(self) -> float:
        """Where the text is anchored."""
        return self.x + (_GAP if self.anchor == "start" else -_GAP)

    @property
    def span(self) -> tuple[float, float]:
        """From where to where it reaches."""
        wide = LETTER * len(self.text)
        return (self.at, self.at + wide) if self.anchor == "start" else (self.at - wide, self.at)

    def allows(self, other: "Label") -> bool:
        """Whether neither covers the other or the line that leads to it."""
        if self.lane == other.lane:
            (left, right), (start, end) = self.span, other.span
            return right + _GAP < start or end + _GAP < left
        upper, lower = (self, other) if self.lane > other.lane else (other, self)
        return not lower.span[0] - 1 < upper.x < lower.span[1] + 1


def node_labels(places: Mapping[int, float], names: Sequence[str], *, left: float, right: float) -> tuple[Label, ...]:
    """A label for each suspect that has a place: its rank and name, or its rank alone where there is no room.

    Those on the left are read to the right of their lines and are laid from right to left, each in a lane above those
    that it reaches over; those on the right the other way round. Where the two meet, every place is tried;
    where names leave no room for all, ranks stand alone.

    Args:
        places: rank from 1 → x. names: of the suspects, in order of rank. left, right: the ends that none crosses.
    """
    order = sorted(places, key=lambda rank: places[rank])
    texts = {rank: (f"{rank} {shortened(names[rank - 1])}", str(rank)) for rank in order}
    bare = {rank: (str(rank),) for rank in order}
    tries = (
        _laid([*reversed(order[:split])], order[split:], places, words, (left, right))
        for words in (texts, bare)
        for split in range(len(order), -1, -1)
    )
    return max(tries, key=_goodness)


def _goodness(labels: Sequence[Label]) -> tuple[int, int, int]:
    """More labels, then more of them with a name, then fewer lanes."""
    named = sum(" " in label.text for label in labels)
    return len(labels), named, -max((label.lane for label in labels), default=0)


def _laid(
    starts: Sequence[int],
    ends: Sequence[int],
    places: Mapping[int, float],
    texts: Mapping[int, tuple[str, ...]],
    within: tuple[float, float],
) -> tuple[Label, ...]:
    """The labels of ``starts``, then of ``ends``, each free of those before it, with its first text that fits."""
    found: list[Label] = []
    for rank, anchors in [*((one, ("start", "end")) for one in starts), *((one, ("end", "start")) for one in ends)]:
        for text, anchor, lane in itertools.product(texts[rank], anchors, range(len(places))):
            label = Label(x=places[rank], lane=lane, text=text, anchor=anchor)
            fits = within[0] <= label.span[0] and label.span[1] <= within[1]
            if fits and all(label.allows(one) for one in found):
                found.append(label)
                break
    return tuple(found)


def shortened(name: str) -> str:
    """``name`` in at most 30 letters."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST // 2 - 1]}…{name[-_LONGEST // 2 :]}"
