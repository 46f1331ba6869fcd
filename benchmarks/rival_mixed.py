"""NNCF's accuracy control on one network, its evaluations counted: what ``sweep --mixed`` is
compared with.

    python rival_mixed.py NET.onnx CALIBRATION.npz VALIDATION.npz [--drop 0.001] [--out OUT.onnx]

Runs in NNCF's own environment (``engines/qbench_engines/quantizers/nncf.txt``) and needs nothing
of qbench. Each ``.npz`` holds one array for the input; the validation file holds ``labels`` too,
(samples,) or (samples, most classes of one) with -1 behind the classes that count as right.
"""

import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rival_samples import read_task

if TYPE_CHECKING:
    import onnx


def main() -> int:
    """One line of JSON: accuracy before and after, evaluations, seconds of processor time."""
    import nncf
    import onnx
    import onnxruntime as ort

    task = read_task(__doc__)
    name = task.name
    found: list[float] = []
    runs: list[int] = []

    def evaluated(candidate: "onnx.ModelProto", data: Iterable[Any]) -> tuple[float, list[float]]:
        raw = candidate.SerializeToString()
        session = ort.InferenceSession(raw, providers=["CPUExecutionProvider"])
        hits = [
            hit
            for sample, at in data
            for hit in task.hits(session.run(None, sample)[0], slice(at, at + 1))
        ]
        found.append(sum(hits) / len(hits))
        runs.append(len(hits))
        return found[-1], hits

    def fed(pair: object) -> object:
        return pair[0] if isinstance(pair, tuple) else pair

    pairs = [({name: row[None]}, at) for at, row in enumerate(task.validation)]
    began = time.process_time()
    quantized = nncf.quantize_with_accuracy_control(
        task.model,
        calibration_dataset=nncf.Dataset([{name: row[None]} for row in task.calibration], fed),
        validation_dataset=nncf.Dataset(pairs, fed),
        validation_fn=evaluated,
        max_drop=task.drop,
        subset_size=len(task.calibration),
    )
    if task.out:
        onnx.save(quantized, task.out)
    facts = {
        "tool": f"NNCF {nncf.__version__}",
        "evaluations": len(found),
        "samples": runs,
        "accuracy": found,
        "seconds": round(time.process_time() - began, 1),
    }
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
