"""ONNX Runtime's optimizations one by one: which are there, what they change, and the catalogue
of what is known.
"""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import Level, Optimization, OrtBackend, get_backend
from qbench.diagnosis import StepCauses, examine_optimizers, measure_case, optimizer_cases
from qbench.diagnosis.optimizers import (
    OptimizationTrial,
    SessionOptimizer,
    known_optimizers,
    session_optimizers,
)
from qbench.diagnosis.units import quantized_units
from qbench.errors import InputError
from qbench.host import DotProduct, architecture, probe_dot_product

PRECISE = OrtBackend(name="ort-cpu-precise", precise=True)
CASES = {case.name: case for case in optimizer_cases()}
NETWORK = """<ir_version: 10, opset_import: ["" : 21]>
network (float[n, 16] x) => (float[n, 16] y)
<float s = {0.0625}, uint8 z = {127}, float t = {0.125}, uint8 o = {0}>
{
    q0 = QuantizeLinear (x, s, z)
    d0 = DequantizeLinear (q0, s, z)
    e0 = DequantizeLinear (q0, s, z)
    same = Identity (d0)
    r = Relu (same)
    q1 = QuantizeLinear (r, s, o)
    d1 = DequantizeLinear (q1, s, o)
    sum = Add (d1, e0)
    q2 = QuantizeLinear (sum, t, z)
    d2 = DequantizeLinear (q2, t, z)
    m = Sigmoid (d2)
    q3 = QuantizeLinear (m, t, z)
    y = DequantizeLinear (q3, t, z)
}"""


@pytest.fixture(scope="module")
def network():
    return ir.from_onnx_text(NETWORK)


@pytest.fixture(scope="module")
def feeds():
    return {"x": np.random.default_rng(3).integers(-100, 100, (8, 16)).astype(np.float32) / 16}


@pytest.fixture(scope="module")
def report(network, feeds):
    return examine_optimizers(network, feeds, backend=PRECISE)


@pytest.mark.slow
def test_optimizers_and_rules_are_named_with_what_they_do_to_the_graph(report):
    effects = {one.name: one.effect for one in report.effects}
    assert {
        "EliminateIdentity",
        "ReluQuantRewrite",
        "QDQSelectorActionTransformer",
    } <= effects.keys()
    assert not effects.keys() & {"Level1_RuleBasedTransformer", "Level2_RuleBasedTransformer"}
    gone = effects["ReluQuantRewrite"]
    assert gone.before["Relu"] == 1
    assert "Relu" not in gone.after
    fused = effects["QDQSelectorActionTransformer"]
    assert fused.after["QLinearAdd"] == fused.after["QLinearSigmoid"] == fused.before["Add"] == 1
    assert (report.unknown, report.missing) == ((), ())


@pytest.mark.slow
def test_the_one_that_moves_values_is_found_with_where_it_begins(report, network, feeds):
    """Half of all sums of the Add lie on a tie, and its zero point is odd;
    nothing else moves by itself.
    """
    (mover,) = (one for one in report.effects if one.effect.moved)
    assert mover.name == "QDQSelectorActionTransformer"
    effect = mover.effect
    assert [(one.node, one.operators) for one in effect.values if one.alone.differing] == [
        ("sum", ("Add",))
    ]
    (added,) = (one for one in effect.values if one.node == "sum")
    with get_backend("ort-cpu-noopt").prepare(network, taps=["sum"]) as executor:
        halves = executor.run(feeds)["sum"].astype(np.float64) / 0.125
    ties = int((halves != np.rint(halves)).sum())
    assert added.alone == StepCauses(elements=128, tie=ties, largest=1)
    assert effect.first is not None
    assert effect.first.value == "q2"
    assert effect.first.along == added.alone
    assert not effect.disturbed


@pytest.mark.slow
def test_levels_are_steps_from_none_to_all(report, network, feeds):
    assert [(one.below, one.level) for one in report.levels] == [
        (Level.NONE, Level.BASIC),
        (Level.BASIC, Level.EXTENDED),
        (Level.EXTENDED, Level.ALL),
    ]
    assert [bool(one.effect.moved) for one in report.levels] == [False, True, False]
    lower = examine_optimizers(network, feeds, backend=PRECISE, level=Level.BASIC)
    assert [one.level for one in lower.levels] == [Level.BASIC]
    assert not any(one.effect.moved for one in lower.effects)


