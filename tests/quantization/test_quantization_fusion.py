"""What ONNX Runtime's optimizer makes of our QDQ: integer kernels throughout,
residual sums included.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from quantization_subjects import feeds_of, model_of, weights

from qbench.calibration import calibrate
from qbench.graph import model_bytes
from qbench.quantization import make_plan, quantize_model


def inverted_residuals() -> ir.Model:
    """A stem, three inverted residual blocks of two kinds, a head: the shape of MobileNetV2."""
    body = ["v0 = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w0, b0)", "r0 = Clip(v0, low, high)"]
    constants = {
        "w0": weights(0, 8, 3, 3, 3),
        "b0": weights(1, 8),
        "low": np.array(0, np.float32),
        "high": np.array(6, np.float32),
    }
    last = "r0"
    for block in range(3):
        for part, (shape, extra) in enumerate(
            [
                ((24, 8, 1, 1), ""),
                ((24, 1, 3, 3), "<pads=[1,1,1,1], group=24>"),
                ((8, 24, 1, 1), ""),
            ]
        ):
            tag = f"{block}_{part}"
            source = last if part == 0 else f"r{block}_{part - 1}"
            constants[f"w{tag}"], constants[f"b{tag}"] = (
                weights(len(constants), *shape),
                weights(len(constants) + 1, shape[0]),
            )
            body.append(f"v{tag} = Conv{extra}({source}, w{tag}, b{tag})")
            body.append(
                f"r{tag} = Clip(v{tag}, low, high)"
                if part < 2
                else f"s{block} = Add(v{tag}, {last})"
            )
        last = f"s{block}"
    body += [f"p = GlobalAveragePool({last})", "f = Flatten(p)", "z = Gemm<transB=1>(f, g, h)"]
    return model_of(
        "float[N,3,16,16] x",
        "float[N,10] z",
        "\n".join(body),
        **constants,
        g=weights(90, 10, 8),
        h=weights(91, 10),
    )


def optimized_operators(model: ir.Model, folder: Path) -> Counter[str]:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    ort.InferenceSession(model_bytes(model), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "schema",
    ["w8a8_asym_pt", "w8a8_asym_pc", "w8a8_symu8_pc", "w8a8_asym_pc_pow2", "w8a8_symu8_pt_pow2"],
)
def test_everything_becomes_an_integer_kernel(schema: str, tmp_path: Path) -> None:
    model = inverted_residuals()
    plan = make_plan(model, calibrate(model, [feeds_of(model)]), schema)
    operators = optimized_operators(quantize_model(model, plan), tmp_path)
    assert operators["QLinearConv"] == 10
    assert operators["QLinearAdd"] == 3
    assert operators["QGemm"] == 1
    assert operators["QLinearGlobalAveragePool"] == 1
    assert (
        not operators["Conv"]
        + operators["FusedConv"]
        + operators["Add"]
        + operators["DequantizeLinear"]
    )
