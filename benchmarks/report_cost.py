"""Two years of nightly runs, made up: how long a full report takes, and how large its pages are.

    730 runs × 360 cells × 8 metrics, 60 models in the site of the second table

    one run of 7,665 models × 4 cells: a run file of 100 MB

"Full" is everything that `qbench report` writes: the site, the Markdown page and the pictures, each
result beside what was accepted for it. A report looks back on the newest 120 runs of a suite;
``--runs`` looks further.

Run: python benchmarks/report_cost.py [--nights 730] [--runs 120] [--keep DIR]
     python benchmarks/report_cost.py --models 7665      the report of one run of many models, alone
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec
from two_years import START, cell, row, timed, write_baselines, write_history

from qbench.reporting import (
    WINDOW,
    build_reports,
    html_pages,
    newest_comparison,
    read_memory,
    recent_runs,
)
from qbench.tracking import ANNOTATIONS_FILE, RunWriter, baseline_path, load_baseline, save_baseline

FULL_LIMIT_S, SITE_LIMIT_MB = 20.0, 2.0


def measure_report(folder: Path, baselines: Path, window: int) -> None:
    """``qbench report`` on the history in ``folder`` beside ``baselines``,
    with the pictures and without.
    """
    with tempfile.TemporaryDirectory() as output:
        for kinds in (["html", "md"], ["html", "md", "png"]):
            command = [
                sys.executable,
                "-m",
                "qbench",
                "report",
                "--history",
                str(folder),
                "-o",
                output,
            ]
            command += [
                "--baselines",
                str(baselines),
                "--runs",
                str(window),
                *(part for kind in kinds for part in ("--report", kind)),
            ]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            _, wall, _ = timed(
                lambda command=command: subprocess.run(
                    command, check=True, stdout=subprocess.DEVNULL
                )
            )  # type: ignore[misc]
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
            limit = f"< {FULL_LIMIT_S:.0f} s" if "png" in kinds else ""
            row(
                f"qbench report: {', '.join(kinds)}",
                f"{wall:.1f} s ({processor:.1f} s of processor)",
                limit,
            )
        files = [path for path in Path(output).rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files if path.suffix == ".html") / 1e6
        row(f"{len(files)} files, all pages of the site", f"{size:.2f} MB")


def write_wide_run(folder: Path, models: int) -> None:
    """One run of ``models`` models on two backends under two schemas;
    one cell in a hundred is red.
    """
    header = {
        "suite": "nightly",
        "commit": {"sha": "a" * 40, "dirty": False},
        "complete_selection": True,
    }
    writer = RunWriter.open(folder, header, started=START, commit="a" * 40, token="aa")
    for number in range(4 * models):
        line = cell(number % 4) | {
            "model": f"network_{number // 4:05}",
            "backend": f"engine-{number % 4 // 2}",
        }
        line |= {
            "schema": f"w8a8_schema_{number % 2}",
            "notices": [f"A notice {place} of cell {number}" for place in range(8)],
        }
        if number % 100 == 0:
            line |= {
                "outcome": "failed",
                "headline": f"network {number} loses more than its tolerance",
            }
        writer.write(line)
    writer.close(exit_code=1)


def measure_wide(models: int) -> None:
    """``qbench report`` on one run of ``models`` models: seconds and the peak of memory for
    each kind and for all.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "history"
        write_wide_run(folder, models)
        size = sum(path.stat().st_size for path in folder.rglob("*.jsonl")) / 1e6
        row(f"{models:,} models, {4 * models:,} cells", f"{size:.0f} MB")
        for kinds in (["html"], ["md"], ["png"], ["html", "md", "png"]):
            output = Path(name) / "-".join(kinds)
            command = [
                sys.executable,
                "-c",
                _PEAK,
                "report",
                "--history",
                str(folder),
                "-o",
                str(output),
            ]
            command += ["--report", ",".join(kinds)]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done, wall, _ = timed(
                lambda command=command: subprocess.run(
                    command, check=True, capture_output=True, text=True
                )
            )  # type: ignore[misc]
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            files = [path for path in output.rglob("*") if path.is_file()]
            written = sum(path.stat().st_size for path in files) / 1e6
            user = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
            limit = "< 20 s, < 400 MB"
            peak = int(done.stderr.split()[-1]) / 1e3
            row(", ".join(kinds), f"{wall:.1f} s ({user:.1f} s of processor), {peak:.0f} MB", limit)
            row("", f"{len(files)} files, {written:.1f} MB")


_PEAK = """
import resource, sys
from qbench.cli.program import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def measure_pages(folder: Path, baselines: Path) -> None:
    """The size of a site of 60 models on three backends under four schemas."""
    runs = recent_runs(folder, WINDOW).runs
    doubled = [
        replace(
            run,
            cells=(
                *run.cells,
                *(
                    msgspec.structs.replace(record, model=twin(record.model))
                    for record in run.cells
                ),
            ),
        )
        for run in runs
    ]
    compared = {"nightly": newest_comparison(doubled)}
    for model in {record.model for record in runs[-1].cells}:
        known = load_baseline(baseline_path(baselines, "nightly", model))
        save_baseline(
            baseline_path(baselines, "nightly", twin(model)), replace(known, model=twin(model))
        )
    memory = read_memory(doubled, baselines, folder / ANNOTATIONS_FILE)
    pages, wall, processor = timed(
        lambda: html_pages(build_reports(doubled, memory=memory), compared)
    )
    sizes = {path: len(page.encode()) / 1e6 for path, page in pages.items()}
    models = [size for path, size in sizes.items() if path.startswith("models/")]
    row(f"{len(models)} models: overview", f"{sizes['index.html']:.2f} MB")
    row(f"{len(models)} models: all cells in one table", f"{sizes['cells.html']:.2f} MB")
    row(f"{len(models)} models: the page of a model", f"{min(models):.3f} to {max(models):.3f} MB")
    whole = f"{sum(sizes.values()):.2f} MB, made in {wall:.1f} s ({processor:.1f} s)"
    row(f"{len(models)} models: the whole site", whole, f"< {SITE_LIMIT_MB:.0f} MB")


def twin(model: str) -> str:
    """The name of a second model like ``model``."""
    return model.replace("work_", "work_b")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--nights", type=int, default=730)
    parser.add_argument("--runs", type=int, default=WINDOW)
    parser.add_argument("--models", type=int, help="one run of that many models instead")
    parser.add_argument(
        "--keep", metavar="DIR", help="write the history there, or take the one that is there"
    )
    arguments = parser.parse_args()
    if arguments.models:
        measure_wide(arguments.models)
        return
    with tempfile.TemporaryDirectory() as name:
        folder, baselines = (
            Path(arguments.keep or name) / "history",
            Path(arguments.keep or name) / "baselines",
        )
        if not folder.is_dir():
            write_baselines(baselines)
            write_history(folder, arguments.nights)
        measure_report(folder, baselines, arguments.runs)
        measure_pages(folder, baselines)


if __name__ == "__main__":
    main()
