"""torchao's PT2E: ``torchao_quantize.py FP32 CALIBRATION OUT``.

The quantizer for x86 with its default settings: activations in uint8, weights in int8 per channel,
biases in float. The module that qbench's importer makes of the float graph is exported, prepared,
calibrated, converted, and written as Q/DQ by PyTorch's own exporter.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torchao.quantization.pt2e import move_exported_model_to_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)

from qbench_engines.torch_import import torch_module

OPSET = 21
FEWEST = 2
"""Samples in the example: the exporter takes an axis of size 1 for a fixed one."""


def samples(path: Path, names: list[str]) -> Iterator[tuple[torch.Tensor, ...]]:
    """Tensors of each sample in the order of the inputs ``names``."""
    arrays = dict(np.load(path))
    for i in range(len(arrays[names[0]])):
        yield tuple(torch.from_numpy(arrays[name][i : i + 1]) for name in names)


def open_axes(values: Any) -> tuple[dict[int, Any], ...]:  # noqa: ANN401 - protobuf
    """Of each input the axes whose size the float graph leaves open; equal names are one size."""
    sizes: dict[str, Any] = {}
    found = []
    for value in values:
        axes: dict[int, Any] = {}
        for axis, size in enumerate(value.type.tensor_type.shape.dim):
            if not size.HasField("dim_value"):
                word = size.dim_param or f"{value.name}_{axis}"
                axes[axis] = sizes.setdefault(word, torch.export.Dim.AUTO)
        found.append(axes)
    return tuple(found)


def main() -> None:
    """Read the arguments, write the quantized model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp32", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()

    graph = onnx.load(given.fp32, load_external_data=False).graph
    names = [value.name for value in graph.input]
    axes = open_axes(graph.input)
    is_free = any(axes)
    first = next(samples(given.calibration, names))
    example = tuple(torch.cat([one] * FEWEST) for one in first) if is_free else first
    shapes = axes if is_free else None
    exported = torch.export.export(torch_module(given.fp32), example, dynamic_shapes=shapes)
    quantizer = X86InductorQuantizer()
    quantizer.set_global(get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported.module(), quantizer)
    with torch.no_grad():
        for one in samples(given.calibration, names):
            prepared(*one)
    torch.onnx.export(
        move_exported_model_to_eval(convert_pt2e(prepared)),
        example,
        str(given.out),
        dynamo=True,
        opset_version=OPSET,
        input_names=names,
        output_names=[value.name for value in graph.output],
        dynamic_shapes=shapes,
        external_data=False,
    )


if __name__ == "__main__":
    main()
