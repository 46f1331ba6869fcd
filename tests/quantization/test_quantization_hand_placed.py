"""Q/DQ pairs that a person placed in a float model: their parameters stand,
the rest is planned around them.
"""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from quantization_subjects import feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.graph import Capabilities, check_convention, constant_value
from qbench.numerics import QParams, QType, fake_quantize
from qbench.quantization import (
    Derived,
    Given,
    Plan,
    Role,
    Rule,
    Schema,
    Static,
    has_quantized_products,
    is_quantized,
    make_plan,
    quantize_model,
    read_plan,
    why_all_float,
)
from qbench.quantization.writing import MARK

Array = np.ndarray[Any, Any]

ODD = np.float32(0.043721)
"""A scale that no rule would choose."""

INT8 = np.random.default_rng(3).integers(-100, 101, (6, 3, 3, 3)).astype(np.int8)
SCALES = np.linspace(0.0041, 0.0077, 6, dtype=np.float32)
NET = """{before}
c = Conv<pads=[1,1,1,1]>(x, {w}, b)
r = Relu(c)
{behind}
z = Conv({r}, w2, b2)"""
CONSTANTS = {"b": weights(1, 6), "w2": weights(2, 4, 6, 1, 1), "b2": weights(3, 4)}
ACTIVATION = "rq = QuantizeLinear(r, s, p)\n rd = DequantizeLinear(rq, s, p)"
FIXED = {"s": np.asarray(ODD), "p": np.asarray(np.uint8(9))}
WEIGHT = "wd = DequantizeLinear<axis=0>(wq, ws)"
OF_WEIGHT = {"wq": INT8, "ws": SCALES}


def net(
    before: str = "", behind: str = "", *, w: str = "w", r: str = "r", **constants: Array
) -> ir.Model:
    if w == "w":
        constants["w"] = weights(0, 6, 3, 3, 3)
    body = NET.format(before=before, behind=behind, w=w, r=r)
    return model_of("float[N,3,8,8] x", "float[N,4,8,8] z", body, **CONSTANTS, **constants)


PART = """xq = QuantizeLinear(x, s, p)
xd = DequantizeLinear(xq, s, p)
wd = DequantizeLinear<axis=0>(wq, ws)
c = Conv<pads=[1,1,1,1]>(xd, wd, b)
cq = QuantizeLinear(c, s, p)
cd = DequantizeLinear(cq, s, p)
r = Sigmoid(cd)
vd = DequantizeLinear(vq, s)
z = Conv(r, vd, b2)"""


def test_a_file_whose_second_convolution_has_float_data_is_quantized_by_the_first() -> None:
    second = {"vq": INT8[:4, :1, :1, :1].repeat(6, 1)}
    constants = {name: array for name, array in CONSTANTS.items() if name != "w2"}
    parts = {**constants, **second, **FIXED, **OF_WEIGHT}
    plan = read_plan(model_of("float[N,3,8,8] x", "float[N,4,8,8] z", PART, **parts))
    assert any(kept.refused for kept in plan.floats.values())
    assert plan.quantized_units
    assert not set(plan.quantized_units) & plan.floats.keys()
    assert why_all_float([plan]) == ""


def planned(model: ir.Model, schema: Schema | str = "w8a8_asym_pc", **options: Any) -> Plan:
    return make_plan(model, calibrate(model, [feeds_of(model)]), schema, **options)


def answers(model: ir.Model, feeds: dict[str, Array]) -> Array:
    with get_backend("ort-cpu-noopt").prepare(model) as executor:
        return executor.run(feeds)["z"]


def test_a_model_with_one_quantized_weight_is_not_the_float_model() -> None:
    of_weight = net(WEIGHT, w="wd", **OF_WEIGHT)
    assert 0 < read_plan(of_weight).weight_mac_count < read_plan(of_weight).macs
    assert has_quantized_products(of_weight)
    of_activation = net(behind=ACTIVATION, r="rd", **FIXED)
    assert not has_quantized_products(of_activation)


ALL_WEIGHTS = """wd = DequantizeLinear<axis=0>(wq, ws)
c = Conv<pads=[1,1,1,1]>(x, wd, b)
r = Sigmoid(c)
rq = QuantizeLinear(r, s, p)
rd = DequantizeLinear(rq, s, p)
t = Tanh(rd)
vd = DequantizeLinear(vq, s)
z = Conv(t, vd, b2)"""


def test_a_pair_elsewhere_makes_no_float_model_of_quantized_weights() -> None:
    constants = {name: array for name, array in CONSTANTS.items() if name != "w2"}
    constants |= {**FIXED, **OF_WEIGHT, "vq": INT8[:4, :1, :1, :1].repeat(6, 1)}
    model = model_of("float[N,3,8,8] x", "float[N,4,8,8] z", ALL_WEIGHTS, **constants)
    plan = read_plan(model)
    assert not plan.is_of_weights_alone
    assert (plan.weight_mac_count, plan.integer_macs) == (plan.macs, 0)
    assert has_quantized_products(model)


