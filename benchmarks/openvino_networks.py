"""Whole networks on OpenVINO, compared with its arithmetic: the table of docs/evidence/engines.md.

    python benchmarks/openvino_networks.py                     this processor
    python benchmarks/openvino_networks.py --isa AVX2          its kernels for AVX2, without VNNI
    python benchmarks/openvino_networks.py --isa AVX512_CORE_FP16   those with VNNI, without AMX
    python benchmarks/openvino_networks.py --models digits_cnn

Each model is quantized once for each schema, for ``openvino``. A row counts the samples whose best
answer is that of exact sums (``ort-cpu-precise``), for OpenVINO and for the arithmetic, and the
elements of the first output that differ between these two.
"""

import argparse
import os
import sys
from dataclasses import replace

import numpy as np

SUBJECTS = {
    "digits_cnn": ("digits_test", "digits_train", 128, 360),
    "fashion_preact": ("fashion_test", "fashion_calibration", 64, 256),
    "mobilenet_v2": ("labelled_photos", "calibration_crops", 135, 104),
    "magika": ("magika_files", "magika_calibration", 64, 64),
}
SCHEMAS = ("w8a8_asym_pt", "w8a8_asym_pc", "w8a8_sym_pc")
EXACT, ENGINE = "ort-cpu-precise", "openvino"
LIMITED = {"AVX2": "openvino-avx2", "AVX512_CORE_FP16": "openvino-vnni"}
"""Instructions that oneDNN is limited to → the arithmetic that OpenVINO has with them."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(SUBJECTS))
    parser.add_argument("--isa", choices=LIMITED, help="instructions that oneDNN is limited to")
    given = parser.parse_args()
    if given.isa:
        os.environ["ONEDNN_MAX_CPU_ISA"] = given.isa
    # Behind the variable: oneDNN reads it once, when it is loaded.
    from qbench import get_backend
    from qbench.backends import arithmetic_of
    from qbench.evaluation import build_subject, subject_artifacts
    from qbench.quantization import get_schema

    own = arithmetic_of(get_backend(ENGINE))
    arithmetic = LIMITED.get(given.isa, own.name if own else "openvino-avx2")
    names = (EXACT, ENGINE, f"integer-{arithmetic}")
    print(
        f"| model | schema | `{ENGINE}` | `{names[2]}` | elements that differ | by at most |\n"
        "|---|---|--:|--:|--:|--:|"
    )
    for model in given.models:
        data, calibration, count, samples = SUBJECTS[model]
        subject = build_subject(model, data, calibration, ["agreement"], count)
        (scored,) = subject.data.values()
        scored = scored.pick(range(min(samples, len(scored))))
        shared = subject_artifacts(
            replace(subject, data={scored.id: scored}), get_backend("ort-cpu")
        )
        for schema in SCHEMAS:
            (graph,) = shared.quantized(
                get_schema(schema), get_backend(ENGINE).capabilities
            ).models.values()
            found: dict[str, np.ndarray] = {}
            for name in names:
                with get_backend(name).prepare(graph, threads=2) as executor:
                    batches = [
                        next(iter(executor.run(one).values()))
                        for one in shared.samples(scored).batches(8)
                    ]
                found[name] = np.concatenate(batches)
            exact, theirs, ours = (found[name].reshape(len(scored), -1) for name in names)
            same = [int((one.argmax(1) == exact.argmax(1)).sum()) for one in (theirs, ours)]
            differ, most = int((theirs != ours).sum()), float(np.abs(theirs - ours).max())
            row = (
                f"{same[0]}/{len(exact)} | {same[1]}/{len(exact)} | {differ} of {theirs.size} "
                f"| {most:.3g}"
            )
            print(f"| {model} | {schema} | {row} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
