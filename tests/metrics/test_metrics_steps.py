"""Differences of two tensors: against a loop over scalars, and what NaN, infinities and zeros
of either sign are.
"""

import math
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.metrics import Differences, count_differences, unequal

FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0]),
    st.floats(-1e3, 1e3, width=32),
)


def counted_one_by_one(ours: list[float], theirs: list[float], scales: list[float]) -> Differences:
    """The definition, element by element, in Python floats."""
    differing = unbounded = 0
    gaps, steps = [0.0], [0.0]
    for a, b, scale in zip(ours, theirs, scales, strict=True):
        if a == b or (math.isnan(a) and math.isnan(b)):
            continue
        differing += 1
        if not (math.isfinite(a) and math.isfinite(b)):
            unbounded += 1
            continue
        gaps.append(abs(a - b))
        found = abs(a - b) / scale
        near = max(round(found), 1)
        steps.append(near if abs(found - near) <= 2**-24 * (abs(a) + abs(b)) / scale else found)
    largest = max((abs(b) for b in theirs if math.isfinite(b)), default=0.0) or float(
        np.finfo(np.float32).tiny
    )
    return Differences(
        elements=len(ours),
        differing=differing,
        unbounded=unbounded,
        steps=max(steps),
        relative=max(gaps) / max(largest, float(np.finfo(np.float32).tiny)),
    )


@settings(max_examples=60)
@given(
    st.lists(st.tuples(FLOATS, FLOATS, st.booleans()), min_size=1, max_size=12),
    st.lists(st.floats(0.01, 4), min_size=2, max_size=2),
)
def test_every_count_is_that_of_a_loop(
    pairs: list[tuple[float, float, bool]], scales: list[float]
) -> None:
    ours = np.array([[a, a] for a, _, _ in pairs], np.float32)
    theirs = np.array([[a if same else b] * 2 for a, b, same in pairs], np.float32)
    found = count_differences(ours, theirs, np.array(scales))
    flat = [[float(v) for v in array.ravel()] for array in (ours, theirs)]
    assert found == counted_one_by_one(*flat, list(chain.from_iterable(scales for _ in pairs)))


def test_values_are_compared_not_bits() -> None:
    ours = np.array([0.0, math.nan, math.inf, 2.0], np.float32)
    theirs = np.array([-0.0, -math.nan, math.inf, 2.0], np.float32)
    assert not unequal(ours, theirs).any()
    assert count_differences(ours, theirs) == Differences(elements=4)
    assert not unequal(np.array([3], np.int64), np.array([3], np.int64)).any()


def test_a_step_is_a_step_on_grids_of_16_bits_too() -> None:
    levels = np.arange(0, 65535, 97)
    scale = np.float32(0.0123)
    found = count_differences(
        (levels * scale).astype(np.float32), ((levels + 1) * scale).astype(np.float32), scale
    )
    assert (found.differing, found.steps) == (levels.size, 1.0)
    assert count_differences(levels, levels + 3, np.ones(())).steps == 3.0
    assert count_differences(levels, levels + 3).steps is None


@pytest.mark.parametrize("bits", [8, 16])
@given(
    st.floats(2.0**-30, 2.0**10, width=32),
    st.integers(0, 65535),
    st.integers(0, 65535),
    st.integers(-32768, 32767),
)
def test_levels_apart_are_whole_steps_apart_at_any_scale(
    bits: int, scale: float, first: int, second: int, zero: int
) -> None:
    levels = np.array([first, second]) >> (16 - bits)
    real = (levels - (zero >> (16 - bits))).astype(np.float32) * np.float32(scale)
    found = count_differences(real[:1], real[1:], np.array(scale))
    assert found.steps == abs(int(levels[0]) - int(levels[1]))


@pytest.mark.parametrize("apart", [1e-6, 0.004, 0.49, 1.004, 1.5])
def test_a_part_of_a_step_is_neither_none_nor_a_whole_one(apart: float) -> None:
    """Around 0, where floats are fine, a thousandth of a step is seen; below 1 it is never
    rounded to nothing.
    """
    found = count_differences(np.array([apart], np.float32), np.zeros(1, np.float32), np.ones(()))
    assert found.steps == pytest.approx(apart, rel=1e-6)
    assert found.steps is not None
    assert not found.steps.is_integer()


def test_a_scale_of_its_own_for_each_slice() -> None:
    found = count_differences(
        np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), np.array([[1.0, 0.25]])
    )
    assert (found.steps, found.relative) == (4.0, 1.0)


def test_counts_of_tensors_add_up_and_their_largest_stays() -> None:
    first = Differences(elements=5, differing=2, unbounded=1, steps=None, relative=0.5)
    second = Differences(elements=7, differing=1, steps=2.0, relative=0.1)
    joined = Differences(elements=12, differing=3, unbounded=1, steps=2.0, relative=0.5)
    assert first.joined(second) == second.joined(first) == joined


def test_a_difference_from_a_tensor_of_zeros_is_finite() -> None:
    found = count_differences(np.array([1e-3]), np.zeros(1))
    assert math.isfinite(found.relative)
    assert found.relative > 1e30


def test_results_of_other_sizes_differ_in_every_element_and_those_of_other_ranks_are_refused() -> (
    None
):
    boxes, fewer = np.zeros((5, 3), np.int64), np.zeros((4, 3), np.int64)
    found = count_differences(fewer, boxes)
    assert (found.elements, found.differing, found.unbounded) == (15, 15, 15)
    with pytest.raises(ValueError, match="shapes"):
        count_differences(boxes, boxes[0])
