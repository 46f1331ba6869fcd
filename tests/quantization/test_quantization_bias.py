"""Biases as a choice: their widths and scales, whose grid is finer,
what makes room for them, what saturates.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantization_subjects import SUBJECTS, fake_quantized, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.graph import Capabilities, constant_value, values_by_name
from qbench.numerics import QParams, QType, dequantize, quantize
from qbench.quantization import (
    BiasKind,
    BiasSpec,
    Derived,
    Finer,
    Granularity,
    KeptFloat,
    Plan,
    Role,
    Rule,
    Schema,
    Slot,
    Spec,
    Static,
    load_plan,
    make_plan,
    quantize_model,
    save_plan,
)
from qbench.quantization.constant_qparams import saturated_entries

POW2 = Spec(qtype="int8", symmetry="symmetric", scale_kind="pow2")
POW2_WEIGHT = Spec(qtype="int8", symmetry="symmetric", scale_kind="pow2", narrow_range=True)
INT8 = Spec(qtype="int8", symmetry="symmetric")
CHANNELS = Spec(
    qtype="int8", symmetry="symmetric", granularity=Granularity.CHANNEL, narrow_range=True
)


def own(qtype: str, finer: Finer = Finer.CHOSEN, scale_kind: str = "real") -> BiasSpec:
    return BiasSpec(kind=BiasKind.OWN, qtype=qtype, scale_kind=scale_kind, finer=finer)


def schema_of(bias: BiasSpec, activation: Spec = INT8, weight: Spec = CHANNELS) -> Schema:
    return Schema(name="ours", rules=(Rule(activation=activation, weight=weight, bias=bias),))


def planned(model: ir.Model, schema: Schema, feeds: Any = None, **more: Any) -> tuple[Plan, Any]:
    feeds = feeds_of(model) if feeds is None else feeds
    return make_plan(model, calibrate(model, [feeds]), schema, **more), feeds


def slot_of(plan: Plan, role: Role) -> Slot:
    return next(slot for slot in plan.decisions if slot.role is role)


def levels_of(model: ir.Model, plan: Plan, role: Role) -> Any:
    """The integers that are written for the (first) constant of a role."""
    written = values_by_name(quantize_model(model, plan))
    return constant_value(written[f"{slot_of(plan, role).value}_quantized"])


def worked() -> tuple[ir.Model, dict[str, Any]]:
    """Scales 1/16 of the data and 1/256 of the weight,
    a bias of .7 beside one of −3.2 in magnitude 3.2.
    """
    w = np.array([[0.49, -0.25], [0.125, 0.3]], np.float32).reshape(2, 2, 1, 1)
    model = model_of(
        "float[N,2,1,1] x",
        "float[N,2,1,1] z",
        "z = Conv(x, w, b)",
        w=w,
        b=np.array([0.7, 3.2], np.float32),
    )
    x = np.array([[7.5, -3], [-7.9, 0.25], [1, 2]], np.float32).reshape(3, 2, 1, 1)
    return model, {"x": x}


@pytest.mark.parametrize(
    ("bias", "step", "level"),
    [
        (own("int8", scale_kind="pow2"), Fraction(1, 32), 22),
        (own("int9", scale_kind="pow2"), Fraction(1, 64), 45),
        (own("int16", scale_kind="pow2"), Fraction(1, 8192), 5734),
        (own("int16", Finer.PRODUCT, "pow2"), Fraction(1, 4096), 2867),
        (own("int8", Finer.PRODUCT, "pow2"), Fraction(1, 32), 22),
        (
            own("int32", scale_kind="pow2"),
            Fraction(1, 2**29),
            375809632,
        ),  # the float32 next to .7, in steps of 32
        (own("int32", Finer.PRODUCT, "pow2"), Fraction(1, 4096), 2867),
        (BiasSpec(), Fraction(1, 4096), 2867),
    ],
)
def test_the_worked_example(bias: BiasSpec, step: Fraction, level: int) -> None:
    model, feeds = worked()
    plan, _ = planned(model, schema_of(bias, POW2, POW2_WEIGHT), feeds)
    assert {slot.role: Fraction(float(q.scale)) for slot, q in plan.constants.items()} == {
        Role.WEIGHT: Fraction(1, 256),
        Role.BIAS: step,
    }
    assert Fraction(float(plan.values["x"].scale)) == Fraction(1, 16)
    written = levels_of(model, plan, Role.BIAS)
    assert written[0] == level
    got = fake_quantized(model, plan, feeds)["z"]
    with get_backend("ort-cpu-noopt").prepare(quantize_model(model, plan)) as executor:
        assert np.array_equal(executor.run(feeds)["z"], got)


@pytest.mark.parametrize("bias", [own("int8"), own("int9"), own("int16"), own("int32"), BiasSpec()])
def test_the_sum_is_exact_on_the_finer_grid(bias: BiasSpec) -> None:
    """Products and bias in Fraction; with scales that are powers
    of two float32 has to give the same.
    """
    model, feeds = worked()
    chosen = (
        BiasSpec(kind=bias.kind, qtype=bias.qtype, scale_kind="pow2")
        if bias.kind is BiasKind.OWN
        else bias
    )
    plan, _ = planned(model, schema_of(chosen, POW2, POW2_WEIGHT), feeds)
    b = plan.constants[slot_of(plan, Role.BIAS)]
    x = [[round(Fraction(float(v)) * 16) for v in row] for row in feeds["x"].reshape(3, 2)]
    w = levels_of(model, plan, Role.WEIGHT).reshape(2, 2).tolist()
    q_b = [int(v) for v in levels_of(model, plan, Role.BIAS)]
    steps = [Fraction(float(s)) for s in np.broadcast_to(b.scale, 2)]
    exact = [
        [
            sum(a * c for a, c in zip(row, w[m], strict=True)) * Fraction(1, 4096)
            + q_b[m] * steps[m]
            for m in range(2)
        ]
        for row in x
    ]
    got = fake_quantized(model, plan, feeds)["z"].reshape(3, 2)
    assert got.tolist() == [[float(np.float32(float(v))) for v in row] for row in exact]


def rounded(x: float, scale: float, low: int, high: int) -> int:
    """Round half to even of the float32 quotient, saturated."""
    quotient = Fraction(float(np.float32(float(Fraction(x) / Fraction(scale)))))
    return min(max(round(quotient), low), high)


@pytest.mark.parametrize("qtype", ["int2", "int4", "int8", "int9", "int12", "int16", "int32"])
def test_an_own_grid_covers_its_bias_and_no_more(qtype: str) -> None:
    model = SUBJECTS["conv_relu"]()
    plan, feeds = planned(model, schema_of(own(qtype)))
    slot = slot_of(plan, Role.BIAS)
    qparams, grid = plan.constants[slot], QType.parse(qtype)
    b = weights(1, 6)
    wide = max(Fraction(float(-b.min())) / -grid.qmin, Fraction(float(b.max())) / grid.qmax)
    assert float(qparams.scale) == float(np.float32(float(wide)))
    assert (qparams.axis, int(qparams.zero_point), qparams.qtype) == (None, 0, grid)
    want = [rounded(float(v), float(qparams.scale), grid.qmin, grid.qmax) for v in b]
    assert levels_of(model, plan, Role.BIAS).tolist() == want
    assert slot not in plan.saturated
    with get_backend("ort-cpu-noopt").prepare(quantize_model(model, plan)) as executor:
        got = executor.run(feeds)["z"]
    np.testing.assert_allclose(got, fake_quantized(model, plan, feeds)["z"], rtol=0, atol=1e-5)


def test_more_bits_of_bias_bring_the_result_closer() -> None:
    model = SUBJECTS["conv_relu"]()
    errors = []
    for qtype in ("int3", "int5", "int8", "int16"):
        plan, _ = planned(model, schema_of(own(qtype)))
        q = plan.constants[slot_of(plan, Role.BIAS)]
        b = weights(1, 6)
        errors.append(float(np.abs(dequantize(quantize(b, q), q) - b).max()))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 50 * errors[-1]


def test_the_bias_forced_on_the_products_grid_is_no_finer_in_any_channel() -> None:
    w = weights(0, 4, 3, 1, 1) * np.array([1e-4, 1, 30, 3000], np.float32).reshape(4, 1, 1, 1)
    model = model_of(
        "float[N,3,5,5] x", "float[N,4,5,5] z", "z = Conv(x, w, b)", w=w, b=weights(1, 4)
    )
    plan, _ = planned(model, schema_of(own("int8", Finer.PRODUCT)))
    slot = slot_of(plan, Role.BIAS)
    alone = planned(model, schema_of(own("int8")))[0].constants[slot]
    product = plan.values["x"].scale * plan.constants[slot_of(plan, Role.WEIGHT)].scale
    assert np.array_equal(plan.constants[slot].scale, np.maximum(product, alone.scale))
    assert plan.constants[slot].axis == 0
    finer = int((product > alone.scale).sum())
    assert 0 < finer < 4
    decision = plan.decisions[slot]
    assert isinstance(decision, Static)
    assert (
        f"the bias is finer in {finer} of 4 channels; raised to the product's scale"
        in decision.note
    )


@pytest.mark.parametrize(
    "bias", [own("int8"), own("int16"), own("int16", Finer.PRODUCT), own("int32")]
)
@pytest.mark.parametrize("dead", [[2], [0, 1, 2, 3]])
@pytest.mark.parametrize("weight", [CHANNELS, POW2_WEIGHT])
def test_a_channel_of_zeros_keeps_its_bias(bias: BiasSpec, dead: list[int], weight: Spec) -> None:
    w, b = weights(0, 4, 3, 1, 1), np.array([2.9, -2.7, 2.9, 3.0], np.float32)
    w[dead] = 0
    model = model_of("float[N,3,5,5] x", "float[N,4,5,5] z", "z = Conv(x, w, b)", w=w, b=b)
    plan, feeds = planned(model, schema_of(bias, weight=weight))
    got = fake_quantized(model, plan, feeds)["z"]
    for channel in dead:
        assert np.abs(got[:, channel] - b[channel]).max() < 0.005 * abs(float(b[channel]))


@pytest.mark.parametrize(
    "bias", [own("int8"), own("int16"), own("int8", Finer.PRODUCT), BiasSpec()]
)
@pytest.mark.parametrize("scale_kind", ["real", "pow2", "pow2_nearest"])
def test_a_weight_gets_coarser_when_its_bias_would_not_fit_beside_the_products(
    bias: BiasSpec, scale_kind: str
) -> None:
    w, b = weights(0, 3, 3, 1, 1), np.array([0.1, 5.0, 2e6], np.float32)
    w[2] *= 1e-6
    model = model_of("float[N,3,5,5] x", "float[N,3,5,5] z", "z = Conv(x, w, b)", w=w, b=b)
    feeds = {"x": feeds_of(model)["x"] * np.float32(1e-3)}
    weight = Spec(
        qtype="int8", symmetry="symmetric", granularity=Granularity.CHANNEL, scale_kind=scale_kind
    )
    plan, _ = planned(model, schema_of(bias, weight=weight), feeds)
    slot = slot_of(plan, Role.WEIGHT)
    decision = plan.decisions[slot]
    assert isinstance(decision, Static)
    assert "raised" in decision.note
    product = plan.values["x"].scale.astype(np.float64) * decision.qparams.scale
    assert (np.abs(b) / product).max() <= 2**30 * (1 + 1e-6)
    if scale_kind != "real":
        assert (np.frexp(decision.qparams.scale)[0] == 0.5).all()


def test_a_bias_in_float_makes_no_weight_coarser() -> None:
    w, b = weights(0, 3, 3, 1, 1), np.array([0.1, 5.0, 2e6], np.float32)
    w[2] *= 1e-6
    model = model_of("float[N,3,5,5] x", "float[N,3,5,5] z", "z = Conv(x, w, b)", w=w, b=b)
    plan, _ = planned(model, schema_of(BiasSpec(kind=BiasKind.FLOAT)))
    assert plan.constants[slot_of(plan, Role.WEIGHT)].scale[2] < 1e-7


@pytest.mark.parametrize("bias", [own("int16"), own("int8", Finer.PRODUCT)])
def test_a_bias_of_two_convolutions_has_a_grid_for_each(bias: BiasSpec) -> None:
    model = model_of(
        "float[N,3,5,5] x",
        "float[N,4,5,5] z",
        "a = Conv(x, w, b)\nc = Conv(x, v, b)\nz = Add(a, c)",
        w=weights(0, 4, 3, 1, 1),
        v=weights(1, 4, 3, 1, 1, size=4000),
        b=weights(2, 4),
    )
    plan, _ = planned(model, schema_of(bias))
    grids = {slot.node: q for slot, q in plan.constants.items() if slot.role is Role.BIAS}
    assert set(grids) == {"a", "c"}
    assert (grids["a"] == grids["c"]) is (bias.finer is Finer.CHOSEN)


def test_a_bias_of_zeros_is_exact_on_any_grid() -> None:
    model = model_of(
        "float[N,3,5,5] x",
        "float[N,4,5,5] z",
        "z = Conv(x, w, b)",
        w=weights(0, 4, 3, 1, 1),
        b=np.zeros(4, np.float32),
    )
    for bias in (own("int8"), own("int16", Finer.PRODUCT), BiasSpec()):
        plan, feeds = planned(model, schema_of(bias))
        assert not levels_of(model, plan, Role.BIAS).any()
        without = {**feeds, "x": np.zeros_like(feeds["x"])}
        assert not fake_quantized(model, plan, without)["z"].any()


def test_what_a_backend_adds_in_float_is_said() -> None:
    model = SUBJECTS["conv_relu"]()
    for qtype, known, said in (
        ("int8", {"int32"}, True),
        ("int8", {"int8", "int32"}, False),
        ("int16", {"int32"}, True),
        ("int32", {"int32"}, True),
    ):
        capabilities = Capabilities(bias_qtypes=frozenset(known))
        plan, _ = planned(model, schema_of(own(qtype)), capabilities=capabilities)
        decision = plan.decisions[slot_of(plan, Role.BIAS)]
        assert isinstance(decision, Static)
        assert (f"added in float: the backend adds no {qtype}" in decision.note) is said
        assert not plan.floats
    derived = planned(model, schema_of(BiasSpec()), capabilities=Capabilities())[0]
    assert not any("added in float" in line for line in derived.lines()[1:])


@pytest.mark.slow_but(3)
@pytest.mark.parametrize("level", ["ort-cpu", "ort-cpu-noopt"])
@pytest.mark.parametrize(
    "bias", [own("int8"), own("int9"), own("int16"), own("int32"), own("int32", Finer.PRODUCT)]
)
def test_engines_take_own_grids_by_the_convention(bias: BiasSpec, level: str) -> None:
    """An int32 bias off the product's scale is above all not taken for one at it."""
    model = SUBJECTS["residual"]()
    plan, feeds = planned(model, schema_of(bias))
    with get_backend(level).prepare(quantize_model(model, plan)) as executor:
        got = executor.run(feeds)["z"]
    want = fake_quantized(model, plan, feeds)["z"]
    step = max(float(q.scale) for q in plan.values.values())
    assert np.mean(np.abs(got - want) > 1e-4) < 0.02  # a tie of two roundings moves a level
    assert np.abs(got - want).max() < 4 * step


