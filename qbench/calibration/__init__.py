"""Watching graphs at work: units, statistics, profiles, and the ranges that are taken from them."""

from qbench.calibration.calibrating import calibrate
from qbench.calibration.profile import PROFILE_VERSION, Profile
from qbench.calibration.ranges import RangeMethod, get_range_method
from qbench.calibration.statistics import Statistics
from qbench.calibration.units import Unit, units_of
from qbench.calibration.watch import Watch, prepare_watch
from qbench.calibration.watched import WatchedValue, watched_values

__all__ = [
    "PROFILE_VERSION",
    "Profile",
    "RangeMethod",
    "Statistics",
    "Unit",
    "Watch",
    "WatchedValue",
    "calibrate",
    "get_range_method",
    "prepare_watch",
    "units_of",
    "watched_values",
]
