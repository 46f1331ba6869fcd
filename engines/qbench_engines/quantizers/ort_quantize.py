"""ONNX Runtime's own quantizer: ``ort_quantize.py FP32 CALIBRATION OUT [--method M]``.

Pre-processing, then static quantization with per-channel int8 weights and uint8 activations, as
its documentation recommends for processors; ``dynamic`` needs no samples.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

PER_CHANNEL_OPSET = 13
"""From here on DequantizeLinear has an axis."""

CALIBRATION = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}


class Reader:
    """The samples one at a time, as a CalibrationDataReader gives them."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        count = len(next(iter(arrays.values())))
        self._left = iter(range(count))
        self._arrays = arrays

    def get_next(self) -> dict[str, Any] | None:
        """Input name → array of one sample; None after the last."""
        index = next(self._left, None)
        if index is None:
            return None
        return {name: array[index : index + 1] for name, array in self._arrays.items()}


def preprocess(source: Path, path: Path) -> None:
    """Write the model ``source`` to ``path`` with shapes and optimized, as the quantizer wants it.

    Symbolic shape inference does not know every operator: without it the rest is done.
    """
    try:
        quant_pre_process(str(source), str(path), auto_merge=True)
    except Exception as error:  # it raises bare exceptions of any kind
        print(f"without symbolic shapes: {error}", file=sys.stderr)
        quant_pre_process(str(source), str(path), skip_symbolic_shape=True)


def main() -> None:
    """Read the arguments, write the quantized model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp32", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--method", choices=(*CALIBRATION, "dynamic"), default="minmax")
    parser.add_argument("--qoperator", action="store_true", help="operators on integers, not Q/DQ")
    parser.add_argument("--keep-weight-scales", action="store_true", help="whatever the bias needs")
    given = parser.parse_args()

    model = onnx.load(given.fp32)
    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    if opset < PER_CHANNEL_OPSET:
        model = onnx.version_converter.convert_version(model, PER_CHANNEL_OPSET)
    with TemporaryDirectory() as folder:
        source, ready = Path(folder) / "source.onnx", Path(folder) / "ready.onnx"
        onnx.save(model, source)
        preprocess(source, ready)
        if given.method == "dynamic":
            quantize_dynamic(ready, given.out, per_channel=True, weight_type=QuantType.QInt8)
            return
        quantize_static(
            ready,
            given.out,
            Reader(dict(np.load(given.calibration))),
            quant_format=QuantFormat.QOperator if given.qoperator else QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CALIBRATION[given.method],
            extra_options={"QDQDisableWeightAdjustForInt32Bias": given.keep_weight_scales},
        )


if __name__ == "__main__":
    main()
