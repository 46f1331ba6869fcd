"""OpenVINO judges weights in floats of few bits and in blocks: the files that qbench writes."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

from qbench.backends import get_backend
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


@pytest.mark.parametrize(
    "name",
    [
        "wf8e4m3_sym_pc",
        "wf8e5m2_sym_pt",
        "wf8e4m3_sym_b32",
        "wf4e2m1_sym_b32",
        "wmxfp8e4m3_sym_b32",
        "wmxfp8e5m2_sym_b32",
        "wmxfp4_sym_b32",
        "wnvfp4_sym_b16",
    ],
)
def test_the_engine_multiplies_the_numbers_of_the_codes(name: str) -> None:
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    model = product()
    plan = make_plan(model, None, name, capabilities="openvino")
    assert plan.weight_mac_count == plan.macs
    written = quantize_model(model, plan)
    x = np.random.default_rng(29).standard_normal((8, 1024)).astype(np.float32)
    found = []
    for backend in ("openvino", "integer-ideal"):
        with get_backend(backend).prepare(written) as executor:
            found.append(next(iter(executor.run({"x": x}).values())))
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-5 * np.abs(found[1]).max())
