"""Runs in a process of its own, under QEMU: ONNX Runtime on pickled jobs (model, feeds,
options), answers pickled.
"""

import pickle
import sys
from pathlib import Path

import onnxruntime


def answer(model: bytes, feeds: dict, *, optimized: bool, precise: bool):
    """What the engine makes of one batch; of what it refuses, its message."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    if precise:
        options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions share no public parent
        return str(error)
    return session.run(None, feeds)[0]


if __name__ == "__main__":
    jobs, answers = (Path(one) for one in sys.argv[1:])
    answers.write_bytes(
        pickle.dumps([answer(*job[:2], **job[2]) for job in pickle.loads(jobs.read_bytes())])
    )
