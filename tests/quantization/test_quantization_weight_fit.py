"""Weights fitted on samples: their layers are nearer to the float ones, nothing else moves, and the
written graph is a valid one with the same qparams.
"""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from quantization_subjects import SUBJECTS, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.errors import InputError
from qbench.graph import check_convention, graph_digest, model_bytes
from qbench.quantization import (
    Plan,
    WeightFit,
    adjusted_on_samples,
    bias_correction_of,
    fit_weights,
    get_schema,
    load_plan,
    make_plan,
    quantize_model,
    save_plan,
    weight_fit_of,
)
from qbench.quantization import weight_fit as module

Array = np.ndarray[Any, Any]
ENGINE = get_backend("ort-cpu-noopt")


def gemms() -> ir.Model:
    """Both layouts of a Gemm's weight, and a MatMul without a bias."""
    return model_of(
        "float[N,12] x",
        "float[N,5] z",
        "a = Gemm<transB=1>(x, w, b)\n r = Relu(a)\n g = Gemm(r, w2, b2)\n z = MatMul(g, w3)",
        w=weights(0, 10, 12),
        b=weights(1, 10),
        w2=weights(2, 10, 8),
        b2=weights(3, 8),
        w3=weights(4, 8, 5),
    )


def batches_of(model: ir.Model) -> list[dict[str, Array]]:
    """Samples with a mean, as pictures have."""
    return [
        {k: a + np.float32(0.5) for k, a in feeds_of(model, seed=i, rows=20).items()}
        for i in range(2)
    ]


def written(
    model: ir.Model, name: str = "w4a8_asym_pc_fit"
) -> tuple[Plan, ir.Model, list[dict[str, Array]]]:
    batches = batches_of(model)
    plan = make_plan(model, calibrate(model, batches), get_schema(name))
    return plan, quantize_model(model, plan), batches


def noise(model: ir.Model, other: ir.Model, batches: list[dict[str, Array]]) -> float:
    """Of the outputs, relative to the signal."""
    with ENGINE.prepare(model) as real, ENGINE.prepare(other) as run:
        pairs = [(real.run(feeds)["z"], run.run(feeds)["z"]) for feeds in batches]
    signal = sum(float(np.square(one).sum()) for one, _ in pairs)
    return sum(float(np.square(one - two).sum()) for one, two in pairs) / signal


def operators_of(model: ir.Model) -> list[str]:
    """Without the pair of a bias that correction made."""
    return [node.op_type for node in model.graph if node.op_type != "DequantizeLinear"]


@pytest.mark.parametrize(
    ("make", "left"),
    [(SUBJECTS["conv_relu"], 0.9), (SUBJECTS["depthwise"], 0.2), (gemms, 0.5)],
    ids=["inputs without correlation", "depthwise", "gemms"],
)
def test_outputs_are_nearer_to_fp32_and_the_graph_keeps_its_form(make: Any, left: float) -> None:
    model = make()
    plan, quantized, batches = written(model)
    before = graph_digest(quantized)
    found = adjusted_on_samples(model, quantized, plan, batches)
    assert graph_digest(quantized) == before
    assert noise(model, found, batches) < left * noise(model, quantized, batches)
    onnx.checker.check_model(onnx.load_model_from_string(model_bytes(found)), full_check=True)
    assert check_convention(found) == ()
    assert operators_of(found) == operators_of(quantized)
    fit = weight_fit_of(found)
    assert fit is not None
    assert fit.samples == 40
    assert 0 < fit.moved < fit.codes
    assert bias_correction_of(found) is not None


def test_two_fits_give_one_graph_and_memory_only_decides_how_many_runs_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = gemms()
    plan, quantized, batches = written(model)
    once = graph_digest(fit_weights(model, quantized, plan, batches))
    assert graph_digest(fit_weights(model, quantized, plan, batches)) == once
    monkeypatch.setattr(module, "_MEMORY", 1)
    assert graph_digest(fit_weights(model, quantized, plan, batches)) == once


def test_wide_rows_are_fitted_in_parts_and_large_pictures_by_some_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = SUBJECTS["conv_relu"]()
    plan, quantized, batches = written(model)
    whole = fit_weights(model, quantized, plan, batches)
    monkeypatch.setattr(module, "_WIDEST", 10)
    monkeypatch.setattr(module, "_POSITIONS", 20)
    parts = fit_weights(model, quantized, plan, batches)
    assert graph_digest(parts) != graph_digest(whole)
    first, second = weight_fit_of(whole), weight_fit_of(parts)
    assert first is not None
    assert second is not None
    assert first.codes == second.codes


def test_weights_alone_are_fitted_too() -> None:
    model = gemms()
    plan, quantized, batches = written(model, "w3_sym_pc_fit")
    found = adjusted_on_samples(model, quantized, plan, batches)
    assert noise(model, found, batches) < 0.7 * noise(model, quantized, batches)


def test_a_plan_remembers_that_weights_are_to_be_fitted(tmp_path: Any) -> None:
    model = gemms()
    plan, _, _ = written(model)
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan
    assert plan.fits_weights
    assert any("fitted on samples" in line for line in plan.lines())


def test_no_samples_and_another_plan_are_errors() -> None:
    model = gemms()
    plan, quantized, batches = written(model)
    with pytest.raises(InputError, match="no samples"):
        fit_weights(model, quantized, plan, [])
    with pytest.raises(InputError, match="not written into"):
        fit_weights(model, model, plan, batches)
    quantized.metadata_props["qbench.weight_fit"] = "[1, 2]"
    with pytest.raises(InputError, match=r"qbench\.weight_fit"):
        weight_fit_of(quantized)


def test_inputs_that_are_not_finite_are_an_error_that_names_the_layer() -> None:
    model = gemms()
    plan, quantized, batches = written(model)
    batches[0]["x"][3, 2] = np.inf
    with pytest.raises(InputError, match="Fitting the weight of"):
        fit_weights(model, quantized, plan, batches)


def test_a_fit_is_said_in_words() -> None:
    assert str(WeightFit(3, 64, 25, 100)) == (
        "3 weights fitted on 64 samples, 25.0 % of their codes not the nearest"
    )
