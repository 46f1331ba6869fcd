"""A bias that was split from its product is fused back where the product has no grid of its
own, by its very levels.
"""

import numpy as np
import onnx_ir as ir
import pytest
from chains import operators, run_machine, run_qdq, text

from qbench.graph import constant_value
from qbench.passes import Pipeline, Policy, run_pipeline
from qbench.passes.rewrites.fuse_bias import FuseBias

FUSE = Pipeline((FuseBias(),))
RNG = np.random.default_rng(4)


def words(array: np.ndarray) -> str:
    return "{" + ",".join(str(v) for v in array.reshape(-1).tolist()) + "}"


WEIGHT = RNG.integers(-127, 128, (3, 2, 2, 2))
BIAS = RNG.integers(-9000, 9000, 3)
CONSTANTS = [
    "float s = {0.25}", "uint8 z = {7}", "float u = {0.125}", "float[3] v = {0.125,0.25,0.5}",
    "int8 o = {0}", "int8[3] oo = {0,0,0}", "float t = {9.0}", "int32 i = {0}",
    "int32[3] ii = {0,0,0}", "float b = {0.03125}", "float[3] bb = {0.03125,0.0625,0.125}",
    f"int8[3,2,2,2] wq = {words(WEIGHT)}", f"int32[3] bq = {words(BIAS)}",
    f"float[3,1,1] f = {words(np.round(BIAS * 0.031, 3))}", "int64[3] to = {3,1,1}",
]  # fmt: skip


def split(
    added: str, *, per_channel: bool = False, between: str = "c", grid: str = "t"
) -> ir.Model:
    weights = (
        "w = DequantizeLinear<axis=0>(wq, v, oo)"
        if per_channel
        else "w = DequantizeLinear(wq, u, o)"
    )
    lines = [
        "q = QuantizeLinear(x, s, z)", "d = DequantizeLinear(q, s, z)", weights, "c = Conv(d, w)",
        *([] if between == "c"
          else ["cq = QuantizeLinear(c, t, z)", "cd = DequantizeLinear(cq, t, z)"]),
        added, f"a = Add({between}, e)", f"r = QuantizeLinear(a, {grid}, z)",
        f"y = DequantizeLinear(r, {grid}, z)",
    ]  # fmt: skip
    return ir_shapes(text("float[2,2,5,5] x", "float[2,3,4,4] y", CONSTANTS, lines))


def ir_shapes(model: ir.Model) -> ir.Model:
    from qbench.graph import infer_shapes

    infer_shapes(model)
    return model


FLOAT = "e = Identity(f)"
DATA = (RNG.normal(size=(2, 2, 5, 5)) * 20).astype(np.float32)


def fold_identity(model: ir.Model) -> ir.Model:
    """A real constant under its own name."""
    for node in list(model.graph):
        if node.op_type == "Identity":
            node.outputs[0].replace_all_uses_with(node.inputs[0])
            model.graph.remove(node, safe=True)
    return model


@pytest.mark.parametrize("per_channel", [False, True])
def test_levels_moves_are_one_step_at_most_and_the_bias_is_on_the_product(
    per_channel: bool,
) -> None:
    model = fold_identity(split(FLOAT, per_channel=per_channel))
    done = run_pipeline(model, FUSE, Policy.ROUNDING)
    assert "Add" not in operators(done.model)
    (conv,) = (node for node in done.model.graph if node.op_type == "Conv")
    maker = conv.inputs[2].producer()
    scales = constant_value(maker.inputs[1])
    expected = np.float32(0.25) * np.array(
        [0.125, 0.25, 0.5] if per_channel else [0.125], np.float32
    )
    np.testing.assert_array_equal(scales.reshape(-1), expected)
    levels = constant_value(maker.inputs[0])
    np.testing.assert_array_equal(
        levels, np.rint(np.round(BIAS * 0.031, 3) / expected.astype(np.float64))
    )
    for run in (run_qdq, run_machine):
        apart = np.abs(run(done.model, x=DATA)["y"] - run(model, x=DATA)["y"])
        assert apart.max() <= 9.0
        assert np.unique(run(done.model, x=DATA)["y"]).size > 10
    again = run_pipeline(done.model, FUSE, Policy.ROUNDING)
    assert again.removed == 0


def test_a_fused_bias_is_counted_in_the_accumulator() -> None:
    """The oracle: the split sum with real numbers, exact in float64, rounded once."""
    model = fold_identity(split(FLOAT))
    done = run_pipeline(model, FUSE, Policy.ROUNDING)
    x_q = np.clip(np.rint(DATA / np.float32(0.25)) + 7, 0, 255).astype(np.int64) - 7
    acc = np.zeros((2, 3, 4, 4), np.int64)
    for i in range(2):
        for j in range(2):
            acc += np.einsum("nchw,oc->nohw", x_q[:, :, i : i + 4, j : j + 4], WEIGHT[:, :, i, j])
    acc += np.rint(np.round(BIAS * 0.031, 3) / 0.03125).astype(np.int64).reshape(1, 3, 1, 1)
    levels = np.clip(np.rint(acc * 0.03125 / 9.0) + 7, 0, 255)
    np.testing.assert_array_equal(
        run_machine(done.model, x=DATA)["y"], ((levels - 7) * 9.0).astype(np.float32)
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"between": "cd"}, None),
        ({"grid": "b", "per_channel": True}, "wider than one of the result"),
        ({"added": "e = Relu(f)"}, "not a constant per channel"),
    ],
    ids=["a grid of its own", "a result finer than the product", "computed"],
)
def test_what_is_not_compatible_is_left(options: dict, says: str | None) -> None:
    model = fold_identity(split(**{"added": FLOAT, **options}))
    done = run_pipeline(model, FUSE, Policy.ROUNDING)
    assert "Add" in operators(done.model)
    assert (
        [one.reason for one in done.declined] == []
        if says is None
        else says in done.declined[0].reason
    )


def test_exact_policy_declines_it() -> None:
    done = run_pipeline(fold_identity(split(FLOAT)), FUSE, Policy.EXACT)
    assert "Add" in operators(done.model)
    assert "rounding(1)" in done.declined[0].reason


@pytest.mark.parametrize(
    "constant",
    ["float[1,1,1,1,1] f = {1.0}", "float[3,1,1] f = {1.0,nan,2.0}"],
    ids=["rank", "NaN"],
)
def test_a_constant_that_would_widen_the_result_or_is_no_number_is_left(constant: str) -> None:
    constants = [one for one in CONSTANTS if not one.startswith("float[3,1,1] f")]
    if "nan" in constant:
        model = fold_identity(split(FLOAT))
        model.graph.initializers["f"].const_value = ir.tensor(
            np.array([1, np.nan, 2], np.float32).reshape(3, 1, 1), name="f"
        )
    else:
        lines = [
            "q = QuantizeLinear(x, s, z)", "d = DequantizeLinear(q, s, z)",
            "w = DequantizeLinear(wq, u, o)", "c = Conv(d, w)", "a = Add(c, f)",
            "r = QuantizeLinear(a, t, z)", "y = DequantizeLinear(r, t, z)",
        ]  # fmt: skip
        model = ir_shapes(
            text("float[2,2,5,5] x", "float[1,2,3,4,4] y", [*constants, constant], lines)
        )
    done = run_pipeline(model, FUSE, Policy.ROUNDING)
    assert "Add" in operators(done.model)
