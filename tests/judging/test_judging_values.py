"""The small values judging is made of: cells, environment classes, tolerances,
quarantine entries.
"""

import dataclasses
import datetime
import math

import pytest
from judged_numbers import agreement, per

from qbench.judging import (
    Cell,
    EnvironmentClass,
    Outcome,
    QuarantineEntry,
    Tolerance,
    accepted_on,
    class_change,
    making_changes,
)
from qbench.metrics import Direction


def test_a_ranges_file_that_changed_came_or_went_is_named():
    older, plain = {}, {"calibration": "64 samples of 'a'", "schema": "1"}
    one, two = ({**plain, "ranges": f"1 value of 'r.toml' (#{digest})"} for digest in "ab")
    (words,) = making_changes(one, two)
    assert words == f"ranges by hand: {one['ranges']} → {two['ranges']}"
    assert making_changes(plain, one) == (f"ranges by hand: none → {one['ranges']}",)
    assert making_changes(one, plain) == (f"ranges by hand: {one['ranges']} → none",)
    assert (
        making_changes(older, one) == making_changes(one, older) == making_changes(one, one) == ()
    )


@pytest.mark.parametrize(
    "packages",
    [
        (),
        (("onnxruntime", "1.24.1"),),
        (("numpy", "2.3.5"), ("onnx-ir", "1.0.dev3")),
        (("torch", "2.9.0+cpu"),),
        (("torch", "2.9.0+cu130.x"), ("threads", "4")),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda", "h100-sxm", "npu_2.1"])
def test_an_environment_class_survives_its_text(packages, device):
    here = EnvironmentClass("x64-avx512-vnni", packages, device)
    assert EnvironmentClass.parse(str(here)) == here
    assert here.matches(None)
    assert here.matches(here.hardware)
    assert here.matches(str(here))
    assert not here.matches("x64-avx2")
    assert here.matches("x64-avx512-vnni") == (device == "cpu")  # counted there, not on the device


def test_the_class_of_a_device_ends_with_it_and_that_of_the_cpu_has_no_word_of_it():
    packages = {"onnxruntime-gpu": "1.31.1"}
    assert str(EnvironmentClass.of("x64-avx2", packages)) == "x64-avx2+onnxruntime-gpu-1.31.1"
    there = EnvironmentClass.of("x64-avx2", packages, threads=2, device="cuda")
    assert str(there) == "x64-avx2+onnxruntime-gpu-1.31.1+threads-2+device=cuda"
    assert there.hardware == "x64-avx2+device=cuda"
    here = EnvironmentClass.of("x64-avx2", packages, threads=2)
    assert class_change(here, there) == "device cpu → cuda"


def test_values_of_a_processor_are_not_those_of_a_device():
    cell = Cell("smoke", "m", "b", "w8a8_asym_pt")
    of_cpu, of_device = {str(cell): {"top1": 0.5}}, {str(cell): {"top1": 0.25}}
    entry = QuarantineEntry(
        cell=str(cell),
        measured="1",
        reason="r",
        owner="o",
        expires="2026-12-31",
        values={"x64-avx2": of_cpu, "x64-avx2+device=cuda": of_device},
    )
    packages = (("onnxruntime", "1.31.1"),)
    for device, name, top1 in (("cpu", "x64-avx2", 0.5), ("cuda", "x64-avx2+device=cuda", 0.25)):
        here = EnvironmentClass("x64-avx2", packages, device)
        assert entry.values_of(cell, here) == ((name, {"top1": top1}),)


def test_a_result_is_accepted_on_a_processor_and_a_device():
    accepted = dict.fromkeys(("x64-avx2+e-1+device=cuda", "arm64+e-1"))
    assert accepted_on(accepted, "x64-avx2", device="cuda")
    assert not accepted_on(accepted, "x64-avx2", device="cpu")
    assert not accepted_on(accepted, "arm64", device="cuda")
    assert accepted_on(accepted, "x64-avx2")  # of any device


def test_a_cell_has_a_slug_and_refuses_other_letters():
    cell = Cell("smoke", "mobilenet_v2", "ort-cpu", "w8a8_asym_pc", "passes=exact")
    assert str(cell) == "mobilenet_v2::ort-cpu+w8a8_asym_pc+passes=exact"
    assert Cell("s", "m", "b", "fp32").is_fp32
    for bad in ("A", "a b", "a::b", "a+b", "", "ü"):
        with pytest.raises(ValueError, match="not made of"):
            Cell("smoke", bad, "ort-cpu", "fp32")


def test_the_numbers_of_a_tolerance():
    assert (Tolerance().value, Tolerance().text) == (0.005, "tolerance 0.5 % (default)")
    assert Tolerance(0.01, "cell", {"top5": Tolerance(0.02, "cell")}).numbers == {
        "": 0.01,
        "top5": 0.02,
    }
    for impossible in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="impossible"):
            Tolerance(impossible)


def test_an_entry_covers_by_pattern_and_class():
    entry = QuarantineEntry(
        cell="m::*+w8a8_asym_pt",
        measured="1",
        reason="r",
        owner="o",
        expires="2026-12-31",
        when="x64-avx2",
    )
    here, there = EnvironmentClass("x64-avx512-vnni"), EnvironmentClass("x64-avx2")
    cell = Cell("smoke", "m", "ort-cpu", "w8a8_asym_pt")
    assert entry.covers(cell, there)
    assert not entry.covers(cell, here)
    assert not entry.covers(Cell("smoke", "m", "ort-cpu", "w8a8_asym_pc"), there)
    assert not entry.expired(datetime.date(2026, 12, 31))
    assert entry.expired(datetime.date(2027, 1, 1))


def test_red_and_green():
    green = {o for o in Outcome if not o.is_red}
    assert green == {
        Outcome.PASSED,
        Outcome.INCONCLUSIVE,
        Outcome.QUARANTINED,
        Outcome.UNSUPPORTED,
        Outcome.ACCEPTED,
    }


def test_a_metric_has_bounds_of_its_own():
    errors = per(60)
    decibels = dataclasses.replace(agreement(400), unit="dB", proportion=False)
    shares = dataclasses.replace(agreement(400), proportion=False)
    divergence = dataclasses.replace(decibels, unit="nat", direction=Direction.LOWER)
    assert [one.bounds for one in (agreement(400), shares, errors, divergence, decibels)] == [
        (0, 1),
        (0, 1),
        (0, math.inf),
        (0, math.inf),
        (-math.inf, math.inf),
    ]
