"""Intel's onnx-neural-compressor: ``neural_compressor_quantize.py FP32 CALIBRATION OUT``.

Static quantization with per-channel int8 weights and uint8 activations, written as Q/DQ.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx_neural_compressor.data_reader import CalibrationDataReader
from onnx_neural_compressor.quantization import QuantFormat, QuantType, config, quantize

PER_CHANNEL_OPSET = 13
"""From here on DequantizeLinear has an axis."""


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """The samples one at a time, as often as the quantizer begins anew."""

    def __init__(self, path: Path) -> None:
        self._arrays = dict(np.load(path))
        self.rewind()

    def rewind(self) -> None:
        """Begin with the first sample again."""
        self._left = iter(range(len(next(iter(self._arrays.values())))))

    def get_next(self) -> dict[str, Any] | None:
        """Input name → array of one sample; None after the last."""
        index = next(self._left, None)
        if index is None:
            return None
        return {name: array[index : index + 1] for name, array in self._arrays.items()}


def main() -> None:
    """Read the arguments, write the quantized model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp32", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()

    model = onnx.load(given.fp32)
    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    if opset < PER_CHANNEL_OPSET:
        model = onnx.version_converter.convert_version(model, PER_CHANNEL_OPSET)
    settings = config.StaticQuantConfig(
        calibration_data_reader=Reader(given.calibration),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    with TemporaryDirectory() as folder:
        ready, quantized = Path(folder) / "ready.onnx", Path(folder) / "quantized.onnx"
        onnx.save(model, ready)
        quantize(str(ready), str(quantized), settings)
        onnx.save(onnx.load(quantized), given.out)  # it puts the weights into a second file


if __name__ == "__main__":
    main()
