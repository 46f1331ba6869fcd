"""What a plan of a night of 480,000 cells costs, and what one of its jobs costs before it measures.

    3,000 models × 20 backends × 8 schemas; models and backends are names that nothing makes

The times of the history are made up: a cell takes 0.02 to 20 s, as its model does, evenly by the
logarithm. Each number is of one process, from its start to its end: wall time, processor time and
peak memory.

Run: python benchmarks/plan_scale.py [--jobs 50] [--nights 1] [--shard]
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MODELS, BACKENDS = 3000, 20
SCHEMAS = (
    *("w8a8_asym_pt", "w8a8_asym_pc", "w8a8_sym_pt", "w8a8_sym_pc"),
    *("w8a8_symu8_pt", "w8a8_symu8_pc", "w4a8_asym_pc", "w8a8_asym_pc_pow2"),
)
CELLS = MODELS * BACKENDS * len(SCHEMAS)
PLAN_S, PLAN_MB, COLLECT_S, COLLECT_MB = 20.0, 500, 2.0, 300

CONFTEST = f"""
from qbench.extension import Extension


def pytest_qbench_extension():
    names = lambda stem, count: dict.fromkeys((f"{{stem}}{{i}}" for i in range(count)), object)
    return Extension(
        name="benchmark",
        models=names("net", {MODELS}),
        datasets=names("data", 2),
        backends=names("engine", {BACKENDS}),
    )
"""


class Cost(NamedTuple):
    """Wall and processor time, peak memory in MB, and standard output of a process."""

    seconds: float
    busy: float
    megabytes: float
    output: str


def write_project(folder: Path, nights: int) -> None:
    """The suite, its extension, and a history of so many ``nights``."""
    (folder / "suites").mkdir()
    (folder / "none").mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    backends = [f"engine{i}" for i in range(BACKENDS)]
    text = f"[suite]\nfp32 = false\nreference = 'engine0'\nbackends = {backends}\n"
    text += f"schemas = {list(SCHEMAS)}\n"
    for model in range(MODELS):
        text += (
            f'[[model]]\nid = "net{model}"\ndata = "data0"\nmetrics = ["top1"]\n'
            'calibration = { data = "data1", count = 8 }\n'
        )
    (folder / "suites" / "night.qbench.toml").write_text(text)
    for night in range(nights):
        path = folder / "reports" / "history" / f"night{night}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines_of(night))


def lines_of(night: int) -> Iterator[dict[str, object]]:
    """A run file with the axes and times of its cells, and little else."""
    yield {
        "type": "run",
        "format": "qbench-run/1",
        "id": f"night{night}",
        "suite": "night",
        "started": f"2026-11-{night + 1:02d}T00:00:00+00:00",
        "planned": CELLS,
        "selected": CELLS,
    }
    for model in range(MODELS):
        usual = 0.02 * 1000 ** random.Random(model).random()
        for backend in range(BACKENDS):
            for schema in SCHEMAS:
                yield {
                    "type": "cell",
                    "suite": "night",
                    "model": f"net{model}",
                    "backend": f"engine{backend}",
                    "schema": schema,
                    "variant": "",
                    "outcome": "passed",
                    "environment_class": "x64-avx2",
                    "seconds": {"run": round(usual * (1 + backend / BACKENDS), 4)},
                }
    yield {"type": "end", "exit_code": 0}


def cost_of(folder: Path, *words: str) -> Cost:
    """Run Python on ``words`` in ``folder``.

    Raises:
        SystemExit: it fails.
    """
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(output[-2000:])
    seconds = time.perf_counter() - start
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, output)


def plan(folder: Path, jobs: int, history: str) -> Cost:
    """Plan the night."""
    program = "import sys, qbench.cli; sys.exit(qbench.cli.main(sys.argv[1:]))"
    words = ("plan", "night", "--jobs", str(jobs), "-o", "plan.json", "--history", history)
    return cost_of(folder, "-c", program, *words)


def collect(folder: Path, *options: str) -> Cost:
    """Collect the items of the option, which pytest lists."""
    plugins = ("-p", "no:hypothesispytest", "-p", "no:cacheprovider")
    return cost_of(folder, "-m", "pytest", *plugins, "--collect-only", "-qq", *options)


def main() -> None:
    """Print a row per process: seconds, MB, and their bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--nights", type=int, default=1)
    parser.add_argument("--shard", action="store_true", help="also collect by --qbench-shard")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder, arguments.nights)
        row("", "seconds", "busy", "bar", "MB", "bar")
        known = plan(folder, arguments.jobs, "reports/history")
        cost(f"plan, {arguments.nights} nights known", known, PLAN_S, PLAN_MB)
        planned = json.loads((folder / "plan.json").read_text())
        sizes = [sum(unit["cells"] for unit in job["units"]) for job in planned["jobs"]]
        largest = sizes.index(max(sizes)) + 1
        job = collect(folder, f"--qbench-job=plan.json#{largest}")
        cost(f"collect the largest job, {max(sizes)} cells", job, COLLECT_S, COLLECT_MB)
        cost("plan, nothing known", plan(folder, arguments.jobs, "none"), PLAN_S, PLAN_MB)
        job = collect(folder, "--qbench-job=plan.json#17")
        cost("collect a job of equal models", job, COLLECT_S, COLLECT_MB)
        if arguments.shard:
            shard = collect(folder, f"--qbench-shard=17/{arguments.jobs}", "suites")
            cost("collect a shard, without a plan", shard, COLLECT_S, COLLECT_MB)
    print()
    print(known.output.strip())
    print(f"cells of a job: {min(sizes)} to {max(sizes)}")


def row(what: str, *cells: str) -> None:
    """Print one line of the table."""
    print(f"{what:42}", *(f"{cell:>8}" for cell in cells))


def cost(what: str, found: Cost, seconds: float, megabytes: int) -> None:
    """Print the line of one process."""
    times = (f"{found.seconds:.1f}", f"{found.busy:.1f}", f"{seconds:.0f}")
    numbers = (*times, f"{found.megabytes:.0f}", f"{megabytes}")
    row(what, *numbers)


if __name__ == "__main__":
    main()
