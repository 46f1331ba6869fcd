"""Two years of nightly runs, made up: how long the index takes to build and to update, and one
series to be read.

    730 runs × 360 cells × 8 metrics = 2,102,400 results

Lines are as long as real ones, and every cell has an accepted result: that of the first night. Wall
time, as a person waits for it, beside processor time, which a busy machine changes less; of 200
queries the least and the middle one. `qbench history check` is run whole, with the index and
without. PostgreSQL is measured where $QBENCH_TEST_POSTGRES names a server (`bash .ci/with-postgres
.venv/bin/python benchmarks/two_years.py`).

Run: python benchmarks/two_years.py [--nights 730] [--keep DIR]
"""

import argparse
import datetime
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from qbench.judging import Accepted
from qbench.metrics import Answers
from qbench.tracking import (
    INDEX_FILE,
    AcceptedCell,
    Baseline,
    HistoryIndex,
    RunWriter,
    StoredData,
    Wanted,
    baseline_path,
    save_baseline,
)

MODELS, BACKENDS, SCHEMAS = 30, 3, 4
METRICS = [
    f"{name}@{data}"
    for data in ("photos", "crops")
    for name in ("top1", "top5", "agreement", "flips")
]
START = datetime.datetime(2024, 11, 22, 3, tzinfo=datetime.UTC)
CLASS = "x64-avx512-vnni+onnxruntime-1.31.1"
SAMPLES = 1000
QUERY_LIMIT_MS = 5.0

T = TypeVar("T")


def cell(number: int) -> dict[str, Any]:
    """The line of one cell on a night on which nothing happens."""
    model, rest = divmod(number, BACKENDS * SCHEMAS)
    backend, schema = divmod(rest, SCHEMAS)
    counts = {"n": SAMPLES, "hits": 760 - schema, "out_of": SAMPLES, "reference_hits": 760}
    counts |= {"losses": 9, "gains": 9 - schema}
    facts = {
        "direction": "higher",
        "against": "labels",
        "unit": "%",
        "proportion": True,
        "least_margin": 0.0,
    }
    digests = {
        f"{kind}:{data}": f"{number:064x}"
        for kind in ("reference", "predictions")
        for data in ("photos", "crops")
    }
    detail = (
        f"top1 76.00 → 75.{schema}0 %, 9 losses, {9 - schema} gains, "
        "at most 0.38 points may be lost"
    )
    return {
        "type": "cell",
        "suite": "nightly",
        "model": f"network_{model:02}",
        "backend": f"engine-{backend}",
        "schema": f"w8a8_schema_{schema}",
        "variant": "",
        "outcome": "passed",
        "headline": detail,
        "rule": "tolerance 0.5 % (suite nightly)",
        "gates": [
            {
                "kind": kind,
                "metric": metric,
                "state": "holds",
                "detail": detail,
                "rule": "tolerance 0.5 % (suite nightly)",
            }
            for metric, kind in (
                ("top1@photos", "loss"),
                ("agreement@crops", "floor"),
                ("top1@photos", "drift"),
            )
        ],
        "notices": [],
        "remedy": "",
        "environment_class": CLASS,
        "n": SAMPLES,
        "fp32_correct": 760,
        "correct": 760 - schema,
        "losses": 9,
        "gains": 9 - schema,
        "metrics": {
            metric: {**counts, **facts, "value": counts["hits"] / SAMPLES} for metric in METRICS
        },
        "digests": {
            "model": "1" * 64,
            "quantized": "2" * 64,
            "data:photos": "3" * 64,
            "data:crops": "4" * 64,
            **digests,
        },
        "changed": {"photos": [f"photo_{index:03}.jpg" for index in range(18)], "crops": []},
        "changed_count": {"photos": 18, "crops": 0},
        "ties": {"photos": 0, "crops": 0},
        "macs": 300_000_000,
        "integer_macs": 0.98,
        "refusals": [],
        "refusal_count": 0,
        "seconds": {"prepare": 0.8, "inference": 4.2},
    }


def write_history(folder: Path, nights: int) -> None:
    """``nights`` run files; now and then a cell moves for a night,
    and every 90 nights one moves for good.
    """
    noise = random.Random(7)
    cells = [cell(number) for number in range(MODELS * BACKENDS * SCHEMAS)]
    for night in range(nights):
        started = START + datetime.timedelta(days=night)
        sha = f"{noise.getrandbits(160):040x}"
        header = {
            "suite": "nightly",
            "commit": {"sha": sha, "dirty": False},
            "complete_selection": True,
        }
        writer = RunWriter.open(
            folder / str(started.year), header, started=started, commit=sha, token="aa"
        )
        for number, line in enumerate(cells):
            if night % 90 == 89 and number == night % len(cells):
                line["metrics"]["top1@photos"]["hits"] -= 12
            moved = noise.random() < 0.02
            line["metrics"]["top5@photos"]["hits"] += moved
            writer.write(line)
            line["metrics"]["top5@photos"]["hits"] -= moved
        writer.close(exit_code=0)


