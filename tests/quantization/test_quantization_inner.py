"""Grids inside a unit: the product before its bias, the sum before its clip,
and a bias on the product's grid.
"""

import tomllib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from quantization_subjects import SUBJECTS, fake_quantized, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import Profile, calibrate
from qbench.numerics import quantize
from qbench.passes import canonicalize
from qbench.quantization import (
    BiasKind,
    BiasSpec,
    Derived,
    Finer,
    Given,
    Granularity,
    KeptFloat,
    Plan,
    Role,
    Rule,
    Schema,
    Shared,
    Slot,
    Spec,
    Static,
    load_plan,
    make_plan,
    quantize_model,
    save_plan,
    schema_from_table,
)

INT8 = Spec(qtype="int8", symmetry="symmetric")
INT16 = Spec(qtype="int16", symmetry="symmetric")
CHANNELS = Spec(
    qtype="int8", symmetry="symmetric", granularity=Granularity.CHANNEL, narrow_range=True
)
POW2 = Spec(qtype="int8", symmetry="symmetric", scale_kind="pow2")
SPLIT = "split_bias"


def schema_of(canonical: str = SPLIT, **slots: Any) -> Schema:
    rule = Rule(**{"activation": INT8, "weight": CHANNELS, **slots})
    return Schema(name="ours", rules=(rule,), canonical=canonical)


def profile_of(model: ir.Model, feeds: Any) -> Profile:
    return calibrate(canonicalize(model, SPLIT), [feeds])


def planned(model: ir.Model, schema: Schema) -> tuple[Plan, Any]:
    feeds = feeds_of(model)
    return make_plan(model, profile_of(model, feeds), schema), feeds


def run(model: ir.Model, plan: Plan, feeds: Any, backend: str = "ort-cpu-noopt") -> Any:
    with get_backend(backend).prepare(quantize_model(model, plan)) as executor:
        return executor.run(feeds)["z"]


def decisions(plan: Plan, role: Role) -> dict[str, Any]:
    return {slot.value: decision for slot, decision in plan.decisions.items() if slot.role is role}


def agrees(got: Any, want: Any, plan: Plan) -> None:
    """But for rare ties of two roundings, which move a level."""
    step = max(float(q.scale) for q in plan.values.values())
    assert np.mean(np.abs(got - want) > 1e-4) < 0.02
    assert np.abs(got - want).max() < 4 * step


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("subject", list(SUBJECTS))
@pytest.mark.parametrize("bias", [BiasSpec(), BiasSpec(kind=BiasKind.OWN, qtype="int8")])
def test_without_a_wish_a_split_unit_has_the_grids_of_a_fused_one(
    subject: str, bias: BiasSpec
) -> None:
    model = SUBJECTS[subject]()
    plan, feeds = planned(model, schema_of(bias=bias))
    fused = make_plan(model, calibrate(model, [feeds]), schema_of("default", bias=bias))
    assert plan.values == fused.values

    def of_constants(one: Plan) -> dict[str, Any]:
        return {
            slot.value: (q.scale.tolist(), q.qtype.name, slot.role)
            for slot, q in one.constants.items()
        }

    assert of_constants(plan) == of_constants(fused)
    assert dict(plan.floats).keys() == dict(fused.floats).keys()
    agrees(run(model, plan, feeds), run(model, fused, feeds), plan)


@pytest.mark.slow
def test_the_correlation_has_the_grid_of_its_own_range() -> None:
    model = SUBJECTS["residual"]()
    plan, feeds = planned(model, schema_of(correlation=INT16))
    profile = profile_of(model, feeds)
    found = decisions(plan, Role.CORRELATION)
    assert list(found) == ["a.correlation", "c.correlation", "z"]
    for name in ("a.correlation", "c.correlation"):
        seen = profile.values[name].distribution()
        wide = max(Fraction(seen.low) / -32768, Fraction(seen.high) / 32767)
        assert float(found[name].qparams.scale) == float(np.float32(float(wide)))
    assert found["z"] == KeptFloat(
        "no bias and no clip follow: the product is the result, which has a grid of its own"
    )
    assert set(plan.values) >= {"a.correlation", "c.correlation"}
    want = fake_quantized(model, plan, feeds)["z"]
    agrees(run(model, plan, feeds), want, plan)
    agrees(run(model, plan, feeds, "ort-cpu"), want, plan)
    coarse, _ = planned(model, schema_of(correlation=Spec(qtype="int8", symmetry="symmetric")))
    real = run(model, planned(model, schema_of())[0], feeds)
    assert np.abs(run(model, coarse, feeds) - real).mean() > np.abs(want - real).mean()


