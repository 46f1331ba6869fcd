"""Watching graphs at work: units, statistics, profiles, and the ranges that are taken from them."""

from qbench.calibration.calibration_run import calibrate, data_of
from qbench.calibration.histogram import Distribution, Histogram
from qbench.calibration.profile import PROFILE_VERSION, Profile
from qbench.calibration.ranges import RangeMethod, get_range_method
from qbench.calibration.ranges import catalogue as range_method_catalogue
from qbench.calibration.statistics import Statistics, equal_width_text
from qbench.calibration.watch import Watch, masked_values, prepare_watch
from qbench.calibration.watched import Rows, Unit, WatchedValue, units_of, watched_values

__all__ = [
    "PROFILE_VERSION",
    "Distribution",
    "Histogram",
    "Profile",
    "RangeMethod",
    "Rows",
    "Statistics",
    "Unit",
    "Watch",
    "WatchedValue",
    "calibrate",
    "data_of",
    "equal_width_text",
    "get_range_method",
    "masked_values",
    "prepare_watch",
    "range_method_catalogue",
    "units_of",
    "watched_values",
]
