"""AMD Quark on ONNX: ``quark_quantize.py FP32 CALIBRATION OUT [--spec S]``.

``uint8`` has uint8 activations and int8 weights, ``int8`` signed activations, ``xint8`` scales that
are powers of two, for its NPUs. All are per tensor, which is its default.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from quark.onnx import ModelQuantizer, QConfig, QLayerConfig
from quark.onnx.quantization.config.spec import Int8Spec, UInt8Spec, XInt8Spec

OLDEST_OPSET = 13
"""Quark adds operators of this opset."""

SPECS = {
    "uint8": (UInt8Spec, Int8Spec),
    "int8": (Int8Spec, Int8Spec),
    "xint8": (XInt8Spec, XInt8Spec),
}
"""What activations and weights are."""


class Reader:
    """The samples one at a time, as often as the quantizer begins anew."""

    def __init__(self, path: Path) -> None:
        self._arrays = dict(np.load(path))
        self.reset_iter()

    def reset_iter(self) -> None:
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
    parser.add_argument("--spec", choices=tuple(SPECS), default="uint8")
    given = parser.parse_args()

    model = onnx.load(given.fp32)
    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    if opset < OLDEST_OPSET:
        model = onnx.version_converter.convert_version(model, OLDEST_OPSET)
    activation, weight = SPECS[given.spec]
    settings = QConfig(global_config=QLayerConfig(activation=activation(), weight=weight()))
    with TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.onnx"
        onnx.save(model, ready)
        reader = Reader(given.calibration)
        ModelQuantizer(settings).quantize_model(str(ready), str(given.out), reader)


if __name__ == "__main__":
    main()