def test_the_sum_has_a_grid_before_its_clip() -> None:
    model = SUBJECTS["residual"]()
    plan, feeds = planned(model, schema_of(correlation=INT16, sum=INT8))
    found = decisions(plan, Role.SUM)
    assert isinstance(found["a"], Static)
    assert found["c"] == KeptFloat(
        "no clip follows: the sum is the result, which has a grid of its own"
    )
    agrees(run(model, plan, feeds), fake_quantized(model, plan, feeds)["z"], plan)
    assert [str(slot) for slot in plan.decisions if slot.node.startswith("a")] == [
        "a.input[0]",
        "a.weight[1]",
        "a.bias.bias[1]",
        "a.correlation[0]",
        "a.bias.sum[0]",
        "a.output[0]",
    ]


def test_a_product_without_bias_before_a_clip_is_correlation_and_sum() -> None:
    model = model_of(
        "float[N,3,5,5] x",
        "float[N,2,5,5] z",
        "c = Conv(x, w)\n y = Relu(c)\n z = Conv(y, v)",
        w=weights(0, 4, 3, 1, 1),
        v=weights(1, 2, 4, 1, 1),
    )
    plan, feeds = planned(model, schema_of(correlation=INT16, sum=INT8))
    assert plan.values["c"].qtype.name == "int16"
    assert decisions(plan, Role.SUM)["c"] == KeptFloat(
        "there is no bias: the sum is the correlation, which has a grid"
    )
    alone, _ = planned(model, schema_of(sum=INT16))
    assert alone.values["c"] == plan.values["c"]
    agrees(run(model, alone, feeds), fake_quantized(model, alone, feeds)["z"], alone)


def test_product_and_bias_on_one_grid() -> None:
    """q8(relu(q16(Σ q8(w) q8(x)) + q16(b))), the scales of both q16 shared,
    as Graffitist has it.
    """
    model = SUBJECTS["conv_relu"]()
    sixteen = Spec(qtype="int16", symmetry="symmetric", scale_kind="pow2")
    schema = schema_of(
        activation=POW2,
        input=POW2,
        output=POW2,
        weight=POW2,
        correlation=sixteen,
        bias=BiasSpec(kind=BiasKind.SHARED),
    )
    plan, feeds = planned(model, schema)
    correlation, bias = plan.values["c.correlation"], decisions(plan, Role.BIAS)["b"]
    assert bias == Shared(correlation, "c.correlation")
    assert np.frexp(correlation.scale)[0] == 0.5
    seen = profile_of(model, feeds).values["c.correlation"].distribution()
    assert float(correlation.scale) * 32768 >= max(seen.absmax, float(np.abs(weights(1, 6)).max()))
    want = fake_quantized(model, plan, feeds)["z"]
    agrees(run(model, plan, feeds), want, plan)
    for sign in (-1, 1):
        large = SUBJECTS["conv_relu"]()
        b = sign * np.abs(weights(1, 6, size=5000))
        large.graph.initializers["b"].const_value = ir.tensor(b, name="b")
        wide, _ = planned(large, schema)
        assert float(wide.values["c.correlation"].scale) * 32768 >= np.abs(b).max()
        assert not wide.saturated


def worked() -> tuple[ir.Model, Any]:
    w = np.array([[0.49, -0.25], [0.125, 0.3]], np.float32).reshape(2, 2, 1, 1)
    b = np.array([0.7, 3.2], np.float32)
    model = model_of("float[N,2,1,1] x", "float[N,2,1,1] z", "z = Conv(x, w, b)", w=w, b=b)
    return model, {"x": np.array([[7.5, -3], [-7.9, 0.25], [1, 2]], np.float32).reshape(3, 2, 1, 1)}


