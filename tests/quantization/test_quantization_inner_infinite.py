"""A value inside a unit may have no range: it was infinite in calibration,
or the range method finds none.
"""

from dataclasses import replace
from typing import Any

import pytest
from quantization_subjects import conv_relu, feeds_of

from qbench.calibration import Distribution, calibrate
from qbench.calibration.ranges.least_error import Mse
from qbench.errors import InputError
from qbench.numerics import Interval, QParamsKind
from qbench.quantization import Ranges, Rule, Schema, Spec, make_plan

INT16 = Spec(qtype="int16", symmetry="symmetric")
INT8 = Spec(qtype="int8", symmetry="symmetric")


def test_it_is_refused_with_its_count() -> None:
    model = conv_relu()
    schema = Schema(
        name="s",
        canonical="split_bias",
        rules=(Rule(activation=INT8, weight=INT8, correlation=INT16),),
    )
    profile = calibrate(model, [feeds_of(model)], pipeline="split_bias")
    assert not make_plan(model, profile, schema).refusals
    name = next(name for name in profile.values if name.endswith(".correlation"))
    values = {**profile.values, name: replace(profile.values[name], infinite=3)}
    plan = make_plan(model, replace(profile, values=values), schema)
    assert any(f"'{name}' was infinite 3 times" in refusal for refusal in plan.refusals)


def searching(slot: str) -> Schema:
    spec = Spec(qtype="int16", symmetry="symmetric", range_method="mse")
    options: Any = {"correlation": INT16, slot: spec}
    return Schema(
        name="s", canonical="split_bias", rules=(Rule(activation=INT8, weight=INT8, **options),)
    )


@pytest.mark.parametrize("slot", ["correlation", "sum"])
def test_a_method_that_finds_no_range_is_a_refusal(
    slot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Mse, distribution: Distribution, kind: QParamsKind) -> Interval:
        raise InputError(
            "Searching", found="too few values", expected="a million", remedy="Watch more."
        )

    monkeypatch.setattr(Mse, "of_distribution", refused)
    model = conv_relu()
    profile = calibrate(model, [feeds_of(model)], pipeline="split_bias")
    plan = make_plan(model, profile, searching(slot))
    assert any(
        "has no range by mse: found too few values, expected a million" in r for r in plan.refusals
    )


@pytest.mark.parametrize("slot", ["correlation", "sum"])
def test_a_range_inside_a_unit_is_searched_for_once(
    slot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched, search = [], Mse.of_distribution

    def counted(self: Mse, distribution: Distribution, kind: QParamsKind) -> Interval:
        searched.append(distribution)
        return search(self, distribution, kind)

    monkeypatch.setattr(Mse, "of_distribution", counted)
    model = conv_relu()
    profile = calibrate(model, [feeds_of(model)], pipeline="split_bias")
    ranges = Ranges(profile)
    plans = [make_plan(model, profile, searching(slot), ranges=ranges) for _ in range(2)]
    assert plans[0] == plans[1]
    assert not plans[0].refusals
    assert len(searched) == 1
