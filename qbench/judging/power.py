"""What a sample could have shown: the smallest drop that it would find, and the samples that a margin would need.

    found     √n d ≥ z₀.₉₇₅ √π + z₀.₈ √(π − d²)      McNemar's test, two-sided 5 %, power 80 %     (Miettinen 1968)
    needed    n ≥ (z₀.₉₅ + z₀.₈)² π / m²             the margin test, one-sided 5 %, power 80 %, if nothing is lost
    deciding  n ≥ (z₀.₉₅ + z₀.₈)² π / (m − d)²       the same, if drops of d go on: PASS where d < m, else FAIL

π is the share of samples that changed sides. A sample in which few did says little about π, so it is taken as
Bonett and Price take it: one loss and one gain are added, and two samples.
"""

import math
from statistics import NormalDist

from qbench.judging.margin_test import ALPHA

_TWO_SIDED = NormalDist().inv_cdf(0.975)
_ONE_SIDED = NormalDist().inv_cdf(1 - ALPHA)
_POWER = NormalDist().inv_cdf(0.8)
_BISECTIONS = 50
_SAME = 1e-12


def changed_share(losses: int, gains: int, n: int) -> float:
    """The estimate of π, never zero."""
    return (losses + gains + 2) / (n + 2)


def detectable_drop(share: float, n: int) -> float:
    """The smallest drop, a fraction, that ``n`` samples find four times in five when ``share`` of them change sides.

    No more than ``share`` can be lost; a larger drop changes as many. 1 where the sample is too small for any.
    """
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _finds(middle, share, n) else (middle, high)
    return high


def _finds(drop: float, share: float, n: int) -> bool:
    changed = max(share, drop)
    return math.sqrt(n) * drop >= _TWO_SIDED * math.sqrt(changed) + _POWER * math.sqrt(changed - drop * drop)


def samples_needed(share: float, margin: float) -> int | None:
    """How many samples show four times in five that a lossless cell is within ``margin``; None: no number does.

    Never fewer than the test asks for when no sample changed sides at all: n > z² (1 − m) / m.
    """
    if margin <= 0:
        return None
    if margin >= 1:
        return 1
    least = math.floor(_ONE_SIDED**2 * (1 - margin) / margin) + 1
    return max(least, math.ceil((_ONE_SIDED + _POWER) ** 2 * share / margin**2))


def samples_deciding(share: float, drop: float, margin: float, n: int) -> int | None:
    """How many samples like these ``n``, which decide nothing, decide four times in five: always more than ``n``.

    Args:
        share: of samples that change sides. drop: what was lost of them, a fraction, negative where more was gained.

    None: the drop is just the margin, and no number decides.
    """
    apart = margin - drop
    if abs(apart) < _SAME:
        return None
    return max(n + 1, math.ceil((_ONE_SIDED + _POWER) ** 2 * share / apart**2))


def detectable_by_spread(spread: float) -> float:
    """The smallest change that a metric finds four times in five whose estimate has a standard error of ``spread``."""
    return (_TWO_SIDED + _POWER) * spread


def samples_by_spread(spread: float, n: int, margin: float) -> int | None:
    """``samples_needed`` of a metric whose estimate from ``n`` samples has a standard error of ``spread``."""
    return None if margin <= 0 else max(1, math.ceil(n * ((_ONE_SIDED + _POWER) * spread / margin) ** 2))


def deciding_by_spread(spread: float, drop: float, margin: float, n: int) -> int | None:
    """``samples_deciding`` of a metric whose estimate from ``n`` samples has a standard error of ``spread``."""
    return samples_deciding(n * spread * spread, drop, margin, n)


def spread_of(low: float, high: float) -> float:
    """The standard error of an estimate whose 90 % interval is ``low`` to ``high``."""
    return (high - low) / (2 * _ONE_SIDED)
