"""An engine that declares rationals sums in float32, in the order of its BLAS: no order makes a node a suspect."""

import time
from dataclasses import replace

import numpy as np
import pytest
from digits_targets import batches, machine, quantized, target
from float_orders import ORDERS, OrderedNpu

from qbench.diagnosis import float_sums
from qbench.diagnosis.capture import Budget
from qbench.diagnosis.float_sums import FloatSums
from qbench.diagnosis.hypotheses import OF_GRIDS
from qbench.diagnosis.localize_graph import LocalizedGraph
from qbench.diagnosis.unit_runs import exact_backend
from qbench.diagnosis.units import quantized_units
from qbench.judging import Cause

NEAR_TIES = (2, 16)
"""Batches in which every order but the exact one moves a value of ``w8a8_asym_pt`` over a tie."""


def localized(engine, schema):
    """The nodes that ``engine`` is wrong at with their causes, and the notes."""
    one = replace(target(engine, schema=schema), watched=machine(arithmetic="ideal"))
    with LocalizedGraph(one, several=False) as graph:
        for place in NEAR_TIES:
            graph.run(batches(place + 1)[place], lambda: None)
        assert graph.name_causes(Budget.begin(None, time.perf_counter), 5)
        return {one.node: one.cause for one in graph.suspects if one.cause not in OF_GRIDS}, graph.notes


@pytest.mark.parametrize("order", ORDERS)
def test_no_order_of_sums_makes_a_suspect_or_a_note(order):
    assert localized(OrderedNpu(ORDERS[order]), "w8a8_asym_pt") == ({}, [])


@pytest.mark.parametrize("order", ["permuted", "fused"])
def test_a_bias_that_is_a_thousandth_off_is_found_in_any_order(order):
    found, _ = localized(OrderedNpu(ORDERS[order], spoil=lambda bias: bias * np.float32(1.001)), "w8a8_asym_pc")
    assert {"conv1", "conv2"} <= found.keys()
    assert found["conv1"] is Cause.WRONG_BIAS


def explained(schema, changed, *, node="conv1"):
    """Of the codes of ``node`` moved by ``changed(t)``: where they differ, and where the order of sums explains it."""
    unit = next(one for one in quantized_units(quantized(schema)) if one.node == node)
    (feeds,) = batches(1)
    values = {**feeds}
    with machine(arithmetic="ideal").prepare(quantized(schema), taps=[*unit.feeds, unit.value]) as run:
        values |= run.run(feeds)
    own = {name: values[name] for name in unit.feeds}
    with exact_backend().prepare(unit.graph, taps=[unit.real]) as run:
        steps = unit.in_steps({**own, **run.run(own)})
    codes = unit.rounded(steps)
    found = changed(codes, steps + unit.zero_point)
    with FloatSums(unit) as sums:
        return found != codes, sums.explained(found, codes, steps, own)


def test_a_step_at_a_value_between_two_ties_is_not_explained():
    differing, found = explained("w8a8_asym_pc", lambda codes, _: codes + 1)
    assert differing.all()
    assert found.mean() < 1e-3


def test_where_float32_is_exact_no_tie_is_explained():
    """Powers of two as scales: every order gives the same sum, so that a tie that is rounded up is a rule."""
    up = lambda codes, real: np.maximum(codes, np.minimum(np.floor(real + 0.5), 127))  # noqa: E731
    differing, found = explained("w8a8_sym_pc_pow2", up)
    assert differing.any()
    assert not (differing & found).any()


def test_truncation_is_not_explained_where_the_bound_is_wide():
    """Of sums of very many terms the bound is steps wide, and would explain any rounding of a value."""
    real = np.random.default_rng(0).uniform(0, 255, 4096)
    wide = np.full(real.shape, 0.6)
    assert not float_sums._by_chance(np.floor(real) != np.rint(real), real, wide).any()
    moved = np.random.default_rng(1).uniform(0, 1, real.shape) < 0.1
    assert float_sums._by_chance(moved, real, wide).all()
