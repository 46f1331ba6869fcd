"""The image of a clip on a grid: rounding never changes order, so a clip before Q is a clip of levels after it.

Q(min(max(x, low), high)) = min(max(Q(x), Q(low)), Q(high))        for every x, exactly
"""

from qbench.numerics.affine import quantize
from qbench.numerics.qparams import QParams


def clip_levels(low: float, high: float, qparams: QParams) -> tuple[int, int]:
    """The levels that a clip to [low, high] (infinite ends allowed) becomes on a grid per tensor.

    Where they are the ends of the grid, saturation does what the clip did.
    """
    ends = quantize([low, high], qparams)
    return int(ends[0]), int(ends[1])
