"""Extremes of every channel of a value: of every index of its axis 1, over all else."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Channels:
    """Folds runs into the extremes of channels, as long as their number stays the same.

    A value without an axis 1, or with another length of it in another run, has no channels to keep apart.
    """

    _lows: Floats | None = None
    _highs: Floats | None = None
    _varied: bool = False

    def fold(self, batch: npt.NDArray[np.float32]) -> None:
        """Add the value of one run (at least one number, no NaN); infinite numbers are left out."""
        if self._varied or batch.ndim < 2 or (self._lows is not None and len(self._lows) != batch.shape[1]):
            self._varied, self._lows, self._highs = True, None, None
            return
        rows = batch.reshape(*batch.shape[:2], -1)
        lows, highs = rows.min(axis=2), rows.max(axis=2)
        if not (np.isfinite(lows).all() and np.isfinite(highs).all()):
            finite = np.isfinite(rows)
            lows, highs = (
                rows.min(axis=2, where=finite, initial=np.inf),
                rows.max(axis=2, where=finite, initial=-np.inf),
            )
        low, high = (lows.min(axis=0) + np.float32(0)).astype(np.float64), highs.max(axis=0).astype(np.float64) + 0.0
        self._lows = low if self._lows is None else np.minimum(self._lows, low)
        self._highs = high if self._highs is None else np.maximum(self._highs, high)

    @property
    def ends(self) -> tuple[Floats, Floats] | tuple[None, None]:
        """Lows and highs, or nothing where channels are not kept apart."""
        if self._lows is None or self._highs is None:
            return None, None
        return self._lows.copy(), self._highs.copy()
