"""What a plan decides and refuses, rule by rule; where others go wrong is in
test_quantization_correctness.py.
"""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from quantization_subjects import SUBJECTS, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import Profile, calibrate
from qbench.errors import InputError
from qbench.graph import Capabilities, Form
from qbench.numerics import QParams, QType
from qbench.quantization import (
    BiasKind,
    BiasSpec,
    Derived,
    Fixed,
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
    get_schema,
    make_plan,
    qparams_of,
    quantize_model,
)

UINT8 = Spec(qtype="uint8", symmetry="asymmetric")
INT8 = Spec(qtype="int8", symmetry="symmetric")
CHANNELS = Spec(
    qtype="int8", symmetry="symmetric", granularity=Granularity.CHANNEL, narrow_range=True
)


def schema_of(*rules: Rule) -> Schema:
    return Schema(name="ours", rules=rules)


def planned(
    model: ir.Model, schema: Schema | str, feeds: Any = None, **more: Any
) -> tuple[Plan, Any]:
    feeds = feeds_of(model) if feeds is None else feeds
    return make_plan(model, calibrate(model, [feeds]), schema, **more), feeds


def outputs(model: ir.Model, feeds: Any, backend: str = "ort-cpu-noopt") -> dict[str, Any]:
    with get_backend(backend).prepare(model) as executor:
        return executor.run(feeds)


def decision(plan: Plan, slot: str) -> Any:
    return next(d for s, d in plan.decisions.items() if str(s) == slot)


@pytest.mark.parametrize("schema", ["w8a8_asym_pc", "w8a8_sym_pt", "w8a8_asym_pc_pow2"])
def test_a_weight_gets_coarser_when_its_bias_would_not_fit(schema: str) -> None:
    w, b = weights(0, 3, 3, 1, 1), np.array([0.1, 5.0, 2e6], np.float32)
    w[2] *= 1e-6
    model = model_of("float[N,3,5,5] x", "float[N,3,5,5] z", "z = Conv(x, w, b)", w=w, b=b)
    feeds = {"x": feeds_of(model)["x"] * np.float32(1e-3)}
    plan, _ = planned(model, schema, feeds)
    weight, bias = (
        next(d for s, d in plan.decisions.items() if s.role is role)
        for role in (Role.WEIGHT, Role.BIAS)
    )
    assert "raised" in weight.note
    assert np.abs(b / bias.qparams.scale).max() <= 2**30 * (1 + 1e-6)
    if "pow2" in schema:
        assert (np.frexp(weight.qparams.scale)[0] == 0.5).all()
    got = outputs(quantize_model(model, plan), feeds)["z"]
    assert np.abs(got[:, 2] / b[2] - 1).max() < 1e-6


def test_a_bias_is_the_product_of_its_scales() -> None:
    plan, _ = planned(SUBJECTS["conv_relu"](), "w8a8_asym_pc")
    for slot, bias in plan.decisions.items():
        if isinstance(bias, Derived):
            x = qparams_of(decision(plan, f"{slot.node}.input[0]"))
            w = qparams_of(decision(plan, f"{slot.node}.weight[1]"))
            assert x is not None
            assert w is not None
            assert np.array_equal(bias.qparams.scale, x.scale * w.scale)
            assert bias.qparams.qtype == QType.parse("int32")


def test_fixed_outputs() -> None:
    for schema, sigmoid, tanh in [
        ("w8a8_asym_pt", (1 / 256, 0), (1 / 128, 128)),
        ("w8a8_sym_pt", (255 / 256 / 127, 0), (1 / 128, 0)),
    ]:
        plan, _ = planned(SUBJECTS["gates"](), schema)
        fixed = {s.node.split("_")[0].lower(): d.qparams for s, d in plan.decisions.items()
                 if isinstance(d, Fixed) and s.role is Role.OUTPUT}  # fmt: skip
        kinds = {s.value: d.qparams for s, d in plan.decisions.items() if isinstance(d, Fixed)}
        assert len(fixed) == 2
        for name, (scale, point) in (("g", sigmoid), ("n", tanh)):
            assert kinds[name] == QParams(scale, point, kinds[name].qtype)


