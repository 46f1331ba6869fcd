"""What a sweep costs over the inferences in it: MobileNetV2 on three backends under eight schemas.

The cost is the wall clock of ``qbench sweep`` from its start to its end, with the float model on
each backend: reading, preparing the photographs, the fp32 run, the profile, planning, writing,
sessions, timing, tables. The inferences are those of its 27 cells: the seconds in which they
answered, as the sweep reports them. The bar is 1.3 times these, with samples, profile and fp32 run
in the cache or not; both are printed.

    python benchmarks/sweep_cost.py
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR = 1.3
BACKENDS = ("ort-cpu", "ort-cpu-noopt", "ort-cpu-precise")
SCHEMAS = (
    "w8a8_asym_pt",
    "w8a8_asym_pc",
    "w8a8_sym_pc",
    "w8a8_symu8_pc",
    "w8a8_asym_pc_pow2",
    "w8a8_asym_pc_entropy",
    "w8a8_asym_pc_percentile",
    "w8_sym_pc",
)


def sweep(folder: Path) -> tuple[float, float]:
    """Seconds of one sweep, and of the inferences in it."""
    command = [
        *(sys.executable, "-m", "qbench", "sweep", "mobilenet_v2", "--data", "labelled_photos"),
        *("--calib", "calibration_crops", "--calib-samples", "64", "--json"),
        *("--backend", ",".join(BACKENDS), "--schema", ",".join(SCHEMAS)),
        *("--cache", str(folder / "cache"), "--results", str(folder / "results.jsonl")),
    ]
    started = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    spent = time.perf_counter() - started
    cells = json.loads(done.stdout)["cells"]
    lacking = [cell["cell"] for cell in cells if cell["state"] != "measured"]
    if lacking or len(cells) != len(BACKENDS) * (len(SCHEMAS) + 1):
        raise SystemExit(f"not measured: {lacking or len(cells)}")
    return spent, sum(cell["seconds"]["inference"] for cell in cells)


def main() -> int:
    """Measure with an empty cache and with a filled one; 1 when one is beyond the bar."""
    missed = False
    with tempfile.TemporaryDirectory(prefix="qbench-sweep-") as name:
        for words in ("empty", "filled"):
            spent, inferences = sweep(Path(name))
            ratio = spent / inferences
            print(
                f"{words} cache: {spent:.1f} s, inferences {inferences:.1f} s: {ratio:.2f} times, "
                f"bar {BAR}"
            )
            missed |= ratio > BAR
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
