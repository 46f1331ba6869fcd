"""Espressif's esp-ppq on ONNX: ``esp_ppq_quantize.py FP32 CALIBRATION OUT [--target T]``.

Scales are powers of two, as its chips shift. Every sample has the shape of the first: the graph
it writes is for that shape.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import torch
from esp_ppq.api import espdl_quantize_onnx, export_ppq_graph
from esp_ppq.core import TargetPlatform

NEWEST_OPSET = 18
"""Newer operators are not read."""

TARGETS = ("esp32p4", "esp32s3")


def main() -> None:
    """Read the arguments, write the quantized model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp32", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", choices=TARGETS, default=TARGETS[0])
    given = parser.parse_args()

    arrays = {name: torch.from_numpy(array) for name, array in np.load(given.calibration).items()}
    count = len(next(iter(arrays.values())))
    model = onnx.load(given.fp32)
    names = [one.name for one in model.graph.input if one.name in arrays]
    samples = [[arrays[name][i : i + 1] for name in names] for i in range(count)]
    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    if opset > NEWEST_OPSET:
        model = onnx.version_converter.convert_version(model, NEWEST_OPSET)
    with TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.onnx"
        onnx.save(model, ready)
        graph = espdl_quantize_onnx(
            onnx_import_file=str(ready),
            espdl_export_file=str(Path(folder) / "chip.espdl"),
            calib_dataloader=[one if len(names) > 1 else one[0] for one in samples],
            calib_steps=count,
            input_shape=[list(one.shape) for one in samples[0]],
            inputs=None,
            target=given.target,
            num_of_bits=8,
            device="cpu",
            error_report=False,
        )
        written = Path(folder) / "quantized.onnx"
        export_ppq_graph(
            graph,
            TargetPlatform.ONNXRUNTIME,
            str(written),
            config_save_to=str(Path(folder) / "settings.json"),
        )
        onnx.save(onnx.load(written), given.out)


if __name__ == "__main__":
    main()
