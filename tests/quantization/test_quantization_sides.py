"""Each side of a unit has a spec of its own,
and values share grids where operators or schemas say so.
"""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from quantization_subjects import SUBJECTS, fake_quantized, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate, get_range_method
from qbench.errors import InputError
from qbench.numerics import QType
from qbench.quantization import (
    BiasKind,
    BiasSpec,
    Fixed,
    Given,
    Granularity,
    KeptFloat,
    Plan,
    Ranges,
    Role,
    Rule,
    Schema,
    Share,
    Shared,
    Spec,
    Static,
    make_plan,
    quantize_model,
)

UINT8 = Spec(qtype="uint8", symmetry="asymmetric")
UINT16 = Spec(qtype="uint16", symmetry="asymmetric")
INT8 = Spec(qtype="int8", symmetry="symmetric")
CHANNELS = Spec(
    qtype="int8", symmetry="symmetric", granularity=Granularity.CHANNEL, narrow_range=True
)

MINMAX = get_range_method("minmax")


def planned(model: ir.Model, *rules: Rule, feeds: Any = None, **more: Any) -> tuple[Plan, Any]:
    feeds = feeds_of(model) if feeds is None else feeds
    return make_plan(
        model, calibrate(model, [feeds], channels=True), Schema(name="ours", rules=rules), **more
    ), feeds


def run(model: ir.Model, feeds: Any, backend: str = "ort-cpu-noopt") -> Any:
    with get_backend(backend).prepare(model) as executor:
        return executor.run(feeds)["z"]


def written_as_said(model: ir.Model, plan: Plan, feeds: Any) -> None:
    """What is written counts as the plan says, in the evaluator and in ONNX Runtime."""
    said = fake_quantized(model, plan, feeds)["z"]
    written = quantize_model(model, plan)
    for backend in ("onnx-reference", "ort-cpu-noopt"):
        got = run(written, feeds, backend)
        assert np.abs(got - said).max() <= 2e-2 * max(np.abs(said).max(), 1e-3), backend


def units(plan: Plan) -> dict[str, str]:
    """Last letters of names that ONNX text leaves to us: Conv_0 → its result."""
    return {slot.value: slot.node for slot in plan.decisions if slot.role is Role.OUTPUT}


def role(plan: Plan, value: str, wanted: Role) -> Any:
    return next(d for s, d in plan.decisions.items() if s.value == value and s.role is wanted)


def test_an_output_may_be_coarser_than_an_input() -> None:
    """Conv reads 16 bits and gives 8, where the next reads 8."""
    model = SUBJECTS["conv_relu"]()
    plan, feeds = planned(
        model,
        Rule(operators=("Conv",), first=1, input=UINT16, output=UINT8, weight=CHANNELS),
        Rule(activation=UINT8, weight=CHANNELS),
    )
    assert plan.refusals == ()
    assert (plan.values["x"].qtype.name, plan.values["y"].qtype.name) == ("uint16", "uint8")
    assert plan.integer_macs == 1.0
    written_as_said(model, plan, feeds)


def test_a_reader_that_wants_another_grid_stays_float(words) -> None:
    model = SUBJECTS["conv_relu"]()
    plan, feeds = planned(model, Rule(input=UINT16, output=UINT8, weight=CHANNELS))
    (refusal,) = plan.refusals
    words(refusal)
    assert refusal.endswith("has it as uint8 asymmetric")
    assert plan.values["y"].qtype.name == "uint8"
    written_as_said(model, plan, feeds)


@pytest.mark.parametrize("kept", [Role.INPUT, Role.OUTPUT])
def test_one_side_may_stay_float(kept: Role) -> None:
    model = SUBJECTS["residual"]()
    plan, feeds = planned(model, Rule(activation=UINT8, weight=CHANNELS, keep_float=(kept,)))
    assert not [s for s in plan.decisions if s.role is kept]
    assert plan.values
    if kept is Role.INPUT:  # results are rounded, and nothing multiplies integers
        assert plan.integer_macs == 0.0
        assert all(
            isinstance(d, KeptFloat) for s, d in plan.decisions.items() if s.role is Role.BIAS
        )
        assert {"r", "t"} <= set(plan.values)
        assert "x" not in plan.values
    else:  # every convolution rounds what it reads
        assert plan.integer_macs == 1.0
        assert {"x", "r", "t"} <= set(plan.values)
    written_as_said(model, plan, feeds)


def test_a_silent_producer_does_not_keep_its_readers_from_integers() -> None:
    model = SUBJECTS["conv_relu"]()
    first = Rule(operators=("Conv",), first=1, reason="the first stays")
    plan, feeds = planned(model, first, Rule(activation=UINT8, weight=CHANNELS))
    assert set(plan.values) == {"y"}
    assert plan.refusals == ()
    written_as_said(model, plan, feeds)


