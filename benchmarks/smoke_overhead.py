"""What a warm smoke run costs over its inference: wall time ≤ 1.3 × Σ inference + 15 s, both of
one and the same run.

Inference is what the cells' lines of the run file say (`seconds.inference`), which leaves out
quantizing, loading and judging. The first run only warms the cache; the second is measured.

    python benchmarks/smoke_overhead.py [suite [workers]]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FACTOR, CONSTANT_S = 1.3, 15.0


def run(suite: str, workers: str, history: Path) -> tuple[float, list[dict[str, object]]]:
    """Wall seconds of one pytest run of ``suite``, and the cell lines of its run file; green or
    red does not matter.
    """
    command = [sys.executable, "-m", "pytest", suite, "-q", "-n", workers, "--dist", "loadscope"]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--qbench-history", str(history)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ,
    )
    wall = time.perf_counter() - started
    files = sorted(history.glob("**/*.jsonl"))
    if done.returncode not in (0, 1) or not files:
        sys.exit(
            f"the run ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    lines = [json.loads(line) for line in files[-1].read_text().splitlines()]
    return wall, [line for line in lines if line["type"] == "cell"]


def main() -> int:
    """Measure and print; 1 when beyond the bar."""
    suite = sys.argv[1] if len(sys.argv) > 1 else "suites/smoke.qbench.toml"
    workers = sys.argv[2] if len(sys.argv) > 2 else "2"
    with tempfile.TemporaryDirectory(prefix="qbench-overhead-") as folder:
        first, _ = run(suite, workers, Path(folder, "first"))
        wall, cells = run(suite, workers, Path(folder, "second"))
    times: dict[str, list[float]] = {}
    for cell in cells:
        seconds = cell.get("seconds") or {}
        assert isinstance(seconds, dict)
        times.setdefault(str(cell["model"]), []).append(seconds.get("inference", 0.0))
    print(f"{'model':24}  {'cells':>5}  {'inference s':>11}")
    for model, values in times.items():
        print(f"{model:24}  {len(values):5}  {sum(values):11.2f}")
    inference = sum(map(sum, times.values()))
    bar = FACTOR * inference + CONSTANT_S
    print(f"{'all':24}  {len(cells):5}  {inference:11.2f}")
    print(
        f"first run {first:.1f} s, warm run {wall:.1f} s = {wall / inference:.2f} × inference, "
        f"with {workers} workers"
    )
    print(
        f"bar {FACTOR} × {inference:.1f} + {CONSTANT_S:.0f} = {bar:.1f} s: "
        f"{'within' if wall <= bar else 'BEYOND'}"
    )
    return 0 if wall <= bar else 1


if __name__ == "__main__":
    sys.exit(main())
