"""What fitted codes of weights win: agreement with fp32, signal over noise, seconds and memory.

    python benchmarks/rounding_fit.py [--bits 4] [model …]

Weights per channel in so many bits, activations in 8 (``w4a8_asym_pc``): codes to the nearest,
biases corrected, and codes fitted (``…_fit``), each calibrated on the same samples. A process for
each model, so that peak memory is its own.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from qbench.backends import get_backend
from qbench.evaluation import MetricUse, Subject, SubjectArtifacts
from qbench.metrics import Answers, get_metric
from qbench.quantization import get_schema
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model

DATA: Mapping[str, tuple[str, str, int, int]] = {
    "digits_cnn": ("digits_test", "digits_train", 360, 256),
    "fashion_mobile": ("fashion_test", "fashion_calibration", 1000, 256),
    "squeezenet": ("photo_crops", "calibration_crops", 200, 64),
    "mobilenet_v2": ("photo_crops", "calibration_crops", 200, 64),
}
"""Model → samples that are scored, samples of calibration, how many of each."""
ENGINE = "ort-cpu-noopt"


def work_of(name: str) -> SubjectArtifacts:
    """The subject, in the user's cache."""
    scored, calibration, many, few = DATA[name]
    data = get_dataset(scored)
    subject = Subject(
        model=get_model(name),
        data={data.id: data.take(min(many, len(data)))},
        metrics=(MetricUse("agreement", get_metric("agreement"), data.id),),
        calibration=get_dataset(calibration).take(few),
    )
    return SubjectArtifacts(subject, Cache.default(), get_backend("ort-cpu"), "benchmark")


def decibels(reference: Answers, answers: Answers) -> float:
    """Signal over noise of the outputs."""
    assert reference.outputs is not None
    assert answers.outputs is not None
    real = reference.outputs.values.astype(np.float64)
    noise = real - answers.outputs.values
    return float(10 * np.log10(np.square(real).sum() / np.square(noise).sum()))


def measure(name: str, bits: int) -> None:
    """Print the rows of one model."""
    shared, backend = work_of(name), get_backend(ENGINE)
    (data,) = shared.subject.data.values()
    reference = shared.reference()[data.id]
    plain = get_schema(f"w{bits}a8_asym_pc")
    schemas: dict[str, Any] = {
        "nearest": plain,
        "nearest, biases corrected": replace(plain, bias_correction=True),
        "fitted": get_schema(f"w{bits}a8_asym_pc_fit"),
    }
    shared.quantized(replace(plain, name="warm"), backend.capabilities)
    for words, schema in schemas.items():
        start = time.process_time()
        models = shared.quantized(schema, backend.capabilities).models
        spent = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answers = shared.answer(backend, models, data, threads=1)
        agreement = get_metric("agreement").count(answers, None, reference).hits.mean()
        print(
            f"| {name} | {words} | {agreement:.1%} | {decibels(reference, answers):.1f} | "
            f"{spent:.1f} | {peak:.0f} |",
            flush=True,
        )
        shared.forget(schema, backend.capabilities)


def main() -> int:
    """A table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("models", nargs="*", help=", ".join(DATA))
    parser.add_argument("--bits", type=int, default=4, help="of weights")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        measure(arguments.one, arguments.bits)
        return 0
    print("| model | codes | agreement | dB | s of processor | MB at most so far |")
    print("|---|---|--:|--:|--:|--:|", flush=True)
    for name in arguments.models or DATA:
        command = [sys.executable, __file__, "--one", name, "--bits", str(arguments.bits)]
        if subprocess.run(command, check=False).returncode:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