def test_only_weights_and_outputs() -> None:
    model = SUBJECTS["conv_relu"]()
    plan, feeds = planned(model, Rule(output=UINT8, weight=CHANNELS))
    assert set(plan.values) == {"y"}
    assert plan.integer_macs == 0.0
    assert len([s for s in plan.constants if s.role is Role.WEIGHT]) == 2
    written_as_said(model, plan, feeds)


def two_branches(
    last: str = "c = Concat<axis=1>(a, b)\n z = Conv(c, v)", channels: int = 8, size: float = 0.2
) -> ir.Model:
    return model_of(
        "float[N,3,5,5] x",
        "float[N,2,5,5] z",
        f"p = Conv(x, w)\n a = Relu(p)\n b = Conv(x, u)\n {last}",
        w=weights(0, 4, 3, 1, 1, size=3),
        u=weights(1, 4, 3, 1, 1, size=size),
        v=weights(2, 2, channels, 1, 1),
    )


def test_inputs_on_one_grid_cover_the_union_of_their_ranges() -> None:
    model = two_branches()
    alone, feeds = planned(model, Rule(activation=UINT8, weight=CHANNELS))
    rule = Rule(operators=("Concat",), activation=UINT8, share=(Share.INPUTS,))
    plan, _ = planned(model, rule, Rule(activation=UINT8, weight=CHANNELS))
    assert alone.values["a"] != alone.values["b"]
    assert plan.values["a"] == plan.values["b"]
    a, b = (alone.values[name] for name in "ab")
    ends = [
        (float(g.scale) * (0 - g.zero_point), float(g.scale) * (255 - g.zero_point)) for g in (a, b)
    ]
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    assert float(plan.values["a"].scale) == pytest.approx((high - low) / 255, rel=0.01)
    assert isinstance(role(plan, "b", Role.OUTPUT), Shared)
    assert role(plan, "b", Role.OUTPUT).source == "a"
    assert role(plan, "a", Role.OUTPUT).note == "covers 2 values"
    assert plan.values["c"] == alone.values["c"]
    written_as_said(model, plan, feeds)


def test_inputs_and_output_on_one_grid_as_tflite_has_concatenations() -> None:
    model = two_branches()
    rule = Rule(operators=("Concat",), activation=UINT8, share=(Share.INPUTS, Share.OUTPUT))
    plan, feeds = planned(model, rule, Rule(activation=UINT8, weight=CHANNELS))
    assert plan.values["a"] == plan.values["b"] == plan.values["c"]
    assert plan.refusals == ()
    written_as_said(model, plan, feeds)


def test_an_output_on_the_grid_of_the_first_input() -> None:
    model = two_branches("c = Add(a, b)\n z = Conv(c, v)", channels=4)
    rule = Rule(operators=("Add",), activation=UINT8, share=(Share.OUTPUT,))
    plan, feeds = planned(model, rule, Rule(activation=UINT8, weight=CHANNELS))
    assert plan.values["c"] == plan.values["a"] != plan.values["b"]
    written_as_said(model, plan, feeds)


def test_sharing_runs_through_chains_of_movers_and_sums() -> None:
    model = model_of(
        "float[N,4,6,6] x",
        "float[N,2,6,6] z",
        """a = Conv(x, w)
        t = Transpose<perm=[0,1,3,2]>(a)
        b = Conv(x, u)
        s = Add(t, b)
        m = Conv(s, y)
        q = Add(m, b)
        z = Conv(q, v)""",
        w=weights(0, 4, 4, 1, 1),
        u=weights(1, 4, 4, 1, 1, size=2),
        y=weights(2, 4, 4, 1, 1),
        v=weights(3, 2, 4, 1, 1),
    )
    rule = Rule(operators=("Add",), activation=UINT8, share=(Share.INPUTS,))
    plan, feeds = planned(model, rule, Rule(activation=UINT8, weight=CHANNELS))
    assert plan.values["a"] == plan.values["t"] == plan.values["b"] == plan.values["m"]
    assert len({plan.values[name] for name in "xasq"}) == 4
    written_as_said(model, plan, feeds)


def test_a_fixed_grid_is_not_shared(words) -> None:
    model = model_of(
        "float[N,6] x",
        "float[N,3] z",
        """a = MatMul(x, w)
        g = Sigmoid(a)
        b = MatMul(x, u)
        c = Concat<axis=1>(g, b)
        q = MatMul(c, v)
        r = MatMul(g, y)
        z = Add(q, r)""",
        w=weights(0, 6, 4),
        u=weights(1, 6, 4),
        v=weights(2, 8, 3),
        y=weights(3, 4, 3),
    )
    share = Rule(operators=("Concat",), activation=UINT8, share=(Share.INPUTS,))
    plan, _ = planned(model, share, Rule(activation=UINT8, weight=CHANNELS))
    (refusal,) = plan.refusals
    words(refusal)
    assert isinstance(role(plan, "g", Role.OUTPUT), Fixed)


