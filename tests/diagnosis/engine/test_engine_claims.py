"""Which machine an engine claims to be on which processor, and who is watched in its place."""

from dataclasses import replace

import pytest

from qbench.backends import (
    IntegerBackend,
    Level,
    Optimization,
    OrtBackend,
    arithmetic_of,
    get_backend,
)
from qbench.backends.ort import fused_arithmetic
from qbench.diagnosis.target import watched_backend
from qbench.host import architecture


@pytest.mark.parametrize(
    ("processor", "precise", "name"),
    [
        ("x64-avx512-vnni", False, "ort-x64"),
        ("x64-avx2-vnni", True, "ort-x64"),
        ("x64-avx2", False, "ort-x64-avx2"),
        ("x64-avx512", False, "ort-x64-avx2"),
        ("x64-avx512", True, "ort-x64"),
        ("x64-sse", False, "ort-x64-sse"),
        ("x64-sse", True, "ort-x64-sse"),
        ("arm64-dotprod", False, None),
        ("riscv64", True, None),
    ],
)
def test_integer_kernels_count_by_what_the_processor_has(processor, precise, name):
    assert fused_arithmetic(processor, precise=precise) == name


def test_graphs_that_nothing_fuses_are_counted_in_reals():
    basic = OrtBackend(name="basic", optimization=Optimization(level=Level.BASIC))
    for backend in (get_backend("ort-cpu-noopt"), get_backend("onnx-reference"), basic):
        assert arithmetic_of(backend).name == "ideal"


@pytest.mark.skipif(architecture() != "x64", reason="arithmetics of ONNX Runtime are known of x64")
def test_who_runs_the_same_kernels_makes_the_same_claim():
    claims = {
        name: arithmetic_of(get_backend(name)).name for name in ("ort-cpu", "ort-cpu-qoperator")
    }
    assert len(set(claims.values())) == 1
    assert arithmetic_of(get_backend("ort-cpu-precise")).name in ("ort-x64", "ort-x64-sse")


def test_machines_are_what_they_are_called_and_are_watched_themselves():
    gemmlowp = get_backend("integer-gemmlowp")
    assert arithmetic_of(gemmlowp).name == "gemmlowp"
    assert watched_backend(gemmlowp) is gemmlowp
    device = get_backend("partitioned-conv-engine")
    assert arithmetic_of(device) == device.accelerator.arithmetic


def test_engines_are_watched_in_a_machine_and_bare_ones_as_they_are():
    bare = get_backend("ort-cpu-noopt")
    assert watched_backend(bare) is bare
    watched = watched_backend(get_backend("ort-cpu-precise"))
    assert architecture() != "x64" or isinstance(watched, IntegerBackend)


def test_of_a_backend_that_nobody_described_nothing_is_known():
    class Foreign:
        name, capabilities, packages = "foreign", get_backend("ort-cpu").capabilities, ()

        def prepare(self, model, *, taps=(), threads=1):
            raise NotImplementedError

    assert arithmetic_of(Foreign()) is None
    assert watched_backend(Foreign()) is None
    without = replace(
        get_backend("ort-cpu"), optimization=Optimization(without=frozenset({"ReluQuantRewrite"}))
    )
    assert arithmetic_of(without) == arithmetic_of(get_backend("ort-cpu"))
