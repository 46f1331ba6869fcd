"""Statistics → the range that qparams are to represent: one file per method."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.calibration.ranges.method import FewBinsWarning as FewBinsWarning
    from qbench.calibration.ranges.method import RangeMethod as RangeMethod
    from qbench.calibration.ranges.minmax import MinMax as MinMax
    from qbench.calibration.ranges.registry import counts_codes as counts_codes
    from qbench.calibration.ranges.registry import get_range_method as get_range_method
    from qbench.calibration.ranges.registry import range_method_catalogue as range_method_catalogue
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
