"""The zoo under the exact pipeline: nodes that each pass removes, and that no bit of an output
moves by any of them.

    python benchmarks/zoo_rewrites.py [MODEL …]

Each network is quantized by qbench and, as other people's graphs have more to remove, by ONNX
Runtime's own ``quantize_static``. Every pass runs by itself and then the whole pipeline; each time
the outputs on real samples are compared bit for bit, in the QDQ graph node by node and on the ideal
integer machine. Exit status 1: a bit moved.
"""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from qbench.calibration import calibrate
from qbench.graph import load_model, save_model
from qbench.interpreter import Program
from qbench.numerics import get_arithmetic
from qbench.passes import (
    Pipeline,
    Policy,
    canonicalize,
    lower_to_integers,
    run_pipeline,
    standard_pipeline,
)
from qbench.quantization import make_plan, quantize_model
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples

SUBJECTS = {
    "digits_cnn": "digits_test",
    "magika": "magika_files",
    "fashion_mobile": "fashion_test",
    "squeezenet": "photo_crops_128",
    "mobilenet_v2": "photo_crops_128",
    "efficientnet_lite0": "photo_crops_128",
}
SCHEMA = "w8a8_asym_pc"
SAMPLES = 4

Feeds = Mapping[str, np.ndarray]


def quantized(name: str) -> Iterator[tuple[str, ir.Model, Feeds]]:
    """(by whom, the QDQ graph, a batch of real samples)."""
    zoo = get_model(name)
    dataset = get_dataset(SUBJECTS[name])
    samples = prepare_samples(dataset, zoo.preprocess, Cache.default())
    feeds = next(iter(samples.batches(SAMPLES)))
    model = next(iter(zoo.graphs.values()))()
    yield (
        "qbench",
        quantize_model(model, make_plan(model, calibrate(model, [feeds]), SCHEMA)),
        feeds,
    )
    yield "onnxruntime", by_onnxruntime(canonicalize(model), feeds), feeds


def by_onnxruntime(model: ir.Model, feeds: Feeds) -> ir.Model:
    """What ``quantize_static`` writes, with activations kept
    and a pair of its own for every reader.
    """
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Once(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = [dict(feeds)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self._left.pop() if self._left else None

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "qdq.onnx")
        save_model(model, source)
        quantize_static(
            source,
            target,
            Once(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            extra_options={"QDQKeepRemovableActivations": True, "DedicatedQDQPair": True},
        )
        return load_model(target)


def outputs(model: ir.Model, feeds: Feeds) -> list[bytes]:
    """Every output, node by node in float and on the ideal machine, as bytes."""
    ideal = get_arithmetic("ideal")
    runs = (Program(model, ideal), Program(lower_to_integers(model), ideal))
    return [array.tobytes() for run in runs for _, array in sorted(run.run(feeds).items())]


def checked(
    model: ir.Model, feeds: Feeds, before: list[bytes], pipeline: Pipeline
) -> tuple[int, int]:
    """(nodes removed, outputs whose bits moved) by ``pipeline``."""
    done = run_pipeline(model, pipeline, Policy.EXACT)
    now = outputs(done.model, feeds)
    return done.removed, sum(a != b for a, b in zip(before, now, strict=True))


def main() -> int:
    """Print the table; the exit status."""
    standard, moved_ever = standard_pipeline(Policy.EXACT), 0
    print(
        "| network | written by | nodes | removed by the pipeline | by each pass alone "
        "| outputs moved |"
    )
    print("|---|---|---|---|---|---|")
    for name in sys.argv[1:] or SUBJECTS:
        for author, model, feeds in quantized(name):
            before = outputs(model, feeds)
            alone = {
                one.name: checked(model, feeds, before, Pipeline((one,))) for one in standard.passes
            }
            removed, moved = checked(model, feeds, before, standard)
            moved += sum(count for _, count in alone.values())
            moved_ever += moved
            each = (
                ", ".join(f"{which} {count}" for which, (count, _) in alone.items() if count)
                or "none"
            )
            print(
                f"| {name} | {author} | {len(model.graph)} | {removed} | {each} | {moved} |",
                flush=True,
            )
    return int(moved_ever > 0)


if __name__ == "__main__":
    sys.exit(main())