def test_moved_values_share_a_grid_and_movers_alone_stay_float() -> None:
    plan, _ = planned(SUBJECTS["pooled_concat"](), "w8a8_asym_pt")
    moved = {s.value: d for s, d in plan.decisions.items() if isinstance(d, Shared)}
    assert {name: d.source for name, d in moved.items()} == {"p": "a", "t": "c"}
    assert plan.values["p"] == plan.values["a"]
    lone = model_of(
        "float[N,4] x", "float[N,4] z", "e = Erf(x)\nt = Identity(e)\nf = Flatten(t)\nz = Exp(f)"
    )
    plan, _ = planned(lone, "w8a8_asym_pt")
    assert not plan.values
    assert plan.integer_macs == 0.0
    assert any("no integer form of Erf" in reason for reason in plan.refusals)
    assert any("nothing around it is in integers" in reason for reason in plan.refusals)


def test_a_normalization_spelled_out_stays_float_between_integers() -> None:
    """E[x²] − E[x]² on 8 bits would be noise: what no integer unit made, or reads,
    is not put on a grid.
    """
    model = model_of(
        "float[N,8] x",
        "float[N,5] z",
        """a = MatMul(x, w)
        r = Add(a, x)
        m = ReduceMean(r, axis)
        q = Mul(r, r)
        n = ReduceMean(q, axis)
        o = Mul(m, m)
        v = Sub(n, o)
        t = Sqrt(v)
        d = Sub(r, m)
        y = Div(d, t)
        z = MatMul(y, u)""",
        w=weights(0, 8, 8),
        u=weights(1, 8, 5),
        axis=np.array([1], np.int64),
    )
    plan, feeds = planned(model, "w8a8_asym_pc")
    assert set(plan.values) == {"x", "a", "y"}
    assert plan.integer_macs == 1.0
    assert any(
        reason.startswith("q stays float: nothing that counts in integers reads it")
        for reason in plan.refusals
    )
    real, got = outputs(model, feeds)["z"], outputs(quantize_model(model, plan), feeds)["z"]
    assert np.linalg.norm(real - got) < 0.1 * np.linalg.norm(real)


def test_a_graph_output_stays_float_though_others_read_its_grid() -> None:
    model = model_of(
        "float[N,3,5,5] x",
        "float[N,4,5,5] y, float[N,2,5,5] z",
        "c = Conv(x, w)\ny = Relu(c)\nz = Conv(y, v)",
        w=weights(0, 4, 3, 1, 1),
        v=weights(1, 2, 4, 1, 1),
    )
    plan, feeds = planned(model, "w8a8_sym_pt")
    got = outputs(quantize_model(model, plan), feeds)
    levels = got["y"] / float(plan.values["y"].scale)
    assert np.abs(levels - np.rint(levels)).max() > 0.1
    assert got["y"].min() == 0


@pytest.mark.slow
def test_a_backend_without_channels_or_types_refuses_visibly() -> None:
    model = SUBJECTS["depthwise"]()
    for capabilities, words in [
        (Capabilities(weight_per_channel=False), "no weights per channel"),
        (Capabilities(activation_qtypes=frozenset({"int8"})), "no uint8 activations"),
        (Capabilities(weight_qtypes=frozenset({"uint8"})), "no int8 weights"),
        (Capabilities(max_opset=17), "ends at opset 17"),
        (Capabilities(forms=frozenset({Form.FLOAT})), "float graphs only"),
    ]:
        plan, _ = planned(model, "w8a8_asym_pc", capabilities=capabilities)
        assert plan.integer_macs == 0.0
        assert any(words in reason for reason in plan.refusals), words
    plan, _ = planned(model, "w8a8_asym_pt", capabilities=Capabilities(weight_per_channel=False))
    assert plan.integer_macs == 1.0


def test_the_first_rule_that_matches_decides() -> None:
    model = SUBJECTS["conv_relu"]()
    names = [n.name for n in get_plan_nodes(model)]
    schema = get_schema("w8a8_asym_pc").preceded_by(
        (Rule(names=(names[0],), reason="the first layer"),)
    )
    plan, feeds = planned(model, schema)
    assert plan.floats[str(names[0])].reason == "the first layer"
    assert plan.refusals == ()
    assert 0 < plan.integer_macs < 1
    outputs(quantize_model(model, plan), feeds, "ort-cpu")
    everything, _ = planned(
        model, schema_of(Rule(operators=("Gemm",), activation=UINT8, weight=INT8))
    )
    assert not everything.decisions
    assert all("no rule" in f.reason for f in everything.floats.values())


def get_plan_nodes(model: ir.Model) -> list[ir.Node]:
    from qbench.passes import canonicalize

    return [node for node in canonicalize(model).graph if node.op_type == "Conv"]