@pytest.mark.parametrize("operator", ["Max", "Min"])
def test_a_choice_between_two_is_made_on_one_grid(operator: str) -> None:
    model = two_branches(f"c = {operator}(a, b)\n z = Conv(c, v)", channels=4, size=3)
    plan, feeds = planned(model, Rule(activation=INT8, weight=CHANNELS))
    assert plan.values["a"] == plan.values["b"] == plan.values["c"]
    assert plan.integer_macs == 1.0
    written_as_said(model, plan, feeds)


@pytest.mark.parametrize("operator", ["Max(a, b)", "Min(a, b)", "Where(k, a, b)"])
def test_values_of_very_different_range_have_grids_of_their_own(operator: str) -> None:
    """One grid for all cost a bit of 'a' for every doubling of 'b': 4 dB were left at 80 times."""
    last = f"h = Add(a, b)\n k = Less(b, a)\n c = {operator}\n z = Conv(c, v)"
    model = two_branches(last, channels=4, size=240)
    rule = Rule(activation=UINT8, weight=CHANNELS)
    plan, feeds = planned(model, rule)
    assert float(plan.values["b"].scale) > 20 * float(plan.values["a"].scale)
    assert not plan.refusals or all(
        "Less" in refusal or "k" in refusal or "h" in refusal for refusal in plan.refusals
    )
    decision = role(plan, "c", Role.OUTPUT)
    assert isinstance(decision, Static)
    assert "grids of their own" in decision.note
    written_as_said(model, plan, feeds)
    close = two_branches(last, channels=4, size=3)
    assert "grids" not in getattr(
        role(planned(close, Rule(activation=INT8, weight=CHANNELS))[0], "c", Role.OUTPUT),
        "note",
        "",
    )


def test_where_picks_on_one_grid_and_its_condition_has_none() -> None:
    model = two_branches(
        "k = Greater(a, b)\n c = Where(k, a, b)\n z = Conv(c, v)", channels=4, size=3
    )
    plan, feeds = planned(model, Rule(activation=INT8, weight=CHANNELS))
    assert plan.values["a"] == plan.values["b"] == plan.values["c"]
    assert "k" not in plan.values
    written_as_said(model, plan, feeds)


def test_fixed_parameters_stand() -> None:
    model = SUBJECTS["conv_relu"]()
    fixed = Spec(qtype="uint8", symmetry="asymmetric", scale=0.03125, zero_point=128)
    plan, feeds = planned(
        model,
        Rule(operators=("Conv",), first=1, input=fixed, output=UINT8, weight=CHANNELS),
        Rule(activation=UINT8, weight=CHANNELS),
    )
    decision = role(plan, "x", Role.INPUT)
    assert decision == Given(fixed.fixed, "the schema")
    bias = next(d for s, d in plan.decisions.items() if s.role is Role.BIAS)
    weight = next(d for s, d in plan.decisions.items() if s.role is Role.WEIGHT)
    assert np.array_equal(bias.qparams.scale, np.float32(0.03125) * weight.qparams.scale)
    written_as_said(model, plan, feeds)


def test_a_fixed_grid_needs_no_statistics() -> None:
    model = SUBJECTS["conv_relu"]()
    profile = calibrate(model, [feeds_of(model)], values=["y"])
    fixed = Spec(qtype="uint8", symmetry="asymmetric", scale=0.03125, zero_point=128)
    rules = (
        Rule(operators=("Conv",), first=1, input=fixed, output=UINT8, weight=CHANNELS),
        Rule(activation=UINT8, weight=CHANNELS, keep_float=(Role.OUTPUT,)),
    )
    plan = make_plan(model, profile, Schema(name="ours", rules=rules[:1]))
    assert set(plan.values) == {"x", "y"}
    plan = make_plan(
        model, profile, Schema(name="ours", rules=(Rule(activation=UINT8, weight=CHANNELS),))
    )
    assert any("the profile has no statistics of 'x'" in refusal for refusal in plan.refusals)


