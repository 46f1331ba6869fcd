"""Runs in a process of its own: OpenVINO on pickled jobs (model, batch); results and names of
kernels, pickled.
"""

import pickle
import sys
from pathlib import Path
from typing import Any

import openvino

PLAIN = {
    "INFERENCE_PRECISION_HINT": "f32",
    "EXECUTION_MODE_HINT": "ACCURACY",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
}
PRODUCTS = ("Convolution", "FullyConnected", "MatMul")


def answer(core: Any, model: bytes, batch: Any) -> tuple[Any, list[str]]:
    """The first output for one batch, and the kernels that ran its products."""
    compiled = core.compile_model(
        core.read_model(model), "CPU", {**PLAIN, "INFERENCE_NUM_THREADS": 1}
    )
    infos = [one.get_rt_info() for one in compiled.get_runtime_model().get_ordered_ops()]
    kernels = [
        info["primitiveType"].astype(str)
        for info in infos
        if info["layerType"].astype(str) in PRODUCTS
    ]
    return compiled.create_infer_request().infer({"x": batch})[0].copy(), kernels


if __name__ == "__main__":
    jobs, answers = (Path(one) for one in sys.argv[1:])
    core = openvino.Core()
    answers.write_bytes(
        pickle.dumps([answer(core, *job) for job in pickle.loads(jobs.read_bytes())])
    )
