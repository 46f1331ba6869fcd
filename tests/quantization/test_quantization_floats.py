"""Schemas of floats of few bits: planned, written as Q and DQ, read again, run and refused."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

from qbench.backends import backends_that, get_backend
from qbench.calibration import calibrate
from qbench.cli import main
from qbench.errors import InputError, QbenchError
from qbench.graph import Capabilities, check_convention, float_qparams, node_qparams
from qbench.numerics import BLOCK_FORMATS, QParams, dequantize, quantize
from qbench.quantization import (
    Plan,
    Role,
    Rule,
    Schema,
    Spec,
    get_schema,
    load_plan,
    make_plan,
    quantize_model,
    read_plan,
    save_plan,
)

WEIGHTS_ALONE = (
    "wf8e4m3_sym_pc",
    "wf8e5m2uz_sym_pt_pow2",
    "wf8e5m2_sym_b32",
    "wf4e2m1_sym_b32",
    "wmxfp8e4m3_sym_b32",
    "wmxfp8e5m2_sym_b32",
    "wmxfp4_sym_b32",
    "wnvfp4_sym_b16",
)
BOTH = ("wf8e4m3af8e4m3_sym_pc", "wf8e5m2af8e4m3uz_sym_pt", "wmxfp4af8e5m2_sym_b32")
RNG = np.random.default_rng(28)
X = RNG.standard_normal((4, 64)).astype(np.float32)


def network() -> ir.Model:
    """Two products with a Relu and a bias between them."""
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        net (float[N,64] x) => (float[N,32] y) {
        [first] a = MatMul(x, v)
        b = Relu(a)
        [second] y = Gemm(b, w, c)
        }"""
    )
    rng = np.random.default_rng(1)
    for name, shape in (("v", (64, 64)), ("w", (64, 32)), ("c", (32,))):
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return ir.from_proto(proto)


def planned(name: str, **limits: Any) -> tuple[Plan, ir.Model]:
    model, schema = network(), get_schema(name)
    profile = calibrate(model, [{"x": X}]) if schema.needs_profile else None
    plan = make_plan(model, profile, schema, **limits)
    return plan, quantize_model(model, plan)


def constants(model: ir.Model) -> dict[str, bytes]:
    return {
        name: value.const_value.tobytes()
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    }


def answers(model: ir.Model, backend: str) -> np.ndarray[Any, Any]:
    with get_backend(backend).prepare(model) as executor:
        return next(iter(executor.run({"x": X}).values()))


@pytest.mark.parametrize("name", [*WEIGHTS_ALONE, *BOTH])
def test_a_plan_is_written_and_read_again_equal(name: str, tmp_path: Path) -> None:
    plan, written = planned(name)
    assert check_convention(written) == ()
    onnx.checker.check_model(ir.to_proto(written), full_check=True)
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan
    again = read_plan(written)
    assert {slot.value: qparams for slot, qparams in again.constants.items()} == {
        slot.value: qparams for slot, qparams in plan.constants.items()
    }
    assert again.values == plan.values
    assert constants(quantize_model(written, again)) == constants(written)


@pytest.mark.parametrize("name", WEIGHTS_ALONE)
def test_weights_are_the_numbers_of_their_codes(name: str) -> None:
    plan, written = planned(name, capabilities="onnx-reference")
    slot, qparams = next(iter(plan.constants.items()))
    weight = network().graph.initializers[slot.value].const_value.numpy()
    real = dequantize(quantize(weight, qparams), qparams)
    node = next(n for n in written.graph if n.name and n.name.endswith("_for_first"))
    assert float_qparams(node) == qparams
    assert node_qparams(node) is None
    with get_backend("onnx-reference").prepare(written, taps=[node.outputs[0].name]) as executor:
        found = executor.run({"x": X})[node.outputs[0].name]
    np.testing.assert_array_equal(found, real)
    np.testing.assert_array_equal(
        answers(written, "integer-ideal"), answers(written, "onnx-reference")
    )


@pytest.mark.parametrize("name", [n for n in (*WEIGHTS_ALONE, *BOTH) if n.startswith("wf8")])
def test_onnx_runtime_runs_float8(name: str) -> None:
    plan, written = planned(name, capabilities="ort-cpu")
    assert not any(kept.refused for kept in plan.floats.values())
    ours = answers(written, "integer-ideal")
    for backend in ("ort-cpu", "ort-cpu-noopt"):
        found = np.abs(answers(written, backend) - ours)
        assert np.median(found) <= 2e-4
        # another order of summation moves a value next to the middle of two codes to the other
        assert name in BOTH or found.max() <= 2e-4


