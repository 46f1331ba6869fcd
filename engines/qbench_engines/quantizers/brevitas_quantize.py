"""Brevitas: ``brevitas_quantize.py FP32 CALIBRATION OUT``.

Its graph mode with 8 bits for weights and activations, on the module that qbench's importer makes
of the float graph, written as Q/DQ.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from brevitas.export import export_onnx_qcdq
from brevitas.graph.calibrate import calibration_mode
from brevitas.graph.quantize import preprocess_for_quantize, quantize

from qbench_engines.torch_import import torch_module

OPSET = 17
"""Its Q/DQ with a Clip between them is written for this one."""


def samples(path: Path, names: list[str]) -> Iterator[tuple[torch.Tensor, ...]]:
    """Tensors of one sample in the order of the inputs ``names``, for each."""
    arrays = dict(np.load(path))
    for i in range(len(arrays[names[0]])):
        yield tuple(torch.from_numpy(arrays[name][i : i + 1]) for name in names)


def open_axes(values: Any) -> dict[str, dict[int, str]]:  # noqa: ANN401 - protobuf
    """Name → axes whose size the float graph leaves open."""
    return {
        value.name: {
            axis: size.dim_param or f"size_{axis}"
            for axis, size in enumerate(value.type.tensor_type.shape.dim)
            if not size.HasField("dim_value")
        }
        for value in values
    }


def main() -> None:
    """Read the arguments, write the quantized model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp32", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()

    graph = onnx.load(given.fp32, load_external_data=False).graph
    names = [value.name for value in graph.input]
    module = preprocess_for_quantize(torch_module(given.fp32))
    quantized = quantize(module)
    feeds = list(samples(given.calibration, names))
    with torch.no_grad(), calibration_mode(quantized):
        for one in feeds:
            quantized(*one)
    quantized.eval()
    with torch.no_grad():
        quantized(*feeds[0])  # it keeps what the writer needs
    export_onnx_qcdq(
        quantized,
        args=feeds[0],
        export_path=str(given.out),
        opset_version=OPSET,
        dynamo=False,
        input_names=names,
        output_names=[value.name for value in graph.output],
        dynamic_axes=open_axes([*graph.input, *graph.output]),
    )


if __name__ == "__main__":
    main()
