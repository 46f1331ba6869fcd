"""AIMET's mixed precision (AMP) on one network, its evaluations counted: what ``sweep --mixed`` is
compared with.

    python rival_aimet_amp.py NET.onnx CALIBRATION.npz VALIDATION.npz [--drop 0.001]
        [--out OUT.onnx]

Candidates are 4-bit weights with 8-bit activations, 8 with 8, and 16 with 16; weights have a scale
for each channel. Runs in AIMET's own environment (``engines/qbench_engines/quantizers/aimet.txt``)
and needs nothing of qbench. The files are those of ``rival_mixed.py``.
"""

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rival_samples import read_task

AT_ONCE = 8
"""Samples in a run."""


def batches(samples: Any) -> list[Any]:  # noqa: ANN401 - an array
    """``samples``, few at a time."""
    return [samples[at : at + AT_ONCE] for at in range(0, len(samples), AT_ONCE)]


def main() -> int:
    """One line of JSON: evaluations, accuracy in their order, seconds of processor time."""
    import aimet_onnx
    import onnx
    from aimet_onnx import QuantizationSimModel
    from aimet_onnx.common.defs import CallbackFunc, QuantizationDataType
    from aimet_onnx.common.quantsim_config import quantsim_config
    from aimet_onnx.mixed_precision import choose_mixed_precision

    task = read_task(__doc__)
    found: list[float] = []
    calibration = [{task.name: row} for row in batches(task.calibration)]

    def evaluated(session: Any, _: object) -> float:  # noqa: ANN401 - of ONNX Runtime
        answers = [session.run(None, {task.name: row})[0] for row in batches(task.validation)]
        hits = task.hits(np.concatenate(answers))
        found.append(sum(hits) / len(hits))
        return found[-1]

    def fed(session: Any, _: object) -> None:  # noqa: ANN401 - of ONNX Runtime
        for feeds in calibration:
            session.run(None, feeds)

    def bits(activation: int, weight: int) -> tuple[tuple[int, Any], tuple[int, Any]]:
        return (activation, QuantizationDataType.int), (weight, QuantizationDataType.int)

    began = time.process_time()
    settings = Path(quantsim_config.__file__).parent / "default_config_per_channel.json"
    simulated = QuantizationSimModel(
        task.model, param_type="int8", activation_type="int8", config_file=str(settings)
    )
    simulated.compute_encodings(calibration)
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
    if task.out:
        onnx.save(
            simulated.to_onnx_qdq(prequantize_constants=True, export_int32_bias=True), task.out
        )
    facts = {
        "tool": f"AIMET {getattr(aimet_onnx, '__version__', '')}",
        "evaluations": len(found),
        "samples": [len(task.validation)] * len(found),
        "accuracy": found,
        "front": None if front is None else [[round(one[0], 4), one[1]] for one in front],
        "seconds": round(time.process_time() - began, 1),
    }
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