def write_baselines(folder: Path) -> None:
    """The baselines of all models: their reference,
    and as accepted what each cell measured on the first night.
    """
    noise = np.random.default_rng(7)
    for model in range(MODELS):
        lines = [
            cell(number)
            for number in range(model * BACKENDS * SCHEMAS, (model + 1) * BACKENDS * SCHEMAS)
        ]
        answers = {
            data: Answers(np.argsort(noise.random((SAMPLES, 100)))[:, :5].astype(np.int32))
            for data in ("photos", "crops")
        }
        made = Baseline(
            model=lines[0]["model"],
            model_digest="1" * 64,
            preprocessing="5" * 64,
            backend="engine-0",
            environment_class=CLASS,
            metrics=dict.fromkeys(METRICS, 760),
            data={
                data: StoredData(
                    samples=SAMPLES,
                    digest=lines[0]["digests"][f"data:{data}"],
                    reference=stored.digest,
                )
                for data, stored in answers.items()
            },
            stored=answers,
            cells={
                f"{line['backend']}+{line['schema']}": AcceptedCell(
                    accepted={CLASS: _accepted(line)}
                )
                for line in lines
            },
        )
        save_baseline(baseline_path(folder, "nightly", made.model), made)


def _accepted(line: dict[str, Any]) -> Accepted:
    hits = {metric: counts["hits"] for metric, counts in line["metrics"].items()}
    return Accepted(
        metrics=hits,
        predictions={d: line["digests"][f"predictions:{d}"] for d in ("photos", "crops")},
    )


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """(result, wall seconds, processor seconds) of ``work()``."""
    wall, processor = time.perf_counter(), time.process_time()
    done = work()
    return done, time.perf_counter() - wall, time.process_time() - processor


def row(what: str, measured: str, limit: str = "") -> None:
    """Print one line of the table."""
    print(f"{what:58} {measured:38} {limit}", flush=True)


def measure(name: str, place: str, folder: Path) -> None:
    """Build, update and ask the index at ``place``."""
    with HistoryIndex(place) as index:
        done, wall, processor = timed(lambda: index.update(folder, rebuild=True))
        row(
            f"{name}: building the index of {done.added} runs",
            f"{wall:.1f} s ({processor:.1f} s of processor)",
            "< 60 s",
        )
        _, wall, processor = timed(lambda: index.update(folder))
        row(f"{name}: updating it, nothing new", f"{1e3 * wall:.0f} ms ({1e3 * processor:.0f} ms)")
        keys = [
            (f"network_{n % MODELS:02}", f"engine-{n % BACKENDS}", f"w8a8_schema_{n % SCHEMAS}")
            for n in range(200)
        ]
        walls, processors = [], []
        for model, backend, schema in keys:
            wanted = Wanted(
                suite="nightly", model=model, backend=backend, schema=schema, metric="top1@photos"
            )
            rows, wall, processor = timed(lambda wanted=wanted: index.rows(wanted))  # type: ignore[misc]
            assert len(rows) == done.added
            walls.append(1e3 * wall)
            processors.append(1e3 * processor)
        least, middle = min(processors), statistics.median(processors)
        text = f"{least:.1f} ms at best, {middle:.1f} in the middle, {processors[0]:.1f} the first"
        row(f"{name}: one series of {done.added} nights", text, f"< {QUERY_LIMIT_MS:.0f} ms")
        row(
            f"{name}: the same by the clock",
            f"{min(walls):.1f} ms, {statistics.median(walls):.1f} in the middle",
        )
        cell_wanted = Wanted(model="network_00", backend="engine-0", schema="w8a8_schema_0")
        _, _, processor = timed(lambda: index.series(cell_wanted))
        row(f"{name}: one cell's 8 series, with their levels", f"{1e3 * processor:.0f} ms")


def check_cost(folder: Path, baselines: Path) -> str:
    """The time of a whole ``qbench history check``."""
    command = [sys.executable, "-m", "qbench", "history", "check", "--history", str(folder)]
    command += ["--baselines", str(baselines)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done, wall, _ = timed(lambda: subprocess.run(command, check=False, capture_output=True))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 1  # the steps that were written are found
    processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return f"{wall:.1f} s ({processor:.1f} s of processor)"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--nights", type=int, default=730)
    parser.add_argument(
        "--keep", metavar="DIR", help="write the history there, or take the one that is there"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, baselines = (
            Path(arguments.keep or name) / "history",
            Path(arguments.keep or name) / "baselines",
        )
        if not folder.is_dir():
            write_baselines(baselines)
            _, wall, _ = timed(lambda: write_history(folder, arguments.nights))
            row(f"writing {arguments.nights} run files", f"{wall:.1f} s")
        size = sum(path.stat().st_size for path in folder.rglob("*.jsonl"))
        row("size of the run files", f"{size / 1e6:.0f} MB")
        measure("SQLite", str(Path(name) / INDEX_FILE), folder)
        row("SQLite: size of the index", f"{(Path(name) / INDEX_FILE).stat().st_size / 1e6:.0f} MB")
        if server := os.environ.get("QBENCH_TEST_POSTGRES"):
            measure("PostgreSQL", server, folder)
        with_index = Path(name) / INDEX_FILE
        with_index.rename(folder / INDEX_FILE)
        row("qbench history check, with the index", check_cost(folder, baselines))
        (folder / INDEX_FILE).unlink()
        row("qbench history check, without", check_cost(folder, baselines))


if __name__ == "__main__":
    main()
