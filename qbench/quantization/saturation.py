"""Counting the entries of a constant that its grid cannot hold.

saturated = #{ x : round_half_even(x / scale) + zero_point outside [qmin, qmax] }
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics import QParams


def saturated_entries(array: npt.NDArray[Any], qparams: QParams) -> int:
    """How many elements of ``array`` (real, finite) ``quantize`` would saturate: float32 division, as there."""
    scale, point = qparams.expanded(array.shape)
    with np.errstate(over="ignore"):
        levels = np.asarray(np.divide(array.astype(np.float32, copy=False), scale, dtype=np.float32))
        np.rint(levels, out=levels)
    low, high = (np.float64(end) - point for end in (qparams.qmin, qparams.qmax))
    return int(np.count_nonzero(levels < low)) + int(np.count_nonzero(levels > high))
