"""NNCF's accuracy control on one network, its evaluations counted: what ``sweep --mixed`` is
compared with.

    python rival_mixed.py NET.onnx CALIBRATION.npz VALIDATION.npz [--drop 0.001]

Runs in an environment of its own (nncf==3.4.0 onnx==1.23.2 onnxruntime==1.32.0) and needs nothing
of qbench. Each ``.npz`` holds one array for the input; the validation file holds ``labels`` too.
"""

import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from rival_samples import read_task

if TYPE_CHECKING:
    import onnx


def main() -> int:
    """One line of JSON: accuracy before and after, evaluations, seconds of processor time."""
    import nncf
    import onnxruntime as ort

    task = read_task(__doc__)
    name, validation, labels = task.name, task.validation, task.labels
    found: list[float] = []

    def evaluated(candidate: "onnx.ModelProto", data: Iterable[Any]) -> tuple[float, list[float]]:
        raw = candidate.SerializeToString()
        session = ort.InferenceSession(raw, providers=["CPUExecutionProvider"])
        hits = [
            float(np.argmax(session.run(None, {name: sample[name]})[0]) == label)
            for sample, label in data
        ]
        found.append(sum(hits) / len(hits))
        return found[-1], hits

    def fed(pair: object) -> object:
        return pair[0] if isinstance(pair, tuple) else pair

    pairs = [({name: row[None]}, label) for row, label in zip(validation, labels, strict=True)]
    began = time.process_time()
    nncf.quantize_with_accuracy_control(
        task.model,
        calibration_dataset=nncf.Dataset([{name: row[None]} for row in task.calibration], fed),
        validation_dataset=nncf.Dataset(pairs, fed),
        validation_fn=evaluated,
        max_drop=task.drop,
    )
    facts = {
        "nncf": nncf.__version__,
        "evaluations": len(found),
        "accuracy": found,
        "seconds": round(time.process_time() - began, 1),
    }
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