def test_own_biases_need_no_integer_products_unless_forced_on_their_grid() -> None:
    model = SUBJECTS["conv_relu"]()
    weight_only = Rule(weight=CHANNELS, bias=own("int8"))
    plan, feeds = planned(model, Schema(name="ours", rules=(weight_only,)))
    slot = slot_of(plan, Role.BIAS)
    assert plan.constants[slot].qtype.name == "int8"
    with get_backend("ort-cpu-noopt").prepare(quantize_model(model, plan)) as executor:
        np.testing.assert_allclose(
            executor.run(feeds)["z"], fake_quantized(model, plan, feeds)["z"], atol=1e-5
        )
    for bias in (own("int8", Finer.PRODUCT), BiasSpec()):
        plan, _ = planned(model, Schema(name="ours", rules=(Rule(weight=CHANNELS, bias=bias),)))
        assert plan.decisions[slot] == KeptFloat("the products are not integers")


def test_matmul_and_gemm_have_the_same_choices() -> None:
    body = "p = MatMul(x, w)\n q = Add(b, p)\n z = Gemm(q, v, c)"
    model = model_of(
        "float[N,6] x",
        "float[N,3] z",
        body,
        w=weights(0, 6, 4),
        b=weights(1, 1, 4),
        v=weights(2, 4, 3),
        c=weights(3, 3),
    )
    plan, feeds = planned(model, schema_of(own("int8", Finer.PRODUCT)))
    slots = [
        str(slot)
        for slot, q in plan.constants.items()
        if slot.role is Role.BIAS and q.qtype.name == "int8"
    ]
    assert slots == ["q.bias[0]", "z.bias[2]"]
    with get_backend("ort-cpu-noopt").prepare(quantize_model(model, plan)) as executor:
        np.testing.assert_allclose(
            executor.run(feeds)["z"], fake_quantized(model, plan, feeds)["z"], atol=1e-5
        )


