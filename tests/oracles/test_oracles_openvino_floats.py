"""OpenVINO and ONNX Runtime judge weights in floats of few bits and in blocks, and how we sum them:
the files that qbench writes.
"""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.host import processor_class
from qbench.quantization import make_plan, quantize_model

pytestmark = pytest.mark.oracle


def product() -> ir.Model:
    """A MatMul by a weight of 1,024 rows: at least 1,000 blocks of any format."""
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        net (float[8,1024] x) => (float[8,48] y) { y = MatMul(x, w) }"""
    )
    weight = np.random.default_rng(28).standard_normal((1024, 48)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return ir.from_proto(proto)


OPENVINO = (
    "wf8e4m3_sym_pc",
    "wf8e5m2_sym_pt",
    "wf8e4m3_sym_b32",
    "wf4e2m1_sym_b32",
    "wmxfp8e4m3_sym_b32",
    "wmxfp8e5m2_sym_b32",
    "wmxfp4_sym_b32",
    "wnvfp4_sym_b16",
    "w4_sym_b32",
    "w4_asym_b32",
    "w8_sym_b32",
)
ONNX_RUNTIME = (
    "wf8e4m3_sym_pc",
    "wf8e5m2_sym_b32",
    "wf8e4m3af8e4m3_sym_pc",
    "w2_sym_b32",
    "w4_sym_b32",
    "w4_asym_b32",
    "w8_sym_b32",
)
ENGINES = [("openvino", name) for name in OPENVINO]
ENGINES += [("ort-cpu-precise", name) for name in ONNX_RUNTIME]
ONE_BY_ONE = {
    ("openvino", "wf4e2m1_sym_b32"),
    ("openvino", "wmxfp4_sym_b32"),
    ("openvino", "wnvfp4_sym_b16"),
    ("openvino", "w4_sym_b32"),
    ("openvino", "w4_asym_b32"),
    ("ort-cpu-precise", "w2_sym_b32"),
    ("ort-cpu-precise", "w4_sym_b32"),
    ("ort-cpu-precise", "w4_asym_b32"),
}
"""Those that sum one product after another on AVX2, without another rounding (fused)."""


@pytest.mark.parametrize(("engine", "name"), ENGINES)
def test_the_engine_multiplies_the_numbers_of_the_codes(engine: str, name: str) -> None:
    if engine == "openvino":
        pytest.importorskip("openvino", reason="OpenVINO is not installed")
    model = product()
    x = np.random.default_rng(29).standard_normal((8, 1024)).astype(np.float32)
    profile = calibrate(model, [{"x": x}])
    plan = make_plan(model, profile, name, capabilities=engine)
    assert plan.weight_mac_count == plan.macs
    written = quantize_model(model, plan)
    ones = np.eye(1024, dtype=np.float32).reshape(128, 8, 1024)
    found, weights = {}, {}
    for backend in (engine, "integer-floats-dequantized"):
        with get_backend(backend).prepare(written) as executor:
            (found[backend],) = executor.run({"x": x}).values()
            rows = [next(iter(executor.run({"x": one}).values())) for one in ones]
            weights[backend] = np.concatenate(rows)
    (engines, ours), (read, codes) = found.values(), weights.values()
    if "af8" not in name:  # with quantized ones the scale of x is in these
        assert np.array_equal(read, codes)
        exact = codes.astype(np.float64)
        sizes = np.abs(x.astype(np.float64)) @ np.abs(exact)
        bound = 1024 * 2.0**-24 / (1 - 1024 * 2.0**-24) * sizes  # Higham 2002, section 3.1
        assert (np.abs(engines - x.astype(np.float64) @ exact) <= bound).all()
        assert (np.abs(ours - x.astype(np.float64) @ exact) <= bound).all()
    np.testing.assert_allclose(engines, ours, rtol=0, atol=1e-5 * np.abs(ours).max())
    if (engine, name) in ONE_BY_ONE and processor_class() == "x64-avx2":
        assert np.array_equal(engines, ours)
