"""Statistics of the same value over two sets of samples → those over both: minima, maxima and sums."""

from collections.abc import Sequence

import numpy as np

from qbench.calibration.statistics import Floats, Statistics


def merged_statistics(
    a: Statistics, b: Statistics, own: Sequence[str], others: Sequence[str], samples: Sequence[str]
) -> Statistics:
    """What was seen in ``a`` over the samples ``own`` and in ``b`` over ``others``; ``samples`` are all, in order."""
    sample_lows = sample_highs = None
    if a.sample_lows is not None and b.sample_lows is not None:
        sample_lows = np.minimum(
            _among(samples, own, a.sample_lows, np.inf), _among(samples, others, b.sample_lows, np.inf)
        )
    if a.sample_highs is not None and b.sample_highs is not None:
        sample_highs = np.maximum(
            _among(samples, own, a.sample_highs, -np.inf), _among(samples, others, b.sample_highs, -np.inf)
        )
    lows, highs = _channels(a, b)
    return Statistics(
        low=min(a.low, b.low),
        high=max(a.high, b.high),
        zeros=a.zeros + b.zeros,
        histogram=a.histogram.merge(b.histogram),
        infinite=a.infinite + b.infinite,
        not_negative=a.not_negative + b.not_negative,
        sample_lows=sample_lows,
        sample_highs=sample_highs,
        channel_lows=lows,
        channel_highs=highs,
    )


def _among(samples: Sequence[str], own: Sequence[str], ends: Floats, fill: float) -> Floats:
    """``ends`` of the samples ``own`` at their places among ``samples``, and ``fill`` at the others'."""
    known = dict(zip(own, ends.tolist(), strict=True))
    return np.array([known.get(sample, fill) for sample in samples], np.float64)


def _channels(a: Statistics, b: Statistics) -> tuple[Floats, Floats] | tuple[None, None]:
    """Extremes of channels; what was never seen changes nothing, and other channels leave none to speak of."""
    for one, other in ((a, b), (b, a)):
        if not one.count and not one.infinite:
            lows, highs = other.channel_lows, other.channel_highs
            return (None, None) if lows is None or highs is None else (lows, highs)
    if a.channel_lows is None or b.channel_lows is None or len(a.channel_lows) != len(b.channel_lows):
        return None, None
    assert a.channel_highs is not None
    assert b.channel_highs is not None
    return np.minimum(a.channel_lows, b.channel_lows), np.maximum(a.channel_highs, b.channel_highs)
