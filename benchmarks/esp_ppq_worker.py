"""What esp-ppq's analysers say of faulty layers; runs alone, in an environment with esp-ppq.

    python benchmarks/esp_ppq_worker.py FOLDER

The folder holds ``float.onnx``, ``feeds.npz`` (one batch of the input), ``jobs.json`` and
``arrays.npz``. A job names parameters and values that are wrong: ``{"parameters": {"conv.weight":
"0"}, "ranges": {"conv": [scale, level]}}``; "0" is an array, and the level is that of zero, from
−128. ``answers.json`` gets a table a job: {analyser: {operation: noise}}, the noisiest is the
worst; null where a fault has no place in esp-ppq's graph.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from esp_ppq.IR import BaseGraph, Operation
    from numpy.lib.npyio import NpzFile

STEPS = 8
"""Of calibration; fewer are refused."""


def main(folder: Path) -> None:
    """Quantize the float graph as esp-ppq does, put every job's faults into it,
    and ask both analysers.
    """
    import numpy as np
    import torch
    from esp_ppq.api import QuantizationSettingFactory, quantize_onnx_model
    from esp_ppq.core import TargetPlatform

    torch.set_num_threads(1)
    (feed,) = np.load(folder / "feeds.npz").values()
    size = max(1, len(feed) // STEPS)
    batches = [torch.from_numpy(feed[start : start + size]) for start in range(0, len(feed), size)]
    setting = QuantizationSettingFactory.default_setting()
    graph = quantize_onnx_model(
        onnx_import_file=str(folder / "float.onnx"),
        calib_dataloader=batches * -(-STEPS // len(batches)),
        calib_steps=max(len(batches), STEPS),
        input_shape=list(batches[0].shape),
        platform=TargetPlatform.ONNXRUNTIME,
        setting=setting,
        device="cpu",
    )
    arrays = np.load(folder / "arrays.npz")
    alone = layerwise(graph, batches, set(graph.operations))
    answers = []
    for job in json.loads((folder / "jobs.json").read_text()):
        undo: list[Callable[[], None]] = []
        touched = put(graph, job, arrays, undo)
        if touched:
            answers.append(
                {
                    "graphwise": graphwise(graph, batches),
                    "layerwise": alone | layerwise(graph, batches, touched),
                }
            )
        else:
            answers.append(None)
        for one in undo:
            one()
        print(f"  esp-ppq: {len(answers)} asked", file=sys.stderr, flush=True)
    (folder / "answers.json").write_text(json.dumps(answers))


def graphwise(graph: "BaseGraph", batches: list[Any]) -> dict[str, float]:
    """Operation → power of the noise over that of the signal, with all before it quantized too."""
    from esp_ppq.quantization.analyse import graphwise_error_analyse

    # it stops behind the batch with the index ``steps``
    found = graphwise_error_analyse(
        graph, "cpu", batches, method="snr", steps=len(batches) - 1, verbose=False
    )
    return dict(found)


def layerwise(graph: "BaseGraph", batches: list[Any], names: set[str]) -> dict[str, float]:
    """Operation of ``names`` → noise at the graph's outputs when it alone is quantized.

    The analyser asks every operation that computes. No operation's number depends on another's
    faults, so that all but the touched ones are asked once.
    """
    from esp_ppq.IR import Operation
    from esp_ppq.quantization.analyse import layerwise_error_analyse

    computes = Operation.is_computing_op
    Operation.is_computing_op = property(lambda self: self.name in names and computes.fget(self))
    try:
        found = layerwise_error_analyse(
            graph,
            batches,
            running_device="cpu",
            method="snr",
            steps=len(batches) - 1,
            verbose=False,
        )
    finally:
        Operation.is_computing_op = computes
    return dict(found or {})


def put(
    graph: "BaseGraph", job: dict[str, Any], arrays: "NpzFile", undo: list[Callable[[], None]]
) -> set[str]:
    """Put a job's faults into the quantized side of ``graph``; the operations touched, none
    where one has no place.

    Args:
        undo: gets what sets all of it back.
    """
    import torch

    touched = set()
    for name, key in job["parameters"].items():
        variable = graph.variables.get(name)
        if variable is None or tuple(variable.value.shape) != arrays[key].shape:
            return set()
        undo.append(restoring(variable, "value", variable.value))
        variable.value = torch.from_numpy(arrays[key])
        touched |= {operation.name for operation in variable.dest_ops}
    for name, (scale, level) in job["ranges"].items():
        variable = graph.variables.get(name)
        config = None if variable is None else variable.source_op_config
        if config is None or config.dominated_by.state.name != "ACTIVATED":
            return set()
        root = config.dominated_by
        undo += [restoring(root, "scale", root.scale), restoring(root, "offset", root.offset)]
        root.scale, root.offset = torch.tensor(scale), torch.tensor(float(level))
        touched |= {one.name for one in graph.operations.values() if root in roots(one)}
    return touched


def roots(operation: "Operation") -> list[Any]:
    """The grids of its operands and results, those that share one as one;
    none where it stays in float.
    """
    if not hasattr(operation, "config"):
        return []
    return [one.dominated_by for one, _ in operation.config_with_variable]


def restoring(thing: object, attribute: str, value: object) -> Callable[[], None]:
    """A call that sets it back."""
    return lambda: setattr(thing, attribute, value)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(Path(sys.argv[1]))
    else:
        print(__doc__)