def test_saturated_entries_are_counted_and_survive_a_file(tmp_path: Any) -> None:
    w = np.array([0.5, -0.5, 12.6, 12.75, -12.8, -12.9, 100, -7], np.float32).reshape(2, 4, 1, 1)
    b = np.array([0.25, -3], np.float32)
    model = model_of("float[N,4,2,2] x", "float[N,2,2,2] z", "z = Conv(x, w, b)", w=w, b=b)
    fixed = Spec(qtype="int8", symmetry="symmetric", scale=0.1, zero_point=0)
    plan, _ = planned(model, schema_of(own("int8"), weight=fixed))
    # 12.75 / 0.1f rounds to 127 or 128 by its float32 quotient, −12.8 to −128: by scalar arithmetic
    levels = [round(float(np.float32(v) / np.float32(0.1))) for v in w.reshape(-1)]
    assert plan.saturated == {
        slot_of(plan, Role.WEIGHT): sum(not -128 <= level <= 127 for level in levels)
    }
    assert any("entries saturate" in line for line in plan.lines())
    save_plan(plan, tmp_path / "plan.json")
    back = load_plan(tmp_path / "plan.json")
    assert back == plan
    assert back.saturated == plan.saturated
    plain, _ = planned(model, schema_of(BiasSpec()))
    assert not plain.saturated
    assert plain.diff(plan)


