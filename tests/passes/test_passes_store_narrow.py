"""Reals with several readers are stored once, narrow; what that saves is counted, and no branch
is computed twice.
"""

import numpy as np
import onnx_ir as ir
import pytest
from chains import operators, run_qdq, text

from qbench.graph import check_convention
from qbench.numerics import QParams, fake_quantize
from qbench.passes import Pipeline, Policy, run_pipeline, standard_pipeline
from qbench.passes.rewrites.store_narrow import StoreNarrow
from qbench.passes.stored_values import Shared, storage_cost

PASSES = Pipeline((StoreNarrow(),))
CONSTANTS = [
    *(
        "float s = {0.05}",
        "int8 z = {0}",
        "float t = {0.1}",
        "int8 w = {-128}",
        "int8 l = {-120}",
        "int8 h = {100}",
    ),
    f"float[4,4,1,1] k = {{{', '.join(str(np.cos(i).round(3)) for i in range(16))}}}",
]
BRANCH = [
    *(
        "q{n} = QuantizeLinear({x}, t, w)",
        "d{n} = DequantizeLinear(q{n}, t, w)",
        "c{n} = Conv(d{n}, k)",
    ),
    *("s{n} = Add(c{n}, {x})", "r{n} = Relu(s{n})"),
]


def residual(blocks: int) -> ir.Model:
    """A Conv and a Relu, then blocks: quantized for a Conv,
    whose result the unquantized value is added to.
    """
    lines, value = ["c = Conv(x, k)", "r = Relu(c)"], "r"
    for n in range(blocks):
        lines += [line.format(n=n, x=value) for line in BRANCH]
        value = f"r{n}"
    return text("float[2,4,5,5] x", "float[2,4,5,5] y", CONSTANTS, [*lines, f"y = Neg({value})"])


def stored(model: ir.Model) -> ir.Model:
    return run_pipeline(model, PASSES, Policy.FAST).model


def test_a_residual_branch_is_stored_once_and_not_computed_twice() -> None:
    before = residual(1)
    wide, again = storage_cost(before, Shared.STORED), storage_cost(before, Shared.RECOMPUTED)
    elements = 4 * 5 * 5
    # r in 32 bits, its levels and y: a product reads levels from memory, and takes the sum behind
    # it in
    assert (wide.intermediates, wide.bytes_written, dict(wide.recomputed)) == (2, 9 * elements, {})
    assert (again.intermediates, again.bytes_written) == (1, 5 * elements)
    assert dict(again.recomputed) == {"c": 1, "r": 1}
    after = stored(before)
    for shared in Shared:
        cost = storage_cost(after, shared)
        assert (cost.intermediates, cost.bytes_written, dict(cost.recomputed)) == (
            1,
            5 * elements,
            {},
        )
    assert check_convention(after) == ()
    assert not StoreNarrow().run(after)


def test_what_is_recomputed_grows_with_the_depth_and_is_gone_behind() -> None:
    before = residual(4)
    again = storage_cost(before, Shared.RECOMPUTED)
    assert again.recomputed["c"] == 4
    # the first branch, its sum too, is computed for the three levels behind it, and for the output
    assert again.recomputed["s0"] == again.recomputed["r0"] == again.recomputed["c0"] == 3
    assert again.recomputed_nodes == 2 * 4 + 3 * (3 + 2 + 1)
    assert storage_cost(before, Shared.STORED).intermediates == 8
    for shared in Shared:
        after = storage_cost(stored(before), shared)
        assert after.recomputed_nodes == 0
        assert after.intermediates == 4


def test_the_other_readers_read_what_is_rounded() -> None:
    before = residual(1)
    after = stored(before)
    image = np.random.default_rng(2).normal(size=(2, 4, 5, 5)).astype(np.float32)
    image[0, 0, 0] = [100.0, -100.0, 0.05, 0.15, 0.25]
    at = QParams(0.1, -128, "int8")
    kernel = np.array([np.cos(i).round(3) for i in range(16)], np.float32).reshape(4, 4)
    rows = np.maximum(np.einsum("oi,nihw->nohw", kernel, image), 0)
    levels = fake_quantize(rows, at)
    expected = -np.maximum(np.einsum("oi,nihw->nohw", kernel, levels) + levels, 0)
    close = np.isclose(run_qdq(after, x=image)["y"], expected, atol=1e-4)
    assert close.mean() > 0.98  # sums in another order may round otherwise
    assert not np.allclose(run_qdq(before, x=image)["y"], run_qdq(after, x=image)["y"], atol=1e-2)