@pytest.mark.parametrize(
    ("qtype", "step"), [("int8", 32), ("int9", 64), ("int12", 512), ("int16", 8192)]
)
def test_a_product_forced_on_the_biass_grid(qtype: str, step: int) -> None:
    """Scales 1/16, 1/256 and 1/step: products are rounded half to even to 1/step, in Fraction,
    then the bias added.
    """
    model, feeds = worked()
    bias = BiasSpec(kind=BiasKind.OWN, qtype=qtype, scale_kind="pow2", finer=Finer.BIAS)
    narrow = Spec(qtype="int8", symmetry="symmetric", scale_kind="pow2", narrow_range=True)
    schema = schema_of(activation=POW2, weight=narrow, bias=bias)
    plan = make_plan(model, profile_of(model, feeds), schema)
    ((name, decision),) = decisions(plan, Role.CORRELATION).items()
    assert (name, decision.sources, decision.note) == ("z.correlation", ("z.bias.bias[1]",), "")
    assert isinstance(decision, Derived)
    assert (str(decision.qparams.qtype), float(decision.qparams.scale)) == ("int32", 1 / step)
    x = [[round(Fraction(float(v)) * 16) for v in row] for row in feeds["x"].reshape(3, 2)]
    w = [[round(Fraction(v) * 256) for v in row] for row in ((0.49, -0.25), (0.125, 0.3))]
    b = [round(Fraction(v) * step) for v in (0.7, 3.2)]
    sums = [[sum(a * c for a, c in zip(row, w[m], strict=True)) for m in range(2)] for row in x]
    want = [
        [Fraction(round(Fraction(row[m], 4096) * step) + b[m], step) for m in range(2)]
        for row in sums
    ]
    got = fake_quantized(model, plan, feeds)["z"].reshape(3, 2)
    assert [[Fraction(float(v)) for v in row] for row in got] == want
    for backend in ("ort-cpu", "ort-cpu-noopt"):
        assert np.array_equal(run(model, plan, feeds, backend).reshape(3, 2), got)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("width", ["int5", "int12", "int32"])
@pytest.mark.parametrize("backend", ["ort-cpu", "ort-cpu-noopt"])
def test_widths_that_onnx_lacks(width: str, backend: str) -> None:
    model = SUBJECTS["residual"]()
    spec = Spec(qtype=width, symmetry="symmetric")
    plan, feeds = planned(
        model, schema_of(correlation=spec, bias=BiasSpec(kind=BiasKind.OWN, qtype="int12"))
    )
    assert plan.values["a.correlation"].qtype.name == width
    agrees(run(model, plan, feeds, backend), fake_quantized(model, plan, feeds)["z"], plan)


def test_a_bias_grid_too_fine_for_the_product_is_said() -> None:
    model = SUBJECTS["conv_relu"]()
    value = model.graph.initializers["b"]
    value.const_value = ir.tensor(weights(1, 6, size=1e-7), name="b")
    forced = BiasSpec(kind=BiasKind.OWN, qtype="int16", finer=Finer.BIAS)
    plan, _ = planned(model, schema_of(bias=forced))
    decision = decisions(plan, Role.CORRELATION)["c.correlation"]
    end = (2**31 - 1) * float(decision.qparams.scale)
    assert decision.note.startswith(f"int32 ends at {end:.4g}, the product at ")
    assert any("int32 ends at" in line for line in plan.lines())


def test_a_bias_of_zeros_or_in_float_forces_nothing() -> None:
    forced = BiasSpec(kind=BiasKind.OWN, qtype="int8", finer=Finer.BIAS)
    model = SUBJECTS["conv_relu"]()
    model.graph.initializers["b"].const_value = ir.tensor(np.zeros(6, np.float32), name="b")
    plan, _ = planned(model, schema_of(bias=forced))
    assert decisions(plan, Role.CORRELATION)["c.correlation"] == KeptFloat(
        "its bias is zero, on any grid"
    )
    rule = Rule(weight=CHANNELS, bias=forced)
    plan, _ = planned(SUBJECTS["conv_relu"](), Schema(name="ours", rules=(rule,), canonical=SPLIT))
    assert decisions(plan, Role.CORRELATION)["c.correlation"] == KeptFloat(
        "its bias has no grid to put it on"
    )


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ({"correlation": INT16}, "the schema gives the correlation a grid"),
        ({"sum": INT16}, "the schema gives the sum a grid"),
        (
            {"bias": BiasSpec(kind=BiasKind.OWN, qtype="int8", finer=Finer.BIAS)},
            "the schema adds the bias on the bias's grid",
        ),
        (
            {"bias": BiasSpec(kind=BiasKind.SHARED)},
            "the schema adds the bias on the correlation's grid",
        ),
    ],
)
def test_fused_graphs_have_no_place_for_such_grids(slots: Any, words: str) -> None:
    model = SUBJECTS["conv_relu"]()
    feeds = feeds_of(model)
    plan = make_plan(model, calibrate(model, [feeds]), schema_of("default", **slots))
    assert plan.floats["c"].refused
    assert plan.floats["c"].reason.startswith(words)
    assert "canonical = 'split_bias'" in plan.floats["c"].reason
    assert not plan.integer_mac_count or "z" not in plan.floats


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ({"bias": BiasSpec(kind=BiasKind.SHARED)}, "the schema gives the correlation none"),
        (
            {
                "correlation": INT16,
                "bias": BiasSpec(kind=BiasKind.OWN, qtype="int8", finer=Finer.BIAS),
            },
            "on the bias's grid, and on one of its own",
        ),
        ({"correlation": CHANNELS}, "the correlation has one grid a tensor"),
    ],
)
def test_wishes_that_exclude_each_other_are_refused(slots: Any, words: str) -> None:
    plan, _ = planned(SUBJECTS["conv_relu"](), schema_of(**slots))
    assert plan.floats["c"].refused
    assert words in plan.floats["c"].reason


