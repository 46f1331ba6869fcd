"""The samples that suspects are captured on: of the first batches those that go together, the largest first.

A loop that decodes is fed more at every step, so that its first batches say little; pictures are fed alike, so that
some batches make one.
"""

from dataclasses import dataclass, field

import numpy as np

from qbench.backends import Array, Feeds
from qbench.calibration import Rows

_BATCHES = 8
"""Among which the largest is looked for."""
_ELEMENTS = 1 << 18
"""Numbers that batches may have together; a larger one stands alone."""


@dataclass(slots=True)
class KeptFeeds:
    """Feeds of one graph; ``rows`` says how its batches come apart."""

    rows: Rows
    _seen: int = 0
    _batches: list[dict[str, Array]] = field(default_factory=list)

    def add(self, feeds: Feeds) -> None:
        """One batch more: it begins anew where it is larger than all before, and joins those that are shaped alike."""
        self._seen += 1
        if not self._batches or (self._seen <= _BATCHES and _shapes(feeds, self.rows) != self._shapes):
            if _size(feeds) > max((_size(one) for one in self._batches), default=0):
                self._batches = [_copy(feeds)]
        elif self._goes_with(feeds):
            self._batches.append(_copy(feeds))

    @property
    def joined(self) -> dict[str, Array]:
        """All that is kept, as one batch; nothing where there was none."""
        if len(self._batches) < 2:
            return dict(self._batches[0]) if self._batches else {}
        return {
            name: np.concatenate([one[name] for one in self._batches], axis=self.rows.inputs[name])
            for name in self._batches[0]
        }

    @property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return _shapes(self._batches[0], self.rows)

    def _goes_with(self, feeds: Feeds) -> bool:
        held = sum(map(_size, self._batches)) + _size(feeds)
        return (
            held <= _ELEMENTS and feeds.keys() <= self.rows.inputs.keys() and _shapes(feeds, self.rows) == self._shapes
        )


def _shapes(feeds: Feeds, rows: Rows) -> dict[str, tuple[int, ...]]:
    """Without the axes that run over samples."""
    return {
        name: tuple(size for axis, size in enumerate(array.shape) if axis != rows.inputs.get(name))
        for name, array in feeds.items()
    }


def _copy(feeds: Feeds) -> dict[str, Array]:
    return {name: array.copy() for name, array in feeds.items()}


def _size(feeds: Feeds) -> int:
    return sum(array.size for array in feeds.values())
