"""Cells divided into jobs: each cell in one job, no model divided further than balance needs, and
the same cells give the same jobs.
"""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.judging import Cell
from qbench.suite import TimedModel, divide_among, divide_by_time, imbalance

BACKENDS, SCHEMAS = ("x", "y", "z"), ("fp32", "s", "t", "u")


def _models(times):
    """Models with one cell a backend and schema; ``times``: seconds of the cells of each."""
    found = []
    for place, seconds in enumerate(times):
        model = TimedModel("smoke", f"m{place:03d}")
        for (backend, schema), one in zip(product(BACKENDS, SCHEMAS), seconds, strict=True):
            model.add(backend, schema, one)
        found.append(model)
    return found


def _cells(count):
    return [
        Cell("smoke", f"m{place:03d}", *axes)
        for place in range(count)
        for axes in product(BACKENDS, SCHEMAS)
    ]


TIMES = st.lists(st.floats(0, 100), min_size=12, max_size=12)


@given(st.lists(TIMES, min_size=1, max_size=8), st.integers(1, 12))
def test_each_cell_is_in_one_job_and_the_counts_and_times_are_those_of_the_cells(times, count):
    jobs = divide_among(_models(times), count)
    assert len(jobs) == count
    for cell in _cells(len(times)):
        assert sum(unit.covers(cell) for job in jobs for unit in job) == 1
    units = [unit for job in jobs for unit in job]
    assert sum(unit.cells for unit in units) == 12 * len(times)
    total = math.fsum(unit.seconds for unit in units)
    assert total == pytest.approx(sum(map(sum, times)), abs=0.001 * len(units))


@given(st.lists(TIMES, min_size=1, max_size=8), st.integers(1, 12))
def test_the_same_cells_give_the_same_jobs(times, count):
    assert divide_among(_models(times), count) == divide_among(_models(times), count)


def test_equal_models_stay_whole_and_none_are_left_without_work():
    jobs = divide_among(_models([[1] * 12] * 6), 3)
    assert [[unit.model for unit in job] for job in jobs] == [
        ["m000", "m003"],
        ["m001", "m004"],
        ["m002", "m005"],
    ]
    assert {(unit.backends, unit.schemas) for job in jobs for unit in job} == {(None, None)}


def test_times_of_zero_are_spread_too():
    assert [len(job) for job in divide_among(_models([[0] * 12] * 6), 3)] == [2, 2, 2]


def test_a_long_model_is_divided_by_backend_and_a_long_backend_by_schema():
    """600 s of one model on three jobs, 480 of them on one backend."""
    jobs = divide_among(_models([[120] * 4 + [15] * 8]), 3)
    units = [unit for job in jobs for unit in job]
    assert imbalance(jobs) <= 1.2
    by_backend = {unit.backends for unit in units if unit.schemas is None}
    assert by_backend <= {("y",), ("z",), ("y", "z")}
    assert {unit.backends for unit in units if unit.schemas} == {("x",)}


def test_many_unequal_models_are_even():
    times = [[1 + (7 * place) % 97] * 12 for place in range(120)]
    assert imbalance(divide_among(_models(times), 50)) <= 1.1


def test_more_jobs_than_parts_leave_some_empty():
    assert sum(not job for job in divide_among(_models([[1] * 12]), 20)) == 8


def test_by_time():
    models = _models([[5] * 12] * 10)  # a minute each
    jobs = divide_by_time(models, 120)
    assert len(jobs) == 5
    assert {sum(unit.seconds for unit in job) for job in jobs} == {120}


def test_by_time_with_a_part_that_takes_longer():
    jobs = divide_by_time(_models([[500] + [1] * 11]), 60)
    assert max(sum(unit.seconds for unit in job) for job in jobs) == 500


def test_by_time_has_no_more_jobs_than_parts_of_a_rounded_time():
    """A part of 0.5327 s is 0.533 s in the plan: more jobs were tried for the difference."""
    times = [0.5327, 0.1018, 0.0534, 0.1204] + [0.0621] * 8
    jobs = divide_by_time(_models([times]), 0.06)
    assert len(jobs) == 3
    assert all(jobs)
    assert max(sum(unit.seconds for unit in job) for job in jobs) == 0.533