def test_a_profile_without_the_inner_values_is_no_ground_for_them(words) -> None:
    model = SUBJECTS["conv_relu"]()
    feeds, split = feeds_of(model), canonicalize(model, SPLIT)
    profile = calibrate(split, [feeds])
    poor = replace(
        profile, values={name: s for name, s in profile.values.items() if "correlation" not in name}
    )
    plan = make_plan(model, poor, schema_of(correlation=INT16))
    words(plan.floats["c"].reason)


def test_fixed_grids_inside() -> None:
    fixed = Spec(qtype="int16", symmetry="symmetric", scale=0.001, zero_point=0)
    plan, feeds = planned(SUBJECTS["conv_relu"](), schema_of(correlation=fixed, sum=fixed))
    assert isinstance(decisions(plan, Role.CORRELATION)["c.correlation"], Given)
    assert isinstance(decisions(plan, Role.SUM)["c"], Given)
    assert plan.values["c"] == plan.values["c.correlation"]
    agrees(
        run(SUBJECTS["conv_relu"](), plan, feeds),
        fake_quantized(SUBJECTS["conv_relu"](), plan, feeds)["z"],
        plan,
    )


def test_a_dense_layer_and_a_matmul_have_grids_inside() -> None:
    model = model_of(
        "float[N,6] x",
        "float[N,3] z",
        "p = MatMul(x, w)\n q = Add(b, p)\n r = Relu(q)\n z = Gemm(r, v, c)",
        w=weights(0, 6, 4),
        b=weights(1, 4),
        v=weights(2, 4, 3),
        c=weights(3, 3),
    )
    plan, feeds = planned(
        model, schema_of(correlation=INT16, sum=INT16, bias=BiasSpec(kind=BiasKind.SHARED))
    )
    assert [slot.value for slot in plan.decisions if slot.role is Role.CORRELATION] == [
        "p",
        "z.correlation",
    ]
    assert [slot.value for slot in plan.decisions if slot.role is Role.SUM] == ["q", "z"]
    agrees(run(model, plan, feeds), fake_quantized(model, plan, feeds)["z"], plan)


def test_inner_slots_survive_a_file(tmp_path: Any) -> None:
    plan, _ = planned(SUBJECTS["conv_relu"](), schema_of(correlation=INT16, sum=INT8))
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan
    assert Slot("c", Role.CORRELATION, 0, "c.correlation") in plan.decisions


def test_the_schema_in_the_docs_is_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "quantizer.md").read_text(encoding="utf-8")
    table = tomllib.loads(text.partition("```toml\n")[2].partition("```")[0])
    schema = schema_from_table({"name": "tqt", **table}, "docs")
    plan, _ = planned(SUBJECTS["conv_relu"](), schema)
    assert isinstance(decisions(plan, Role.BIAS)["b"], Shared)


def test_what_is_on_a_grid_inside_is_what_was_asked() -> None:
    """Every value of the correlation, watched in the written model, is a level of its grid."""
    model = SUBJECTS["conv_relu"]()
    plan, feeds = planned(model, schema_of(correlation=INT16))
    written = quantize_model(model, plan)
    name = next(
        node.outputs[0].name or ""
        for node in written.graph
        if "c.correlation" in str(node.outputs[0].name) and node.op_type == "DequantizeLinear"
    )
    with get_backend("ort-cpu-noopt").prepare(written, taps=(name,)) as executor:
        seen = executor.run(feeds)[name]
    qparams = plan.values["c.correlation"]
    levels = quantize(seen, qparams).astype(np.float64)
    assert np.array_equal((levels * float(qparams.scale)).astype(np.float32), seen)
    assert len(np.unique(levels)) > 256
