"""Two grids in a row of which a pass leaves the last: what the first rounded,
and what it held back.
"""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis_units import Made

from qbench.diagnosis.units import whole_unit
from qbench.judging import Cause

FEEDS = {"x": np.arange(256, dtype=np.uint8).reshape(8, 32)}


def graph(between: float, *, first: bool = True) -> ir.Model:
    """x → LeakyRelu → grid of 8 bits with the step ``between``, unless it is not ``first`` →
    grid of steps of 0.05.
    """
    inside = "p = QuantizeLinear(b, t, z)\n c = DequantizeLinear(p, t, z)"
    return ir.from_onnx_text(
        f"""<ir_version: 10, opset_import: ["" : 21]>
net (uint8[8, 32] x) => (uint8[8, 32] q)
<float s = {{0.04}}, float t = {{{between}}}, float u = {{0.05}}, uint8 z = {{128}}>
{{
    a = DequantizeLinear(x, s, z)
    b = LeakyRelu <alpha = 0.3> (a)
    {inside if first else "c = Identity(b)"}
    q = QuantizeLinear(c, u, z)
}}"""
    )


def chain(between: float) -> Made:
    unit = whole_unit(graph(between), "q")
    assert unit is not None
    assert unit.feeds == ("x",)
    one = Made(original=graph(between), unit=unit, feeds=FEEDS, floats={}, expected=FEEDS["x"])
    return replace(one, expected=unit.reals(one.levels()))


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("between", "cause", "words"),
    [
        (0.043, Cause.ROUNDING, "not rounded to 'p' in between"),
        (0.02, Cause.ABSORBED_CLIP, "'p' does not hold back in between"),
    ],
)
def test_a_chain_that_keeps_its_last_grid_alone(between, cause, words):
    made = chain(between)
    named = made.cause(made.levels(graph=graph(between, first=False)), original=False)
    assert named.cause is cause
    assert words in named.evidence
    assert named.weight > 0.999


def test_a_chain_that_is_left_alone_has_no_cause():
    assert chain(0.043).cause(original=False).cause is None
