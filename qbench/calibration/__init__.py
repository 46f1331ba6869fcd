"""Watching graphs at work: units, statistics, profiles, and the ranges that are taken from them."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.calibration.calibration_run import calibrate as calibrate
    from qbench.calibration.calibration_run import data_of as data_of
    from qbench.calibration.histogram import Distribution as Distribution
    from qbench.calibration.histogram import Histogram as Histogram
    from qbench.calibration.profile import PROFILE_VERSION as PROFILE_VERSION
    from qbench.calibration.profile import Profile as Profile
    from qbench.calibration.ranges import RangeMethod as RangeMethod
    from qbench.calibration.ranges import counts_codes as counts_codes
    from qbench.calibration.ranges import get_range_method as get_range_method
    from qbench.calibration.ranges import range_method_catalogue as range_method_catalogue
    from qbench.calibration.statistics import Statistics as Statistics
    from qbench.calibration.statistics import equal_width_text as equal_width_text
    from qbench.calibration.watch import masked_values as masked_values
    from qbench.calibration.watch import prepare_watch as prepare_watch
    from qbench.calibration.watched import Rows as Rows
    from qbench.calibration.watched import Unit as Unit
    from qbench.calibration.watched import units_of as units_of
    from qbench.calibration.watched import watched_values as watched_values
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
