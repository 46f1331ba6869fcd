"""Ranges by hand: parameters are those of the file, for what makes a value and all that read it."""

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from quantization_subjects import SUBJECTS, fake_quantized, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import Profile, calibrate
from qbench.errors import InputError
from qbench.graph import check_convention, constant_value, node_key
from qbench.quantization import (
    HandRange,
    HandRanges,
    Plan,
    Role,
    Rule,
    Schema,
    Share,
    Spec,
    get_schema,
    load_plan,
    load_ranges,
    load_schema,
    make_plan,
    qparams_of,
    quantize_model,
    save_plan,
)

BY_FILE = "the ranges file 'ranges.toml', "
_PROFILES: dict[tuple[str, str], tuple[ir.Model, Profile]] = {}


def by_hand(**values: dict[str, Any]) -> HandRanges:
    return HandRanges(
        file="ranges.toml",
        values=tuple((name, HandRange(**table)) for name, table in values.items()),
    )


def planned(subject: str, schema: str, **values: dict[str, Any]) -> tuple[ir.Model, Plan]:
    chosen = get_schema(schema)
    key = subject, chosen.canonical
    if key not in _PROFILES:
        model = SUBJECTS[subject]()
        profile = calibrate(model, [feeds_of(model)], pipeline=chosen.canonical, channels=True)
        _PROFILES[key] = model, profile
    model, profile = _PROFILES[key]
    return model, make_plan(model, profile, chosen.with_ranges(by_hand(**values)))


def written_pairs(model: ir.Model) -> dict[str, tuple[float, int, str]]:
    """Name of the codes → scale, zero point and operator of each Q and DQ, as they are stored."""
    found = {}
    for node in model.graph:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            scale, point = (constant_value(node.inputs[i]) for i in (1, 2))
            assert scale is not None
            assert point is not None
            if scale.size == 1:
                found[node_key(node)] = (float(scale), int(point), node.op_type)
    return found


