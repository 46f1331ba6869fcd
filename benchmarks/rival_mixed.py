"""NNCF's accuracy control on one network, its evaluations counted: what ``sweep --mixed`` is
compared with.

    python rival_mixed.py NET.onnx CALIBRATION.npz VALIDATION.npz [--drop 0.001]

Runs in an environment of its own (nncf==3.4.0 onnx==1.23.2 onnxruntime==1.32.0) and needs nothing
of qbench. Each ``.npz`` holds one array for the input; the validation file holds ``labels`` too.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np


def arrays(path: str, name: str) -> tuple[Any, Any]:
    """The samples for the input ``name``, and the labels where the file has them."""
    with np.load(path) as file:
        samples = file[name] if name in file else file[file.files[0]]
        return samples, dict(file).get("labels")


def main() -> int:
    """One line of JSON: accuracy before and after, evaluations, seconds of processor time."""
    import nncf
    import onnx
    import onnxruntime as ort

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("calibration")
    parser.add_argument("validation")
    parser.add_argument("--drop", type=float, default=0.001, help="of accuracy that is accepted")
    arguments = parser.parse_args()
    model = onnx.load(arguments.model)
    name = model.graph.input[0].name
    calibration, _ = arrays(arguments.calibration, name)
    validation, labels = arrays(arguments.validation, name)
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
        model,
        calibration_dataset=nncf.Dataset([{name: row[None]} for row in calibration], fed),
        validation_dataset=nncf.Dataset(pairs, fed),
        validation_fn=evaluated,
        max_drop=arguments.drop,
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
