"""An engine that declares rationals sums in float32, in the order of its BLAS:
no order makes a node a suspect.
"""

import time
from dataclasses import replace

import numpy as np
import pytest
from digits_targets import batches, machine, quantized, target
from float_orders import ORDERS, OrderedNpu

from qbench.diagnosis import float_sums
from qbench.diagnosis.capture import Budget
from qbench.diagnosis.float_sums import FloatSums
from qbench.diagnosis.hypotheses import OF_QPARAMS
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
        return {
            one.node: one.cause for one in graph.suspects if one.cause not in OF_QPARAMS
        }, graph.notes


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("order", ORDERS)
def test_no_order_of_sums_makes_a_suspect_or_a_note(order):
    assert localized(OrderedNpu(ORDERS[order]), "w8a8_asym_pt") == ({}, [])


@pytest.mark.slow
@pytest.mark.parametrize("order", ["permuted", "fused"])
def test_a_bias_that_is_a_thousandth_off_is_found_in_any_order(order):
    found, _ = localized(
        OrderedNpu(ORDERS[order], spoil=lambda bias: bias * np.float32(1.001)), "w8a8_asym_pc"
    )
    assert {"conv1", "conv2"} <= found.keys()
    assert found["conv1"] is Cause.WRONG_BIAS


def runs(schema, node):
    """The unit of ``node``, its inputs, its value before rounding and its codes."""
    unit = next(one for one in quantized_units(quantized(schema)) if one.node == node)
    (feeds,) = batches(1)
    with machine(arithmetic="ideal").prepare(quantized(schema), taps=[*unit.feeds]) as run:
        values = {**feeds, **run.run(feeds)}
    own = {name: values[name] for name in unit.feeds}
    with exact_backend().prepare(unit.graph, taps=[unit.real]) as run:
        steps = unit.in_steps({**own, **run.run(own)})
    return unit, own, steps, unit.rounded(steps)


@pytest.mark.parametrize("node", ["conv1", "conv2", "dense1"])
def test_a_step_at_a_value_between_two_ties_is_not_explained(node):
    unit, own, steps, codes = runs("w8a8_asym_pc", node)
    with FloatSums(unit) as sums:
        assert sums.explained(codes, codes, steps, own).mean() > 0.99
        assert sums.explained(codes + 1, codes, steps, own).mean() < 0.01


@pytest.mark.parametrize(
    ("schema", "is_exact"), [("w8a8_sym_pc_pow2", True), ("w8a8_asym_pc", False)]
)
def test_of_powers_of_two_every_order_is_exact(schema, is_exact):
    unit, own, _, _ = runs(schema, "conv2")
    with FloatSums(unit) as sums:
        bound = sums._bound(own)
    assert (bound == 0).all() if is_exact else (bound > 0).any()
    assert bound.max() < 0.05


def test_truncation_is_not_explained_where_the_bound_is_wide():
    """Of sums of very many terms the bound is steps wide,
    and would explain any rounding of a value.
    """
    real = np.random.default_rng(0).uniform(0, 255, 4096)
    wide = np.full(real.shape, 0.6)
    assert not float_sums._by_chance(np.floor(real) != np.rint(real), real, wide).any()
    moved = np.random.default_rng(1).uniform(0, 1, real.shape) < 0.1
    assert float_sums._by_chance(moved, real, wide).all()
