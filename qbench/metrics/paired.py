"""Paired intervals: how far the share of right samples changed, from the losses and gains of
the same n samples.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Literal

# b losses, c gains, d = (c − b)/n. Formulas: Tango, Stat Med 17:891 (1998), score; Bonett and
# Price, J Educ Behav Stat 37:479 (2012), adjusted Wald; Newcombe, Stat Med 17:2635 (1998), method
# 10.

Method = Literal["tango", "bonett-price", "newcombe"]
Interval = tuple[float, float]

_BISECTIONS = 60
"""Halvings of an interval of length 1: the last is far below the precision of a float near any
limit.
"""


def paired_interval(
    losses: float,
    gains: float,
    n: float,
    *,
    confidence: float = 0.95,
    method: Method = "tango",
    both_right: float | None = None,
    effect: float = 1.0,
) -> Interval:
    """Two-sided interval for the change in accuracy, as fractions; negative is loss.

    Args:
        losses: samples right before and wrong now.
        gains: samples wrong before and right now.
        n: all samples.
        confidence: in (0, 1).
        method: ``tango`` for verdicts, ``bonett-price`` for display, ``newcombe`` as a second
            opinion.
        both_right: samples right both times. Only ``newcombe`` depends on it; None counts every
            sample that did not change as right, which is close for accurate models.
        effect: how many samples prove as much as one sample of a source of its own: all counts are
            divided by it (Rao and Scott, Biometrics 48:577, 1992).

    Raises:
        ValueError: impossible counts, confidence or effect, or an unknown method.
    """
    if n < 1 or min(losses, gains) < 0 or losses + gains > n:
        raise ValueError(f"{losses} losses and {gains} gains among {n} samples are impossible")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence of {confidence} is impossible: it lies between 0 and 1")
    if both_right is not None and not 0 <= both_right <= n - losses - gains:
        raise ValueError(
            f"{both_right} samples right both times do not fit {losses} losses and {gains} gains "
            f"of {n}"
        )
    if not 1 <= effect < math.inf:
        raise ValueError(f"an effect of {effect} is impossible: it is at least 1")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    both = n - losses - gains if both_right is None else both_right
    if effect != 1:
        both, losses, gains, n = both / effect, losses / effect, gains / effect, n / effect
    if method == "tango":
        return _tango(losses, gains, n, z)
    if method == "bonett-price":
        return _bonett_price(losses, gains, n, z)
    if method == "newcombe":
        return _newcombe(both, losses, gains, n, z)
    raise ValueError(f"unknown method '{method}': choose tango, bonett-price or newcombe")


def tango_statistic(
    losses: float, gains: float, n: float, change: float, *, less: float = 0.0
) -> float:
    """Tango's T of the hypothesis that the true change in accuracy is ``change``.

    It is distributed as N(0, 1) when that holds.

    p solves 2n p² + B p + C = 0 with B = −b − c + (2n − c + b) D and C = −b D (1 − D), the larger
    root; T = (c − b − n D) / √(n (2p + D (1 − D))). ``less`` samples are taken off the distance c −
    b − n D, to zero at most: a correction for continuity.
    """
    linear = -losses - gains + (2 * n - gains + losses) * change
    constant = -losses * change * (1 - change)
    root = (math.sqrt(max(linear * linear - 8 * n * constant, 0.0)) - linear) / (4 * n)
    variance = n * (2 * root + change * (1 - change))
    distance = gains - losses - n * change
    distance = math.copysign(max(abs(distance) - less, 0.0), distance)
    if variance <= 0:
        # b = c = 0 and change → 0, or everything flipped: the hypothesis fits exactly or not at all
        return 0.0 if distance == 0 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def wilson_interval(count: int, n: int, *, confidence: float = 0.95) -> Interval:
    """Wilson's two-sided interval of the share of which ``count`` of ``n`` were seen, as fractions.

    (0, 1) where nothing was looked at.

    Raises:
        ValueError: impossible counts or confidence.
    """
    if not 0 <= count <= n:
        raise ValueError(f"{count} of {n} are impossible")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence of {confidence} is impossible: it lies between 0 and 1")
    return _wilson(count, n, NormalDist().inv_cdf((1 + confidence) / 2)) if n else (0.0, 1.0)


def _tango(losses: float, gains: float, n: float, z: float) -> Interval:
    middle = (gains - losses) / n
    low = _border(
        lambda change: tango_statistic(losses, gains, n, change) <= z, inside=middle, outside=-1.0
    )
    high = _border(
        lambda change: tango_statistic(losses, gains, n, change) >= -z, inside=middle, outside=1.0
    )
    return low, high


def _border(holds: Callable[[float], bool], *, inside: float, outside: float) -> float:
    """Where ``holds`` stops holding between ``inside`` and ``outside``, by bisection."""
    if holds(outside):
        return outside
    for _ in range(_BISECTIONS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def _bonett_price(losses: float, gains: float, n: float, z: float) -> Interval:
    lost, gained = (losses + 1) / (n + 2), (gains + 1) / (n + 2)
    change = gained - lost
    half = z * math.sqrt((lost + gained - change * change) / (n + 2))
    return max(-1.0, change - half), min(1.0, change + half)


def _newcombe(both: float, losses: float, gains: float, n: float, z: float) -> Interval:
    """Method 10: Wilson limits of both accuracies, joined by their correlation φ, its numerator
    reduced by n/2.
    """
    neither = n - both - losses - gains
    now, before = both + gains, both + losses
    change = (now - before) / n
    now_low, now_high = _wilson(now, n, z)
    before_low, before_high = _wilson(before, n, z)
    spread = now * (n - now) * before * (n - before)
    product: float = both * neither - gains * losses
    if product > 0:
        product = max(product - n / 2, 0)
    phi = product / math.sqrt(spread) if spread else 0.0
    now_below, now_above = now / n - now_low, now_high - now / n
    before_below, before_above = before / n - before_low, before_high - before / n
    down = now_below**2 - 2 * phi * now_below * before_above + before_above**2
    up = now_above**2 - 2 * phi * now_above * before_below + before_below**2
    return max(-1.0, change - math.sqrt(max(down, 0.0))), min(1.0, change + math.sqrt(max(up, 0.0)))


def _wilson(right: float, n: float, z: float) -> Interval:
    centre = (right + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(right * (n - right) / n + z * z / 4)
    return max(0.0, centre - half), min(1.0, centre + half)
