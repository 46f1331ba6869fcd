"""ONNX Runtime on x64 processors that are not here, emulated: with AVX2 but no VNNI, and
without AVX2 and FMA.

The emulated processor is what decides, whatever this one has: `ort-x64-avx2` and `ort-x64-sse` are
    judged everywhere.
"""

import pickle
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from operator_cases.elementwise import binaries, concatenations, quantizations, unaries
from operator_cases.ground import Case, drawn, one_node
from operator_cases.judges import counted
from operator_cases.pools import averages, global_averages
from operator_cases.products import convolutions, gemms, matrix_products

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.numerics import (
    fused_multiply_add,
    rational_sigmoid,
    rational_tanh,
    separate_multiply_add,
)
from qbench.quantization import make_plan, quantize_model
from qbench.subjects import get_model

QEMU = shutil.which("qemu-x86_64")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(
        QEMU is None,
        reason="qemu-x86_64 is not installed; on Debian it is in the package qemu-user",
    ),
    pytest.mark.skipif(
        platform.machine() != "x86_64", reason="the engine installed here is no program for x64"
    ),
]

MACHINES = {"Haswell": "ort-x64-avx2", "SandyBridge": "ort-x64-sse"}
"""QEMU's processor → what ONNX Runtime is on it."""
PROBES = {"Haswell": 32767, "SandyBridge": 64770}
"""QEMU's processor → [255, 255] · [127, 127] there."""
FAMILIES = {
    "convolution": (convolutions(), 100),
    "matrix product": (matrix_products(), 30),
    "gemm": (gemms(), 30),
    "sum or product": (binaries(), 30),
    "function": (unaries(), 50),
    "concatenation": (concatenations(), 10),
    "average": (averages(), 25),
    "global average": (global_averages(), 20),
    "quantize": (quantizations(), 25),
}
PLAIN, PRECISE = {"optimized": False, "precise": False}, {"optimized": True, "precise": True}

Job = tuple[bytes, dict[str, np.ndarray], dict[str, bool]]
Emulated = Callable[[str, list[Job]], list[Any]]


@pytest.fixture
def emulated(tmp_path: Path) -> Emulated:
    """Processor and jobs → the engine's answers there."""

    def run(processor: str, jobs: list[Job]) -> list[Any]:
        asked, told = tmp_path / "jobs", tmp_path / "answers"
        asked.write_bytes(pickle.dumps(jobs))
        script = Path(__file__).with_name("emulated_engine.py")
        command = [str(QEMU), "-cpu", processor, sys.executable, str(script), str(asked), str(told)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
        assert done.returncode == 0, done.stderr[-2000:]
        return pickle.loads(told.read_bytes())

    return run


def job(case: Case, options: dict[str, bool]) -> Job:
    return case.model.SerializeToString(), dict(case.feeds), options


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and np.array_equal(
        left, right, equal_nan=left.dtype.kind == "f"
    )


@pytest.mark.parametrize("processor", MACHINES)
def test_every_operator_counts_as_its_machine(processor: str, emulated: Emulated) -> None:
    probe = {"x": np.array([[255, 255, 0, 0]], np.uint8)}
    pair = one_node(
        "MatMulInteger", ["x", "w"], probe, "int32", {"w": np.full((4, 1), 127, np.int8)}
    )
    cases = [case for strategy, count in FAMILIES.values() for case in drawn(strategy, count)]
    probed, *theirs = emulated(processor, [job(case, PLAIN) for case in (pair, *cases)])
    assert probed.item() == PROBES[processor]
    ours = [counted(case.model, case.feeds, MACHINES[processor]) for case in cases]
    wrong = [
        case for case, left, right in zip(cases, ours, theirs, strict=True) if not same(left, right)
    ]
    assert not wrong
    exact = [counted(case.model, case.feeds, "ort-x64") for case in cases]
    assert any(not same(left, right) for left, right in zip(exact, theirs, strict=True))


@pytest.mark.parametrize("processor", MACHINES)
def test_functions_of_floats_are_the_engines(processor: str, emulated: Emulated) -> None:
    feeds = {"x": np.linspace(-18.5, 18.5, 200_001).astype(np.float32)}
    cases = [one_node(operator, ["x"], feeds, "float32", {}) for operator in ("Sigmoid", "Tanh")]
    theirs = emulated(processor, [job(case, PLAIN) for case in cases])
    step = fused_multiply_add if processor == "Haswell" else separate_multiply_add
    for ours, answer in zip((rational_sigmoid, rational_tanh), theirs, strict=True):
        np.testing.assert_array_equal(ours(feeds["x"], step), answer)


def test_precise_mode_is_exact_without_vnni_too(emulated: Emulated) -> None:
    """Signed activations aside: the mode makes their weights unsigned,
    for which there is no kernel (1.31).
    """
    cases = [
        case
        for family in ("convolution", "matrix product", "gemm")
        for case in drawn(*FAMILIES[family])
    ]
    found = emulated("Haswell", [job(case, PRECISE) for case in cases])
    signed = [case.feeds["x"].dtype == np.int8 for case in cases]
    refused = [isinstance(answer, str) for answer in found]
    assert any(refused)
    assert not any(left and not right for left, right in zip(refused, signed, strict=True))
    for case, answer in zip(cases, found, strict=True):
        if not isinstance(answer, str):
            assert same(counted(case.model, case.feeds, "ort-x64"), answer), case


NETS = (
    ("digits_cnn", "w8a8_asym_pt"),
    ("digits_cnn", "w8a8_sym_pc"),
    ("fashion_preact", "w8a8_asym_pc"),
)


def network(name: str, schema: str) -> tuple[ir.Model, dict[str, np.ndarray]]:
    """A trained network, quantized over two samples of noise, and these."""
    (load,) = get_model(name).graphs.values()
    model = load()
    (source,) = model.graph.inputs
    shape = (2, *(dim if isinstance(dim, int) else 28 for dim in list(source.shape or ())[1:]))
    feeds = {source.name or "": np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)}
    return quantize_model(model, make_plan(model, calibrate(model, [feeds]), schema)), feeds


@pytest.mark.parametrize("processor", MACHINES)
def test_whole_networks_count_as_their_machines(processor: str, emulated: Emulated) -> None:
    """Precise mode with unsigned activations:
    with signed ones it leaves the last product to floats.
    """
    fused, asked = {"optimized": True, "precise": False}, []
    for name, schema in NETS:
        model, feeds = network(name, schema)
        asked.append((MACHINES[processor], model, feeds, fused))
        if processor == "Haswell" and "asym" in schema:
            asked.append(("ort-x64", model, feeds, PRECISE))
    jobs = [
        (ir.serde.serialize_model(model).SerializeToString(), *rest) for _, model, *rest in asked
    ]
    for (machine, model, feeds, _), theirs in zip(asked, emulated(processor, jobs), strict=True):
        ours = next(iter(get_backend(f"integer-{machine}").prepare(model).run(feeds).values()))
        np.testing.assert_array_equal(ours, theirs, err_msg=f"{machine} {model.graph.name}")
