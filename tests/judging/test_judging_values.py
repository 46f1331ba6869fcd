"""The small values judging is made of: cells, environment classes, tolerances,
quarantine entries.
"""

import datetime

import pytest

from qbench.judging import Cell, EnvironmentClass, Outcome, QuarantineEntry, Tolerance


@pytest.mark.parametrize(
    "packages",
    [
        (),
        (("onnxruntime", "1.24.1"),),
        (("numpy", "2.3.5"), ("onnx-ir", "1.0.dev3")),
        (("torch", "2.9.0+cpu"),),
    ],
)
def test_an_environment_class_survives_its_text(packages):
    here = EnvironmentClass("x64-avx512-vnni", packages)
    assert EnvironmentClass.parse(str(here)) == here
    assert here.matches(None)
    assert here.matches("x64-avx512-vnni")
    assert here.matches(str(here))
    assert not here.matches("x64-avx2")


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
