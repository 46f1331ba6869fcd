"""What no rule names: a straight line per channel between what was found and what is real, or a curve.

found ≈ a_c · t + b_c        b alone: a bias or a zero point; a ≠ 1: a scale
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qbench.diagnosis.causes.explanation import Explanation, heaviest
from qbench.diagnosis.causes.scene import Floats, Mask, Scene
from qbench.judging import Cause

_SHARE = 0.9
_LEAST = 6


@dataclass(frozen=True, slots=True)
class Lines:
    """One line for all, an offset a channel, a slope a channel, both."""

    name: str = "lines"
    by_element: bool = True

    def explain(self, scene: Scene) -> Explanation | None:
        """Where enough levels lie inside the ends."""
        return heaviest(self._tried(scene)) if int(scene.inside.sum()) > 2 * _LEAST and scene.found.ndim else None

    def _tried(self, scene: Scene) -> Iterator[Explanation | None]:
        slope, offset = _line(scene.real, scene.found, scene.inside)
        if not scene.is_product or abs(slope - 1) > 1e-3:
            words = f"a line of slope {slope:.4g} and offset {offset:+.3g} steps"
            cause = Cause.WRONG_SCALE if abs(slope - 1) > 1e-3 else Cause.ROUNDING
            yield scene.weigh_reals(cause, words, slope * scene.real + offset, _SHARE)
        count = scene.found.shape[scene.axis]
        if count < 2 or int(scene.inside.sum()) < _LEAST * count:
            return
        lines = [self._channel(scene, channel) for channel in range(count)]
        means, plain, slopes, offsets = (np.array(column) for column in zip(*lines, strict=True))
        off = int((np.abs(means) > 0.01).sum())
        fitted = int(scene.differing.any(axis=tuple(a for a in range(scene.found.ndim) if a != scene.axis)).sum())
        worth = _SHARE * max(0.0, 1 - fitted / max(scene.hard_count, 1))  # as many numbers as levels explain nothing
        words = f"an offset of its own in {off} of {count} channels (up to {np.abs(means).max():.3g} steps)"
        if off:
            yield scene.weigh_reals(Cause.WRONG_BIAS, words, scene.real + scene.along(means), worth)
        words = f"slopes of {plain.min():.4g} … {plain.max():.4g} over {count} channels"
        yield scene.weigh_reals(Cause.WRONG_SCALE, words, scene.real * scene.along(plain), worth)
        words = f"slopes of {slopes.min():.4g} … {slopes.max():.4g} and offsets over {count} channels"
        both = scene.real * scene.along(slopes) + scene.along(offsets)
        yield scene.weigh_reals(Cause.WRONG_SCALE, words, both, _SHARE * worth)

    def _channel(self, scene: Scene, channel: int) -> tuple[float, float, float, float]:
        """Of one channel: its offset alone, its slope alone, both; (0, 1, 1, 0) where nothing in it differs."""
        real, found, inside, differing = (
            np.take(a, channel, scene.axis) for a in (scene.real, scene.found, scene.inside, scene.differing)
        )
        if not differing.any() or int(inside.sum()) < _LEAST:
            return 0.0, 1.0, 1.0, 0.0
        return _offset(real, found, inside), _slope(real, found, inside), *_line(real, found, inside)


def _offset(real: Floats, found: Floats, inside: Mask) -> float:
    """The middle of what rounding admits; the mean where that is nothing."""
    off = (found - real)[inside]
    low, high = float(off.min()), float(off.max())
    return (low + high) / 2 if high - low <= 1.05 else float(off.mean())


def _line(real: Floats, found: Floats, inside: Mask) -> tuple[float, float]:
    t, y = real[inside], found[inside]
    spread = float(((t - t.mean()) ** 2).sum())
    slope = float(((t - t.mean()) * (y - y.mean())).sum()) / spread if spread > 1 else 1.0
    return slope, float(y.mean() - slope * t.mean())


def _slope(real: Floats, found: Floats, inside: Mask) -> float:
    chosen = inside & (np.abs(real) > 1)
    energy = float((real[chosen] ** 2).sum())
    return float((real * found)[chosen].sum()) / energy if energy else 1.0