def test_channels_of_activations() -> None:
    model = SUBJECTS["conv_relu"]()
    channels = Spec(qtype="uint8", symmetry="asymmetric", granularity=Granularity.CHANNEL)
    feeds = {"x": feeds_of(model)["x"] * np.array([1, 30, 0.1], np.float32).reshape(1, 3, 1, 1)}
    float_bias = BiasSpec(kind=BiasKind.FLOAT)
    plan, _ = planned(
        model, Rule(activation=channels, weight=CHANNELS, bias=float_bias), feeds=feeds
    )
    assert plan.values["x"].axis == 1
    lows, highs = feeds["x"].min(axis=(0, 2, 3)), feeds["x"].max(axis=(0, 2, 3))
    assert plan.values["x"].scale == pytest.approx((highs - lows) / 255, rel=1e-6)
    written_as_said(model, plan, feeds)
    whole, _ = planned(model, Rule(activation=UINT8, weight=CHANNELS, bias=float_bias), feeds=feeds)
    real = run(model, feeds)
    errors = [np.abs(run(quantize_model(model, p), feeds) - real).mean() for p in (plan, whole)]
    assert errors[0] < errors[1]
    derived, _ = planned(model, Rule(activation=channels, weight=CHANNELS), feeds=feeds)
    reasons = {d.reason for s, d in derived.decisions.items() if s.role is Role.BIAS}
    assert reasons == {"its products have a scale for every channel of the input"}


def test_channels_that_a_profile_has_not() -> None:
    model = SUBJECTS["conv_relu"]()
    channels = Spec(qtype="uint8", symmetry="asymmetric", granularity=Granularity.CHANNEL)
    profile = calibrate(model, [feeds_of(model)])
    plan = make_plan(
        model, profile, Schema(name="ours", rules=(Rule(activation=channels, weight=CHANNELS),))
    )
    assert not plan.values
    assert any("the profile has no channels of 'x'" in refusal for refusal in plan.refusals)
    percentile = Spec(
        qtype="uint8",
        symmetry="asymmetric",
        granularity=Granularity.CHANNEL,
        range_method="percentile(99.9)",
    )
    plan, _ = planned(model, Rule(activation=percentile, weight=CHANNELS))
    assert any("of channels a profile keeps extremes only" in refusal for refusal in plan.refusals)
    plan, _ = planned(SUBJECTS["pooled_concat"](), Rule(activation=channels, weight=CHANNELS))
    assert any(
        "a grid per channel does not follow values that are moved" in refusal
        for refusal in plan.refusals
    )


def test_a_value_that_was_infinite_stays_float() -> None:
    model = model_of(
        "float[N,6] x",
        "float[N,3] z",
        "a = MatMul(x, w)\n e = Log(a)\n z = MatMul(e, v)",
        w=np.abs(weights(0, 6, 4)),
        v=np.abs(weights(2, 4, 3)),
    )
    feeds = {"x": np.abs(feeds_of(model)["x"])}
    feeds["x"][3] = 0
    plan, _ = planned(model, Rule(activation=UINT8, weight=CHANNELS), feeds=feeds)
    assert any("'e' was infinite 4 times in calibration" in refusal for refusal in plan.refusals)
    assert set(plan.values) == {"x", "a"}


def test_a_method_that_finds_no_range_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Picky:
        def of_distribution(self, distribution: Any, kind: Any) -> Any:
            raise InputError(
                "Searching", found="too few values", expected="a million", remedy="Show it more."
            )

    monkeypatch.setattr("qbench.quantization.spec.get_range_method", lambda text: Picky())
    model = SUBJECTS["conv_relu"]()
    averaged = Spec(qtype="uint8", symmetry="asymmetric", range_method="mse")
    plan, _ = planned(model, Rule(activation=averaged, weight=CHANNELS))
    assert not plan.values
    assert len(plan.refusals) == 2
    assert plan.refusals[0].endswith(
        "'x' has no range by mse: found too few values, expected a million"
    )


def test_a_method_is_asked_once_for_each_kind_of_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Counted:
        def of_distribution(self, distribution: Any, kind: Any) -> Any:
            asked.append(str(kind))
            return MINMAX.of_distribution(distribution, kind)

        def of_rows(self, rows: Any, kind: Any) -> Any:
            return MINMAX.of_rows(rows, kind)

    monkeypatch.setattr("qbench.quantization.spec.get_range_method", lambda text: Counted())
    model = SUBJECTS["residual"]()
    profile = calibrate(model, [feeds_of(model)])
    ranges = Ranges(profile)
    plans = [
        make_plan(model, profile, name, ranges=ranges)
        for name in ("w8a8_asym_pc", "w8a8_asym_pt", "w4a8_asym_pc")
    ]
    chosen = {
        s.value
        for s, d in plans[0].decisions.items()
        if isinstance(d, Static) and s.role in (Role.INPUT, Role.OUTPUT)
    }
    assert len(asked) == len(chosen)
    assert all(plan.values == plans[0].values for plan in plans)
    assert plans[0].values["x"].qtype == QType.parse("uint8")
