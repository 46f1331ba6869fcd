"""Duplicates of a quantizer become one; what differs in grid or limits does not."""

import numpy as np
import pytest
from chains import operators, run_machine, run_qdq, text

from qbench.passes import Pipeline, run_pipeline
from qbench.passes.rewrites.share_quantize import ShareQuantize

SHARE = Pipeline((ShareQuantize(),))
CONSTANTS = ["float s = {0.5}", "float t = {0.25}", "int8 z = {3}", "int8 l = {0}", "int8 h = {9}", "float o = {4.0}"]


def branches(second: str, third: str, grid: str = "s") -> list[str]:
    return [
        "a = QuantizeLinear(x, s, z)",
        "ad = DequantizeLinear(a, s, z)",
        "u = Relu(ad)",
        second,
        third,
        f"bd = DequantizeLinear(b, {grid}, z)",
        "v = Neg(bd)",
        "y = Add(u, v)",
    ]


def test_branches_of_a_residual_share_one_quantizer() -> None:
    model = text("float[6] x", "float[6] y", CONSTANTS, branches("k = QuantizeLinear(x, s, z)", "b = Identity(k)"))
    after = run_pipeline(model, SHARE).model
    assert operators(after).count("QuantizeLinear") == 1
    numbers = np.array([-9, -0.3, 0.1, 0.74, 0.76, 99], np.float32)
    for run in (run_qdq, run_machine):
        np.testing.assert_array_equal(run(after, x=numbers)["y"], run(model, x=numbers)["y"])


def test_levels_requantized_twice_are_requantized_once() -> None:
    lines = [
        "p = DequantizeLinear(x, t, z)",
        "a = QuantizeLinear(p, s, z)",
        "ad = DequantizeLinear(a, s, z)",
        "r = DequantizeLinear(x, t, z)",
        "b = QuantizeLinear(r, s, z)",
        "bd = DequantizeLinear(b, s, z)",
        "y = Add(ad, bd)",
    ]
    model = text("int8[256] x", "float[256] y", CONSTANTS, lines)
    done = run_pipeline(model, SHARE)
    assert done.removed == 2
    every = np.arange(-128, 128).astype(np.int8)
    np.testing.assert_array_equal(run_qdq(done.model, x=every)["y"], run_qdq(model, x=every)["y"])


@pytest.mark.parametrize(
    ("second", "third", "grid"),
    [
        ("k = QuantizeLinear(x, t, z)", "b = Identity(k)", "t"),
        ("k = QuantizeLinear(x, s, z)", "b = Clip(k, l, h)", "s"),
    ],
    ids=["another grid", "other limits"],
)
def test_what_differs_is_not_shared(second: str, third: str, grid: str) -> None:
    model = text("float[6] x", "float[6] y", CONSTANTS, branches(second, third, grid))
    assert run_pipeline(model, SHARE).removed == 0


def test_levels_that_leave_the_graph_keep_their_name() -> None:
    lines = ["a = QuantizeLinear(x, s, z)", "y = DequantizeLinear(a, s, z)", "b = QuantizeLinear(x, s, z)"]
    done = run_pipeline(text("float[6] x", "float[6] y, int8[6] b", CONSTANTS, lines), SHARE)
    assert operators(done.model).count("QuantizeLinear") == 2
    assert "leave the graph" in done.declined[0].reason