def asymmetric(low: float, high: float) -> tuple[Fraction, int]:
    """uint8 parameters of a range, number by number: the float32 scale and the zero point."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = Fraction(float(np.float32((high - low) / 255)))
    exact = -Fraction(low) / scale
    return scale, min(max(round(exact), 0), 255)


def symmetric(low: float, high: float) -> tuple[Fraction, int]:
    """int8 parameters of a range that is widened to both sides."""
    return Fraction(float(np.float32(max(-low / 128, high / 127)))), 0


def test_the_written_parameters_are_those_of_the_file() -> None:
    model, plan = planned(
        "conv_relu",
        "w8a8_asym_pc",
        x={"low": -1.0, "high": 3.0},
        y={"scale": 0.03, "zero_point": 3},
        w2={"scale": 0.0078125, "zero_point": 0},
    )
    quantized = quantize_model(model, plan)
    pairs = written_pairs(quantized)
    scale, point = asymmetric(-1, 3)
    mine = {words for name, words in pairs.items() if name.startswith("x_")}
    assert {(Fraction(one), zero) for one, zero, _ in mine} == {(scale, point)}
    theirs = {words for name, words in pairs.items() if name.startswith("y_")}
    assert {(one, zero) for one, zero, _ in theirs} == {(float(np.float32(0.03)), 3)}
    assert {op for _, _, op in theirs} == {"QuantizeLinear", "DequantizeLinear"}
    for slot, qparams in plan.constants.items():
        if slot.value == "w2":
            assert np.array_equal(qparams.scale, np.full(4, 0.0078125, np.float32))
        if slot.role is Role.BIAS:
            (weight,) = (q for s, q in plan.constants.items() if s.value == "w")
            product = [np.float32(float(scale)) * one for one in weight.scale]
            assert qparams.scale.tolist() == product
    assert check_convention(quantized) == ()
    feeds = feeds_of(model)
    with get_backend("ort-cpu-noopt").prepare(quantized) as executor:
        got = executor.run(feeds)["z"]
    spread = np.abs(got).max()
    expected = fake_quantized(model, plan, feeds)["z"]
    assert np.mean(np.abs(got - expected) > 1e-5 * spread) < 0.02


@pytest.mark.parametrize("subject", ["conv_relu", "residual", "depthwise"])
def test_the_integer_interpreter_equals_the_engine(subject: str) -> None:
    value = {"conv_relu": "y", "residual": "r", "depthwise": "r"}[subject]
    model, plan = planned(subject, "w8a8_asym_pc", **{value: {"low": 0.0, "high": 0.75}})
    assert plan.integer_macs == 1.0
    quantized, feeds = quantize_model(model, plan), feeds_of(model)
    answers = []
    for backend in ("integer-ort-x64", "ort-cpu-precise"):
        with get_backend(backend).prepare(quantized) as executor:
            answers.append(executor.run(feeds)["z"])
    assert np.array_equal(*answers)


ends = st.floats(-100, 100, width=32).filter(lambda end: end == 0 or abs(end) > 1e-3)


@given(pair=st.tuples(ends, ends), schema=st.sampled_from(["w8a8_asym_pc", "w8a8_sym_pt"]))
@settings(max_examples=40)
def test_any_range_is_that_of_all_readers(pair: tuple[float, float], schema: str) -> None:
    low, high = sorted(pair)
    assume(low < high)
    _, plan = planned("residual", schema, t={"low": low, "high": high})
    parameters = asymmetric if "_asym" in schema else symmetric
    scale, point = parameters(low, high)
    decided = [(slot, one) for slot, one in plan.decisions.items() if slot.value == "t"]
    assert {slot.role for slot, _ in decided} == {Role.INPUT, Role.OUTPUT}
    for _, decision in decided:
        qparams = qparams_of(decision)
        assert qparams is not None
        assert (Fraction(float(qparams.scale)), int(qparams.zero_point)) == (scale, point)
        widened = ", widened to hold zero" if low > 0 or high < 0 else ""
        assert decision.source == f"{BY_FILE}[values.t]{widened}"
    others = planned("residual", schema)[1].values
    assert {name: q for name, q in plan.values.items() if name != "t"} == {
        name: q for name, q in others.items() if name != "t"
    }


@given(scale=st.floats(2.0**-20, 8, width=32), point=st.integers(0, 255))
@settings(max_examples=20)
def test_any_parameters_are_taken_as_they_are(scale: float, point: int) -> None:
    model, plan = planned("residual", "w8a8_asym_pc", t={"scale": scale, "zero_point": point})
    assert plan.values["t"].scale == np.float32(scale)
    assert int(plan.values["t"].zero_point) == point
    assert check_convention(quantize_model(model, plan)) == ()


def test_values_that_share_parameters_take_it_together() -> None:
    for name in ("a", "p"):
        _, plan = planned("pooled_concat", "w8a8_asym_pc", **{name: {"low": -4.0, "high": 6.0}})
        assert plan.values["a"] == plan.values["p"] != plan.values["q"]
        assert Fraction(float(plan.values["a"].scale)) == asymmetric(-4, 6)[0]
        words = {plan.said_of(slot) for slot in plan.decisions if slot.value in "ap"}
        other = "p" if name == "a" else "a"
        assert any(f"[values.{name}]" in one for one in words)
        assert any(one.endswith(f"shared with '{name}'") for one in words), other


def larger() -> tuple[ir.Model, Profile]:
    """The larger of two convolutions, which has the same qparams as both where that is possible."""
    model = model_of(
        "float[N,3,8,8] x",
        "float[N,2,8,8] z",
        "a = Conv(x, w)\n b = Conv(x, v)\n m = Max(a, b)\n z = Conv(m, u)",
        w=weights(0, 4, 3, 1, 1),
        v=weights(1, 4, 3, 1, 1),
        u=weights(2, 2, 4, 1, 1),
    )
    return model, calibrate(model, [feeds_of(model)])


def test_a_maximum_takes_it_with_its_operands() -> None:
    model, profile = larger()
    top = float(max(abs(make_plan(model, profile, "w8a8_sym_pt").values["a"].scale * 127), 0.1))
    hand = by_hand(a={"low": -top, "high": top})
    plan = make_plan(model, profile, get_schema("w8a8_sym_pt").with_ranges(hand))
    assert plan.values["a"] == plan.values["b"] == plan.values["m"]
    assert Fraction(float(plan.values["m"].scale)) == symmetric(-top, top)[0]


def test_a_maximum_of_two_ranges_keeps_both_and_says_so() -> None:
    """It can compute with parameters of their own; a pool, which moves values, cannot."""
    model, profile = larger()
    top = float(make_plan(model, profile, "w8a8_sym_pt").values["a"].scale * 127)
    hand = by_hand(a={"low": -top, "high": top}, b={"low": -top, "high": 1.25 * top})
    plan = make_plan(model, profile, get_schema("w8a8_sym_pt").with_ranges(hand))
    assert Fraction(float(plan.values["a"].scale)) == symmetric(-top, top)[0]
    assert Fraction(float(plan.values["b"].scale)) == symmetric(-top, 1.25 * top)[0]
    (words,) = {plan.said_of(slot) for slot in plan.decisions if slot.value == "m"}
    assert "operands have grids of their own" in words
    assert "[values.a]" in words
    assert "[values.b]" in words


def test_a_range_that_the_others_do_not_fit_stays_alone() -> None:
    """No operand takes a range that is less than half as fine, or that it does not fit into."""
    model, profile = larger()
    plain = make_plan(model, profile, "w8a8_sym_pt").values["b"]
    hand = by_hand(a={"low": -0.01, "high": 0.01})
    plan = make_plan(model, profile, get_schema("w8a8_sym_pt").with_ranges(hand))
    assert plan.values["a"].scale == np.float32(0.01 / 127)
    assert plan.values["b"].scale >= plain.scale / 2


def test_values_that_the_schema_joins_cannot_have_two() -> None:
    model, profile = larger()
    own = get_schema("w8a8_sym_pt")
    joined = own.preceded_by((Rule(operators=("Max",), share=(Share.INPUTS,)),))
    hand = by_hand(a={"low": -4, "high": 4}, b={"low": -4, "high": 5})
    with pytest.raises(InputError) as caught:
        make_plan(model, profile, joined.with_ranges(hand))
    assert "[values.a]" in caught.value.found
    assert "[values.b]" in caught.value.found


def test_a_conflict_names_both() -> None:
    with pytest.raises(InputError) as caught:
        planned(
            "pooled_concat",
            "w8a8_asym_pc",
            a={"low": -4.0, "high": 6.0},
            p={"low": -4.0, "high": 5.0},
        )
    assert "[values.a]" in caught.value.found
    assert "[values.p]" in caught.value.found
    assert f"{np.float32(10 / 255):.9g}" in caught.value.found
    assert f"{np.float32(9 / 255):.9g}" in caught.value.found


def test_equal_ranges_of_a_set_are_no_conflict() -> None:
    same = {"low": -4.0, "high": 6.0}
    _, plan = planned("pooled_concat", "w8a8_asym_pc", a=same, p=same)
    assert plan.values["a"] == plan.values["p"]


CASES = {
    "an unknown value": ("w8a8_asym_pc", "residual", "tt", {}, "unknown value 'tt'"),
    "a value inside of a unit": ("w8a8_asym_pc", "residual", "s", {}, "'s' is computed together"),
    "a value that leaves": ("w8a8_asym_pc", "residual", "z", {}, "leaves the graph"),
    "a derived bias": ("w8a8_asym_pc", "residual", "b", {}, "derived from"),
    "a schema of weights": ("w4_sym_b32", "residual", "t", {}, "'t' is"),
    "made at run time": ("w8a8_asym_pc_dyn", "residual", "t", {}, "computed at run time"),
    "fixed by its operator": ("w8a8_asym_pc", "gates", "g", {}, "Sigmoid fixes"),
    "no power of two": (
        "w8a8_sym_pt_pow2",
        "residual",
        "t",
        {"scale": 0.03, "zero_point": 0},
        "no power of two",
    ),
    "no symmetric zero point": (
        "w8a8_sym_pt",
        "residual",
        "t",
        {"scale": 0.03, "zero_point": 1},
        "zero point 1",
    ),
    "no zero point of the type": (
        "w8a8_asym_pc",
        "residual",
        "t",
        {"scale": 0.03, "zero_point": 256},
        "0 … 255",
    ),
    "a list where there is one pair": (
        "w8a8_asym_pc",
        "residual",
        "t",
        {"low": [-1, -1], "high": [1, 1]},
        "one pair for the whole tensor",
    ),
    "a list of other channels": (
        "w8a8_asym_pc",
        "residual",
        "w",
        {"low": [-1] * 3, "high": [1] * 3},
        "4 channels",
    ),
    "an end beyond float32": ("w8a8_asym_pc", "residual", "t", {"low": 0, "high": 1e39}, "finite"),
    "a vanishing range": ("w8a8_asym_pc", "residual", "t", {"low": 0, "high": 1e-40}, "smaller"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_had_is_one_sentence(case: str) -> None:
    schema, subject, name, table, found = CASES[case]
    with pytest.raises(InputError) as caught:
        planned(subject, schema, **{name: table or {"low": -1.0, "high": 1.0}})
    assert found in caught.value.found, caught.value
    assert "\n" not in str(caught.value)


def test_the_nearest_name_is_offered() -> None:
    with pytest.raises(InputError) as caught:
        planned("residual", "w8a8_asym_pc", w22={"low": -1.0, "high": 1.0})
    assert caught.value.remedy == "Did you mean 'w2'?"


def test_channels_of_a_weight_one_by_one() -> None:
    tops = [0.5, 1.0, 2.0, 4.0]
    _, plan = planned(
        "residual",
        "w8a8_asym_pc",
        w={"low": [-t for t in tops], "high": tops},
        w2={"low": -1, "high": 1},
    )
    scales = {slot.value: q.scale for slot, q in plan.constants.items() if slot.role is Role.WEIGHT}
    assert scales["w"].tolist() == [np.float32(top / 127) for top in tops]
    assert scales["w2"].tolist() == [np.float32(1 / 127)] * 4


def test_a_value_without_statistics_takes_its_range() -> None:
    model = SUBJECTS["residual"]()
    profile = calibrate(model, [feeds_of(model)])
    some = {name: one for name, one in profile.values.items() if name != "t"}
    poor = replace(profile, values=some)
    assert "'t'" in make_plan(model, poor, "w8a8_asym_pc").refusals[0]
    schema = get_schema("w8a8_asym_pc").with_ranges(by_hand(t={"low": 0.0, "high": 4.0}))
    assert make_plan(model, poor, schema).refusals == ()


def test_values_inside_a_unit_where_they_have_parameters() -> None:
    """A product before its bias, where biases are split off and the schema quantizes it."""
    wide = Spec(qtype="int16", symmetry="symmetric")
    narrow = Spec(qtype="int8", symmetry="symmetric")
    rule = Rule(activation=narrow, weight=narrow, correlation=wide, sum=wide)
    schema = Schema(name="ours", rules=(rule,), canonical="split_bias")
    model = SUBJECTS["residual"]()
    profile = calibrate(model, [feeds_of(model)], pipeline=schema.canonical)
    inner = {
        slot.value
        for slot, one in make_plan(model, profile, schema).decisions.items()
        if slot.role in (Role.CORRELATION, Role.SUM) and qparams_of(one) is not None
    }
    assert {"a.correlation", "a"} <= inner
    ours = by_hand(**{name: {"low": -8.0, "high": 8.0} for name in sorted(inner)})
    plan = make_plan(model, profile, schema.with_ranges(ours))
    for name in inner:
        assert plan.values[name].scale == np.float32(8 / 32767)
    assert sum(BY_FILE in plan.said_of(slot) for slot in plan.decisions) == len(inner)


def test_a_plan_by_hand_reads_back(tmp_path: Path) -> None:
    _, plan = planned("residual", "w8a8_asym_pc", t={"low": 0.0, "high": 2.0})
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan
    assert "as asked" in "\n".join(plan.lines())
    assert "as it came" not in "\n".join(plan.lines())


FORMS = ["low = 0\nhigh = 1", "scale = 0.5\nzero_point = 3", "low = [0, 0]\nhigh = [1, 2]"]


@pytest.mark.parametrize("form", FORMS)
def test_files_read(form: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'[values."a/b.c"]\n{form}\n')
    found = load_ranges(path)
    assert (found.file, found.names) == ("mine.toml", ("a/b.c",))
    path.write_text(f'# again\n\n[values."a/b.c"]\n{form}\n')
    assert load_ranges(path).digest == found.digest


KEYS = ["low = 0.0", "high = 1.0", "scale = 0.5", "zero_point = 3"]
HALVES = [
    "\n".join(some)
    for count in range(5)
    for some in itertools.combinations(KEYS, count)
    if list(some) not in (KEYS[:2], KEYS[2:])
]
WRONG = [
    "low = 1\nhigh = 0",
    "low = 1\nhigh = 1",
    "low = 0\nhigh = inf",
    "low = nan\nhigh = 1",
    "low = true\nhigh = 1",
    'low = "0"\nhigh = 1',
    "low = []\nhigh = []",
    "low = [0, 1]\nhigh = [1, 2, 3]",
    "low = [0, 3]\nhigh = [1, 2]",
    "scale = 0\nzero_point = 0",
    "scale = -1\nzero_point = 0",
    "scale = inf\nzero_point = 0",
    "scale = 1\nzero_point = 0.5",
    "scale = 1\nzero_point = true",
    "lo = 0\nhigh = 1",
]


@pytest.mark.parametrize("table", [*HALVES, *WRONG])
def test_impossible_tables_are_one_sentence(table: str, tmp_path: Path) -> None:
    path = tmp_path / "ranges.toml"
    path.write_text(f"[values.t]\n{table}\n")
    with pytest.raises(InputError) as caught:
        load_ranges(path)
    assert "[values.t] of ranges file 'ranges.toml'" in caught.value.doing
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[values]\n", "t = 1\n", "[values]\nt = 1\n", "[values.t\n"])
def test_files_of_another_form_are_one_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "ranges.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"ranges\.toml"):
        load_ranges(path)


def test_a_schema_has_no_such_key(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('by_hand = "r.toml"\nrules = [{ activation = { qtype = "int8" } }]\n')
    with pytest.raises(InputError) as caught:
        load_schema(path)
    assert "'by_hand'" in caught.value.found


def test_several_graphs_are_named() -> None:
    hand = HandRanges(file="r.toml", values=(("encoder::t", HandRange(low=0, high=1)),))
    assert hand.of_graphs(["only"]) == {"only": hand}
    found = hand.of_graphs(["encoder", "decoder"])
    assert {graph: one.names for graph, one in found.items()} == {"encoder": ("t",), "decoder": ()}
    with pytest.raises(InputError, match="encoder::t"):
        hand.of_graphs(["a", "b"])


def test_schemas_with_other_ranges_are_other_schemas() -> None:
    """They are keys of what the cells of a model share."""
    plain = get_schema("w8a8_asym_pc")
    one, two = (plain.with_ranges(by_hand(t={"low": 0, "high": h})) for h in (1, 2))
    assert len({plain, one, two, one.with_ranges(None)}) == 3
    assert isinstance(one, Schema)
