"""The table of operators: whose grid a result has, which ranges are fixed, what stays float,
judged by ONNX Runtime.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quantization_subjects import feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.numerics import QParams, QType
from qbench.quantization import (
    Fixed,
    Plan,
    Role,
    Rule,
    Schema,
    Shared,
    Spec,
    Static,
    make_plan,
    quantize_model,
)
from qbench.quantization.candidates import ClipForm, clip_form, fixed_interval

UINT8 = Spec(qtype="uint8", symmetry="asymmetric")
INT8 = Spec(qtype="int8", symmetry="symmetric", narrow_range=True)
W8A8 = Schema(name="ours", rules=(Rule(activation=UINT8, weight=INT8),))


def between(body: str, channels: int = 4, **constants: Any) -> ir.Model:
    """``body`` makes f of a, between two convolutions."""
    return model_of(
        "float[N,3,6,6] x",
        "float[N,2,H,W] z",
        f"a = Conv(x, w)\n {body}\n z = Conv(f, v)",
        w=weights(0, 4, 3, 1, 1),
        v=weights(1, 2, channels, 1, 1),
        **constants,
    )


def planned(model: ir.Model, schema: Any = W8A8) -> tuple[Plan, Any]:
    feeds = feeds_of(model)
    return make_plan(model, calibrate(model, [feeds]), schema), feeds


def run(model: ir.Model, feeds: Any) -> Any:
    with get_backend("ort-cpu-noopt").prepare(model) as executor:
        return executor.run(feeds)["z"]


def result_of(plan: Plan, value: str) -> Any:
    return next(d for s, d in plan.decisions.items() if s.value == value and s.role is Role.OUTPUT)


def close(model: ir.Model, plan: Plan, feeds: Any) -> None:
    real = run(model, feeds)
    assert np.linalg.norm(run(quantize_model(model, plan), feeds) - real) < 0.04 * np.linalg.norm(
        real
    )


INT64 = {"dtype": np.int64}
SHARING = {
    "MaxPool": ("f = MaxPool<kernel_shape=[2,2]>(a)", {}),
    "GlobalMaxPool": ("f = GlobalMaxPool(a)", {}),
    "ReduceMax": ("f = ReduceMax(a, n)", {"n": np.array([2], **INT64)}),
    "ReduceMin": ("f = ReduceMin(a, n)", {"n": np.array([2], **INT64)}),
    "Transpose": ("f = Transpose<perm=[0,1,3,2]>(a)", {}),
    "Slice": (
        "f = Slice(a, s, e, n)",
        {"s": np.array([1], **INT64), "e": np.array([5], **INT64), "n": np.array([2], **INT64)},
    ),
    "Split": ("f, g = Split<axis=2, num_outputs=2>(a)", {}),
    "Pad": (
        "g = Pad(a, n)\n f = Transpose<perm=[0,1,3,2]>(g)",
        {"n": np.array([0, 0, 1, 1, 0, 0, 1, 1], **INT64)},
    ),
    "reflecting Pad": (
        'f = Pad<mode="reflect">(a, n)',
        {"n": np.array([0, 0, 1, 1, 0, 0, 1, 1], **INT64)},
    ),
    "nearest Resize": ("f = Resize(a, , s)", {"s": np.array([1, 1, 2, 2], np.float32)}),
    "linear Resize": (
        'f = Resize<mode="linear">(a, , s)',
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "Gather": ("f = Gather<axis=2>(a, n)", {"n": np.array([0, 2, 1], **INT64)}),
    "TopK": ("f, i = TopK<axis=2>(a, n)", {"n": np.array([3], **INT64)}),
    "Tile": ("f = Tile(a, n)", {"n": np.array([1, 1, 2, 1], **INT64)}),
    "Expand": ("g = GlobalMaxPool(a)\n f = Expand(g, n)", {"n": np.array([1, 1, 3, 3], **INT64)}),
    "DepthToSpace": ("g = DepthToSpace<blocksize=2>(a)\n f = SpaceToDepth<blocksize=2>(g)", {}),
    "Reshape": ("f = Reshape(a, n)", {"n": np.array([0, 4, 9, 4], **INT64)}),
}


@pytest.mark.slow_but(7)
@pytest.mark.parametrize("name", SHARING)
def test_results_that_share_the_parameters_of_what_they_move(name: str) -> None:
    body, constants = SHARING[name]
    model = between(body, **constants)
    plan, feeds = planned(model)
    assert plan.refusals == ()
    assert plan.values["f"] == plan.values["a"]
    assert result_of(plan, "f") == Shared(plan.values["a"], "a")
    close(model, plan, feeds)


OWN = {
    "AveragePool": ("f = AveragePool<kernel_shape=[2,2]>(a)", {}),
    "GlobalAveragePool": ("f = GlobalAveragePool(a)", {}),
    "ReduceMean": ("f = ReduceMean(a, n)", {"n": np.array([2], **INT64)}),
    "LeakyRelu": ("f = LeakyRelu<alpha=0.1>(a)", {}),
    "PRelu": ("f = PRelu(a, k)", {"k": np.abs(weights(5, 4, 1, 1))}),
    "HardSwish": ("f = HardSwish(a)", {}),
    "Gelu": ("f = Gelu(a)", {}),
    "Elu": ("f = Elu(a)", {}),
    "Mul": ("f = Mul(a, a)", {}),
    "Sub": ("f = Sub(a, k)", {"k": weights(5, 4, 1, 1)}),
    "Sum": ("g = Relu(a)\n f = Sum(a, g, a)", {}),
    "Mean": ("g = Relu(a)\n f = Mean(a, g)", {}),
    "InstanceNormalization": (
        "f = InstanceNormalization(a, k, b)",
        {"k": weights(5, 4), "b": weights(6, 4)},
    ),
}


@pytest.mark.slow_but(5)
@pytest.mark.parametrize("name", OWN)
def test_results_with_a_range_of_their_own(name: str) -> None:
    body, constants = OWN[name]
    model = between(body, **constants)
    plan, feeds = planned(model)
    assert plan.refusals == ()
    assert plan.values["f"] != plan.values["a"]
    close(model, plan, feeds)


FIXED = {
    "Sigmoid": (Fraction(1, 256), 0),
    "HardSigmoid": (Fraction(1, 256), 0),
    "Softmax": (Fraction(1, 256), 0),
    "Tanh": (Fraction(1, 128), 128),
    "LpNormalization": (Fraction(1, 128), 128),
}
"""As TFLite has them, on uint8: 1/256 and 0, 1/128 and the middle."""


@pytest.mark.parametrize("operator", FIXED)
def test_fixed_results(operator: str) -> None:
    attributes = "" if operator in ("Sigmoid", "Tanh", "HardSigmoid") else "<axis=1>"
    model = between(f"f = {operator}{attributes}(a)")
    plan, feeds = planned(model)
    decision = result_of(plan, "f")
    assert isinstance(decision, Fixed)
    scale, point = FIXED[operator]
    assert (Fraction(float(decision.qparams.scale)), int(decision.qparams.zero_point)) == (
        scale,
        point,
    )
    close(model, plan, feeds)


def test_a_log_softmax_has_the_range_that_was_seen() -> None:
    """TFLite's [−16, 0] saturated what calibration had seen at −47:
    12.7 dB where its own range leaves 28.6.
    """
    model = between("g = Mul(a, k)\n f = LogSoftmax<axis=1>(g)", k=np.float32(200).reshape(1))
    plan, feeds = planned(model)
    decision = result_of(plan, "f")
    assert isinstance(decision, Static)
    lowest = float(decision.qparams.scale) * (0 - int(decision.qparams.zero_point))
    assert lowest < -20
    close(model, plan, feeds)


@given(operator=st.sampled_from(list(FIXED)), bits=st.integers(2, 16))
def test_asymmetric_scales_of_fixed_results_are_powers_of_two(operator: str, bits: int) -> None:
    interval = fixed_interval(operator, bits)
    steps = (1 << bits) - 1
    scale = (Fraction(float(interval.high)) - Fraction(float(interval.low))) / steps
    assert scale == FIXED[operator][0] * Fraction(256, 1 << bits)
    assert (Fraction(float(interval.low)) / scale).denominator == 1


FLOAT = {
    "cubic": (
        'f = Resize<mode="cubic">(a, , s)',
        {"s": np.array([1, 1, 2, 2], np.float32)},
        "Resize by cubic curves",
    ),
    "crop": (
        'f = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize", '
        "extrapolation_value=9.0>"
        "(a, r, s)",
        {
            "s": np.array([1, 1, 2, 2], np.float32),
            "r": np.array([0, 0, 0, 0, 1, 1, 2, 2], np.float32),
        },
        "Resize that fills with a value other than 0",
    ),
    "filled": (
        "f = Pad(a, n, k)",
        {"n": np.array([0, 0, 1, 1, 0, 0, 1, 1], **INT64), "k": np.array(3, np.float32)},
        "Pad with a value other than 0",
    ),
    "Exp": ("f = Exp(a)", {}, "no integer form of Exp"),
    "Div": ("f = Div(a, k)", {"k": np.array(3, np.float32)}, "no integer form of Div"),
}


@pytest.mark.parametrize("name", FLOAT)
def test_what_stays_float(name: str) -> None:
    body, constants, words = FLOAT[name]
    model = between(body, **constants)
    plan, feeds = planned(model)
    assert [refusal for refusal in plan.refusals if words in refusal]
    assert plan.integer_macs == 1.0
    close(model, plan, feeds)


def test_arguments_of_the_largest_read_the_grid_and_have_none() -> None:
    model = between("i = ArgMax<axis=1>(a)\n k = Cast<to=1>(i)\n f = Add(a, k)")
    plan, feeds = planned(model)
    assert "i" not in plan.values
    assert not any(s.node.startswith("ArgMax") for s in plan.decisions)
    run(quantize_model(model, plan), feeds)


def test_a_dead_relu_on_int8_gives_zero_and_only_zero() -> None:
    model = between("c = Add(a, k)\n f = Relu(c)", k=np.full((4, 1, 1), -90, np.float32))
    for schema in ("w8a8_sym_pc", "w8a8_sym_pt_pow2", "w8a8_asym_pc"):
        plan, feeds = planned(model, schema)
        (name,) = (name for name in plan.clips)
        assert plan.clips[name] in (ClipForm.ABSORBED, ClipForm.INTEGER)
        assert not run(quantize_model(model, plan), feeds).any()


@given(
    low=st.floats(0.25, 3, width=32),
    width=st.floats(0.5, 8, width=32),
    scale=st.floats(2**-7, 0.5, width=32),
    signed=st.booleans(),
    point=st.integers(-20, 20),
)
def test_a_clip_is_absorbed_only_where_the_grid_ends_with_it(
    low: float, width: float, scale: float, signed: bool, point: int
) -> None:
    qparams = QParams(scale, point if signed else 128 + point, QType(8, signed))
    ends = [
        ir.val(n, const_value=ir.tensor(np.float32(v), name=n))
        for n, v in (("l", low), ("h", low + width))
    ]
    clip = ir.Node("", "Clip", [ir.Value(name="v"), *ends], num_outputs=1)
    step, middle = Fraction(float(np.float32(scale))), int(qparams.zero_point)
    images = [round(Fraction(float(np.float32(v))) / step) + middle for v in (low, low + width)]
    clamped = [min(max(level, qparams.qmin), qparams.qmax) for level in images]
    inside = clamped == [qparams.qmin, qparams.qmax]
    assert clip_form(clip, qparams) is (ClipForm.ABSORBED if inside else ClipForm.INTEGER)


def test_a_clip_before_channels_goes_where_every_channel_ends_with_it() -> None:
    relu = ir.Node("", "Relu", [ir.Value(name="v")], num_outputs=1)
    uint8 = QType.parse("uint8")
    assert clip_form(relu, QParams([0.1, 0.2], 0, uint8, axis=1)) is ClipForm.ABSORBED
    assert clip_form(relu, QParams([0.1, 0.2], np.array([0, 3]), uint8, axis=1)) is ClipForm.FLOAT
