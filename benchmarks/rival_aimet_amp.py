"""AIMET's mixed precision (AMP) on one network, its evaluations counted: what ``sweep --mixed`` is
compared with.

    python rival_aimet_amp.py NET.onnx CALIBRATION.npz VALIDATION.npz [--drop 0.001]

Candidates are 4-bit weights with 8-bit activations, 8 with 8, and 16 with 16. Runs in AIMET's own
environment (``engines/qbench_engines/quantizers/aimet.txt``) and needs nothing of qbench. Each
``.npz`` holds one array for the input; the validation file holds ``labels`` too.
"""

import json
import sys
import time
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rival_samples import read_task


def main() -> int:
    """One line of JSON: evaluations, accuracy in their order, seconds of processor time."""
    import aimet_onnx
    from aimet_onnx import QuantizationSimModel
    from aimet_onnx.common.defs import CallbackFunc, QuantizationDataType
    from aimet_onnx.mixed_precision import choose_mixed_precision

    task = read_task(__doc__)
    name, validation, labels = task.name, task.validation, task.labels
    found: list[float] = []

    def evaluated(session: Any, _: object) -> float:  # noqa: ANN401 - of ONNX Runtime
        answers = [session.run(None, {name: row[None]})[0].argmax() for row in validation]
        found.append(float(np.mean(np.asarray(answers) == labels)))
        return found[-1]

    def fed(session: Any, _: object) -> None:  # noqa: ANN401 - of ONNX Runtime
        for row in task.calibration:
            session.run(None, {name: row[None]})

    def bits(activation: int, weight: int) -> tuple[tuple[int, Any], tuple[int, Any]]:
        return (activation, QuantizationDataType.int), (weight, QuantizationDataType.int)

    began = time.process_time()
    simulated = QuantizationSimModel(task.model, param_type="int8", activation_type="int8")
    simulated.compute_encodings([{name: row[None]} for row in task.calibration])
    with TemporaryDirectory() as folder:
        front = choose_mixed_precision(
            simulated,
            [bits(8, 4), bits(8, 8), bits(16, 16)],
            CallbackFunc(evaluated),
            CallbackFunc(evaluated),
            task.drop,
            folder,
            True,
            CallbackFunc(fed),
            use_all_amp_candidates=True,
        )
    facts = {
        "aimet": getattr(aimet_onnx, "__version__", ""),
        "evaluations": len(found),
        "accuracy": found,
        "front": None if front is None else [[round(one[0], 4), one[1]] for one in front],
        "seconds": round(time.process_time() - began, 1),
    }
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