def test_an_activation_keeps_its_pair_and_the_rest_is_planned() -> None:
    model = net(behind=ACTIVATION, r="rd", **FIXED)
    assert not is_quantized(model)
    plan = planned(model)
    decisions = {str(slot): decision for slot, decision in plan.decisions.items()}
    kept = QParams(ODD, 9, QType.parse("uint8"))
    assert plan.values["r"] == kept
    assert isinstance(decisions["z.input[0]"], Given)
    assert decisions["z.input[0]"].source == "the QuantizeLinear 'rq'"
    assert isinstance(decisions["c.input[0]"], Static)
    assert isinstance(decisions["c.weight[1]"], Static)
    derived = decisions["z.bias[2]"]
    assert isinstance(derived, Derived)
    weight = plan.constants[next(s for s in plan.constants if str(s) == "z.weight[1]")]
    assert np.array_equal(derived.qparams.scale, np.float32(ODD) * weight.scale)
    assert plan.integer_macs == 1.0

    written = quantize_model(model, plan)
    assert check_convention(written) == ()
    scales = [constant_value(n.inputs[1]) for n in written.graph if n.op_type == "QuantizeLinear"]
    assert (
        sum(
            scale is not None and scale.ndim == 0 and float(scale) == float(ODD) for scale in scales
        )
        == 1
    )
    feeds = feeds_of(model, seed=9)
    near = answers(model, feeds)
    assert np.abs(answers(written, feeds) - near).max() < 0.05 * np.abs(near).max()


def test_a_pair_that_clips_is_profiled_as_it_clips() -> None:
    """Behind a pair of a small range values are small:
    the profile is taken with the pair in place.
    """
    tight = {"s": np.asarray(np.float32(0.001)), "p": np.asarray(np.uint8(0))}
    model = net(behind=ACTIVATION, r="rd", **tight)
    profile = calibrate(model, [feeds_of(model)])
    free = net()
    assert profile.values["z"].high < 0.5 * calibrate(free, [feeds_of(free)]).values["z"].high
    plan = make_plan(model, profile, "w8a8_asym_pc")
    assert float(plan.values["r"].scale) == np.float32(0.001)


def test_stored_integers_of_a_weight_come_back_exactly() -> None:
    model = net(before=WEIGHT, w="wd", **OF_WEIGHT)
    for schema in ("w8a8_asym_pt", "w8a8_sym_pc_pow2"):
        plan = planned(model, schema)
        (slot,) = (slot for slot in plan.constants if slot.node == "c" and slot.role is Role.WEIGHT)
        assert isinstance(plan.decisions[slot], Given)
        written = quantize_model(model, plan)
        (conv,) = (node for node in written.graph if node.name == "c")
        dequantize = conv.inputs[1].producer()  # type: ignore[union-attr]
        assert dequantize is not None
        stored, scale = (constant_value(dequantize.inputs[i]) for i in (0, 1))
        assert np.array_equal(stored, INT8)
        assert np.array_equal(scale, SCALES)
        assert plan.integer_macs == 1.0


def test_a_bias_stays_where_its_grid_is_that_of_the_product() -> None:
    pair = (
        "xq = QuantizeLinear(x, s, p)\n xd = DequantizeLinear(xq, s, p)\n"
        " bd = DequantizeLinear<axis=0>(bq, bs)\n"
    )
    integers = np.array([7, -900, 12345, 0, 1, -1], np.int32)
    body = pair + WEIGHT + "\nz = Conv<pads=[1,1,1,1]>(xd, wd, bd)"
    for factor, kind in ((1.0, Given), (3.0, Derived)):
        constants = {
            **FIXED,
            **OF_WEIGHT,
            "bq": integers,
            "bs": (ODD * SCALES * np.float32(factor)).astype(np.float32),
        }
        model = model_of("float[N,3,8,8] x", "float[N,6,8,8] z", body, **constants)
        plan = planned(model)
        (decision,) = (d for s, d in plan.decisions.items() if s.role is Role.BIAS)
        assert isinstance(decision, kind)
        assert np.allclose(decision.qparams.scale, ODD * SCALES, rtol=1e-6)
        written = quantize_model(model, plan)
        bias = next(node for node in written.graph if node.name == "z").inputs[2].producer()  # type: ignore[union-attr]
        assert bias is not None
        stored = constant_value(bias.inputs[0])
        assert stored is not None
        assert np.array_equal(stored, integers * int(factor))
        assert "another grid" in " ".join(plan.lines()) or kind is Given


