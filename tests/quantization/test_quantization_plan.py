"""Plans as values: read, compared, saved; and the bias arithmetic alone."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantization_subjects import SUBJECTS, feeds_of

from qbench.calibration import calibrate
from qbench.errors import InputError, QbenchError, StoreError
from qbench.numerics import QParams, QType
from qbench.quantization import Role, Static, load_plan, make_plan, save_plan
from qbench.quantization.internal_qparams import (
    bias_qparams,
    raised_for_bias,
    without_dead_channels,
)
from qbench.quantization.plan_file import plan_digest

INT8 = QType.parse("int8")


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_saved_plan_reads_back_equal(name: str, tmp_path: Path) -> None:
    model = SUBJECTS[name]()
    plan = make_plan(model, calibrate(model, [feeds_of(model)]), "w8a8_asym_pc")
    save_plan(plan, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert again == plan
    assert hash(again) == hash(plan)
    assert again.lines() == plan.lines()
    assert plan.diff(again) == []


def test_lines_and_differences_are_for_people() -> None:
    model = SUBJECTS["depthwise"]()
    profile = calibrate(model, [feeds_of(model)])
    real, pow2 = (make_plan(model, profile, name) for name in ("w8a8_asym_pc", "w8a8_asym_pc_pow2"))
    lines = real.lines()
    assert "100.0% of" in lines[0]
    assert any("6 scales" in line and "along axis 0" in line for line in lines)
    assert lines[-2] == "clips"
    assert lines[-1].endswith("absorbed")
    difference = real.diff(pow2)
    assert any(line.startswith("- ") for line in difference)
    assert any(line.startswith("+ ") and line.endswith(" clip: integer") for line in difference)


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_printed_plan_and_profile_are_short(name: str) -> None:
    model = SUBJECTS[name]()
    profile = calibrate(model, [feeds_of(model)])
    plan = make_plan(model, profile, "w8a8_asym_pc")
    assert str(plan).splitlines()[0] == plan.lines()[0]
    assert len(str(plan).splitlines()) <= 12
    assert repr(plan) == f"<Plan {plan.lines()[0]}>"
    assert len(repr(profile)) < 120
    for unit, found in list(plan.floats.items())[:1]:
        assert unit in str(plan)
        assert found.reason in str(plan)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", InputError),
        ("{}", InputError),
        ("[1]", InputError),
        ('{"format": "qbench-plan", "version": 99}', StoreError),  # of a newer qbench
        ('{"format": "qbench-plan", "version": 1}', InputError),
    ],
)
def test_other_files_are_no_plans(text: str, error: type[QbenchError], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(error, match="Loading the plan"):
        load_plan(path)
    with pytest.raises(InputError, match="No such file"):
        load_plan(tmp_path / "none.json")


scales = st.floats(2.0**-40, 2.0**20, width=32)


@given(
    weight=st.lists(scales, min_size=1, max_size=5),
    bias=st.lists(st.floats(-(2.0**40), 2.0**40, width=32), min_size=5, max_size=5),
    input_scale=scales,
    pow2=st.booleans(),
    dead=st.booleans(),
)
@settings(max_examples=200)
def test_every_bias_fits_its_grid(
    weight: list[float], bias: list[float], input_scale: float, pow2: bool, dead: bool
) -> None:
    start = [2.0 ** np.ceil(np.log2(w)) for w in weight] if pow2 else weight
    params = QParams(start, 0, INT8, axis=0)
    values = np.array(bias[: len(weight)])
    raised, count = raised_for_bias(params, input_scale, values, pow2=pow2, dead=dead)
    grid = bias_qparams(raised, input_scale, axis=0)
    for b, scale, before, after in zip(values, grid.scale, params.scale, raised.scale, strict=True):
        assert abs(Fraction(float(b))) / Fraction(float(scale)) <= 2**30 * (1 + Fraction(1, 2**22))
        assert dead or after >= before
        assert not pow2 or np.frexp(after)[0] == 0.5
    assert dead or count == int((raised.scale > params.scale).sum())


def test_the_median_of_the_living_stands_in_for_the_dead() -> None:
    params = QParams([1.0, 2.0, 8.0, 1.0, 4.0], 0, INT8, axis=0)
    dead = np.array([True, False, False, True, False])
    assert without_dead_channels(params, dead).scale.tolist() == [4, 2, 8, 4, 4]
    assert without_dead_channels(params, np.zeros(5, bool)) is params
    assert without_dead_channels(params, np.ones(5, bool)) is params


def test_a_plan_per_block_has_a_digest_of_its_numbers() -> None:
    """Every change of a scale, however small, is another plan; a plan read back is the same one."""
    model = SUBJECTS["conv_relu"]()
    plan = make_plan(model, calibrate(model, [feeds_of(model)]), "w8a8_sym_pc")
    slot, decision = next((s, d) for s, d in plan.decisions.items() if s.role is Role.WEIGHT)
    assert isinstance(decision, Static)
    scale = np.nextafter(decision.qparams.scale, np.float32(9), dtype=np.float32)
    other = QParams(
        scale, decision.qparams.zero_point, decision.qparams.qtype, axis=0, narrow_range=True
    )
    moved = replace(plan, decisions={**plan.decisions, slot: Static(other, decision.note)})
    assert len({plan_digest(one) for one in (plan, moved, replace(plan, schema="another"))}) == 3
    assert plan_digest(replace(plan)) == plan_digest(plan)
