"""Duplicates of a quantizer become one; what differs in grid or limits does not."""

import numpy as np
import pytest
from chains import operators, run_machine, run_qdq, text

from qbench.passes import Pipeline, lower_to_integers, run_pipeline
from qbench.passes.rewrites.pairs import ShareQuantize

SHARE = Pipeline((ShareQuantize(),))
CONSTANTS = [
    "float s = {0.5}",
    "float t = {0.25}",
    "int8 z = {3}",
    "int8 l = {0}",
    "int8 h = {9}",
    "float o = {4.0}",
]


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
    model = text(
        "float[6] x",
        "float[6] y",
        CONSTANTS,
        branches("k = QuantizeLinear(x, s, z)", "b = Identity(k)"),
    )
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
    lines = [
        "a = QuantizeLinear(x, s, z)",
        "y = DequantizeLinear(a, s, z)",
        "b = QuantizeLinear(x, s, z)",
    ]
    done = run_pipeline(text("float[6] x", "float[6] y, int8[6] b", CONSTANTS, lines), SHARE)
    assert operators(done.model).count("QuantizeLinear") == 2
    assert "leaves the graph" in done.declined[0].reason


def test_a_product_with_a_pair_for_every_reader_counts_in_integers_before_and_after() -> None:
    """As ONNX Runtime's quantizer writes residual branches with DedicatedQDQPair."""
    rng = np.random.default_rng(2)
    weight = "{" + ",".join(map(str, rng.integers(-127, 128, 64).tolist())) + "}"
    constants = ["float s = {0.02}", "uint8 z = {128}", "float u = {0.01}", "int8 o = {0}",
                 "float t = {0.07}", f"int8[8,8] wq = {weight}"]  # fmt: skip
    lines = [
        "q = QuantizeLinear(x, s, z)", "d = DequantizeLinear(q, s, z)",
        "w = DequantizeLinear(wq, u, o)", "c = MatMul(d, w)",
        "a = QuantizeLinear(c, t, z)", "ad = DequantizeLinear(a, t, z)", "n = Neg(ad)",
        "b = QuantizeLinear(c, t, z)", "bd = DequantizeLinear(b, t, z)", "y = Add(n, bd)",
    ]  # fmt: skip
    model = text("float[64,8] x", "float[64,8] y", constants, lines)
    assert [node.op_type for node in lower_to_integers(model).graph].count("QLinearMatMul") == 1
    numbers = rng.normal(size=(64, 8)).astype(np.float32)
    after = run_pipeline(model, SHARE)
    assert after.removed == 1
    np.testing.assert_array_equal(
        run_machine(after.model, x=numbers)["y"], run_machine(model, x=numbers)["y"]
    )


def test_a_clip_that_stands_behind_the_readers_of_its_twin_moves_before_them() -> None:
    lines = [
        "a = QuantizeLinear(x, s, z)", "b = QuantizeLinear(x, s, z)",
        "bk = Clip(b, l, h)", "bd = DequantizeLinear(bk, s, z)", "v = Neg(bd)",
        "ak = Clip(a, l, h)", "ad = DequantizeLinear(ak, s, z)", "y = Add(ad, v)",
    ]  # fmt: skip
    model = text("float[6] x", "float[6] y", CONSTANTS, lines)
    done = run_pipeline(model, SHARE)
    assert done.removed == 2
    numbers = np.array([-9, -0.3, 0.1, 0.74, 0.76, 99], np.float32)
    np.testing.assert_array_equal(
        run_qdq(done.model, x=numbers)["y"], run_qdq(model, x=numbers)["y"]
    )
