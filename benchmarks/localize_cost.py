"""What localising costs: MobileNetV2 at 224 × 224 on 64 samples beside one int8 evaluation of
them, and its memory.

Processor time, that of the process in which units run alone included: the evaluation is that of the
int8 session on the same samples, prepared before. The bars are 30 evaluations, and 700 MB of peak
memory at 256 samples, which 64 must nearly reach too: it is flat. Memory is the peak of the process
itself, or of both, looked at twenty times a second with shared pages counted once, whichever is
more.

    python benchmarks/localize_cost.py [backend …]
"""

import subprocess
import sys
import time
from pathlib import Path

BACKENDS = ("ort-cpu", "integer-ort-x64")
RATIO_BAR, MEMORY_BAR, FLAT_BAR = 30, 700, 60
COUNTS = (64, 256)

CHILD = """
import os, resource, sys, time
from qbench.backends import get_backend
from qbench.diagnosis import Budget, LocalizeOptions, RepeatableCell, localize_verdict
from qbench.backends import engine_worker
from qbench.evaluation import MetricUse, Request, SubjectArtifacts, Subject
from qbench.judging import Cell, EnvironmentClass, Expectation, Outcome, Rules, Tolerance, Verdict
from qbench.metrics import get_metric
from qbench.quantization import get_schema
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model

backend, count = get_backend(sys.argv[1]), int(sys.argv[2])
data = get_dataset("photo_crops").take(count)
subject = Subject(
    model=get_model("mobilenet_v2"),
    data={data.id: data},
    calibration=get_dataset("calibration_crops").take(32),
    metrics=(MetricUse("agreement", get_metric("agreement"), data.id),),
)
shared = SubjectArtifacts(subject, Cache.default(), get_backend("ort-cpu"), "benchmark")
schema = get_schema("w8a8_asym_pc")
model = shared.quantized(schema, backend.capabilities).models["model"]
samples = shared.samples(data)
reference = shared.reference()
evaluation = 0.0
if count == 64:
    with backend.prepare(model) as executor:
        batches = list(samples.batches(8))
        executor.run(batches[0])
        started = time.process_time()
        for feeds in batches:
            executor.run(feeds)
        evaluation = time.process_time() - started
        del batches
request = Request(
    cell=Cell("cost", "mobilenet_v2", backend.name, schema.name), shared=shared, backend=backend,
    schema=schema, reference=reference, environment=EnvironmentClass("here"),
)
verdict = Verdict(outcome=Outcome.PASSED, headline="", rule="", gates=())
cell = RepeatableCell(request=request, judge=lambda _: verdict, rules="cost")
started = sum(os.times()[:4])
options = LocalizeOptions(samples=count, repairs=False)
found = localize_verdict(cell, verdict, Budget.begin(None, time.perf_counter), options=options)
engine_worker().close()
spent = sum(os.times()[:4]) - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
unit = 1 if sys.platform == "darwin" else 1024
print(evaluation, spent, peak * unit / 1e6, found.samples)
"""


def measure(backend: str, count: int) -> tuple[float, float, float]:
    """Seconds of one evaluation, seconds of localising, and peak MB, of a process of its own."""
    command = [sys.executable, "-c", CHILD, backend, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        both = 0.0
        while child.poll() is None:
            both = max(both, resident_mb(child.pid))
            time.sleep(0.05)
        text = child.communicate()[0].split()
    if child.returncode or int(text[3]) != count:
        raise SystemExit(f"it did not examine {count} samples")
    return float(text[0]), float(text[1]), max(float(text[2]), both)


def resident_mb(pid: int) -> float:
    """What a process and its children hold, shared pages counted once;
    0 where the system does not tell.
    """
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pages = [Path(f"/proc/{one}/smaps_rollup").read_text() for one in (pid, *children)]
    except OSError:  # no such system, or it has just ended
        return 0.0
    lines = (line.split() for text in pages for line in text.splitlines())
    return sum(int(words[1]) for words in lines if words[0] == "Pss:") * 1024 / 1e6


def main() -> int:
    """Measure and print; 1 when a bar is not met."""
    missed = False
    for backend in sys.argv[1:] or BACKENDS:
        found = {count: measure(backend, count) for count in COUNTS}
        evaluation, spent, few = found[COUNTS[0]]
        many = found[COUNTS[1]][2]
        ratio = spent / evaluation
        print(
            f"{backend}: one evaluation {evaluation:.2f} s, localising {spent:.1f} s: "
            f"{ratio:.1f} evaluations"
        )
        print(f"{backend}: peak {few:.0f} MB at {COUNTS[0]} samples, {many:.0f} MB at {COUNTS[1]}")
        missed |= ratio > RATIO_BAR or many > MEMORY_BAR or many - few > FLAT_BAR
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
