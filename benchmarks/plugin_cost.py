"""What the installed plugin costs a session that does not use it, and how long collecting
10,000 cells takes.

    cost  = median over pairs of (processor time with the plugin − without it), one process each, in
    turns ratio = median with / median without

Processor time, because it is the same on a busy machine; collecting is wall time, as a person waits
for it.

Run: python benchmarks/plugin_cost.py [--pairs 15]
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODELS, ENGINES, SCHEMAS = 100, 10, 9
COST_LIMIT_MS = 15.0
COLLECT_LIMIT_S = 2.0

CONFTEST = f"""
import time

import pytest
from qbench.extension import Extension

ready = []


def pytest_qbench_extension(config):
    names = lambda stem, count: dict.fromkeys((f"{{stem}}{{i}}" for i in range(count)), object)
    return Extension(
        name="benchmark",
        models=names("net", {MODELS}),
        datasets=names("data", 2),
        backends=names("engine", {ENGINES}),
        schemas=names("schema", {SCHEMAS}),
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node, ids):
    ready.append(len(ids))
    if len(ready) == 2:
        pytest.exit(f"collected {{ready}}", returncode=0)
"""


def project(folder: Path) -> None:
    """A suite of 10,000 cells, and one test that has nothing to do with it."""
    plain = folder / "plain"
    plain.mkdir()
    (plain / "test_nothing.py").write_text("def test_nothing(): pass\n")
    (plain / "pytest.ini").write_text("[pytest]\n")
    suites = folder / "many"
    suites.mkdir()
    (suites / "conftest.py").write_text(CONFTEST)
    (suites / "pytest.ini").write_text("[pytest]\n")
    engines, schemas = (
        [f"engine{i}" for i in range(ENGINES)],
        [f"schema{i}" for i in range(SCHEMAS)],
    )
    text = f"[suite]\nbackends = {engines}\nschemas = {schemas}\n"
    for index in range(MODELS):
        text += (
            f'[[model]]\nid = "net{index}"\ndata = "data0"\nmetrics = ["top1"]\n'
            'calibration = { data = "data1", count = 8 }\n'
        )
    (suites / "many.qbench.toml").write_text(text)


def seconds(folder: Path, *options: str, expected_end: str = "") -> tuple[float, float, str]:
    """Wall time and processor time of one pytest process (with its children) in ``folder``,
    and what it printed.

    ``expected_end``: what it prints where it ends before the tests; "": it runs to its end.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:hypothesispytest",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, check=False
    )
    wall, after = time.perf_counter() - start, os.times()
    busy = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    ended_as_expected = expected_end in done.stdout if expected_end else done.returncode == 0
    if not ended_as_expected:
        raise SystemExit(done.stdout + done.stderr)
    return wall, busy, done.stdout


def unused_cost(folder: Path, pairs: int) -> tuple[float, float, float]:
    """(cost in ms, median without in ms, ratio)."""
    with_it, without = [], []
    for turn in range(pairs + 1):
        _, a, _ = seconds(folder)
        _, b, _ = seconds(folder, "-p", "no:qbench")
        if turn:  # the first pair fills the caches
            with_it.append(a)
            without.append(b)
    cost = statistics.median(a - b for a, b in zip(with_it, without, strict=True))
    return (
        1e3 * cost,
        1e3 * statistics.median(without),
        statistics.median(with_it) / statistics.median(without),
    )


def import_cost() -> float:
    """Milliseconds of importing ``qbench.plugin`` beyond what pytest has loaded already,
    by -X importtime.
    """
    code = (
        "import pytest, argparse; import qbench.plugin, qbench.plugin.controller, "
        "qbench.plugin.hookspecs"
    )
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    own = [
        re.match(r"import time:\s+(\d+) \|\s+\d+ \|\s+qbench", line)
        for line in done.stderr.splitlines()
    ]
    return sum(int(found.group(1)) for found in own if found) / 1e3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project(folder)
        cost, without, ratio = unused_cost(folder / "plain", pairs)
        seconds(folder / "many", "--collect-only", "-qq")
        alone, busy, text = min(seconds(folder / "many", "--collect-only", "-qq") for _ in range(3))
        count = MODELS * ENGINES * (SCHEMAS + 1)
        assert f": {count}" in text
        workers, both, _ = min(
            seconds(
                folder / "many",
                *("-n", "2", "--dist", "loadscope"),
                expected_end=f"collected [{count}, {count}]",
            )
            for _ in range(3)
        )
    rows = [
        (
            "plugin installed, not used",
            f"{cost:+.1f} ms on {without:.0f} ms (× {ratio:.3f})",
            f"≤ {COST_LIMIT_MS:.0f} ms",
        ),
        ("  of which importing our modules", f"{import_cost():.1f} ms", ""),
        (
            "collecting 10,000 cells, whole process",
            f"{alone:.2f} s ({busy:.2f} s of processor)",
            f"< {COLLECT_LIMIT_S:.0f} s",
        ),
        (
            "the same with -n 2, until both workers have",
            f"{workers:.2f} s ({both:.2f} s)",
            f"< {COLLECT_LIMIT_S:.0f} s",
        ),
    ]
    for what, measured, limit in rows:
        print(f"{what:45} {measured:32} {limit}")


if __name__ == "__main__":
    main()
