"""Record what every smoke subject gives under every schema on every backend, and compare two
records.

    python benchmarks/digests.py record before.json            about an hour of processor time
    python benchmarks/digests.py compare before.json after.json

A record holds, for each cell, the digests that its run file line carries (quantized graph,
predictions, reference, arithmetic, data), its counts and its planned share, and for each subject
the digest of its profile. It uses only the command line, pytest and the run file format, so that it
survives any change behind them. ``compare`` prints a table of cells by what differs and ends with 1
where anything does: a refactoring changes none of these numbers.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SMOKE = ROOT / "suites" / "smoke.qbench.toml"
FIELDS = (
    "outcome",
    "digests",
    "n",
    "fp32_correct",
    "correct",
    "losses",
    "gains",
    "integer_macs",
    "calibrated",
)


def listed(kind: str, folder: Path) -> list[str]:
    """The names of ``qbench list KIND`` with the files next to ``folder``'s suites."""
    command = [sys.executable, "-m", "qbench", "list", kind, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [entry["name"] for entry in json.loads(done.stdout)]


def suite_text(subjects: list[str], schemas: list[str], backends: list[str]) -> str:
    """The smoke suite's models crossed with ``schemas`` and ``backends``, without its gates."""
    tables = {
        table["id"]: table for table in tomllib.loads(SMOKE.read_text(encoding="utf-8"))["model"]
    }
    text = f"[suite]\nagreement = 0.0\ninteger_macs = 0.0\nbackends = {json.dumps(backends)}\n"
    text += f"schemas = {json.dumps(schemas)}\n"
    for subject in subjects:
        table = tables[subject]
        calibration = table["calibration"]
        text += (
            f'\n[[model]]\nid = "{subject}"\ndata = "{table["data"]}"\n'
            f"metrics = {json.dumps(table['metrics'])}\n"
        )
        text += (
            f'calibration = {{ data = "{calibration["data"]}", count = {calibration["count"]} }}\n'
        )
    return text


def run_cells(folder: Path, limit: int, workers: int) -> dict[str, dict[str, Any]]:
    """Run the suite of ``folder`` and read its cells from the run file."""
    suite = folder / "suites" / "digests.qbench.toml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(suite),
        "-q",
        "--no-header",
        "--tb=no",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-n", str(workers), "--dist", "loadscope", "--qbench-limit", str(limit)]
    done = subprocess.run(
        [*command, "--rootdir", str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    cells: dict[str, dict[str, Any]] = {}
    for path in sorted((folder / "reports" / "history").glob("*.jsonl")):
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if line["type"] == "cell":
                name = f"{line['model']}::{line['backend']}+{line['schema']}"
                cells[name] = {field: line.get(field) for field in FIELDS}
    if not cells:
        sys.exit(f"no cell was measured:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return cells


def profile_digest(subject: str, folder: Path) -> str:
    """The digest of the subject's profile file over its calibration samples of the smoke suite.

    Empty where the verb takes no such model (several graphs); the calibrated ranges of its cells
    are recorded anyway.
    """
    tables = {
        table["id"]: table for table in tomllib.loads(SMOKE.read_text(encoding="utf-8"))["model"]
    }
    calibration = tables[subject]["calibration"]
    path = folder / f"{subject}.profile.json"
    command = [sys.executable, "-m", "qbench", "profile", subject, "--data", calibration["data"]]
    command += ["--count", str(calibration["count"]), "-o", str(path)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"no profile of {subject}: {done.stderr.strip()}", file=sys.stderr)
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def record(arguments: argparse.Namespace) -> int:
    """Write the record of today's code."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "suites").mkdir()
        (folder / "suites" / "schemas").symlink_to(ROOT / "suites" / "schemas")
        schemas = arguments.schemas.split(",") if arguments.schemas else listed("schemas", folder)
        backends = (
            arguments.backends.split(",") if arguments.backends else listed("backends", folder)
        )
        subjects = arguments.subjects.split(",")
        text = suite_text(subjects, schemas, backends)
        (folder / "suites" / "digests.qbench.toml").write_text(text, encoding="utf-8")
        made_record = {
            "limit": arguments.limit,
            "profiles": {subject: profile_digest(subject, folder) for subject in subjects},
            "cells": run_cells(folder, arguments.limit, arguments.workers),
        }
    Path(arguments.output).write_text(
        json.dumps(made_record, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )
    print(
        f"{len(made_record['cells'])} cells of {len(subjects)} subjects written to "
        f"{arguments.output}"
    )
    return 0


def compare(arguments: argparse.Namespace) -> int:
    """Print what differs between two records; 1 where anything does."""
    before, after = (
        json.loads(Path(path).read_text(encoding="utf-8"))
        for path in (arguments.before, arguments.after)
    )
    rows = [
        f"profile {name}"
        for name in before["profiles"]
        if before["profiles"][name] != after["profiles"].get(name)
    ]
    for name in sorted(before["cells"].keys() | after["cells"].keys()):
        old, new = before["cells"].get(name), after["cells"].get(name)
        if old is None or new is None:
            rows.append(f"{name}: only {'after' if old is None else 'before'}")
        elif changed := [field for field in FIELDS if old[field] != new[field]]:
            rows.append(f"{name}: {', '.join(changed)}")
    print("\n".join(rows[:50]))
    print(
        f"of {len(before['cells'])} cells and {len(before['profiles'])} profiles {len(rows)} differ"
    )
    return 1 if rows else 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True)
    recording = verbs.add_parser("record", help="measure and write a record")
    recording.add_argument("output")
    recording.add_argument(
        "--subjects", default="digits_cnn,g2p_en,magika,mobilenet_v2,efficientnet_lite0"
    )
    recording.add_argument("--schemas", default="", help="names separated by commas (default: all)")
    recording.add_argument(
        "--backends", default="", help="names separated by commas (default: all)"
    )
    recording.add_argument("--limit", type=int, default=4, help="scored samples per data set")
    recording.add_argument("--workers", type=int, default=2)
    recording.set_defaults(call=record)
    comparing = verbs.add_parser("compare", help="compare two records")
    comparing.add_argument("before")
    comparing.add_argument("after")
    comparing.set_defaults(call=compare)
    arguments = parser.parse_args()
    return int(arguments.call(arguments))


if __name__ == "__main__":
    sys.exit(main())
