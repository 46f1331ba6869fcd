"""Statistics → the range that a grid is to represent, one method a file."""

from qbench.calibration.ranges.method import FewBinsWarning, RangeMethod
from qbench.calibration.ranges.minmax import MinMax
from qbench.calibration.ranges.registry import catalogue, get_range_method

__all__ = ["FewBinsWarning", "MinMax", "RangeMethod", "catalogue", "get_range_method"]
