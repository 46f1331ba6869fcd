"""NNCF on ONNX: ``nncf_quantize.py FP32 CALIBRATION OUT [--accuracy-control]``.

Its default post-training quantization. With accuracy control it puts operators back into float
until agreement with the float model on the calibration samples falls by less than a point.
"""

import argparse
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import onnx
import onnxruntime

PER_CHANNEL_OPSET = 13
"""From here on DequantizeLinear has an axis."""

MAX_DROP = 0.01
"""Of agreement, as a fraction."""
Answered = tuple[dict[str, Any], np.ndarray]
"""A sample, and the classes that the float model gives it."""


def samples(path: Path) -> list[dict[str, Any]]:
    """Input name → array of one sample, for each."""
    arrays = dict(np.load(path))
    count = len(next(iter(arrays.values())))
    return [{name: array[i : i + 1] for name, array in arrays.items()} for i in range(count)]


def classes(model: onnx.ModelProto, feeds: Iterable[dict[str, Any]]) -> np.ndarray:
    """The largest entry of the first output, for each sample."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    name = session.get_outputs()[0].name
    return np.stack([session.run([name], one)[0].argmax(axis=-1).reshape(-1) for one in feeds])


def with_accuracy_control(model: onnx.ModelProto, feeds: list[dict[str, Any]]) -> onnx.ModelProto:
    """Quantize where agreement allows; labels are not needed.

    NNCF validates on parts of the samples, too: each goes with the classes of the float model.
    """
    answered = list(zip(feeds, classes(model, feeds), strict=True))

    def agreement(quantized: onnx.ModelProto, validated: Iterable[Answered]) -> float:
        chosen = list(validated)
        found = classes(quantized, [one for one, _ in chosen])
        return float((found == np.stack([expected for _, expected in chosen])).mean())

    quantized: onnx.ModelProto = nncf.quantize_with_accuracy_control(
        model,
        calibration_dataset=nncf.Dataset(feeds),
        validation_dataset=nncf.Dataset(answered, itemgetter(0)),
        validation_fn=agreement,
        max_drop=MAX_DROP,
        subset_size=len(feeds),
    )
    return quantized


def main() -> None:
    """Read the arguments, write the quantized model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp32", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--accuracy-control", action="store_true")
    given = parser.parse_args()

    model = onnx.load(given.fp32)
    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    if opset < PER_CHANNEL_OPSET:
        model = onnx.version_converter.convert_version(model, PER_CHANNEL_OPSET)
    feeds = samples(given.calibration)
    if given.accuracy_control:
        quantized = with_accuracy_control(model, feeds)
    else:
        quantized = nncf.quantize(model, nncf.Dataset(feeds), subset_size=len(feeds))
    onnx.save(quantized, given.out)


if __name__ == "__main__":
    main()
