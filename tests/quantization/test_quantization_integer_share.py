"""A share in integers that engines keep: what their optimized graphs multiply,
beside what the plan says.
"""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from quantization_subjects import conv_relu, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.graph import load_model, model_bytes
from qbench.quantization import (
    GraphOutputs,
    get_schema,
    load_plan,
    make_plan,
    quantize_model,
    save_plan,
)


def network():
    return model_of(
        "float[N,3,8,8] x", "float[N,5] z",
        "a = Conv<pads=[1,1,1,1]>(x, w, b)\n r = Relu(a)\n c = Conv(r, v, d)\n f = Flatten(c)\n"
        " z = Gemm(f, u, e)",
        w=weights(0, 6, 3, 3, 3), b=weights(1, 6), v=weights(2, 4, 6, 1, 1), d=weights(3, 4),
        u=weights(4, 256, 5), e=weights(5, 5),
    )  # fmt: skip


def engine_multiplies_integers(model, folder) -> bool:
    """Whether ONNX Runtime's optimized graph holds an integer product and no float one."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 4
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    onnxruntime.InferenceSession(model_bytes(model), options, providers=["CPUExecutionProvider"])
    kinds = {node.op_type for node in load_model(folder / "optimized.onnx").graph}
    return any(kind.startswith("QLinearConv") for kind in kinds) and not kinds & {
        "Conv",
        "FusedConv",
        "Gemm",
        "MatMul",
    }


@pytest.mark.slow_but(3)
@pytest.mark.parametrize(
    "schema",
    ["w8a8_asym_pc", "w8a8_asym_pt", "w8a8_symu8_pc", "w8a8_asym_pc_bias8", "w4a8_asym_pc",
     "w7a8_asym_pc",
     "w16a16_sym_pc", "w8a8_asym_b32", "w8a8_asym_pc_dyn", "w8_sym_pc"],
)  # fmt: skip
def test_the_share_is_what_the_engine_multiplies(schema, tmp_path) -> None:
    """Int8 activations are left out: x64 kernels take them after a conversion that fuses some
    units and not others.
    """
    model = network()
    feeds = feeds_of(model)
    profile = calibrate(model, [feeds])
    plan = make_plan(model, profile, schema, capabilities=get_backend("ort-cpu").capabilities)
    expected = engine_multiplies_integers(quantize_model(model, plan), tmp_path)
    assert plan.integer_macs == (1.0 if expected else 0.0)


@pytest.mark.parametrize(
    ("backend", "share"), [("ort-cpu", 0.0), ("integer-ideal", 1.0), (None, 1.0)]
)
def test_a_transposed_convolution_is_in_integers_where_there_is_a_kernel(backend, share) -> None:
    model = model_of(
        "float[N,3,8,8] x",
        "float[N,4,17,17] y",
        "y = ConvTranspose<strides=[2,2]>(x, w)",
        w=weights(0, 3, 4, 3, 3),
    )
    profile = calibrate(model, [feeds_of(model)])
    assert make_plan(model, profile, "w8a8_asym_pc", capabilities=backend).integer_macs == share


@pytest.mark.parametrize(("backend", "share"), [("ort-cpu", 0.0), ("integer-ideal", 1.0)])
def test_dynamic_products_are_in_integers_where_there_are_kernels(backend, share) -> None:
    model = network()
    profile = calibrate(model, [feeds_of(model)])
    assert make_plan(model, profile, "w8a8_asym_pc_dyn", capabilities=backend).integer_macs == share


def test_dynamic_products_by_constant_matrices_are_in_integers_on_onnxruntime(tmp_path) -> None:
    """DynamicQuantizeMatMul takes constant weights; a product of two computed operands stays
    float, as executed.
    """
    model = model_of(
        "float[N,4,16] x", "float[N,4,4] y",
        "a = MatMul(x, w)\n r = Relu(a)\n t = Transpose<perm=[0,2,1]>(r)\n y = MatMul(r, t)",
        w=weights(0, 16, 16),
    )  # fmt: skip
    backend = get_backend("ort-cpu")
    plan = make_plan(
        model, calibrate(model, [feeds_of(model)]), "w8a8_asym_pc_dyn", capabilities="ort-cpu"
    )
    constant, computed = plan.node_macs
    assert 0.0 < plan.integer_macs < 1.0
    with backend.prepare(quantize_model(model, plan)) as executor:
        found = executor.executed()
    assert found[constant].in_integers
    assert computed not in found or not found[computed].in_integers
    assert plan.integer_nodes == {constant}


@pytest.mark.parametrize(
    ("operator", "share"),
    [("y = Gemm(x, w)", 1.0), ("y = Gemm<alpha=0.5>(x, w)", 1.0), ("y = Gemm(x, w, b)", 0.0)],
)
def test_a_dynamic_gemm_is_in_integers_on_onnxruntime_where_it_adds_nothing(operator, share):
    """QGemm takes parameters that are computed, and no bias in float."""
    constants = {"w": weights(0, 16, 8), "b": weights(1, 8)}
    model = model_of(
        "float[N,16] x", "float[N,8] y", operator,
        **{name: array for name, array in constants.items() if name in operator},
    )  # fmt: skip
    backend = get_backend("ort-cpu")
    plan = make_plan(
        model, calibrate(model, [feeds_of(model)]), "w8a8_asym_pc_dyn", capabilities="ort-cpu"
    )
    with backend.prepare(quantize_model(model, plan)) as executor:
        assert executor.executed()["y"].in_integers == (share == 1.0)
    assert plan.integer_macs == share


def test_what_came_is_not_as_asked() -> None:
    model = conv_relu()
    profile = calibrate(model, [feeds_of(model)])
    came = quantize_model(model, make_plan(model, profile, "w8a8_asym_pc"))
    again = make_plan(came, calibrate(came, [feeds_of(model)]), "w4a8_sym_pt")
    text = "\n".join(again.lines())
    assert "as asked" not in text
    assert "as it came" in text


@pytest.mark.parametrize(
    ("outputs", "executed"), [("float", "float32"), ("auto", "uint8"), ("quantized", "uint8")]
)
def test_a_graph_output_is_quantized_where_the_schema_says_so(outputs, executed, tmp_path):
    model = model_of(
        "float[N,3,6,6] x", "float[N,4,4,4] y", "y = Conv(x, w)", w=weights(0, 4, 3, 3, 3)
    )
    feeds, backend = feeds_of(model), get_backend("ort-cpu")
    # Weights of 7 bits: pairs of products by 8 bits saturate on a processor without VNNI, in some
    # of these backends.
    schema = replace(get_schema("w7a8_asym_pc"), outputs=GraphOutputs(outputs))
    plan = make_plan(model, calibrate(model, [feeds]), schema, capabilities=backend.capabilities)
    assert plan.quantized_outputs == (() if outputs == "float" else ("y",))
    assert ("quantized where it leaves the graph" in "\n".join(plan.lines())) == (
        outputs != "float"
    )
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").quantized_outputs == plan.quantized_outputs
    quantized = quantize_model(model, plan)
    assert [value.name for value in quantized.graph.outputs] == ["y"]
    results = {}
    for name in ("ort-cpu", "ort-cpu-noopt", "integer-ort-x64", "ort-cpu-qoperator"):
        with get_backend(name).prepare(quantized) as executor:
            results[name] = executor.run(feeds)["y"]
            if name == "ort-cpu":
                assert [
                    one.precision
                    for key, one in executor.executed().items()
                    if key in plan.node_macs
                ] == [executed]
    assert len(np.unique(results["ort-cpu"])) <= 256 or outputs == "float"
    step = 0.0 if outputs == "float" else float(plan.values["y"].scale)
    for one in results.values():
        np.testing.assert_allclose(one, results["ort-cpu"], atol=step * 1.01 + 1e-4)


def test_auto_leaves_results_in_float_where_the_engine_multiplies_integers_all_the_same():
    model = network()
    feeds = feeds_of(model)
    auto = replace(get_schema("w8a8_asym_pc"), outputs=GraphOutputs.AUTO)
    backend = get_backend("ort-cpu").capabilities
    profile = calibrate(model, [feeds])
    plain = make_plan(model, profile, "w8a8_asym_pc", capabilities=backend)
    assert make_plan(model, profile, auto, capabilities=backend) == plain