def test_a_pair_around_what_the_schema_keeps_in_float_stands() -> None:
    float_schema = Schema(name="nothing", rules=(Rule(reason="for comparison"),))
    model = net(behind=ACTIVATION, r="rd", **FIXED)
    plan = planned(model, float_schema)
    assert set(plan.values) == {"r"}
    assert plan.integer_macs == 0.0
    assert set(plan.floats) == {"c", "z"}
    written = quantize_model(model, plan)
    feeds = feeds_of(model, seed=9)
    assert np.array_equal(answers(written, feeds), answers(model, feeds))


def test_a_pair_between_a_product_and_its_clip_keeps_them_apart() -> None:
    pair = "cq = QuantizeLinear(c, s, p)\n cd = DequantizeLinear(cq, s, p)"
    body = "c = Conv<pads=[1,1,1,1]>(x, w, b)\n" + pair + "\nr = Relu(cd)\n z = Conv(r, w2, b2)"
    model = model_of(
        "float[N,3,8,8] x", "float[N,4,8,8] z", body, w=weights(0, 6, 3, 3, 3), **CONSTANTS, **FIXED
    )
    plan = planned(model)
    assert plan.values["c"] == QParams(ODD, 9, QType.parse("uint8"))
    written = quantize_model(model, plan)
    feeds = feeds_of(model, seed=9)
    near = answers(model, feeds)
    assert np.abs(answers(written, feeds) - near).max() < 0.05 * np.abs(near).max()


def test_values_that_are_moved_share_the_grid_that_was_placed() -> None:
    body = (
        "c = Conv<pads=[1,1,1,1]>(x, w, b)\n cq = QuantizeLinear(c, s, p)\n"
        " cd = DequantizeLinear(cq, s, p)\n"
        "m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(cd)\n t = Transpose<perm=[0,1,3,2]>(m)\n"
        " z = Conv(t, w2, b2)"
    )
    model = model_of(
        "float[N,3,8,8] x", "float[N,4,4,4] z", body, w=weights(0, 6, 3, 3, 3), **CONSTANTS, **FIXED
    )
    plan = planned(model)
    grid = QParams(ODD, 9, QType.parse("uint8"))
    assert {plan.values[name] for name in ("c", "m", "t")} == {grid}


def test_integers_moved_inside_a_pair_need_no_statistics() -> None:
    """What lies between Q and DQ is in no profile, and needs none."""
    inside = (
        "rq = QuantizeLinear(r, s, p)\n rt = Transpose<perm=[0,1,3,2]>(rq)\n"
        " rd = DequantizeLinear(rt, s, p)"
    )
    model = net(behind=inside, r="rd", **FIXED)
    plan = planned(model)
    assert plan.refusals == ()
    assert plan.integer_macs == 1.0
    assert list(plan.values.values()).count(QParams(ODD, 9, QType.parse("uint8"))) == 2


def test_a_whole_quantized_model_is_imported_whatever_the_schema_says() -> None:
    """All decisions are given: a plan of any schema writes the very same model."""
    feeds: dict[str, Array] = {}
    model = net()
    source = quantize_model(model, planned(model, "w8a8_sym_pc"))
    feeds = feeds_of(model, seed=9)
    plan = planned(source, "w8a8_asym_pt_pow2")
    assert is_quantized(source)
    assert {type(d) for slot, d in plan.decisions.items() if slot.value != "z"} == {
        Given
    }  # z leaves the graph
    assert plan.integer_macs == 1.0
    again = quantize_model(source, plan)
    assert again.metadata_props[MARK] != source.metadata_props[MARK]  # it was written anew
    assert np.array_equal(answers(source, feeds), answers(again, feeds))


def test_grids_that_came_with_the_model_are_no_refusals_of_a_small_backend() -> None:
    model = net(before=WEIGHT, w="wd", behind=ACTIVATION, r="rd", **OF_WEIGHT, **FIXED)
    plan = planned(model, capabilities=Capabilities(weight_per_channel=False))
    assert plan.values["r"] == QParams(ODD, 9, QType.parse("uint8"))
    assert any(slot.node == "c" and slot.role is Role.WEIGHT for slot in plan.constants)


@pytest.mark.parametrize("dtype", ["int16", "uint4"])
def test_pairs_of_any_width_stand(dtype: str) -> None:
    qtype = QType.parse(dtype)
    kind = ir.DataType[dtype.upper()]
    import ml_dtypes

    numpy_kind = np.int16 if dtype == "int16" else ml_dtypes.uint4
    point = ir.tensor(np.asarray(3).astype(numpy_kind), dtype=kind)
    model = net(behind=ACTIVATION, r="rd", s=np.asarray(ODD), p=np.asarray(np.uint8(9)))
    model.graph.initializers["p"].const_value = point
    model.graph.initializers["p"].dtype = kind
    plan = planned(model)
    assert plan.values["r"] == QParams(ODD, 3, qtype)
    x = np.linspace(-3, 3, 50, dtype=np.float32)
    assert fake_quantize(x, plan.values["r"]).shape == x.shape
    assert check_convention(quantize_model(model, plan)) == ()
