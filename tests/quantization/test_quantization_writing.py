"""What is written for every kind of grid: its structure, and its numbers by ONNX Runtime and
the onnx evaluator.
"""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantization_subjects import SUBJECTS, feeds_of, model_of

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.errors import InputError, UnsupportedError
from qbench.graph import (
    Form,
    check_convention,
    form_of,
    graph_digest,
    load_model,
    model_bytes,
    save_model,
)
from qbench.numerics import QParams, QType, fake_quantize, quantize
from qbench.passes import plannable
from qbench.quantization import (
    Decision,
    Dynamic,
    Granularity,
    Plan,
    Role,
    Rule,
    Schema,
    Slot,
    Spec,
    Static,
    get_schema,
    insert_qdq,
    make_plan,
    quantize_model,
)
from qbench.quantization.candidates import ClipForm, clip_form

ENGINES = ("ort-cpu", "ort-cpu-noopt", "onnx-reference")
Array = np.ndarray[Any, Any]

NEGATED = plannable(model_of("float[N,4,5] x", "float[N,4,5] y", "[neg] y = Neg(x)"))
CLIPPED = plannable(
    model_of("float[N,4,5] x", "float[N,4,5] y", "[relu] v = Relu(x)\n[neg] y = Neg(v)")
)
ADDED = plannable(
    model_of(
        "float[N,6,10] x", "float[N,6,10] y", "[add] y = Add(x, w)", w=np.zeros((6, 10), np.float32)
    )
)


def plan_of(
    model: ir.Model, decisions: dict[Slot, Decision], clips: dict[str, ClipForm] | None = None
) -> Plan:
    """A plan of ``model``, which is canonical, with these decisions and nothing else."""
    return Plan(
        "by hand", "default", graph_digest(model), "0" * 64, decisions, clips or {}, {}, 0, 0
    )


def checked(model: ir.Model, plan: Plan) -> ir.Model:
    """``plan`` written into ``model``: valid, by the convention, idempotent, a QDQ graph."""
    written = insert_qdq(model, plan)
    onnx.checker.check_model(onnx.load_model_from_string(model_bytes(written)), full_check=True)
    assert check_convention(written) == ()
    assert form_of(written) is Form.QDQ
    assert graph_digest(insert_qdq(written, plan)) == graph_digest(written)
    return written


def run(model: ir.Model, feeds: dict[str, Array], backend: str) -> dict[str, Array]:
    with get_backend(backend).prepare(model) as executor:
        return executor.run(feeds)


