"""Does a sample show that a loss is within its margin m, or beyond it? One half of an equivalence test, three answers.

    PASS          T(−m) > z       the true change is above −m: no worse than the margin admits
    FAIL          T½(−m) < −z     it is below −m: worse than that
    INCONCLUSIVE  neither         this sample cannot tell

T is Tango's score statistic (``paired``), z the one-sided 5 % point of the normal distribution: PASS means that the
90 % interval lies above −m. Losses are few and whole, and their number is skewed: without a correction up to 7 % of the
samples whose loss is just the margin would be called FAIL, so T½ has half a sample taken off its distance. Then at most
one such sample in eighteen is called PASS, and one in eighteen FAIL (``benchmarks/verdicts.py`` counts them all; of
fewer than 200 samples one in thirteen, where every sample changes sides). FAIL fails a cell by every ``decision``.
For what is no share of samples the interval of a paired bootstrap takes its place.
"""

import enum
import math
from statistics import NormalDist

from qbench.judging.paired import tango_statistic

ALPHA = 0.05
"""The share of wrong PASS, and of wrong FAIL, where the true loss is just the margin."""
_HALF_A_SAMPLE = 0.5


class Evidence(enum.Enum):
    """What a sample shows about a loss and its margin."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


def margin_evidence(losses: int, gains: int, n: int, margin: float, *, alpha: float = ALPHA) -> Evidence:
    """What ``losses`` and ``gains`` among ``n`` samples show about a drop of ``margin``, a fraction from 0 on.

    A margin of the whole score or more admits everything.

    Raises:
        ValueError: impossible counts, margin or error.
    """
    if n < 1 or min(losses, gains) < 0 or losses + gains > n:
        raise ValueError(f"{losses} losses and {gains} gains among {n} samples are impossible")
    if not 0 <= margin < math.inf or not 0 < alpha < 0.5:
        raise ValueError(f"a margin of {margin} at an error of {alpha} is impossible")
    if margin >= 1:
        return Evidence.PASS
    z = NormalDist().inv_cdf(1 - alpha)
    if tango_statistic(losses, gains, n, -margin) > z:
        return Evidence.PASS
    worse = tango_statistic(losses, gains, n, -margin, less=_HALF_A_SAMPLE) < -z
    return Evidence.FAIL if worse else Evidence.INCONCLUSIVE


def interval_evidence(low: float, high: float, margin: float) -> Evidence:
    """What an interval of the change (negative is loss) shows, whose ends each err in ``ALPHA`` of all samples."""
    if low > -margin:
        return Evidence.PASS
    return Evidence.FAIL if high < -margin else Evidence.INCONCLUSIVE
