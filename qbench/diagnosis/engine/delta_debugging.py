"""A smallest subset of items that still fails, by delta debugging (``ddmin`` of Zeller and Hildebrandt, 2002).

Items are split in n parts; a part alone, or all but a part, takes their place when it still fails; n doubles when none
does. Without a limit the result is 1-minimal: no single item can be left out.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")


class Trials:
    """How many more candidates may be tried."""

    def __init__(self, limit: int) -> None:
        self.limit, self.made = limit, 0

    @property
    def are_spent(self) -> bool:
        """Whether none is left."""
        return self.made >= self.limit

    def spend(self) -> None:
        """Count one."""
        self.made += 1


def smallest_failing(
    items: Sequence[Item], fails: Callable[[Sequence[Item]], bool], trials: Trials
) -> tuple[Item, ...]:
    """A subset of ``items``, in their order, that still fails; the smallest seen when ``trials`` are spent.

    Args:
        items: which fail together; that is not tried again.
        fails: whether a subset does; it counts its own trials.
    """
    kept, parts = tuple(items), 2
    if kept and not trials.are_spent and fails(()):
        return ()
    while len(kept) > 1:
        smaller = next((one for one in _candidates(kept, parts) if not trials.are_spent and fails(one)), None)
        if smaller is None:
            if parts >= len(kept) or trials.are_spent:
                break
            parts = min(2 * parts, len(kept))
        else:
            parts = 2 if len(smaller) <= -(-len(kept) // parts) else max(parts - 1, 2)
            kept = smaller
    return kept


def _candidates(items: tuple[Item, ...], parts: int) -> Iterator[tuple[Item, ...]]:
    """Each part alone, then all but each part; of two parts these are the same."""
    bounds = [len(items) * index // parts for index in range(parts + 1)]
    pieces = [(low, high) for low, high in pairwise(bounds) if high > low]
    yield from (items[low:high] for low, high in pieces)
    if parts > 2:
        yield from (items[:low] + items[high:] for low, high in pieces)
