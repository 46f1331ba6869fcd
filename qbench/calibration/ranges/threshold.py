"""From one threshold T ≥ 0 to an interval: [−T, T], without the side on which the tensor has nothing.

    [0, T] where low ≥ 0        [−T, 0] where high ≤ 0        else [−T, T]

On a symmetric grid it comes to the same scale T / qmax wherever the tensor has a positive side.
"""

import numpy as np
import numpy.typing as npt

from qbench.numerics import Interval


def around_zero(threshold: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> Interval:
    """The interval that ``threshold`` means for a tensor seen in [low, high]; numbers, or one a row."""
    ends = np.asarray(threshold, np.float64)
    below = np.asarray(low) < 0
    above = (np.asarray(high) > 0) | ~below
    return Interval(np.where(below, -ends, 0.0) + 0.0, np.where(above, ends, 0.0) + 0.0)