def test_products_of_floats_are_no_integers() -> None:
    plan, _ = planned("wf8e4m3af8e4m3_sym_pc")
    assert (plan.integer_mac_count, plan.float8_mac_count) == (0, plan.macs)
    assert plan.weight_mac_count == plan.macs
    assert set(plan.run_in_float) == {"first", "second"}
    assert read_plan(quantize_model(network(), plan)).float8_nodes == plan.float8_nodes
    assert not any(slot.role is Role.BIAS for slot in plan.constants)


def test_scales_of_blocks_are_stored_in_their_type() -> None:
    plan, written = planned("wnvfp4_sym_b16")
    qparams = plan.constants[next(iter(plan.constants))]
    assert qparams.tensor_scale is not None
    stored = {str(v.dtype) for v in written.graph.initializers.values()}
    assert stored == {"FLOAT4E2M1", "FLOAT8E4M3FN", "FLOAT"}
    assert written.graph.opset_imports[""] == 23
    _, mx = planned("wmxfp4_sym_b32")
    assert {str(v.dtype) for v in mx.graph.initializers.values()} >= {"FLOAT4E2M1", "FLOAT8E8M0"}
    assert mx.graph.opset_imports[""] == 24
    assert planned("wf8e4m3_sym_pc")[1].graph.opset_imports[""] == 21


def test_a_backend_without_the_type_names_one_that_has_it() -> None:
    plan, _ = planned("wmxfp4_sym_b32", capabilities="ort-cpu")
    reasons = {kept.reason for kept in plan.floats.values() if kept.refused}
    (reason,) = reasons
    assert "no float4e2m1 weights with scales of float8e8m0; integer-ideal" in reason
    with pytest.raises(QbenchError):
        get_backend("ort-cpu").prepare(planned("wmxfp4_sym_b32")[1])


def test_a_backend_that_has_the_type_for_weights_alone_is_not_named_for_activations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = Capabilities(weight_qtypes=frozenset({"int8", "float8e4m3fn"}))
    one = SimpleNamespace(capabilities=limits)
    monkeypatch.setattr("qbench.backends.registry._known_backends", lambda: [("alone", one)])
    plan, _ = planned("wf8e4m3af8e4m3_sym_pc", capabilities=limits)
    assert {kept.reason for kept in plan.floats.values()} == {
        "the backend has no float8e4m3fn activations; integer-ideal and ort-cpu have them"
    }
    others = backends_that(lambda has: "float8e4m3fn" in has.weight_qtypes)
    assert others == ("integer-ideal", "ort-cpu", "alone")


def test_a_weight_stays_float_where_blocks_do_not_divide_its_rows_and_must() -> None:
    model = network()
    for name, shape in (("v", (64, 48)), ("w", (48, 32))):
        value = model.graph.initializers[name]
        value.const_value = ir.tensor(RNG.standard_normal(shape).astype(np.float32), name=name)
        value.shape = value.const_value.shape
    limits = replace(get_backend("integer-ideal").capabilities, short_blocks=False)
    plan = make_plan(model, None, "w4a16", capabilities=limits)
    assert {unit: kept.reason for unit, kept in plan.floats.items() if kept.refused} == {
        "second": "the backend has no weights whose rows blocks of 32 do not divide (axis 0 of 'w' "
        "has length 48)"
    }
    assert [slot.value for slot in plan.constants] == ["v"]
    plan = make_plan(model, None, "wmxfp4_sym_b32", capabilities=limits)
    assert plan.floats["second"].reason.endswith("; integer-ideal has them")


def file_of(
    scale: np.ndarray[Any, Any], block: int, opset: int = 24, stored: Any = ml_dtypes.float4_e2m1fn
) -> ir.Model:
    proto = parser.parse_model(
        f"""<ir_version: 12, opset_import: ["" : {opset}]>
        net (float[N,64] x) => (float[N,8] y) {{
        r = DequantizeLinear<axis = 0, block_size = {block}, output_dtype = 1>(q, s)
        [first] y = MatMul(x, r)
        }}"""
    )
    codes = np.zeros((64, 8), stored)
    for name, array in (("q", codes), ("s", scale)):
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return ir.from_proto(proto)


@pytest.mark.parametrize(
    ("scale", "block", "words"),
    [
        (np.full((2, 8), np.nan, np.float32), 32, "a scale of nan"),
        (np.zeros((2, 8), np.float32), 32, "a scale of 0.0"),
        (np.full((2, 8), np.nan, np.float32).astype(ml_dtypes.float8_e8m0fnu), 32, "scale of nan"),
        (np.ones((2, 8), np.float32), 24, "scales of shape (2, 8) for blocks of 24"),
        (np.ones((3, 8), np.float32), 32, "scales of shape (3, 8) for blocks of 32"),
    ],
)
def test_scales_that_mean_nothing_are_one_sentence(
    scale: np.ndarray[Any, Any], block: int, words: str
) -> None:
    model = file_of(scale, block)
    with pytest.raises(InputError) as refused:
        read_plan(model)
    assert words in refused.value.found
    with pytest.raises(InputError):
        get_backend("integer-ideal").prepare(model)


