"""What the commands that read a history cost: processor time and peak memory of each, over a
made-up history.

    5,000 runs × 60 cells × 3 metrics, some 900 MB; and one run of 30,000 cells, 100 MB

Lines are as long as real ones, with calibrated ranges. Now and then a cell moves for a night, and
every 500 nights one moves for good. Processor time is that of the child process, user and system;
the peak is its largest resident set.

Run: python benchmarks/history_cost.py [--runs 5000] [--cells 60] [--keep DIR] [--code DIR] [--only
    X]
"""

import argparse
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qbench.judging import Calibrated
from qbench.tracking import INDEX_FILE
from qbench.tracking.calibrations import packed_calibration

START = datetime.datetime(2013, 1, 1, 3, tzinfo=datetime.UTC)
CLASS = "x64-avx512-vnni+onnxruntime-1.31.1"
METRICS = (("top1", "labels", 900), ("top5", "labels", 980), ("agreement", "reference", 1000))
SAMPLES, RANGES = 1000, 24
LIMIT_MB = 300
LIMITED = ("compare", "history show", "history check", "export")
"""Commands that may need ``LIMIT_MB`` over many runs;
a single run is as large as its cells are many.
"""


def cell(number: int, noise: random.Random) -> dict[str, Any]:
    """The line of one cell on a night on which nothing happens."""
    model, rest = divmod(number, 12)
    backend, schema = divmod(rest, 4)
    detail = f"top1 896/1000 = 89.60 % against fp32 900/1000 = 90.00 %: drop 0.40 pp, cell {number}"
    ranges = {
        f"/layer_{i}/Conv_output_0": (-noise.random(), 6 * noise.random()) for i in range(RANGES)
    }
    gates = [
        {
            "kind": kind,
            "metric": name,
            "state": "holds",
            "detail": detail,
            "rule": "tolerance 0.5 % (suite nightly)",
        }
        for kind, name in (
            ("loss", "top1"),
            ("loss", "top5"),
            ("floor", "agreement"),
            ("drift", "predictions"),
        )
    ]
    facts = {"direction": "higher", "unit": "%", "proportion": True, "least_margin": 0.0}
    return {
        "type": "cell", "suite": "nightly", "model": f"network_{model:03}",
        "backend": f"engine-{backend}", "schema": f"w8a8_schema_{schema}", "variant": "",
        "outcome": "passed", "headline": detail, "rule": "tolerance 0.5 % (suite nightly)",
        "gates": gates, "notices": [], "remedy": "", "environment_class": CLASS, "n": SAMPLES,
        "fp32_correct": 900, "correct": 896, "losses": 9, "gains": 5,
        "metrics": {
            name: {**facts, "against": against, "n": SAMPLES, "hits": best - 4, "out_of": SAMPLES,
                   "reference_hits": best, "losses": 9, "gains": 5, "value": (best - 4) / SAMPLES}
            for name, against, best in METRICS
        },
        "digests": {key: f"{noise.getrandbits(256):064x}" for key in (
            "model", "quantized", "preprocessing", "data:photos", "predictions:photos",
            "reference:photos")},
        "changed": {"photos": ["photo_017.jpg", "photo_411.jpg"]}, "changed_count": {"photos": 14},
        "ties": {"photos": 0}, "macs": 300_000_000, "integer_macs": 0.98, "refusals": [],
        "refusal_count": 0, "seconds": {"prepare": 0.8, "inference": 4.2},
        "calibrated": packed_calibration(Calibrated(key=f"photos.{schema}", ranges=ranges)),
    }  # fmt: skip


def environment() -> dict[str, Any]:
    """The line that says where it ran; as long as that of a real computer."""
    versions = {
        "numpy": "2.4.6",
        "onnx": "1.23.2",
        "onnxruntime": "1.31.1",
        "pytest-qbench": "0.1.0",
    }
    features = [f"feature_{number}" for number in range(90)]
    return {
        "type": "environment",
        "processor": "x64-avx512-vnni",
        "features": features,
        "versions": versions,
    }


