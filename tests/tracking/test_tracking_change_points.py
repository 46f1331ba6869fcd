"""Change points against brute force, and on the series that are easy to get wrong."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.tracking import Level, cut_levels, find_change_points, find_levels
from qbench.tracking.change_points import _cheapest


def found(values, *, min_effect=0.002, confirm=3):
    return find_change_points(values, min_effect=min_effect, confirm=confirm)


def cost_of(values, starts):
    parts = [np.array(values[a:b]) for a, b in itertools.pairwise([*starts, len(values)])]
    return sum(float(((p - p.mean()) ** 2).sum()) for p in parts) + 4 * math.log(len(values)) * (
        len(starts) - 1
    )


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=9))
def test_the_partition_is_the_cheapest_of_all(numbers):
    values = [float(n) for n in numbers]
    every = (
        [0, *cuts]
        for count in range(len(values))
        for cuts in itertools.combinations(range(1, len(values)), count)
    )
    cheapest = min(cost_of(values, starts) for starts in every)
    assert cost_of(values, _cheapest(np.array(values), 1.0)) == pytest.approx(cheapest, abs=1e-6)


@pytest.mark.parametrize(
    "values", [[], [0.76], [0.76, 0.76], [0.76] * 60, [math.nan] * 5, [math.nan, 0.7]]
)
def test_nothing_to_find(values):
    assert found(values) == []


@pytest.mark.parametrize("place", [3, 10, 30, 55, 57])
@pytest.mark.parametrize("step", [-0.02, -0.002, 0.01])
def test_a_deterministic_step_is_found_exactly(place, step):
    assert found([0.76] * place + [0.76 + step] * (60 - place)) == [place]


def test_several_steps():
    assert found([0.76] * 20 + [0.75] * 15 + [0.77] * 25) == [20, 35]
    assert found([0.9] * 5 + [0.8] * 5 + [0.7] * 5 + [0.6] * 5) == [5, 10, 15]


def test_a_step_of_one_sample_in_a_thousand_when_asked_for():
    values = [0.76] * 30 + [0.759] * 30
    assert found(values, min_effect=0.001) == [30]
    assert found(values, min_effect=0.002) == []


def test_small_steps_do_not_hide_large_ones():
    assert found([0.760] * 10 + [0.7595] * 10 + [0.740] * 10) == [20]


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("place", [1, 10, 40])
def test_a_spike_is_not_a_level(width, place):
    values = [0.76] * 60
    values[place : place + width] = [0.70] * width
    assert found(values) == []
    assert found(values, confirm=1) == [place, place + width]


@pytest.mark.parametrize("width", [1, 2])
def test_what_did_not_last_in_front_is_no_level(width):
    values = [0.70] * width + [0.76] * 30 + [0.74] * 10
    assert found(values) == [width + 30]
    assert find_levels(values, min_effect=0.002, confirm=3)[0].value == pytest.approx(0.76)
    assert found(values, confirm=1) == [width, width + 30]


def test_a_ragged_spike_is_not_a_level():
    assert found([0.76] * 20 + [0.70, 0.60] + [0.76] * 20) == []


def test_a_spike_beside_a_step_leaves_the_step():
    assert found([0.76] * 20 + [0.50] + [0.76] * 10 + [0.74] * 20) == [31]


@pytest.mark.parametrize(
    "out_of", [200, 400, 1000]
)  # at 200 the step is exactly the least that matters
@pytest.mark.parametrize("fault", [0.85, 1.0])
def test_a_short_fault_does_not_hide_the_step_behind_it(out_of, fault):
    values = [0.995] * 12 + [fault] * 2 + [0.985] * 8
    _, levels = cut_levels(values, data=["a"] * 22, out_of=[out_of] * 22)
    assert [(level.start, level.provisional) for level in levels] == [(0, False), (14, False)]
    assert [level.value for level in levels] == pytest.approx([0.995, 0.985])


def test_a_spike_does_not_bend_the_level_around_it():
    (level,) = find_levels([0.76] * 12 + [0.5] * 2 + [0.76] * 8, min_effect=0.002, confirm=3)
    assert level.value == pytest.approx(0.76)


def test_a_large_step_does_not_hide_a_small_one():
    assert found([0.76] * 20 + [0.56] * 20 + [0.55] * 20) == [20, 40]


def test_a_dip_that_lasts_is_two_steps():
    assert found([0.76] * 20 + [0.70] * 3 + [0.76] * 20) == [20, 23]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_level_that_only_begins_is_provisional(length):
    values = [0.76] * 30 + [0.74] * length
    levels = find_levels(values, min_effect=0.002, confirm=3)
    assert [level.start for level in levels] == [0, 30]
    assert levels[1].provisional == (length < 3)
    assert found(values) == ([30] if length == 3 else [])
    assert found(values, confirm=1) == [30]


def test_levels_have_their_means_and_ends():
    assert find_levels([1.0, 1.0, 1.0, 3.0, 3.0, 3.0], min_effect=0.5, confirm=2) == (
        Level(start=0, stop=3, value=1.0),
        Level(start=3, stop=6, value=3.0),
    )


def test_missing_runs_keep_their_places():
    values = [0.76, math.nan] * 10 + [math.nan] + [0.74, math.nan] * 10
    assert found(values) == [21]


def test_runs_with_two_machines_in_turn_are_not_a_step():
    assert found([0.76, 0.752] * 30) == []


def test_a_slow_slide_ends_lower_by_many_small_steps():
    values = [0.76 - 0.0005 * n for n in range(60)]
    positions = found(values)
    assert len(positions) >= 2
    assert positions == sorted(positions)


def test_the_scale_does_not_matter():
    values = [0.76] * 20 + [0.74] * 20
    assert found([100 * v for v in values], min_effect=0.2) == found(values) == [20]
    assert found([v + 1000 for v in values]) == [20]


def test_noise_raises_few_alarms_and_a_held_step_is_seen():
    rng = np.random.default_rng(20261121)
    quiet = [find_change_points(rng.normal(size=60), min_effect=2.0, confirm=3) for _ in range(200)]
    assert sum(map(bool, quiet)) <= 4
    seen = 0
    for _ in range(200):
        values = rng.normal(size=60)
        values[-15:] -= 3
        seen += any(abs(p - 45) <= 2 for p in find_change_points(values, min_effect=2.0, confirm=3))
    assert seen >= 190


@given(
    st.lists(st.floats(0, 1) | st.just(math.nan), max_size=30), st.floats(0, 0.5), st.integers(1, 5)
)
def test_positions_are_sorted_places_of_measured_values(values, min_effect, confirm):
    levels = find_levels(values, min_effect=min_effect, confirm=confirm)
    positions = find_change_points(values, min_effect=min_effect, confirm=confirm)
    assert positions == sorted(set(positions))
    assert all(0 < p < len(values) and not math.isnan(values[p]) for p in positions)
    for before, after in itertools.pairwise(levels):
        assert before.stop <= after.start
        assert abs(before.value - after.value) >= min_effect - 1e-9


@pytest.mark.parametrize(
    ("values", "min_effect", "confirm"),
    [
        ([0.1], -1, 3),
        ([0.1], 0.1, 0),
        ([0.1], math.inf, 3),
        ([math.inf], 0.1, 3),
        ([0.1], math.nan, 1),
    ],
)
def test_impossible_arguments(values, min_effect, confirm):
    with pytest.raises(ValueError, match=r"confirm|infinite"):
        find_change_points(values, min_effect=min_effect, confirm=confirm)
