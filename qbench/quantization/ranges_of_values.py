"""Ranges of watched values by the methods that specs name, each searched for once.

Per channel the range is that of the channel's extremes, all that a profile keeps of channels; axis 1 is theirs.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from qbench.calibration import Distribution, Profile, Statistics
from qbench.errors import InputError
from qbench.numerics import GridKind, Interval, QParams
from qbench.quantization.spec import Granularity, Spec

CHANNELS = 1
_PLAIN = "minmax"


class Ranges:
    """The ranges of one profile's values; keeps what it found, so that plans of many schemas search once.

    The digest of the profile is kept, too: every plan names it.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._found: dict[tuple[str, str, GridKind], Interval | str] = {}
        self._distributions: dict[str, Distribution] = {}

    @cached_property
    def profile_digest(self) -> str:
        """The digest of the profile."""
        return self._profile.digest

    def problem(self, name: str) -> str | None:
        """What is wrong with the statistics of the value ``name``; None when it has a range."""
        statistics = self._profile.values.get(name)
        if statistics is not None and statistics.infinite:
            return f"'{name}' was infinite {statistics.infinite:,} times in calibration"
        return None if statistics is not None and statistics.count else f"the profile has no statistics of '{name}'"

    def absmax(self, name: str) -> float:
        """The largest magnitude of the value ``name``, which has no ``problem``."""
        return self._distribution(name).absmax

    def interval(self, name: str, spec: Spec) -> Interval | str:
        """The range of the value ``name`` that ``spec`` asks for, 0-d or one a channel, or why there is none."""
        if (problem := self.problem(name)) is not None:
            return problem
        statistics = self._profile.values[name]
        if spec.granularity is Granularity.CHANNEL:
            return _of_channels(name, statistics, spec)
        key = (name, spec.range_method, spec.kind)
        if key not in self._found:
            self._found[key] = self._searched(name, spec)
        return self._found[key]

    def _searched(self, name: str, spec: Spec) -> Interval | str:
        try:
            return spec.method.of_distribution(self._distribution(name), spec.kind)
        except InputError as error:
            return f"'{name}' has no range by {spec.range_method}: found {error.found}, expected {error.expected}"

    def _distribution(self, name: str) -> Distribution:
        if name not in self._distributions:
            self._distributions[name] = self._profile.values[name].distribution()
        return self._distributions[name]

    def qparams(self, names: tuple[str, ...], spec: Spec, beside: Interval | None = None) -> QParams | str:
        """The grid that covers the ranges of all of ``names`` (at least one), or why there is none.

        Args:
            names: of values.
            spec: the grid and the range method.
            beside: what it is to cover, too: 0-d.
        """
        lows: list[npt.NDArray[np.float64]] = []
        highs: list[npt.NDArray[np.float64]] = []
        for name in names:
            interval = self.interval(name, spec)
            if isinstance(interval, str):
                return interval
            if lows and interval.low.shape != lows[0].shape:
                return f"'{names[0]}' and '{name}' have different channels, and one grid for both is asked for"
            lows.append(interval.low)
            highs.append(interval.high)
        if beside is not None:
            lows.append(beside.low)
            highs.append(beside.high)
        axis = CHANNELS if lows[0].ndim else None
        try:
            return spec.kind.choose(np.minimum.reduce(lows), np.maximum.reduce(highs), axis=axis)
        except InputError as error:
            return f"no grid for '{names[0]}' as {spec}: found {error.found}"


def _of_channels(name: str, statistics: Statistics, spec: Spec) -> Interval | str:
    lows, highs = statistics.channel_lows, statistics.channel_highs
    if lows is None or highs is None:
        return f"the profile has no channels of '{name}': profile with channels, where it has them"
    if spec.range_method != _PLAIN:
        return f"'{name}' has no range by {spec.range_method}: of channels a profile keeps extremes only"
    seen = lows <= highs
    return Interval(np.where(seen, lows, 0.0), np.where(seen, highs, 0.0))
