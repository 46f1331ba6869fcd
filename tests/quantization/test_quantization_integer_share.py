"""A share in integers that engines keep: what their optimized graphs multiply, beside what the plan says."""

import onnxruntime
import pytest
from quantization_subjects import conv_relu, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.graph import load_model, model_bytes
from qbench.quantization import make_plan, quantize_model


def network():
    return model_of(
        "float[N,3,8,8] x", "float[N,5] z",
        "a = Conv<pads=[1,1,1,1]>(x, w, b)\n r = Relu(a)\n c = Conv(r, v, d)\n f = Flatten(c)\n z = Gemm(f, u, e)",
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
    return any(kind.startswith("QLinearConv") for kind in kinds) and not kinds & {"Conv", "FusedConv", "Gemm", "MatMul"}


@pytest.mark.parametrize(
    "schema",
    ["w8a8_asym_pc", "w8a8_asym_pt", "w8a8_symu8_pc", "w8a8_asym_pc_bias8", "w4a8_asym_pc",
     "w16a16_sym_pc", "w8a8_asym_b32", "w8a8_asym_pc_dyn", "w8_sym_pc"],
)  # fmt: skip
def test_the_share_is_what_the_engine_multiplies(schema, tmp_path) -> None:
    """Int8 activations are left out: x64 kernels take them after a conversion that fuses some units and not others."""
    model = network()
    feeds = feeds_of(model)
    profile = calibrate(model, [feeds])
    plan = make_plan(model, profile, schema, capabilities=get_backend("ort-cpu").capabilities)
    expected = engine_multiplies_integers(quantize_model(model, plan), tmp_path)
    assert plan.integer_macs == (1.0 if expected else 0.0)


@pytest.mark.parametrize(("backend", "share"), [("ort-cpu", 0.0), ("integer-ideal", 1.0), (None, 1.0)])
def test_a_transposed_convolution_is_in_integers_where_there_is_a_kernel(backend, share) -> None:
    model = model_of(
        "float[N,3,8,8] x", "float[N,4,17,17] y", "y = ConvTranspose<strides=[2,2]>(x, w)", w=weights(0, 3, 4, 3, 3)
    )
    profile = calibrate(model, [feeds_of(model)])
    assert make_plan(model, profile, "w8a8_asym_pc", capabilities=backend).integer_macs == share


@pytest.mark.parametrize(("backend", "share"), [("ort-cpu", 0.0), ("integer-ideal", 1.0)])
def test_dynamic_products_are_in_integers_where_there_are_kernels(backend, share) -> None:
    model = network()
    profile = calibrate(model, [feeds_of(model)])
    assert make_plan(model, profile, "w8a8_asym_pc_dyn", capabilities=backend).integer_macs == share


def test_what_came_is_not_as_asked() -> None:
    model = conv_relu()
    profile = calibrate(model, [feeds_of(model)])
    came = quantize_model(model, make_plan(model, profile, "w8a8_asym_pc"))
    again = make_plan(came, calibrate(came, [feeds_of(model)]), "w4a8_sym_pt")
    text = "\n".join(again.lines())
    assert "as asked" not in text
    assert "as it came" in text