def write_history(folder: Path, runs: int, cells: int) -> None:
    """``runs`` run files of ``cells`` cells, a year a folder."""
    noise = random.Random(7)
    lines = [cell(number, noise) for number in range(cells)]
    text = [json.dumps(line, separators=(",", ":")) for line in lines]
    where = json.dumps(environment(), separators=(",", ":"))
    end = json.dumps({"type": "end", "cells": cells, "exit_code": 0})
    for night in range(runs):
        moment = START + datetime.timedelta(days=night)
        sha = f"{noise.getrandbits(160):040x}"
        name = f"{moment:%Y%m%dT%H%M%S}000Z-{sha[:7]}-aaaaaa"
        header = {
            "type": "run",
            "format": "qbench-run/1",
            "id": name,
            "started": moment.isoformat(),
            "suite": "nightly",
        }
        header |= {"commit": {"sha": sha, "dirty": False}, "complete_selection": True}
        header |= {"planned": cells, "selected": cells, "limited": None, "select": ""}
        if night % 500 == 499:
            moved = night % cells
            lines[moved]["metrics"]["top1"]["hits"] -= 12
            text[moved] = json.dumps(lines[moved], separators=(",", ":"))
        now = list(text)
        for number in range(cells):
            if noise.random() < 0.02:
                now[number] = now[number].replace('"hits":976', '"hits":977', 1)
        path = folder / str(moment.year) / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "\n".join([json.dumps(header, separators=(",", ":")), where, *now, end, ""])
        )


COMMANDS = {
    "compare latest latest": ["compare", "latest", "latest"],
    "history show": ["history", "show", "network_000::engine-0+w8a8_schema_0"],
    "history check": ["history", "check"],
    "export all, csv": ["export", "all", "--format", "csv", "-o", "{out}/rows.csv"],
    "export all, json": ["export", "all", "--format", "json", "-o", "{out}/rows.json"],
    "export all, junit": ["export", "all", "--format", "junit", "-o", "{out}/rows.xml"],
    "export latest": ["export", "latest", "--format", "csv", "-o", "{out}/latest.csv"],
    "report": ["report", "--report", "html", "--report", "md", "-o", "{out}/reports"],
    "history index": ["history", "index"],
    "history show, with the index": ["history", "show", "network_000::engine-0+w8a8_schema_0"],
    "history check, with the index": ["history", "check"],
    "compare latest latest, with the index": ["compare", "latest", "latest"],
}
"""Those behind ``history index`` find it."""


def cost(command: list[str], code: Path, out: Path) -> tuple[int, float, float]:
    """(exit code, seconds of processor, peak in MB)
    of ``qbench command`` as the package in ``code`` has it.
    """
    words = [sys.executable, "-m", "qbench", *(word.format(out=out) for word in command)]
    with (out / "log").open("ab") as log:
        child = subprocess.Popen(
            words, cwd=out, env={**os.environ, "PYTHONPATH": str(code)}, stdout=log, stderr=log
        )
        _, status, used = os.wait4(child.pid, 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measured(
    history: Path, code: Path, out: Path, only: str
) -> Iterator[tuple[str, int, float, float]]:
    """(command, exit code, seconds of processor, peak in MB)
    of every command whose name holds ``only``.
    """
    for path in history.glob(f"{INDEX_FILE}*"):
        path.unlink()
    for name, command in COMMANDS.items():
        if only in name or name == "history index":
            yield name, *cost([*command, "--history", str(history)], code, out)


def main() -> None:
    """Print the table; the exit code is 1 where a command ended
    with an error or a limited one was too large.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--cells", type=int, default=60)
    parser.add_argument(
        "--keep", metavar="DIR", help="write the histories there, or take those that are there"
    )
    parser.add_argument(
        "--code",
        metavar="DIR",
        default=str(Path(__file__).parents[1]),
        help="the checkout to measure",
    )
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="only commands whose name holds this"
    )
    arguments = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as name:
        kept = Path(arguments.keep or name).absolute()
        shapes = {"many": (arguments.runs, arguments.cells), "large": (1, 30_000)}
        for kind, (runs, cells) in shapes.items():
            history = kept / kind
            if not history.is_dir():
                write_history(history, runs, cells)
            size = sum(path.stat().st_size for path in history.rglob("*.jsonl"))
            print(f"{runs} runs × {cells} cells, {size / 1e6:.0f} MB", flush=True)
            for command, code, seconds, peak in measured(
                history, Path(arguments.code), Path(name), arguments.only
            ):
                print(f"  {command:40} exit {code}  {seconds:7.1f} s  {peak:6.0f} MB", flush=True)
                is_limited = kind == "many" and command.startswith(LIMITED)
                good &= code in (0, 1) and (
                    peak <= LIMIT_MB or not is_limited
                )  # 1: a finding of ``history check``
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