@settings(max_examples=60)
@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=20),
    st.sampled_from(["int4", "uint4", "int8", "int16", "int32"]),
    st.floats(2.0**-20, 2.0**10, width=32),
    st.booleans(),
)
def test_saturated_are_those_that_round_outside_the_grid(
    values: list[float], name: str, scale: float, narrow: bool
) -> None:
    qtype = QType.parse(name)
    point = 0 if qtype.signed else 3
    qparams = QParams(scale, point, qtype, narrow_range=narrow)
    quotients = [Fraction(float(np.float32(v) / np.float32(scale))) for v in values]
    want = sum(not qparams.qmin <= round(q) + point <= qparams.qmax for q in quotients)
    assert saturated_entries(np.array(values, np.float32), qparams) == want


def test_notes_of_derived_biases_are_read_back(tmp_path: Any) -> None:
    plan, _ = planned(SUBJECTS["conv_relu"](), schema_of(BiasSpec()))
    slot = slot_of(plan, Role.BIAS)
    decision = plan.decisions[slot]
    assert isinstance(decision, Derived)
    noted = Plan(
        **{
            **{name: getattr(plan, name) for name in Plan.__dataclass_fields__},
            "decisions": {
                **plan.decisions,
                slot: Derived(decision.qparams, decision.sources, "as told"),
            },
        }
    )
    save_plan(noted, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == noted
    assert any("(as told)" in line for line in noted.lines())