def test_readers_before_the_quantizer_and_on_both_sides_of_a_sum_read_levels() -> None:
    lines = [
        *(
            "r = Relu(x)",
            "n = Neg(r)",
            "a = Add(r, r)",
            "b = Add(a, n)",
            "q = QuantizeLinear(r, t, w)",
        ),
        *("m = Clip(q, l, h)", "d = DequantizeLinear(m, t, w)", "y = Add(b, d)"),
    ]
    before = text("float[6] x", "float[6] y", CONSTANTS, lines)
    after = stored(before)
    assert operators(after).count("DequantizeLinear") == 4
    assert check_convention(after) == ()
    x = np.array([-1.0, 0.04, 0.05, 5.0, 22.8, 30.0], np.float32)
    held = fake_quantize(np.clip(x, 0.8, 22.8), QParams(0.1, -128, "int8"))
    np.testing.assert_allclose(run_qdq(after, x=x)["y"], held * 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("lines", "outputs", "why"),
    [
        (
            ["r = Relu(x)", "q = QuantizeLinear(r, t, w)", "y = DequantizeLinear(q, t, w)"],
            "y, float[6] r",
            None,
        ),
        (
            ["r = Relu(x)", "q = QuantizeLinear(r, t, w)", "y = DequantizeLinear(q, t, w)"],
            "y",
            None,
        ),
        (
            [
                "r = Relu(x)",
                "q = QuantizeLinear(r, t, w)",
                "d = DequantizeLinear(q, t, w)",
                "y = Add(r, d)",
            ],
            "y, float[6] r",
            "leaves the graph",
        ),
        (
            [
                *(
                    "r = Relu(x)",
                    "q = QuantizeLinear(r, t, w)",
                    "d = DequantizeLinear(q, t, w)",
                    "e = Add(r, d)",
                ),
                *("p = QuantizeLinear(r, s, z)", "f = DequantizeLinear(p, s, z)", "y = Add(e, f)"),
            ],
            "y",
            "quantized 2 times",
        ),
        (
            [
                *(
                    "r = Relu(x)",
                    "q = QuantizeLinear<axis=0>(r, g, o)",
                    "d = DequantizeLinear<axis=0>(q, g, o)",
                ),
                "y = Add(r, d)",
            ],
            "y",
            "per channel",
        ),
    ],
)
def test_what_gains_nothing_or_has_no_one_grid_is_left(
    lines: list[str], outputs: str, why: str | None
) -> None:
    channels = ["float[6] g = {1,2,3,4,5,6}", "int8[6] o = {0,0,0,0,0,0}"]
    before = text("float[6] x", f"float[6] {outputs}", [*CONSTANTS, *channels], lines)
    found = run_pipeline(before, PASSES, Policy.FAST)
    assert operators(found.model) == operators(before)
    assert [one.reason for one in found.declined if why is None or why not in one.reason] == []
    assert len(found.declined) == (why is not None)


def test_it_loses_and_is_never_run_unasked() -> None:
    assert all(
        one.name != "store-narrow" for policy in Policy for one in standard_pipeline(policy).passes
    )
    found = run_pipeline(residual(1), PASSES, Policy.ROUNDING)
    assert not found.accounts
    assert "lossy" in found.declined[0].reason


def test_movers_and_integers_are_counted_as_they_are_stored(words) -> None:
    lines = [
        *(
            "q = QuantizeLinear(x, s, z)",
            "d = DequantizeLinear(q, s, z)",
            "e = DequantizeLinear(q, s, z)",
        ),
        *("f = Transpose<perm=[0,2,1]>(d)", "g = Neg(e)", "p = MatMul(f, g)", "y = ReduceSum(p)"),
    ]
    found = storage_cost(text("float[1,3,3] x", "float[1,1,1] y", CONSTANTS, lines))
    # levels have two readers; both operands of a product lie in memory; its result does for the
    # reduction
    assert found.intermediates == 4
    assert found.bytes_written == 9 + 3 * 9 * 4 + 4
    words(str(found))
