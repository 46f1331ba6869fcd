"""What is counted of a value under its qparams: clipped numbers, codes in use, channels."""

import numpy as np
import pytest

from qbench.calibration import Statistics
from qbench.diagnosis.distributions import _some_finite, of_array, of_statistics
from qbench.numerics import QParams
from qbench.reporting.distribution_chart import codes_text, distribution_svgs, facts_of

VALUES = np.array([-0.3, -0.1, 0.0, 0.0, 0.4, 1.0, 2.0, 2.55, 2.6, 3.5], np.float32)


def test_clipped_numbers_are_those_beyond_half_a_step():
    found = of_statistics("x", "", Statistics.of(VALUES), QParams(0.01, 0, "uint8"))
    assert (found.range_low, found.range_high) == pytest.approx((0.0, 2.55), abs=1e-6)
    assert (found.clipped_low, found.clipped_high) == (2, 2)  # 2.55 is the highest code itself
    assert found.clipped == 0.4
    assert sum(found.bins) == sum(found.codes) == found.count == len(VALUES)
    assert (found.left, found.right) == pytest.approx((-0.3, 3.5), abs=1e-6)
    assert (found.used, found.code_count, len(found.codes)) == (5, 256, 256)
    assert found.codes[0] == 4
    assert found.codes[255] == 3


def test_limits_of_a_narrower_type_are_its_range():
    qparams = QParams(0.1, 0, "uint8")
    found = of_statistics("x", "", Statistics.of(VALUES), qparams, (0, 15))
    assert found.range_high == pytest.approx(1.5)
    assert (found.clipped_high, found.code_count, len(found.codes)) == (4, 16, 16)
    assert "codes 0 … 15" in found.qparams


def test_a_profile_does_not_tell_codes_finer_than_its_cells():
    found = of_statistics("x", "", Statistics.of(VALUES), QParams(0.0001, 0, "uint16"))
    assert (found.codes, found.used) == ((), None)
    assert "not counted" in codes_text(found)
    assert found.clipped_high == 0


def test_weights_are_counted_by_the_parameters_of_their_channel():
    weight = np.array([[0.0, 1.0, -1.27], [0.0, 0.01, 0.5]], np.float32)
    qparams = QParams(np.float32([0.01, 0.001]), 0, "int8", axis=0)
    found = of_array("w", "conv.weight[1]", weight, qparams)
    assert (found.clipped_low, found.clipped_high) == (0, 1)  # 0.5 beyond 0.127
    assert found.used == 5  # 0, 100, −127 of the first; 0, 10, 127 of the second
    assert [one.used for one in found.channels] == [3, 3]
    assert [one.high for one in found.channels] == pytest.approx([1.0, 0.5])
    assert [one.range_high for one in found.channels] == pytest.approx([1.27, 0.127])
    assert found.unused == 1 - 3 / 256


def test_many_channels_are_joined_without_losing_an_extreme():
    rows = 1000
    weight = np.tile(np.linspace(-1, 1, 9, dtype=np.float32), (rows, 1))
    weight[777] *= 5
    weight[3] = 0.0
    found = of_array("w", "", weight, QParams(np.full(rows, 0.01, np.float32), 0, "int8", axis=0))
    assert len(found.channels) <= 128
    assert (found.channels[0].first, found.channels[-1].last) == (0, rows - 1)
    assert max(one.high for one in found.channels) == 5.0
    assert min(one.used for one in found.channels) == 1


def test_many_codes_are_drawn_in_groups():
    weight = np.linspace(-1, 1, 5000, dtype=np.float32)
    found = of_array("w", "", weight, QParams(2.0**-15, 0, "int16"))
    assert len(found.codes) == 256
    assert sum(found.codes) == 5000
    assert found.used == 5000
    assert found.code_count == 65536


@pytest.mark.parametrize("value", [0.0, 3.0, -3.0])
def test_a_constant_value_is_drawn(value):
    found = of_statistics("x", "", Statistics.of(np.full(7, value)), QParams(1.0, 0, "int8"))
    assert sum(found.bins) == 7
    assert len(distribution_svgs(found)) == 2


def test_pictures_escape_names_and_say_in_words_what_they_show():
    hostile = "<script>alert('x')</script>"
    weight = np.array([[0.5, 2.0], [0.1, 0.2]], np.float32)
    qparams = QParams(np.float32([0.01, 0.01]), 0, "int8", axis=0)
    pictures = distribution_svgs(of_array(hostile, hostile, weight, qparams))
    assert len(pictures) == 3
    for text in pictures:
        assert "<script" not in text
        assert "clipped: 25 %: 0 below, 1 above" in text
    assert 'class="beyond"' in pictures[2]
    assert dict(facts_of(of_array("w", "", weight, qparams)))["clipped"].startswith("25 %")


def test_of_a_large_value_whole_samples_are_counted():
    large = np.zeros((16, 1 << 18), np.float32)
    large[3, :5] = np.inf
    assert _some_finite(large).size == (1 << 20) - 5
    assert _some_finite(np.zeros((2, 1 << 21), np.float32)).size == 1 << 21
    assert _some_finite(np.float32(3.0).reshape(())).size == 1