def kinds(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def on_a_value(
    model: ir.Model, name: str, qparams: QParams, clip: ClipForm | None = None
) -> ir.Model:
    clips = {} if clip is None else {"relu": clip}
    return checked(
        model, plan_of(model, {Slot("neg", Role.INPUT, 0, name): Static(qparams)}, clips)
    )


@st.composite
def grids(draw: st.DrawFn, widths: tuple[int, ...] = (*range(2, 17), 32)) -> QParams:
    """Any grid for values of 3 dimensions, per tensor or along axis 1 of 4 channels."""
    bits = draw(st.sampled_from(widths))
    qtype = QType(bits, draw(st.booleans()) or bits == 32)
    narrow = draw(st.booleans())
    scale = st.floats(2.0**-10, 8, width=32)
    point = st.just(0) if bits == 32 else st.integers(qtype.qmin + narrow, qtype.qmax)
    if draw(st.booleans()):
        return QParams(draw(scale), draw(point), qtype, narrow_range=narrow)
    scales, points = (draw(st.lists(s, min_size=4, max_size=4)) for s in (scale, point))
    return QParams(scales, points, qtype, axis=draw(st.sampled_from((1, -2))), narrow_range=narrow)


def values_for(qparams: QParams, seed: int) -> Array:
    """Values inside the grid, on its ties, at its ends and beyond."""
    rng = np.random.default_rng(seed)
    scale, point = qparams.expanded((8, 4, 5))
    low, high = qparams.qmin - 3.0, qparams.qmax + 3.0
    levels = rng.integers(2 * low, 2 * high, (8, 4, 5)) / 2
    return np.asarray((levels - point) * scale, np.float32)


@pytest.mark.slow
@settings(max_examples=120)
@given(grids(), st.integers(0, 1000))
def test_every_grid_of_a_value_is_counted_as_numerics_say(qparams: QParams, seed: int) -> None:
    x = values_for(qparams, seed)
    written = on_a_value(NEGATED, "x", qparams)
    for engine in ENGINES:
        np.testing.assert_array_equal(
            run(written, {"x": x}, engine)["y"], -fake_quantize(x, qparams), engine
        )


@settings(max_examples=60)
@given(grids(), st.integers(0, 1000))
def test_a_relu_before_any_grid_keeps_its_numbers(qparams: QParams, seed: int) -> None:
    relu = next(node for node in CLIPPED.graph if node.name == "relu")
    x = values_for(qparams, seed)
    written = on_a_value(CLIPPED, "v", qparams, clip_form(relu, qparams))
    expected = -fake_quantize(np.maximum(x, 0), qparams)
    for engine in ENGINES:
        np.testing.assert_array_equal(run(written, {"x": x}, engine)["y"], expected, engine)


@settings(max_examples=80)
@given(
    st.sampled_from((*range(2, 17), 32)),
    st.booleans(),
    st.booleans(),
    st.sampled_from(("tensor", 0, 1, "b0", "b1")),
)
def test_every_grid_of_a_constant_is_stored_exactly(
    bits: int, signed: bool, narrow: bool, along: str | int
) -> None:
    qtype = QType(bits, signed or bits == 32)
    block = {"b0": (0, 4), "b1": (1, 5)}.get(str(along))
    shape = {"tensor": (), 0: (6,), 1: (10,), "b0": (2, 10), "b1": (6, 2)}[along]
    axis = block[0] if block else along if isinstance(along, int) else None
    rng = np.random.default_rng(bits)
    point = 0 if bits == 32 else rng.integers(qtype.qmin + narrow, qtype.qmax + 1, shape)
    scale = rng.uniform(0.01, 1, shape)
    qparams = QParams(
        scale, point, qtype, axis=axis, block_size=block[1] if block else None, narrow_range=narrow
    )
    model = ADDED.clone()
    array = (rng.uniform(-1.2, 1.2, (6, 10)) * 2.0 ** (bits - 1)).astype(np.float32)
    model.graph.initializers["w"].const_value = ir.tensor(array, name="w")
    written = checked(model, plan_of(model, {Slot("add", Role.WEIGHT, 1, "w"): Static(qparams)}))
    x = np.zeros((2, 6, 10), np.float32)
    for engine in ENGINES:
        got = run(written, {"x": x}, engine)["y"][1]
        np.testing.assert_array_equal(got, fake_quantize(array, qparams) + np.float32(0), engine)
    (stored,) = (t for n, t in tensors(written).items() if n == "w_quantized")
    assert (
        stored.dtype.name
        == f"{'' if qtype.signed else 'U'}INT{next(w for w in (4, 8, 16, 32) if bits <= w)}"
    )


def tensors(model: ir.Model) -> dict[str, Any]:
    return {str(name): value.const_value for name, value in model.graph.initializers.items()}


def test_four_bits_are_packed_as_ml_dtypes_has_them() -> None:
    array = np.random.default_rng(0).normal(size=(6, 10)).astype(np.float32)
    model = ADDED.clone()
    model.graph.initializers["w"].const_value = ir.tensor(array, name="w")
    qparams = QParams(0.3, 0, QType.parse("int4"))
    written = checked(model, plan_of(model, {Slot("add", Role.WEIGHT, 1, "w"): Static(qparams)}))
    stored = tensors(written)["w_quantized"]
    assert stored.numpy().dtype == ml_dtypes.int4
    np.testing.assert_array_equal(stored.numpy().astype(np.int8), quantize(array, qparams))
    assert stored.nbytes == 30


@pytest.mark.parametrize(
    ("qtype", "narrow", "operators", "dtype"),
    [
        ("uint8", False, {"QuantizeLinear", "DequantizeLinear"}, "UINT8"),
        ("int8", True, {"QuantizeLinear", "Clip", "DequantizeLinear"}, "INT8"),
        ("int3", False, {"QuantizeLinear", "Clip", "DequantizeLinear"}, "INT8"),
        ("uint4", False, {"QuantizeLinear", "Clip", "DequantizeLinear"}, "UINT8"),
        ("int12", False, {"Clip", "QuantizeLinear", "DequantizeLinear"}, "INT16"),
        ("uint16", False, {"QuantizeLinear", "DequantizeLinear"}, "UINT16"),
        ("int32", False, {"Div", "Round", "Clip", "Mul"}, None),
    ],
)
def test_where_a_narrow_grid_is_clipped(
    qtype: str, narrow: bool, operators: set[str], dtype: str | None
) -> None:
    written = on_a_value(NEGATED, "x", QParams(0.1, 0, QType.parse(qtype), narrow_range=narrow))
    assert set(kinds(written)) == operators | {"Neg"}
    nodes = list(written.graph)
    if dtype is not None:
        quantize_ = next(node for node in nodes if node.op_type == "QuantizeLinear")
        assert quantize_.outputs[0].dtype is ir.DataType[dtype]
    behind = [node.op_type for node in nodes]
    if "Clip" in behind and "QuantizeLinear" in behind:
        integers = dtype in ("INT8", "UINT8")
        assert (behind.index("Clip") > behind.index("QuantizeLinear")) is integers


def test_a_grid_in_floats_is_one_division_and_a_product_a_reader() -> None:
    model = plannable(
        model_of(
            "float[N,3] x", "float[N,3] y", "[a] a = Neg(x)\n[b] b = Abs(x)\n[s] y = Add(a, b)"
        )
    )
    grid = QParams(0.5, 0, QType.parse("int32"))
    written = checked(model, plan_of(model, {Slot("a", Role.INPUT, 0, "x"): Static(grid)}))
    assert kinds(written) == {
        "Div": 1,
        "Round": 1,
        "Clip": 1,
        "Mul": 2,
        "Neg": 1,
        "Abs": 1,
        "Add": 1,
    }
    assert all(
        "qbench.levels" in n.metadata_props
        for n in written.graph
        if n.op_type in ("Div", "Round", "Clip")
    )
    broken = written.clone()
    mul = next(node for node in broken.graph if node.op_type == "Mul")
    mul.replace_input_with(1, broken.graph.initializers["x_low"])
    assert any("a Mul by its scale" in sentence for sentence in check_convention(broken))


def test_a_rounding_of_the_network_itself_is_no_grid() -> None:
    model = model_of(
        "float[N] x", "float[N] y", "a = Div(x, s)\n b = Round(a)\n y = Mul(b, s)", s=np.float32(2)
    )
    assert form_of(model) is Form.FLOAT


def dynamic_oracle(x: Array) -> Array:
    """DynamicQuantizeLinear (ONNX operator 11) and back, one value at a time."""
    low, high = min(np.float32(0), x.min()), max(np.float32(0), x.max())
    scale = np.float32(np.float32(high - low) / np.float32(255))
    point = int(np.clip(np.rint(np.float32(0 - low) / scale), 0, 255))
    levels = [int(np.clip(int(np.rint(v / scale)) + point, 0, 255)) - point for v in x.reshape(-1)]
    return (np.asarray(levels, np.float32) * scale).reshape(x.shape)


def test_dynamic_parameters_follow_every_batch() -> None:
    plan = plan_of(NEGATED, {Slot("neg", Role.INPUT, 0, "x"): Dynamic(QType.parse("uint8"))})
    written = checked(NEGATED, plan)
    assert kinds(written) == {"DynamicQuantizeLinear": 1, "DequantizeLinear": 1, "Neg": 1}
    for seed in range(3):
        x = (np.random.default_rng(seed).normal(size=(2, 4, 5)) * 10.0**seed).astype(np.float32)
        for engine in ENGINES:
            np.testing.assert_array_equal(
                run(written, {"x": x}, engine)["y"], -dynamic_oracle(x), engine
            )


def test_dynamic_parameters_of_another_type_are_refused() -> None:
    plan = plan_of(NEGATED, {Slot("neg", Role.INPUT, 0, "x"): Dynamic(QType.parse("int8"))})
    with pytest.raises(UnsupportedError, match="codes of int8"):
        insert_qdq(NEGATED, plan)


def test_channels_of_32_bits_have_one_zero_point() -> None:
    grid = QParams([1, 1, 1, 1], [0, 1, 2, 3], QType.parse("int32"), axis=1)
    with pytest.raises(UnsupportedError, match="4 zero points"):
        insert_qdq(NEGATED, plan_of(NEGATED, {Slot("neg", Role.INPUT, 0, "x"): Static(grid)}))


def test_readers_in_a_branch_have_their_pair_there() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> net (float[N] x, bool c) => (float[N] y) {
      [neg] v = Neg(x)
      [if] y = If (c) <then_branch = t () => (float[N] a) { [inner] a = Abs(v) },
                       else_branch = e () => (float[N] b) { [other] b = Relu(v) }>
    }"""
    model = plannable(ir.from_onnx_text(text))
    grid = QParams(0.5, 3, QType.parse("uint8"))
    written = checked(model, plan_of(model, {Slot("neg", Role.OUTPUT, 0, "v"): Static(grid)}))
    x = np.array([-1.3, 0.2, 4.6], np.float32)
    for choice, function in ((True, np.abs), (False, partial(np.maximum, 0))):
        got = run(written, {"x": x, "c": np.asarray(choice)}, "ort-cpu-noopt")["y"]
        np.testing.assert_array_equal(got, function(fake_quantize(-x, grid)))


def test_a_value_that_nothing_reads_gets_no_pair() -> None:
    grid = QParams(0.5, 3, QType.parse("uint8"))
    plan = plan_of(NEGATED, {Slot("neg", Role.OUTPUT, 0, "y"): Static(grid)})
    assert kinds(insert_qdq(NEGATED, plan)) == {"Neg": 1}


def test_a_plan_of_another_graph_is_refused() -> None:
    plan = plan_of(NEGATED, {})
    with pytest.raises(InputError, match="a plan of another graph"):
        quantize_model(CLIPPED, plan)
    with pytest.raises(InputError, match="a plan of another graph"):
        quantize_model(NEGATED, replace(plan, graph="f" * 64))


def of_width(activation: str, weight: str) -> Schema:
    """Every unit on grids of these types, weights per channel."""
    rule = Rule(
        activation=Spec(qtype=activation, symmetry="asymmetric"),
        weight=Spec(
            qtype=weight, symmetry="symmetric", granularity=Granularity.CHANNEL, narrow_range=True
        ),
    )
    return Schema(name=f"{activation} {weight}", rules=(rule,))


SCHEMAS = {
    **{
        name: get_schema(name)
        for name in (
            "w8_sym_pc",
            "w4_asym_b32",
            "w8a8_asym_pc_dyn",
            "w8a16_asym_pc",
            "w4a8_asym_pc",
        )
    },
    **{
        f"{a}_{w}": of_width(a, w)
        for a, w in (("int6", "int6"), ("uint3", "int5"), ("int12", "int9"))
    },
}


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_schemas_of_every_kind_run(name: str, schema: str, tmp_path: Any) -> None:
    model, feeds = SUBJECTS[name](), feeds_of(SUBJECTS[name]())
    plan = make_plan(
        model,
        calibrate(model, [feeds]),
        SCHEMAS[schema],
        capabilities=get_backend("ort-cpu").capabilities,
    )
    assert all("at run time" in refusal for refusal in plan.refusals)
    canonical = plannable(model, plan.canonical)
    written = checked(canonical, plan)
    save_model(written, tmp_path / "q.onnx")
    assert graph_digest(load_model(tmp_path / "q.onnx")) == graph_digest(written)
    ours, theirs = run(written, feeds, "ort-cpu-noopt"), run(written, feeds, "onnx-reference")
    run(written, feeds, "ort-cpu")
    for output, real in run(model, feeds, "ort-cpu-noopt").items():
        # Sums in another order may put a value on the other side of a tie: one step, rarely.
        apart = np.abs(ours[output] - theirs[output])
        assert np.mean(apart > 1e-4 * np.abs(real).max()) < 0.1
        assert not np.array_equal(ours[output], real)


@pytest.mark.parametrize("schema", ["w4_sym_b32", "w4_asym_pc", "w8_sym_pc"])
def test_activations_beside_weights_alone_stay_float_in_every_session(schema: str) -> None:
    w = np.random.default_rng(0).normal(size=(256, 64)).astype(np.float32)
    model = model_of("float[N,256] x", "float[N,64] z", "z = MatMul(x, w)", w=w)
    feeds = feeds_of(model)
    written = quantize_model(model, make_plan(model, calibrate(model, [feeds]), schema))
    plain = run(written, feeds, "ort-cpu-noopt")["z"]
    for backend in ("ort-cpu", "ort-cpu-precise", "ort-cpu-qoperator"):
        # rounding them to 8 bits moves results by half a hundredth of the largest
        assert np.abs(run(written, feeds, backend)["z"] - plain).max() < 1e-5 * np.abs(plain).max()
