"""AIMET on ONNX: ``aimet_quantize.py FP32 CALIBRATION OUT [--per-channel]``.

Its quantization simulation with 8 bits for weights and activations, written as Q/DQ with constants
in integers. By its default settings weights are per tensor.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from aimet_onnx import QuantizationSimModel
from aimet_onnx.common.quantsim_config import quantsim_config

OLDEST_OPSET = 13
"""From here on DequantizeLinear has an axis."""


def samples(path: Path) -> list[dict[str, Any]]:
    """Input name → array of one sample, for each."""
    arrays = dict(np.load(path))
    count = len(next(iter(arrays.values())))
    return [{name: array[i : i + 1] for name, array in arrays.items()} for i in range(count)]


def main() -> None:
    """Read the arguments, write the quantized model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp32", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--per-channel", action="store_true", help="scales of weights")
    given = parser.parse_args()

    model = onnx.load(given.fp32)
    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    if opset < OLDEST_OPSET:
        model = onnx.version_converter.convert_version(model, OLDEST_OPSET)
    settings = "default_config_per_channel" if given.per_channel else "default_config"
    shipped = Path(quantsim_config.__file__).parent
    simulated = QuantizationSimModel(
        model,
        param_type="int8",
        activation_type="int8",
        config_file=str(shipped / f"{settings}.json"),
    )
    simulated.compute_encodings(samples(given.calibration))
    # Without these two, weights stay in float before a Q, and the bias is not quantized.
    quantized = simulated.to_onnx_qdq(prequantize_constants=True, export_int32_bias=True)
    onnx.save(quantized, given.out)


if __name__ == "__main__":
    main()
