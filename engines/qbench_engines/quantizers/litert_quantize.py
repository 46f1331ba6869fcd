"""litert-quantizer: ``litert_quantize.py FP32.tflite CALIBRATION OUT.tflite [--recipe R]``.

Takes and gives TFLite. Samples have the axes of the ONNX graph; a picture of four axes is turned to
channels last where the file wants it so.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from litert_quantizer import quantizer, recipe

RECIPES = ("static_wi8_ai8", "static_wi8_ai16", "dynamic_wi8_afp32", "weight_only_wi4_afp32")

CHANNELS_LAST = (0, 2, 3, 1)


def samples(path: Path, shapes: dict[str, tuple[int, ...]]) -> list[dict[str, Any]]:
    """Input name → array of one sample as ``shapes`` has it, for each."""
    arrays = dict(np.load(path))
    for name, shape in shapes.items():
        if arrays[name].ndim == len(CHANNELS_LAST) and arrays[name].shape[1:] != shape[1:]:
            arrays[name] = arrays[name].transpose(CHANNELS_LAST)
    count = len(next(iter(arrays.values())))
    return [{name: array[i : i + 1] for name, array in arrays.items()} for i in range(count)]


def main() -> None:
    """Read the arguments, write the quantized model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp32", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--recipe", choices=RECIPES, default=RECIPES[0])
    given = parser.parse_args()

    signatures = Interpreter(model_path=str(given.fp32))
    signature = next(iter(signatures.get_signature_list()), None)
    if signature is None:
        raise SystemExit("the file has no signature, by which litert-quantizer names its inputs")
    inputs = signatures.get_signature_runner(signature).get_input_details()
    shapes = {name: tuple(one["shape"]) for name, one in inputs.items()}

    tool = quantizer.Quantizer(str(given.fp32))
    tool.load_quantization_recipe(getattr(recipe, given.recipe)())
    if tool.need_calibration:
        calibrated = tool.calibrate({signature: samples(given.calibration, shapes)})
        result = tool.quantize(calibrated)
    else:
        result = tool.quantize()
    result.export_model(str(given.out), overwrite=True)


if __name__ == "__main__":
    main()