def test_two_grids_for_one_value_are_refused() -> None:
    model = SUBJECTS["conv_relu"]()
    last = get_plan_nodes(model)[-1].name
    wide = Spec(qtype="uint16", symmetry="asymmetric")
    rules = (
        Rule(names=(str(last),), activation=wide, weight=INT8),
        Rule(activation=UINT8, weight=INT8),
    )
    plan, _ = planned(model, schema_of(*rules))
    first = get_plan_nodes(model)[0].name
    words = f"wants 'y' as uint16 asymmetric, where '{first}' has it as uint8 asymmetric"
    assert plan.refusals == (f"{last} stays float: it {words}",)


def test_weights_alone() -> None:
    model = SUBJECTS["conv_relu"]()
    plan, feeds = planned(
        model,
        schema_of(
            Rule(weight=Spec(qtype="int4", symmetry="symmetric", granularity=Granularity.CHANNEL))
        ),
    )
    assert not plan.values
    assert plan.integer_macs == 0.0
    assert all(isinstance(d, KeptFloat) for s, d in plan.decisions.items() if s.role is Role.BIAS)
    written = quantize_model(model, plan)
    assert {v.dtype for v in written.graph.initializers.values()} >= {ir.DataType.INT4}
    real, got = outputs(model, feeds)["z"], outputs(written, feeds)["z"]
    assert 0 < np.abs(real - got).max() < 0.3 * np.abs(real).max()


def test_float_biases_and_16_bit_activations() -> None:
    model = SUBJECTS["residual"]()
    rule = Rule(
        activation=Spec(qtype="uint16", symmetry="asymmetric"),
        weight=CHANNELS,
        bias=BiasSpec(kind=BiasKind.FLOAT),
    )
    plan, feeds = planned(model, schema_of(rule))
    assert all(s.role is not Role.BIAS for s in plan.constants)
    fine = outputs(quantize_model(model, plan), feeds)["z"]
    plan, _ = planned(model, schema_of(Rule(activation=UINT8, weight=CHANNELS)))
    coarse = outputs(quantize_model(model, plan), feeds)["z"]
    real = outputs(model, feeds)["z"]
    assert np.linalg.norm(fine - real) < np.linalg.norm(coarse - real)


def test_profiles_and_plans_of_other_graphs_are_refused() -> None:
    one, other = SUBJECTS["conv_relu"](), SUBJECTS["residual"]()
    profile = calibrate(one, [feeds_of(one)])
    with pytest.raises(InputError, match="profile of another graph"):
        make_plan(other, profile, "w8a8_asym_pt")
    with pytest.raises(InputError, match="plan of another graph"):
        quantize_model(other, make_plan(one, profile, "w8a8_asym_pt"))


def test_a_profile_that_lacks_a_value_leaves_its_units_float() -> None:
    model = SUBJECTS["conv_relu"]()
    profile = calibrate(model, [feeds_of(model)])
    partial = Profile(
        profile.graph,
        profile.samples,
        profile.rows,
        {n: s for n, s in profile.values.items() if n != "y"},
    )
    plan = make_plan(model, partial, "w8a8_asym_pt")
    assert any("no statistics of 'y'" in reason for reason in plan.refusals)


@pytest.mark.parametrize("constant", ["w", "b"])
def test_weights_that_are_no_numbers_are_refused(constant: str) -> None:
    model = SUBJECTS["conv_relu"]()
    profile = calibrate(model, [feeds_of(model)])
    tensor = model.graph.initializers[constant].const_value
    assert tensor is not None
    broken = np.array(tensor.numpy())
    broken.reshape(-1)[0] = np.nan
    model.graph.initializers[constant].const_value = ir.tensor(broken, name=constant)
    from qbench.graph import graph_digest
    from qbench.passes import canonicalize

    profile = Profile(
        graph_digest(canonicalize(model)), profile.samples, profile.rows, profile.values
    )
    with pytest.raises(InputError, match=f"NaN or Inf in its constant '{constant}'"):
        make_plan(model, profile, "w8a8_asym_pt")


def test_a_note_says_what_was_not_per_channel(words) -> None:
    model = model_of("float[N,6] x", "float[N] z", "z = MatMul(x, w)", w=weights(0, 6))
    plan, _ = planned(model, "w8a8_asym_pc")
    weight = next(d for s, d in plan.decisions.items() if s.role is Role.WEIGHT)
    assert isinstance(weight, Static)
    words(weight.note)


def test_slots_have_names() -> None:
    assert str(Slot("conv1", Role.WEIGHT, 1, "w")) == "conv1.weight[1]"
