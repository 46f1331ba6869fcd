"""Statistics that faults of calibration leave, against their rules in fractions."""

from fractions import Fraction

import numpy as np
import pytest

from qbench import calibrate
from qbench.faults import get_fault
from qbench.subjects import digits_arrays, get_model


@pytest.fixture(scope="module")
def profile():
    pictures, _ = digits_arrays(test=False)
    network = get_model("digits_cnn").graphs["model"]()
    return calibrate(network, [{"x": (pictures[:24] / 16).astype(np.float32)}])


def test_averaged_extremes_are_the_moving_average_of_every_sample_in_order(profile):
    key, healthy = max(profile.values.items(), key=lambda one: one[1].high)  # the logits
    assert len(healthy.sample_highs) == 24
    found = get_fault("extremes-averaged").injection.profiled(profile, key, None)
    for extreme, samples in (
        (found.low, healthy.sample_lows),
        (found.high, healthy.sample_highs),
    ):
        expected = Fraction(float(samples[0]))
        for one in samples[1:]:
            expected = Fraction(19, 20) * expected + Fraction(1, 20) * Fraction(float(one))
        assert extreme == pytest.approx(float(expected), rel=1e-5)
    assert healthy.low < found.low
    assert found.high < healthy.high
