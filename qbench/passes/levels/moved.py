"""Quantizers at which a rewrite moved a level: none is moved twice, so that one site keeps to what it admits.

Merging a hundred requantizes one by one, each time by a step, would move a level by a hundred. What different sites
move still adds up on the way to an output (``passes.effect``).
"""

from qbench.passes.levels.border import Border
from qbench.passes.levels.difference import Difference

_KEY = "qbench.moved"


def moved_before(difference: Difference, *borders: Border) -> bool:
    """Whether ``difference`` would move a level at ``borders``, one of which moved some already."""
    return difference.steps > 0 and any(_KEY in border.quantizer.metadata_props for border in borders)


def mark_moved(difference: Difference, border: Border, *gone: Border) -> None:
    """Write into ``border`` that ``difference`` moved its levels, or that those of borders ``gone`` had been."""
    if difference.steps or any(_KEY in one.quantizer.metadata_props for one in gone):
        border.quantizer.metadata_props[_KEY] = "1"