@pytest.mark.parametrize("block", [24, 7])
def test_blocks_of_integers_that_do_not_divide_are_one_sentence(block: int) -> None:
    with pytest.raises(InputError) as refused:
        read_plan(file_of(np.ones((2, 8), np.float32), block, stored=np.int8))
    assert f"scales of shape (2, 8) for blocks of {block} along axis 0" in refused.value.found
    assert "ValueError" not in str(refused.value)


@pytest.mark.parametrize("name", [*WEIGHTS_ALONE, *BOTH, "w4a16", "w8a16_b64", "wf6e3m2_sym_pc"])
def test_names_are_those_of_their_schemas(name: str) -> None:
    assert get_schema(name).name == name


def test_the_usual_name_of_weights_alone() -> None:
    usual, own = get_schema("w4a16"), get_schema("w4_sym_b32")
    assert usual.rules == own.rules
    assert usual.weights_only
    assert get_schema("w4a16_sym_pc").rules[0].activation is not None
    assert get_schema("w8a16_b64").rules == get_schema("w8_sym_b64").rules


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wmxfp4_sym_b16", "'b32', as it is defined"),
        ("wnvfp4_sym_pc", "'b16', as it is defined"),
        ("wmxfp4_sym_b32_pow2", "its scales are its own"),
        ("wf8e4m3af4e2m1_sym_pt", "f8e4m3 or another of 8 bits"),
        ("wf8e4m3_asym_pt", "'sym', as they have no zero point"),
        ("wf8e4m3_sym_pt_entropy", "minmax, percentile or sigma"),
        ("wf8e4m3_sym_b0", "at least one element a block"),
        ("w16a16", "2 to 8 bits"),
        ("wf9_sym_pt", "w<type>[a<type>]_sym_<pt|pc|b<N>>"),
    ],
)
def test_impossible_names_say_why(name: str, expected: str) -> None:
    with pytest.raises(InputError) as refused:
        get_schema(name)
    assert expected in refused.value.expected


@pytest.mark.parametrize(
    "settings",
    [
        {"symmetry": "asymmetric"},
        {"narrow_range": True},
        {"range_method": "mse"},
        {"scale_kind": "e8m0"},
        {"scale": 1.0, "zero_point": 1},
    ],
)
def test_specs_that_floats_do_not_have_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"float8e4m3fn|blocks|zero_point|zero points"):
        Spec(**({"qtype": "float8e4m3fn", "symmetry": "symmetric"} | settings))
    with pytest.raises(ValueError, match="int8, not for floats"):
        Spec(qtype="int8", symmetry="symmetric", scale_kind="e8m0")


def test_floats_inside_a_unit_are_refused() -> None:
    spec = Spec(qtype="float8e4m3fn", symmetry="symmetric")
    with pytest.raises(ValueError, match="'correlation', which is of integers"):
        Schema(name="x", rules=(Rule(correlation=spec),))


def test_blocks_keep_their_scales_when_a_constant_is_moved() -> None:
    qparams = BLOCK_FORMATS["nvfp4"].choose(RNG.standard_normal((8, 32)))
    model = file_of(np.ones((2, 8), np.float32), 32)
    assert read_plan(model).constants[next(iter(read_plan(model).constants))].block_size == 32
    assert QParams(
        qparams.scale, 0, "float4e2m1", axis=1, block_size=16,
        scale_type="float8e4m3fn", tensor_scale=qparams.tensor_scale,
    ) == qparams  # fmt: skip


def test_eval_says_what_is_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ir.save(network(), tmp_path / "net.onnx")
    np.savez(tmp_path / "d.npz", x=X, y=np.zeros(4, int))
    words = ["eval", str(tmp_path / "net.onnx"), "--data", str(tmp_path / "d.npz"), "--json"]
    words += ["--schema", "wmxfp4_sym_b32"]
    found = {}
    for backend in ("integer-ideal", "integer-floats-float32"):
        assert main([*words, "--backend", backend]) == 0
        found[backend] = json.loads(capsys.readouterr().out)["quantized"]
    table = found["integer-ideal"]
    assert (table["simulated"], table["weight_macs"]) == (["float4e2m1"], 1.0)
    assert not found["integer-floats-float32"].get("simulated")
