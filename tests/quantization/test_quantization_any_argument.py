"""The functions people call first, given what people have: paths, messages, names, and things
that are none of it.
"""

import numpy as np
import onnx
import pytest

from qbench import load_model, save_model
from qbench.calibration import calibrate
from qbench.errors import InputError
from qbench.quantization import make_plan, quantize_model

NET = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 4] x) => (float[N, 2] y)
<float[4, 2] w = {1, -2, 3, 4, 5, -6, 7, 8}, float[2] b = {0.5, 1}> { [fc] y = Gemm (x, w, b) }
"""
X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)


@pytest.fixture
def forms(tmp_path):
    """One model three times: in memory, as a message, as a file."""
    proto = onnx.parser.parse_model(NET)
    onnx.save(proto, tmp_path / "net.onnx")
    return (
        load_model(tmp_path / "net.onnx"),
        proto,
        tmp_path / "net.onnx",
        str(tmp_path / "net.onnx"),
    )


def test_a_model_is_taken_in_every_form(forms, tmp_path):
    profiles = [calibrate(form, [{"x": X}]) for form in forms]
    assert all(profile == profiles[0] for profile in profiles)
    plans = [make_plan(form, profiles[0], "w8a8_asym_pc", capabilities="ort-cpu") for form in forms]
    assert all(plan == plans[0] for plan in plans)
    for form in forms:
        save_model(quantize_model(form, plans[0]), tmp_path / "q.onnx")
        assert [node.op_type for node in load_model(tmp_path / "q.onnx").graph].count(
            "DequantizeLinear"
        ) == 3


@pytest.mark.parametrize("none", [None, 3, b"bytes"])
def test_what_is_no_model(none):
    with pytest.raises(InputError, match=r"an onnx\.ModelProto, or the path"):
        calibrate(none, [{"x": X}])


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([X], "found a batch that is a ndarray.*'x': array"),
        ({"x": X}, "found one table of arrays"),
        (X, "is a ndarray"),
    ],
)
def test_what_are_no_batches(forms, batches, words):
    with pytest.raises(InputError, match=words):
        calibrate(forms[0], batches)


@pytest.mark.parametrize(
    ("profile", "schema", "more", "words"),
    [
        (True, None, {}, "found None for a schema"),
        (True, 8, {}, "found 8 for a schema"),
        (False, "w8a8_asym_pc", {}, "found no profile; expected a Profile"),
        (True, "w8a8_asym_pc", {"capabilities": "ort-cpi"}, "unknown backend 'ort-cpi'.*ort-cpu"),
        (True, "w8a8_asym_pc", {"capabilities": 8}, "found something of type int for the limits"),
    ],
)
def test_what_no_plan_can_be_made_of(forms, profile, schema, more, words):
    given = calibrate(forms[0], [{"x": X}]) if profile else None
    with pytest.raises(InputError, match=words):
        make_plan(forms[0], given, schema, **more)


def test_a_path_is_no_profile(forms):
    with pytest.raises(InputError, match="found something of type str for a profile"):
        make_plan(forms[0], "p.json", "w8a8_asym_pc")


@pytest.mark.parametrize("schema", ["w8_sym_pc", "w8a8_asym_pc_dyn"])
def test_no_profile_where_none_is_needed(forms, schema):
    bare, plain = (
        make_plan(forms[0], None, schema),
        make_plan(forms[0], calibrate(forms[0], [{"x": X}]), schema),
    )
    assert dict(bare.decisions) == dict(plain.decisions)
    assert bare.quantized_units == ("fc",)


def test_nan_in_a_constant_is_blamed_on_the_constant(forms):
    model = forms[1]
    model.graph.initializer[1].CopyFrom(
        onnx.numpy_helper.from_array(np.array([1, np.nan], np.float32), "b")
    )
    with pytest.raises(InputError, match="found NaN in its constant 'b'"):
        calibrate(model, [{"x": X}])


def test_equal_scales_are_told_once():
    text = NET.replace("{1, -2, 3, 4, 5, -6, 7, 8}", "{8, 8, 1, 1, 1, 1, 1, 1}")
    plan = make_plan(onnx.parser.parse_model(text), None, "w8_sym_pc")
    (line,) = [line for line in plan.lines() if "weight[" in line]
    assert "2 equal scales 0.0629921257 along" in line
