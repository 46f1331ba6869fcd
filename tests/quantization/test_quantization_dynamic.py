"""Parameters at run time: planned, written, and counted as ONNX defines DynamicQuantizeLinear."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from quantization_subjects import SUBJECTS, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import Profile, calibrate
from qbench.graph import Capabilities, check_convention, model_bytes
from qbench.numerics import QParams, QType, fake_quantize
from qbench.quantization import (
    Dynamic,
    Granularity,
    KeptFloat,
    Plan,
    Role,
    Rule,
    Schema,
    Spec,
    load_plan,
    make_plan,
    quantize_model,
    save_plan,
)

UINT8 = Spec(qtype="uint8", symmetry="asymmetric")
AT_RUN_TIME = Spec(qtype="uint8", symmetry="asymmetric", dynamic=True)
CHANNELS = Spec(
    qtype="int8", symmetry="symmetric", granularity=Granularity.CHANNEL, narrow_range=True
)
DYNAMIC = "w8a8_asym_pc_dyn"


def planned(model: ir.Model, schema: Any, **more: Any) -> tuple[Plan, Any]:
    feeds = feeds_of(model)
    chosen = Schema(name="ours", rules=schema) if isinstance(schema, tuple) else schema
    return make_plan(model, calibrate(model, [feeds]), chosen, **more), feeds


def run(model: ir.Model, feeds: Any, backend: str) -> Any:
    with get_backend(backend).prepare(model) as executor:
        return executor.run(feeds)["z"]


def quantized_at_run_time(x: Any) -> Any:
    """DynamicQuantizeLinear-11 and back, by its formula in float32."""
    low, high = np.minimum(x.min(), 0), np.maximum(x.max(), 0)
    scale = np.float32((high - low) / np.float32(255))
    point = int(np.clip(np.rint((0 - low) / scale), 0, 255))
    return fake_quantize(x, QParams(scale, point, QType.parse("uint8")))


def mlp() -> ir.Model:
    return model_of(
        "float[N,8] x",
        "float[N,3] z",
        "a = Gemm<transB=1>(x, w, b)\n r = Relu(a)\n c = Gemm<transB=1>(r, v, d)\n z = Add(c, k)",
        w=weights(0, 6, 8),
        b=weights(1, 6),
        v=weights(2, 3, 6),
        d=weights(3, 3),
        k=weights(4, 3),
    )


@pytest.mark.parametrize("backend", ["ort-cpu-noopt", "onnx-reference"])
def test_every_batch_gets_its_own_parameters(backend: str) -> None:
    model = mlp()
    plan, feeds = planned(model, DYNAMIC)
    assert {s.value for s, d in plan.decisions.items() if isinstance(d, Dynamic)} == {"x", "r"}
    assert plan.integer_macs == 1.0
    assert not plan.values
    written = quantize_model(model, plan)
    onnx.checker.check_model(onnx.load_from_string(model_bytes(written)), full_check=True)
    assert check_convention(written) == ()
    constants = {s.value: q for s, q in plan.constants.items()}
    arrays = {
        name: value.const_value.numpy()
        for name, value in model.graph.initializers.items()
        if value.const_value
    }
    w, v = (fake_quantize(arrays[name], constants[name]) for name in "wv")
    for size in (1e-3, 1.0, 40.0):
        x = feeds["x"] * np.float32(size)
        hidden = np.maximum(quantized_at_run_time(x) @ w.T + arrays["b"], 0).astype(np.float32)
        expected = quantized_at_run_time(hidden) @ v.T + arrays["d"] + arrays["k"]
        got = run(written, {"x": x}, backend)
        # A sum rounded in another order may move one hidden level; none moves more.
        assert (
            np.abs(got - expected).max()
            <= 1.2 * hidden.max() / 255 * np.abs(v).sum(axis=1).max() / 2 + 1e-6
        )


def test_it_needs_no_statistics() -> None:
    model = mlp()
    profile = calibrate(model, [feeds_of(model)])
    empty = Profile(profile.graph, profile.samples, profile.rows, {})
    assert make_plan(model, empty, DYNAMIC).integer_macs == 1.0


@pytest.mark.parametrize("backend", ["ort-cpu", "integer-ort-x64"])
def test_a_plan_says_which_products_the_backend_runs_in_float(backend: str, tmp_path: Path) -> None:
    """ONNX Runtime has no integer product of 4-bit weights,
    nor of values on grids of their own batch.
    """
    model = mlp()
    for schema, words in ((DYNAMIC, "computed at run time"), ("w4a8_sym_pc", "int8 by int4")):
        plan, _ = planned(model, schema, capabilities=backend)
        runs_them = backend != "ort-cpu"
        assert plan.integer_macs == float(runs_them)
        assert len(plan.run_in_float) == (0 if runs_them else 2)
        assert all(words in reason for reason in plan.run_in_float.values())
        assert (
            sum(f"{backend} runs this in float" in line for line in plan.lines(backend=backend))
            == (not runs_them) * 2
        )
        save_plan(plan, tmp_path / "plan.json")
        assert load_plan(tmp_path / "plan.json").run_in_float == plan.run_in_float


def test_only_products_read_what_is_quantized_at_run_time() -> None:
    model = SUBJECTS["residual"]()
    plan, feeds = planned(model, DYNAMIC)
    assert plan.refusals == ()
    assert {name: f.refused for name, f in plan.floats.items()} == dict.fromkeys(plan.floats, False)
    written = quantize_model(model, plan)
    (addition,) = (node for node in written.graph if node.op_type == "Add")
    assert addition.inputs[1] is written.graph.inputs[0]
    assert check_convention(written) == ()
    real = run(model, feeds, "ort-cpu")
    assert 0 < np.abs(run(written, feeds, "ort-cpu-noopt") - real).max() < 0.05 * np.abs(real).max()


def test_a_derived_bias_has_nothing_to_be_derived_from() -> None:
    plan, _ = planned(mlp(), (Rule(activation=AT_RUN_TIME, weight=CHANNELS),))
    reasons = [
        d.reason
        for s, d in plan.decisions.items()
        if s.role is Role.BIAS and isinstance(d, KeptFloat)
    ]
    assert reasons == ["the scale of its product is known at run time only"] * 2
    plan, _ = planned(mlp(), DYNAMIC)
    reasons = [
        d.reason
        for s, d in plan.decisions.items()
        if s.role is Role.BIAS and isinstance(d, KeptFloat)
    ]
    assert reasons == ["the schema keeps biases in float"] * 2


@pytest.mark.parametrize(
    ("spec", "capabilities", "words"),
    [
        (AT_RUN_TIME, Capabilities(), "no parameters that are computed at run time"),
        (
            Spec(qtype="int8", symmetry="asymmetric", dynamic=True),
            Capabilities(dynamic=True),
            "makes uint8 asymmetric",
        ),
        (
            Spec(qtype="uint8", symmetry="asymmetric", narrow_range=True, dynamic=True),
            Capabilities(dynamic=True),
            "not uint8 asymmetric narrow dynamic",
        ),
        (
            Spec(qtype="uint16", symmetry="asymmetric", dynamic=True),
            Capabilities(dynamic=True),
            "the backend has no uint16 activations",
        ),
    ],
)
def test_what_cannot_be_had(spec: Spec, capabilities: Capabilities, words: str) -> None:
    plan, _ = planned(mlp(), (Rule(activation=spec, weight=CHANNELS),), capabilities=capabilities)
    assert len(plan.refusals) == 2
    assert all(words in refusal for refusal in plan.refusals)
    assert not plan.decisions


def test_a_product_of_two_computed_operands_is_refused() -> None:
    plan, _ = planned(SUBJECTS["attention"](), DYNAMIC)
    refused = [refusal for refusal in plan.refusals if "its weight is computed" in refusal]
    assert len(refused) == len(plan.refusals) == 2


def test_one_value_is_not_both(words) -> None:
    model = model_of(
        "float[N,6] x",
        "float[N,4] z",
        "a = MatMul(x, w)\n b = MatMul(x, v)\n z = Add(a, b)",
        w=weights(0, 6, 4),
        v=weights(1, 6, 4),
    )
    rules = (
        Rule(operators=("MatMul",), first=1, activation=UINT8, weight=CHANNELS),
        Rule(operators=("MatMul",), activation=AT_RUN_TIME, weight=CHANNELS),
    )
    plan, _ = planned(model, rules)
    assert len(plan.refusals) == 1
    words(plan.refusals[0])


def test_results_may_be_static_behind_dynamic_operands(tmp_path: Any) -> None:
    model = mlp()
    plan, feeds = planned(
        model,
        (
            Rule(operators=("Gemm",), first=1, input=AT_RUN_TIME, output=UINT8, weight=CHANNELS),
            Rule(operators=("Gemm",), activation=UINT8, weight=CHANNELS),
        ),
    )
    assert set(plan.values) == {"r", "c"}
    assert plan.integer_macs == 1.0
    written = quantize_model(model, plan)
    assert check_convention(written) == ()
    real = run(model, feeds, "ort-cpu")
    assert np.abs(run(written, feeds, "ort-cpu-noopt") - real).max() < 0.05 * np.abs(real).max()
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan


def test_as_onnxruntime_quantizes_dynamically(tmp_path: Any) -> None:
    """The same grids as its own quantizer: per tensor, over the full range of 8 bits, symmetric."""
    from onnxruntime import quantization

    model = model_of(
        "float[N,8] x",
        "float[N,3] z",
        "a = MatMul(x, w)\n r = Relu(a)\n z = MatMul(r, v)",
        w=weights(0, 8, 6),
        v=weights(2, 6, 3),
    )
    path = tmp_path / "float.onnx"
    path.write_bytes(model_bytes(model))
    quantization.quantize_dynamic(
        path, tmp_path / "theirs.onnx", weight_type=quantization.QuantType.QInt8
    )
    plan, feeds = planned(model, "w8a8_asym_pt_dyn")
    theirs = ir.load(tmp_path / "theirs.onnx")
    scales = {
        name.removesuffix("_scale"): float(value.const_value.numpy())
        for name, value in theirs.graph.initializers.items()
        if value.const_value is not None and name.endswith("_scale")
    }
    for slot, qparams in plan.constants.items():
        assert float(qparams.scale) == pytest.approx(scales[slot.value], rel=1e-6)
    with get_backend("ort-cpu").prepare(theirs) as executor:
        expected = executor.run(feeds)["z"]
    got = run(quantize_model(model, plan), feeds, "ort-cpu")
    assert np.abs(got - expected).max() < 1e-2 * np.abs(expected).max()
