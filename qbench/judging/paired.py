"""Paired statistics of one cell against its reference on the same n samples: b losses, c gains, d = (c − b)/n.

McNemar's mid-p asks whether there is any change; the intervals say how large it may be. Formulas: Fagerland, Lydersen
and Laake, BMC Med Res Methodol 13:91 (2013), mid-p; Tango, Stat Med 17:891 (1998), score; Bonett and Price, J Educ
Behav Stat 37:479 (2012), adjusted Wald; Newcombe, Stat Med 17:2635 (1998), method 10.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Literal

Method = Literal["tango", "bonett-price", "newcombe"]
Interval = tuple[float, float]

_BISECTIONS = 60
"""Halvings of an interval of length 1: the last is far below the precision of a float near any limit."""


def mcnemar_midp(losses: int, gains: int) -> float:
    """Two-sided mid-p of "no change": 2 P(X < m) + P(X = m) with X ~ Binomial(b + c, ½), m = min(b, c).

    In whole numbers up to the last division, so that no count is too large. With b = c it is 1.

    Raises:
        ValueError: a count is negative.
    """
    if min(losses, gains) < 0:
        raise ValueError(f"{losses} losses and {gains} gains: counts are not negative")
    flips, fewer = losses + gains, min(losses, gains)
    term, below = 1, 0  # C(flips, k) and Σ C(flips, i < k)
    for k in range(fewer):
        below += term
        term = term * (flips - k) // (k + 1)
    return float(min(1.0, (2 * below + term) / (1 << flips)))


def loss_midp(losses: int, gains: int) -> float:
    """One-sided mid-p of "no loss": P(X > b) + P(X = b)/2 with X ~ Binomial(b + c, ½); small where much was lost.

    Raises:
        ValueError: a count is negative.
    """
    half = mcnemar_midp(losses, gains) / 2
    return half if losses >= gains else 1 - half


def paired_interval(
    losses: int,
    gains: int,
    n: int,
    *,
    confidence: float = 0.95,
    method: Method = "tango",
    both_right: int | None = None,
) -> Interval:
    """Two-sided interval for the change in accuracy, as fractions; negative is loss.

    Args:
        losses, gains, n: samples right before and wrong now, the reverse, and all there are.
        confidence: in (0, 1).
        method: ``tango`` for verdicts, ``bonett-price`` for display, ``newcombe`` as a second opinion.
        both_right: samples right both times. Only ``newcombe`` depends on it; None takes every sample that did not
            change for right, which is near the truth for accurate models.

    Raises:
        ValueError: impossible counts or confidence, or an unknown method.
    """
    if n < 1 or min(losses, gains) < 0 or losses + gains > n:
        raise ValueError(f"{losses} losses and {gains} gains among {n} samples are impossible")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence of {confidence} is impossible: it lies between 0 and 1")
    if both_right is not None and not 0 <= both_right <= n - losses - gains:
        raise ValueError(f"{both_right} samples right both times do not fit {losses} losses and {gains} gains of {n}")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    if method == "tango":
        return _tango(losses, gains, n, z)
    if method == "bonett-price":
        return _bonett_price(losses, gains, n, z)
    if method == "newcombe":
        return _newcombe(n - losses - gains if both_right is None else both_right, losses, gains, n, z)
    raise ValueError(f"unknown method '{method}': choose tango, bonett-price or newcombe")


def tango_statistic(losses: int, gains: int, n: int, change: float, *, less: float = 0.0) -> float:
    """Tango's T of the hypothesis that the true change in accuracy is ``change``: ~ N(0, 1) when it is.

    p solves 2n p² + B p + C = 0 with B = −b − c + (2n − c + b) D and C = −b D (1 − D), the larger root;
    T = (c − b − n D) / √(n (2p + D (1 − D))). ``less`` samples are taken off the distance c − b − n D, to
    zero at most: a correction for continuity.
    """
    linear = -losses - gains + (2 * n - gains + losses) * change
    constant = -losses * change * (1 - change)
    root = (math.sqrt(max(linear * linear - 8 * n * constant, 0.0)) - linear) / (4 * n)
    variance = n * (2 * root + change * (1 - change))
    distance = gains - losses - n * change
    distance = math.copysign(max(abs(distance) - less, 0.0), distance)
    if variance <= 0:  # b = c = 0 and change → 0, or everything flipped: the hypothesis fits exactly or not at all
        return 0.0 if distance == 0 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def _tango(losses: int, gains: int, n: int, z: float) -> Interval:
    middle = (gains - losses) / n
    low = _border(lambda change: tango_statistic(losses, gains, n, change) <= z, inside=middle, outside=-1.0)
    high = _border(lambda change: tango_statistic(losses, gains, n, change) >= -z, inside=middle, outside=1.0)
    return low, high


def _border(holds: Callable[[float], bool], *, inside: float, outside: float) -> float:
    """Where ``holds`` stops holding between ``inside`` and ``outside``, by bisection."""
    if holds(outside):
        return outside
    for _ in range(_BISECTIONS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def _bonett_price(losses: int, gains: int, n: int, z: float) -> Interval:
    lost, gained = (losses + 1) / (n + 2), (gains + 1) / (n + 2)
    change = gained - lost
    half = z * math.sqrt((lost + gained - change * change) / (n + 2))
    return max(-1.0, change - half), min(1.0, change + half)


def _newcombe(both: int, losses: int, gains: int, n: int, z: float) -> Interval:
    """Method 10: Wilson limits of both accuracies, joined by their correlation φ, its numerator reduced by n/2."""
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


def _wilson(right: int, n: int, z: float) -> Interval:
    centre = (right + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(right * (n - right) / n + z * z / 4)
    return max(0.0, centre - half), min(1.0, centre + half)