def test_outputs_on_a_grid_are_counted_in_steps(report):
    (output,) = report.levels[1].effect.outputs
    assert output.name == "y"
    assert output.causes is not None
    assert output.causes.differing == output.differences.differing


@pytest.mark.slow
def test_without_samples_graphs_alone_are_compared(network, report):
    bare = examine_optimizers(network, backend=PRECISE)
    assert [one.name for one in bare.effects] == [one.name for one in report.effects]
    assert not any(one.effect.values or one.effect.outputs for one in (*bare.effects, *bare.levels))


@pytest.mark.slow
def test_what_rewrote_nothing_changes_nothing(network):
    """The ground for leaving only those out that say they rewrote the graph."""
    asked = session_optimizers(network, PRECISE)
    busy = {one.name for one in asked if one.modified}
    idle = sorted({one.name for one in asked} - busy)
    assert len(idle) > 30
    trial = OptimizationTrial(network, None, PRECISE)
    for name in idle:
        assert trial.compare(Optimization(without=frozenset({name})), Optimization()).same_graph, (
            name
        )


def test_names_that_one_side_lacks_are_told():
    known = known_optimizers()
    found = tuple(
        SessionOptimizer(name, int(level), modified=False)
        for level, names in known.levels.items()
        for name in names
    )
    assert known.unknown(found) == known.missing(found) == ()
    assert known.unknown((*found, SessionOptimizer("NewFusion", 2, modified=True))) == (
        "NewFusion",
    )
    assert known.missing(tuple(one for one in found if one.name != "ConstantFolding")) == (
        "ConstantFolding",
    )
    assert known.missing(tuple(one for one in found if one.name not in known.conditional)) == ()
    only_first = tuple(one for one in found if one.level == 1)
    assert known.missing(only_first) == ()  # level 2 was not reached


def test_pieces_give_the_levels_of_the_whole(network, feeds):
    units = quantized_units(network)
    assert [unit.value for unit in units] == ["q0", "q1", "q2", "q3"]
    assert [set(unit.feeds) for unit in units] == [{"x"}, {"q0"}, {"q0", "q1"}, {"q2"}]
    rectified = units[1]
    assert rectified.operators == ("Identity", "Relu")
    assert (rectified.real, rectified.ends.low, rectified.ends.high) == ("same", 0.0, 255.5)
    plain = get_backend("ort-cpu-noopt")
    with plain.prepare(network, taps=["q0", "q1", "q2", "q3"]) as executor:
        whole = {**feeds, **executor.run(feeds)}
    for unit in units:
        with plain.prepare(unit.graph) as executor:
            alone = executor.run({name: whole[name] for name in unit.feeds})[unit.value]
        assert np.array_equal(alone, whole[unit.value])


def test_a_float_model_is_refused():
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> plain (float[4] x) => (float[4] y) '
        "{ y = Relu (x) }"
    )
    with pytest.raises(InputError, match="a float model"):
        examine_optimizers(ir.from_onnx_text(text), backend=PRECISE)


@pytest.mark.slow_but(7)
@pytest.mark.skipif(
    architecture() != "x64", reason="the kernels of other processors count otherwise"
)
@pytest.mark.parametrize("name", CASES)
def test_the_catalogue_holds(name):
    result = measure_case(CASES[name])
    assert result.measured == CASES[name].expected
    assert dict(result.effect.after) == dict(CASES[name].operators)
    assert result.as_expected
    assert (result.case.belongs.value == "neither") <= (not result.measured.differing)


def test_a_wrong_number_in_the_catalogue_is_not_as_expected():
    case = CASES["add-ties-odd"]
    wrong = replace(case, expected=replace(case.expected, tie=case.expected.tie - 1))
    assert not measure_case(wrong).as_expected
    assert not measure_case(replace(case, operators={"Add": 1})).as_expected


@pytest.mark.parametrize("name", ["gemm-plain", "residual-uint8"])
def test_sums_that_saturate_are_no_matter_of_rounding(name):
    """Outside the precise mode a processor without VNNI moves what is summed,
    by more than a step.
    """
    found = measure_case(CASES[name], precise=False).measured
    saturating = probe_dot_product() is DotProduct.SATURATING
    assert bool(found.real) == bool(found.differing) == saturating
