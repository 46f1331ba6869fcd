"""Faults of calibration."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from qbench.calibration import Profile, Statistics
from qbench.faults.fault import Array, Fault, ProfileFault, Random, Stage, Story, is_requantized
from qbench.graph import op_spec
from qbench.judging import Cause

_POINTS = 4096
"""Numbers that statistics are made of again."""
_GROWN, _UNNORMALIZED = 4.0, 16.0
_KEPT = 0.95
"""Weight of what was there in a moving average, as calibrators have it
(docs/findings/averaged-extremes.md).
"""


def _numbers(statistics: Statistics) -> Array:
    """About ``_POINTS`` float64 numbers with the distribution and the extremes of the seen ones."""
    spread = statistics.distribution()
    counts = np.maximum(spread.counts * (_POINTS / max(int(spread.counts.sum()), 1)), 1).astype(
        np.int64
    )
    return np.concatenate([np.repeat(spread.points, counts), [statistics.low, statistics.high]])


def _scaled(by: float) -> Callable[[Profile, str, Random], Statistics]:
    return lambda profile, name, _: Statistics.of(
        (_numbers(profile.values[name]) * by).astype(np.float32)
    )


def _of_samples(statistics: Statistics, first: int, last: int) -> Statistics:
    """What lies within the extremes of samples ``first`` to before ``last``."""
    lows, highs = statistics.sample_lows, statistics.sample_highs
    if lows is None or highs is None or not np.isfinite(lows[first:last]).any():
        return statistics
    return _within(statistics, float(lows[first:last].min()), float(highs[first:last].max()))


def _within(statistics: Statistics, low: float, high: float) -> Statistics:
    """What lies from ``low`` to ``high``, which become the extremes."""
    numbers = _numbers(statistics)
    kept = numbers[(numbers >= low) & (numbers <= high)]
    return Statistics.of(np.concatenate([kept, [low, high]]).astype(np.float32))


def _count(statistics: Statistics) -> int:
    return 0 if statistics.sample_lows is None else len(statistics.sample_lows)


def _one_sample(profile: Profile, name: str, random: Random) -> Statistics:
    statistics = profile.values[name]
    chosen = int(random.integers(max(_count(statistics), 1)))
    return _of_samples(statistics, chosen, chosen + 1)


def _last_chunk(profile: Profile, name: str, _: Random) -> Statistics:
    """Chunks of eight; the last is what was left over."""
    statistics = profile.values[name]
    count = _count(statistics)
    return _of_samples(statistics, count - (count % 8 or 3), count)


def _averaged(profile: Profile, name: str, _: Random) -> Statistics:
    """Each extreme is a moving average over the samples, in their order."""
    statistics = profile.values[name]
    lows, highs = statistics.sample_lows, statistics.sample_highs
    if lows is None or highs is None or not np.isfinite([*lows, *highs]).all():
        return statistics
    low, high = (_moving_average(extremes) for extremes in (lows, highs))
    return _within(statistics, low, high)


def _moving_average(numbers: Array) -> float:
    found = float(numbers[0])
    for number in numbers[1:]:
        found = _KEPT * found + (1 - _KEPT) * float(number)
    return found


def _before_nan(profile: Profile, name: str, random: Random) -> Statistics:
    """A comparison with NaN is false: behind the sample that had one, no extreme is taken over
    any more.
    """
    statistics = profile.values[name]
    return _of_samples(statistics, 0, int(random.integers(1, max(_count(statistics) // 4, 2))))


def _of_another(profile: Profile, name: str, random: Random) -> Statistics:
    """Those of a value whose range is another one, half as wide or twice at least, where there
    is such a value.
    """
    own = profile.values[name]
    width = own.high - own.low
    others = [
        key
        for key, one in profile.values.items()
        if one.count and not 0.5 < (one.high - one.low) / width < 2.0
    ]
    return profile.values[others[int(random.integers(len(others)))]] if others else own


def _with_outlier(profile: Profile, name: str, random: Random) -> Statistics:
    numbers = _numbers(profile.values[name])
    far = (
        np.abs(numbers).max()
        * random.uniform(20.0, 40.0)
        * (1.0 if numbers.max() >= -numbers.min() else -1.0)
    )
    return Statistics.of(np.append(numbers, far).astype(np.float32))


def _fits(node: ir.Node) -> bool:
    # what moves numbers keeps the qparams of its operand
    return is_requantized(node) and not op_spec(node).moved


FAULTS = (
    Fault(
        "stale-calibration",
        "A range is that of older weights, whose results were four times smaller.",
        Story(
            "NVIDIA/TensorRT#3137", "A calibration cache of another model was read without a word."
        ),
        ProfileFault(_scaled(1 / _GROWN)),
        _fits,
        (Cause.CALIBRATION, Cause.CLIPPING),
        Stage.CALIBRATION,
    ),
    Fault(
        "calibrated-on-one-sample",
        "A range is taken from one sample.",
        Story(
            "pytorch/pytorch#45185",
            "Accuracy was anything from 0 to 87 %, depending on what was calibrated on.",
        ),
        ProfileFault(_one_sample),
        _fits,
        (Cause.CALIBRATION, Cause.CLIPPING),
        Stage.CALIBRATION,
    ),
    Fault(
        "only-last-chunk-counts",
        "Of calibration data that comes in chunks, the last, incomplete one counts.",
        Story(
            "microsoft/onnxruntime#20226",
            "With a limit on kept outputs, calibration lost all chunks but the last.",
        ),
        ProfileFault(_last_chunk),
        _fits,
        (Cause.CALIBRATION, Cause.CLIPPING),
        Stage.CALIBRATION,
    ),
    Fault(
        "extremes-averaged",
        "A range ends at a moving average of the samples' minima and maxima, not at the outermost.",
        Story(
            "Samsung/ONE#3047",
            "Averaged minima and maxima of single samples clipped too much, and a percentile "
            "replaced them.",
        ),
        ProfileFault(_averaged),
        _fits,
        (Cause.CALIBRATION, Cause.CLIPPING),
        Stage.CALIBRATION,
    ),
    Fault(
        "nan-swallowed",
        "Behind a sample with a NaN no extreme is taken over any more.",
        Story(
            "microsoft/onnxruntime#23749", "Calibration took minima and maxima that NaN had spoilt."
        ),
        ProfileFault(_before_nan),
        _fits,
        (Cause.CALIBRATION, Cause.CLIPPING),
        Stage.CALIBRATION,
    ),
    Fault(
        "range-of-another-value",
        "A value gets the range of another one.",
        Story(
            "PaddlePaddle/Paddle#31103",
            "Scales of outputs were handed on to the wrong operators, and int8 failed.",
        ),
        ProfileFault(_of_another),
        _fits,
        (Cause.CALIBRATION, Cause.CLIPPING),
        Stage.CALIBRATION,
    ),
    Fault(
        "calibrated-unnormalized",
        "A range is that of inputs which were not normalized: sixteen times too wide.",
        Story(
            "pytorch/glow#2009",
            "How pictures were normalized cost more accuracy than quantizing did.",
        ),
        ProfileFault(_scaled(_UNNORMALIZED)),
        _fits,
        (Cause.CALIBRATION, Cause.DEAD_RANGE),
        Stage.CALIBRATION,
    ),
    Fault(
        "outlier-in-calibration",
        "One number far out stretches a range.",
        Story(
            "Samsung/ONE#7236",
            "The lowest float, which padded a pool, would have become part of a recorded range.",
        ),
        ProfileFault(_with_outlier),
        _fits,
        (Cause.CALIBRATION, Cause.RANGE_OUTLIER),
        Stage.CALIBRATION,
    ),
)
