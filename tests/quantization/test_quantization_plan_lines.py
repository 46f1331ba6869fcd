"""Plans for people and files: any plan reads back, differs slot by slot, and fits the terminal."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantization_subjects import SUBJECTS, feeds_of

from qbench.calibration import calibrate
from qbench.graph import Capabilities
from qbench.numerics import QParams, QType
from qbench.quantization import (
    Derived,
    Dynamic,
    Fixed,
    Given,
    Granularity,
    KeptFloat,
    Plan,
    Role,
    Rule,
    Schema,
    Shared,
    Slot,
    Spec,
    Static,
    load_plan,
    make_plan,
    save_plan,
)
from qbench.quantization.candidates import ClipForm, Float
from qbench.quantization.plan_lines import letters

UINT8 = Spec(qtype="uint8", symmetry="asymmetric")
CHANNELS = Spec(
    qtype="int8", symmetry="symmetric", granularity=Granularity.CHANNEL, narrow_range=True
)

words = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12
)
qtypes = st.builds(QType, st.sampled_from([*range(2, 17), 32]), st.booleans())
scales = st.floats(2.0**-100, 2.0**100, width=32)


@st.composite
def grids(draw: st.DrawFn) -> QParams:
    qtype, narrow = draw(qtypes), draw(st.booleans())
    points = st.integers(qtype.qmin + narrow, qtype.qmax)
    shape: tuple[int, ...] = draw(st.sampled_from([(), (3,), (2, 3)]))
    count = int(np.prod(shape, dtype=int))
    scale = np.array(draw(st.lists(scales, min_size=count, max_size=count)), np.float32).reshape(
        shape
    )
    point = np.array(draw(st.lists(points, min_size=count, max_size=count)), np.int64).reshape(
        shape
    )
    axis = None if not shape else draw(st.integers(0, len(shape) - 1))
    block = draw(st.integers(1, 64)) if len(shape) == 2 else None
    return QParams(scale, point, qtype, axis=axis, block_size=block, narrow_range=narrow)


decisions = st.one_of(
    st.builds(Static, grids(), st.just("") | words),
    st.builds(Fixed, grids()),
    st.builds(Shared, grids(), words),
    st.builds(
        Derived, grids(), st.lists(words, min_size=1, max_size=2).map(tuple), st.just("") | words
    ),
    st.builds(Given, grids(), words),
    st.builds(Dynamic, qtypes),
    st.builds(KeptFloat, words),
)
slots = st.builds(Slot, words, st.sampled_from(Role), st.integers(0, 3), words)
plans = st.builds(
    Plan,
    schema=words,
    canonical=words,
    graph=words,
    profile=words,
    decisions=st.dictionaries(slots, decisions, max_size=6),
    clips=st.dictionaries(words, st.sampled_from(ClipForm), max_size=2),
    floats=st.dictionaries(words, st.builds(Float, words, st.booleans()), max_size=3),
    macs=st.integers(1, 10**9),
    integer_mac_count=st.integers(0, 10**9),
    idle_rules=st.lists(words, max_size=2).map(tuple),
    requested=st.dictionaries(words, words, max_size=4),
)


@pytest.mark.slow
@given(plan=plans, data=st.data())
@settings(max_examples=120)
def test_any_plan_reads_back(
    plan: Plan, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if plan.decisions:
        some = data.draw(st.lists(st.sampled_from(list(plan.decisions)), unique=True))
        plan = replace(plan, saturated={slot: data.draw(st.integers(1, 99)) for slot in some})
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    save_plan(plan, path)
    again = load_plan(path)
    assert again == plan
    assert plan.diff(again) == []
    assert again.lines(72) == plan.lines(72)


@given(plan=plans, width=st.integers(40, 120))
@settings(max_examples=80)
def test_every_fact_has_a_line(plan: Plan, width: int) -> None:
    """Folding breaks at blanks only, so that the words of the long form
    are those of the narrow one.
    """
    long, narrow = " ".join(plan.lines()).split(), " ".join(plan.lines(width)).split()
    assert sorted(long) == sorted(narrow)
    text = "\n".join(plan.lines())
    assert all(f"{slot.role.value}[{slot.index}]" in text for slot in plan.decisions)
    assert all(f.reason in text for f in plan.floats.values())


def planned(name: str, *rules: Rule, **more: Any) -> Plan:
    model = SUBJECTS[name]()
    profile = calibrate(model, [feeds_of(model)])
    return make_plan(model, profile, Schema(name="ours", rules=rules), **more)


def test_a_difference_is_that_of_a_slot() -> None:
    plan = planned("residual", Rule(activation=UINT8, weight=CHANNELS))
    one, two = (
        slot for slot in plan.decisions if slot.role is Role.WEIGHT and slot.value in ("w", "w2")
    )
    swapped = replace(
        plan, decisions={**plan.decisions, one: plan.decisions[two], two: plan.decisions[one]}
    )
    difference = plan.diff(swapped)
    assert [line.split(":")[0] for line in difference] == [
        f"{sign} {slot} '{slot.value}'" for slot in (one, two) for sign in "-+"
    ]
    fewer = replace(plan, decisions={s: d for s, d in plan.decisions.items() if s != one})
    (line,) = plan.diff(fewer)
    assert line.startswith(f"- {one} 'w': int8 narrow 4 scales ")
    assert fewer.diff(plan) == ["+" + line[1:]]
    assert plan.diff(replace(plan, profile="0")) == [f"- profile: {plan.profile}", "+ profile: 0"]


def test_what_was_asked_and_what_became_of_it(words) -> None:
    plan = planned(
        "gates",
        Rule(operators=("Tanh",), reason="as an example"),
        Rule(operators=("Conv",), activation=UINT8),
        Rule(activation=UINT8, weight=CHANNELS),
        capabilities=Capabilities(tables=False),
    )
    lines = plan.lines()
    asked = {
        line.split()[0]: line.split(maxsplit=1)[1]
        for line in lines[lines.index("asked for") + 1 :][:3]
    }
    words(asked["A"])
    words(asked["B"])
    words(asked["C"])
    (sigmoid,) = (line for line in lines if "Sigmoid" in line and "→" in line)
    assert sigmoid.endswith(
        "C → float, refused: the backend has no tables, hence computes Sigmoid in float"
    )
    (tanh,) = (line for line in lines if line.endswith("float, as an example"))
    assert "→" not in tanh
    assert "rule 2 (operators Conv) matches nothing" in lines
    refused = sum(f.refused for f in plan.floats.values())
    assert f"{len(plan.quantized_units)} of 9 units quantized, {refused} refused" in lines
    assert set(plan.requested) == set(plan.quantized_units) | set(plan.floats)


def test_what_is_kept_in_part(words) -> None:
    plan = planned("conv_relu", Rule(activation=UINT8, weight=CHANNELS))
    words([line.split(": ", 1)[1] for line in plan.lines() if "→" in line])
    assert any("float, it leaves the graph" in line for line in plan.lines())


def test_a_plan_that_was_read_out_of_a_model_has_no_requests() -> None:
    plan = planned("conv_relu", Rule(activation=UINT8, weight=CHANNELS))
    lines = replace(plan, requested={}).lines()
    assert "asked for" not in lines
    assert sum(line.endswith(": as it came") for line in lines) == 2


def test_columns_are_aligned_and_fold() -> None:
    plan = planned("residual", Rule(activation=UINT8, weight=CHANNELS))
    wide = [
        line
        for line in plan.lines()
        if line.startswith("  ") and "scale" in line and "  A" not in line
    ]
    assert (
        len(
            {
                line.index("int8") - line[: line.index("int8")].endswith("u")
                for line in wide
                if "int8" in line
            }
        )
        == 1
    )
    assert max(map(len, plan.lines(76)[1:])) <= 76
    assert max(map(len, plan.lines(40)[1:])) <= 48  # names are not broken


def test_letters() -> None:
    requests = {f"unit{index}": f"wish {index % 60}" for index in range(100)} | {"other": "float"}
    found = letters(requests)
    assert list(found.values())[:3] == ["A", "B", "C"]
    assert list(found.values())[25:28] == ["Z", "AA", "AB"]
    assert len(set(found.values())) == len(found) == 60


def test_a_plan_and_its_file_are_small(tmp_path: Path) -> None:
    plan = planned("depthwise", Rule(activation=UINT8, weight=CHANNELS))
    save_plan(plan, tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    assert len(text.splitlines()) <= len(plan.decisions) + 5
    assert '"requested": {' in text
