"""Fitting whole networks: what is fitted is better on the samples, the same each time, and what the
written model computes.
"""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from torch_digits import digits, simulated

from qbench.backends import get_backend
from qbench.cli import main
from qbench.errors import InputError
from qbench.extension import known_extensions
from qbench.graph import FitSettings, Fitter, fitter_catalogue, save_model
from qbench.numerics import fake_quantize, quantize
from qbench.passes import plannable
from qbench.quantization import FittedModel, fit_model, insert_qdq

pytestmark = pytest.mark.oracle

Array = npt.NDArray[Any]
FEW = FitSettings(steps=12, batch=8)


@pytest.fixture(autouse=True)
def _needs_torch(torch: ModuleType) -> None:
    """Every test here fits."""


def fitter(method: str) -> Fitter:
    return fitter_catalogue(known_extensions()).get(method)


def codes_of(done: FittedModel) -> dict[str, Array]:
    """Name → codes of every quantized constant of the plan."""
    graph = done.model.graph
    return {
        slot.value: quantize(graph.initializers[slot.value].const_value.numpy(), qparams)
        for slot, qparams in done.plan.constants.items()
    }


@pytest.mark.parametrize(
    ("method", "schema", "weights"),
    [
        ("tqt", "w3a3_sym_pt_pow2", False),
        ("tqt", "w4a4_sym_pt_pow2", True),
        ("lsq", "w4a4_asym_pc", False),
        ("lsq", "w4a4_asym_pt", True),
        ("adaround", "w3a8_sym_pt_pow2", False),
    ],
)
def test_what_was_fitted_is_no_worse_and_the_model_computes_what_was_simulated(
    method: str, schema: str, weights: bool
) -> None:
    model, feeds, _ = digits()
    settings = FitSettings(steps=40, batch=12, weights=weights)
    done = fit_model(model, feeds, schema, fitter(method), settings)
    before, after = done.loss
    # thresholds of powers of two alone may have nowhere better to go
    assert after < before or (after == before and method == "tqt" and not weights)
    if "pow2" in schema:
        with get_backend("ort-cpu-noopt").prepare(insert_qdq(done.model, done.plan)) as executor:
            written = executor.run(feeds)
        for name, numbers in simulated(done, schema, feeds).items():
            assert np.array_equal(written[name], numbers)


def test_only_the_roundings_of_weights_change_by_adaround() -> None:
    model, feeds, _ = digits()
    schema = "w3a8_asym_pc"
    done = fit_model(model, feeds, schema, fitter("adaround"), FEW)
    canonical = plannable(model)
    moved = 0
    for slot, qparams in done.plan.constants.items():
        if slot.role.value != "weight":
            continue
        before = canonical.graph.initializers[slot.value].const_value.numpy()
        after = done.model.graph.initializers[slot.value].const_value.numpy()
        assert np.array_equal(after, fake_quantize(after, qparams))
        steps = quantize(after, qparams).astype(int) - quantize(before, qparams)
        assert np.abs(steps).max() <= 1
        moved += np.count_nonzero(steps)
    assert moved


def test_a_seed_gives_one_result_and_another_seed_another() -> None:
    model, feeds, _ = digits()
    settings = [FitSettings(steps=8, batch=4, weights=True, seed=seed) for seed in (3, 3, 4)]
    one, same, other = (
        fit_model(model, feeds, "w4a4_asym_pt", fitter("lsq"), each) for each in settings
    )
    assert one.ranges == same.ranges
    assert one.plan == same.plan
    assert codes_of(one).keys() == codes_of(same).keys()
    assert all(np.array_equal(codes_of(one)[name], codes) for name, codes in codes_of(same).items())
    assert other.ranges != one.ranges


def test_labels_are_an_aim_too() -> None:
    model, feeds, labels = digits()
    settings = FitSettings(steps=12, batch=8, weights=True)
    done = fit_model(model, feeds, "w4a4_sym_pt_pow2", fitter("tqt"), settings, labels=labels)
    assert done.loss[1] < done.loss[0]


def test_thresholds_of_real_scales_are_refused() -> None:
    model, feeds, _ = digits(8)
    with pytest.raises(InputError) as caught:
        fit_model(model, feeds, "w8a8_asym_pc", fitter("tqt"), FEW)
    assert caught.value.expected == "scales that are powers of two"


def test_labels_for_adaround_are_refused() -> None:
    model, feeds, labels = digits(8)
    with pytest.raises(InputError) as caught:
        fit_model(model, feeds, "w8a8_asym_pc", fitter("adaround"), FEW, labels=labels)
    assert caught.value.found == "labels"


def test_labels_of_other_samples_are_refused() -> None:
    model, feeds, labels = digits(8)
    with pytest.raises(InputError) as caught:
        fit_model(model, feeds, "w8a8_sym_pt_pow2", fitter("tqt"), FEW, labels=labels[:5])
    assert caught.value.found == "labels of shape (5,) for 8 samples"


def test_the_files_of_the_command_quantize_to_the_same_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("net.onnx", "cal.npz", "r.toml", "float.onnx", "q.onnx", "p.json", "again.onnx")
    net, cal, ranges, real, coded, profile, again = (str(tmp_path / name) for name in names)
    model, feeds, labels = digits(16)
    save_model(model, net)
    np.savez(cal, **feeds, y=labels)
    schema = ["--schema", "w4a8_sym_pt_pow2"]
    fit = ["--method", "tqt", "--weights", "--steps", "6", "--batch", "8", "--labels", "--json"]
    files = ["-o", coded, "--save-ranges", ranges, "--save-float", real]
    assert main(["fit", net, "--calib", cal, *schema, *fit, *files]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["samples"] == 16
    assert facts["loss_after"] < facts["loss_before"]
    assert main(["profile", real, "--data", cal, "-o", profile]) == 0
    read = ["--ranges", ranges, "--profile", profile]
    assert main(["quantize", real, *schema, *read, "-o", again]) == 0
    results = []
    for path in (coded, again):
        with get_backend("ort-cpu-noopt").prepare(path) as executor:
            results.append(next(iter(executor.run(feeds).values())))
    assert np.array_equal(*results)
