"""A Gemm whose int32 bias has a scale of its own: ONNX Runtime fuses it unchecked,
so it is never written.
"""

import numpy as np
import pytest
from quantization_subjects import feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.quantization import (
    BiasKind,
    BiasSpec,
    Granularity,
    Rule,
    Schema,
    Spec,
    make_plan,
    quantize_model,
)

UINT8 = Spec(qtype="uint8", symmetry="asymmetric")
INT8 = Spec(qtype="int8", symmetry="symmetric", granularity=Granularity.CHANNEL, narrow_range=True)


@pytest.mark.parametrize(
    ("bits", "pipeline"), [(8, "default"), (16, "default"), (32, "default"), (32, "split_bias")]
)
def test_engines_agree_with_and_without_optimizations(bits: int, pipeline: str) -> None:
    model = model_of(
        "float[N,6] x", "float[N,3] z", (
            "y = Gemm<transB=1>(x, w, b)\n r = Relu(y)\n z = Gemm<transB=1>(r, v, c)"
        ),
        w=weights(0, 5, 6), b=weights(1, 5, size=4), v=weights(2, 3, 5), c=weights(3, 3, size=4),
    )  # fmt: skip
    bias = BiasSpec(kind=BiasKind.OWN, qtype=f"int{bits}")
    schema = Schema(
        name="own", canonical=pipeline, rules=(Rule(activation=UINT8, weight=INT8, bias=bias),)
    )
    feeds = feeds_of(model)
    plan = make_plan(model, calibrate(model, [feeds], pipeline=pipeline), schema)
    refused = (bits, pipeline) == (32, "default")
    assert any("int32 bias" in refusal for refusal in plan.refusals) == refused
    quantized = quantize_model(model, plan)
    (fused,), (plain,) = (
        get_backend(name).prepare(quantized).run(feeds).values()
        for name in ("ort-cpu-precise", "ort-cpu-noopt")
    )
    np.testing.assert_allclose(fused, plain, atol=0.05)
