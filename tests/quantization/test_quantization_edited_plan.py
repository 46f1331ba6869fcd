"""Plans edited by hand: what is derived follows, and what contradicts itself is one sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantization_subjects import SUBJECTS, feeds_of

from qbench.backends import executed_by, get_backend
from qbench.calibration import calibrate
from qbench.errors import InputError
from qbench.graph import check_convention
from qbench.passes import plannable
from qbench.quantization import (
    Derived,
    HandRange,
    HandRanges,
    Plan,
    Role,
    Shared,
    get_schema,
    load_plan,
    make_plan,
    qparams_of,
    quantize_model,
    save_plan,
    with_clips_of,
)
from qbench.quantization.candidates import ClipForm
from qbench.quantization.edited_plan import derived_again

Row = dict[str, Any]


@pytest.fixture(scope="module")
def residual() -> tuple[ir.Model, Any]:
    model = SUBJECTS["residual"]()
    return model, calibrate(model, [feeds_of(model)])


def edited(plan: Plan, path: Path, edit: Callable[[Row], None], *, checksums: bool = True) -> Path:
    """The file of ``plan`` after ``edit`` of each of its rows."""
    save_plan(plan, path)
    table = json.loads(path.read_text())
    for row in table["slots"]:
        edit(row)
    if not checksums:
        del table["checksums"]
    path.write_text(json.dumps(table, indent=1))
    return path


def scaled(value: str, scale: Any, *roles: str) -> Callable[[Row], None]:
    """Replaces the scale of ``value``, in slots of ``roles`` (none given: in all)."""

    def edit(row: Row) -> None:
        _, role, _, name = row["slot"]
        if name == value and (not roles or role in roles):
            row["scale"] = scale(row["scale"]) if callable(scale) else scale

    return edit


def twice(scale: Any) -> Any:
    return [2 * one for one in scale] if isinstance(scale, list) else 2 * scale


def test_a_plan_as_it_was_saved_is_not_touched(
    residual: tuple[ir.Model, Any], tmp_path: Path
) -> None:
    plan = make_plan(*residual, "w8a8_asym_pc")
    path = edited(plan, tmp_path / "plan.json", lambda row: None)  # only laid out otherwise
    assert load_plan(path) == plan
    assert load_plan(edited(plan, path, lambda row: None, checksums=False)) == plan


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("schema", ["w8a8_asym_pc", "w8a8_sym_pt_pow2", "w8a8_symu8_pc"])
def test_deriving_what_was_planned_changes_nothing(name: str, schema: str) -> None:
    model = SUBJECTS[name]()
    plan = make_plan(model, calibrate(model, [feeds_of(model)]), schema)
    for follows in (False, True):
        assert derived_again(plan.decisions, "Testing", follows=follows) == plan.decisions


@pytest.mark.parametrize("value", ["x", "r", "t"])
def test_biases_follow_their_input(
    value: str, residual: tuple[ir.Model, Any], tmp_path: Path
) -> None:
    model, _ = residual
    plan = make_plan(*residual, "w8a8_asym_pc")
    again = load_plan(edited(plan, tmp_path / "plan.json", scaled(value, 0.05)))
    assert again.values[value].scale == np.float32(0.05)
    for slot, decision in again.decisions.items():
        if slot.role is not Role.BIAS:
            continue
        (x,) = (
            qparams_of(d)
            for s, d in again.decisions.items()
            if s.node == slot.node and s.role is Role.INPUT
        )
        (w,) = (
            q for s, q in again.constants.items() if s.node == slot.node and s.role is Role.WEIGHT
        )
        product = [np.float32(x.scale) * one for one in w.scale]
        assert decision.qparams.scale.tolist() == product
        assert ("derived again" in decision.note) == (
            plan.decisions[slot].qparams != decision.qparams
        )
    quantized = quantize_model(model, again)
    assert check_convention(quantized) == ()
    with get_backend("ort-cpu").prepare(quantized) as executor:
        executor.run(feeds_of(model))
        ran = executed_by(executor)
    assert all(ran[node].in_integers for node in again.integer_nodes)


def test_it_equals_the_plan_with_that_range(residual: tuple[ir.Model, Any], tmp_path: Path) -> None:
    model, profile = residual
    plan = make_plan(model, profile, "w8a8_asym_pc")
    again = load_plan(edited(plan, tmp_path / "plan.json", scaled("r", 0.05)))
    point = int(plan.values["r"].zero_point)
    hand = HandRanges(file="r.toml", values=(("r", HandRange(scale=0.05, zero_point=point)),))
    other = make_plan(model, profile, get_schema("w8a8_asym_pc").with_ranges(hand))
    assert (again.values, again.constants) == (other.values, other.constants)
    feeds = feeds_of(model)
    answers = []
    for one in (again, other):
        with get_backend("ort-cpu").prepare(quantize_model(model, one)) as executor:
            answers.append(executor.run(feeds)["z"])
    assert np.array_equal(*answers)


def test_two_parameters_for_one_value(residual: tuple[ir.Model, Any], tmp_path: Path) -> None:
    plan = make_plan(*residual, "w8a8_asym_pc")
    path = edited(plan, tmp_path / "plan.json", scaled("r", 0.05, "input"))
    with pytest.raises(InputError) as caught:
        load_plan(path)
    found = caught.value.found
    assert "'r'" in found
    assert f"scale {plan.values['r'].scale:.9g} " in found
    assert f"scale {np.float32(0.05):.9g} " in found
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("checksums", [True, False])
def test_a_bias_off_the_product(
    checksums: bool, residual: tuple[ir.Model, Any], tmp_path: Path
) -> None:
    plan = make_plan(*residual, "w8a8_asym_pc")
    path = edited(plan, tmp_path / "plan.json", scaled("b", twice), checksums=checksums)
    with pytest.raises(InputError) as caught:
        load_plan(path)
    assert "'b' at a.bias[2]" in caught.value.found
    assert "a.input[0] and a.weight[1]" in caught.value.found
    assert caught.value.found.count("int32 ") == 2


def test_of_a_file_without_checksums_nothing_follows(
    residual: tuple[ir.Model, Any], tmp_path: Path
) -> None:
    """It is not known whether the input or the bias was edited."""
    plan = make_plan(*residual, "w8a8_asym_pc")
    path = edited(plan, tmp_path / "plan.json", scaled("r", 0.05), checksums=False)
    with pytest.raises(InputError, match="'b2'"):
        load_plan(path)


def test_shared_parameters_follow_their_source(tmp_path: Path) -> None:
    model = SUBJECTS["pooled_concat"]()
    plan = make_plan(model, calibrate(model, [feeds_of(model)]), "w8a8_asym_pc")
    shared = {d.source for d in plan.decisions.values() if isinstance(d, Shared)}
    path = tmp_path / "plan.json"
    for source in shared:
        again = load_plan(edited(plan, path, scaled(source, 0.05)))
        for slot, decision in again.decisions.items():
            if isinstance(decision, Shared) and decision.source == source:
                assert decision.qparams == again.values[source], slot
    moved = next(slot for slot, d in plan.decisions.items() if isinstance(d, Shared))
    with pytest.raises(InputError) as caught:
        load_plan(edited(plan, path, scaled(moved.value, 0.05)))
    assert f"'{moved.value}'" in caught.value.found


def test_a_clip_moves_to_where_the_parameters_put_it(
    residual: tuple[ir.Model, Any], tmp_path: Path
) -> None:
    """A clip to [0, 6] is absorbed where codes end at 6, and not where they reach further."""
    model, _ = residual
    plan = make_plan(*residual, "w8a8_asym_pc")
    again = load_plan(edited(plan, tmp_path / "plan.json", scaled("r", 0.05)))
    assert plan.clips["r"] is again.clips["r"] is ClipForm.ABSORBED
    assert with_clips_of(plannable(model, plan.canonical), again).clips == {
        "r": ClipForm.INTEGER,
        "t": ClipForm.ABSORBED,
    }
    feeds = {"x": 100 * feeds_of(model)["x"]}
    with get_backend("ort-cpu-noopt").prepare(
        quantize_model(model, again), taps=("r_of_levels",)
    ) as executor:
        codes = executor.run(feeds)["r_of_levels"]
    assert codes.max() == round(6 / 0.05)


@given(factor=st.floats(0.25, 4, width=32), value=st.sampled_from(["x", "r", "t"]))
@settings(max_examples=25)
def test_any_scale_of_any_value(factor: float, value: str, tmp_path_factory: Any) -> None:
    model = SUBJECTS["residual"]()
    plan = _plan_of(model)
    scale = float(np.float32(plan.values[value].scale * np.float32(factor)))
    path = edited(plan, tmp_path_factory.mktemp("plan") / "plan.json", scaled(value, scale))
    again = load_plan(path)
    assert derived_again(again.decisions, "Testing", follows=False) == again.decisions
    changed = {s.value for s in plan.decisions if plan.decisions[s] != again.decisions[s]}
    derived = {s.value for s, d in plan.decisions.items() if isinstance(d, Derived)}
    assert changed <= {value} | derived


_PLANS: dict[str, Plan] = {}


def _plan_of(model: ir.Model) -> Plan:
    if "residual" not in _PLANS:
        _PLANS["residual"] = make_plan(model, calibrate(model, [feeds_of(model)]), "w8a8_asym_pc")
    return _PLANS["residual"]
