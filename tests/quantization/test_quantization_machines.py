"""Our integer machines beside the engine they follow, on graphs that qbench itself wrote:
every bit equal.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from quantization_subjects import SUBJECTS, conv_relu, feeds_of

from qbench.backends import catalogue, get_backend
from qbench.calibration import calibrate
from qbench.errors import InputError, UnsupportedError
from qbench.extension import Extension
from qbench.host import processor_features
from qbench.numerics import get_arithmetic, list_arithmetics
from qbench.quantization import make_plan, quantize_model

COUNTED = ("conv_relu", "residual", "depthwise", "pooled_concat", "gates")
RUN = (*COUNTED, "attention")
"""What has no integer kernel runs in float between its grids."""


def written(name: str, schema: str) -> tuple[Any, dict[str, Any]]:
    model = SUBJECTS[name]()
    feeds = feeds_of(model)
    return quantize_model(model, make_plan(model, calibrate(model, [feeds]), schema)), feeds


def outputs(model: Any, feeds: dict[str, Any], backend: str) -> dict[str, Any]:
    with get_backend(backend).prepare(model) as executor:
        return executor.run(feeds)


@pytest.mark.slow_but(2)
@pytest.mark.parametrize(
    "schema", ["w8a8_asym_pt", "w8a8_asym_pc", "w8a8_symu8_pc", "w8a8_asym_pc_pow2"]
)
@pytest.mark.parametrize("name", COUNTED)
def test_the_machine_of_this_processor_counts_as_onnx_runtime_does(name: str, schema: str) -> None:
    model, feeds = written(name, schema)
    saturates = not any("vnni" in feature for feature in processor_features())
    ours = outputs(model, feeds, "integer-ort-x64-avx2" if saturates else "integer-ort-x64")
    for key, theirs in outputs(model, feeds, "ort-cpu").items():
        np.testing.assert_array_equal(ours[key], theirs)


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("schema", ["w8a8_asym_pt", "w8a8_asym_pc"])
@pytest.mark.parametrize("name", COUNTED)
def test_the_exact_machine_counts_as_the_precise_mode_does(name: str, schema: str) -> None:
    model, feeds = written(name, schema)
    ours = outputs(model, feeds, "integer-ort-x64")
    for key, theirs in outputs(model, feeds, "ort-cpu-precise").items():
        np.testing.assert_array_equal(ours[key], theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
@pytest.mark.parametrize(
    "machine", ["ideal", "gemmlowp", "glow-cpu", "nvdla", "tvm-upward", "onednn"]
)
def test_smoke_no_machine_is_far_from_the_float_simulation(machine: str, name: str) -> None:
    """5 % of the spread are more than any rounding;
    every bit is compared in the interpreter's tests.
    """
    model, feeds = written(name, "w8a8_asym_pt")
    simulated = outputs(model, feeds, "ort-cpu-noopt")
    for key, ours in outputs(model, feeds, f"integer-{machine}").items():
        spread = np.ptp(simulated[key])
        assert np.abs(ours - simulated[key]).max() <= 0.05 * spread


def test_every_arithmetic_has_a_backend() -> None:
    named = {
        name.removeprefix("integer-") for name in catalogue().names() if name.startswith("integer-")
    }
    assert named == {*list_arithmetics()}
    assert get_backend("integer-gemmlowp").name == "integer-gemmlowp"


def test_an_arithmetic_from_outside_has_a_backend() -> None:
    mine = replace(get_arithmetic("ideal"), name="mine")
    added = catalogue([Extension(name="ours", arithmetics={"mine": lambda: mine})])
    assert added.get("integer-mine").name == "integer-mine"
    assert added.owner("integer-mine") == "ours"


def test_a_float_graph_is_not_counted() -> None:
    with pytest.raises(UnsupportedError, match="found a float graph"):
        get_backend("integer-ideal").prepare(conv_relu())


def test_a_tap_that_names_nothing_is_one_sentence() -> None:
    model, _ = written("conv_relu", "w8a8_asym_pc")
    with pytest.raises(InputError, match="no value 'nowhere'"):
        get_backend("integer-ideal").prepare(model, taps=["nowhere"])


def test_what_does_not_fit_is_one_sentence() -> None:
    model, feeds = written("conv_relu", "w8a8_asym_pc")
    with get_backend("integer-ideal").prepare(model) as executor:
        with pytest.raises(InputError):
            executor.run({})
        assert executor.run(feeds)
    with pytest.raises(RuntimeError, match="was closed"):
        executor.run(feeds)
