"""Two years of nightly runs, made up: how long a full report takes, and how large its pages are.

    730 runs × 360 cells × 8 metrics, 60 models in the site of the second table

"Full" is everything that `qbench report` writes: the site, the Markdown page and the pictures, each result beside what
was accepted for it. A report looks back on the newest 120 runs of a suite; ``--runs`` looks further.

Run: python benchmarks/report_cost.py [--nights 730] [--runs 120] [--keep DIR]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec
from two_years import row, timed, write_baselines, write_history

from qbench.reporting import WINDOW, build_reports, html_pages, newest_comparison, read_memory, recent_runs
from qbench.tracking import ANNOTATIONS_FILE, baseline_path, load_baseline, save_baseline

FULL_LIMIT_S, SITE_LIMIT_MB = 20.0, 2.0


def measure_report(folder: Path, baselines: Path, window: int) -> None:
    """``qbench report`` on the history in ``folder`` beside ``baselines``, with the pictures and without."""
    with tempfile.TemporaryDirectory() as output:
        for kinds in (["html", "md"], ["html", "md", "png"]):
            command = [sys.executable, "-m", "qbench", "report", "--history", str(folder), "-o", output]
            command += [
                "--baselines",
                str(baselines),
                "--runs",
                str(window),
                *(part for kind in kinds for part in ("--report", kind)),
            ]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            _, wall, _ = timed(lambda command=command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))  # type: ignore[misc]
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
            limit = f"< {FULL_LIMIT_S:.0f} s" if "png" in kinds else ""
            row(f"qbench report: {', '.join(kinds)}", f"{wall:.1f} s ({processor:.1f} s of processor)", limit)
        files = [path for path in Path(output).rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files if path.suffix == ".html") / 1e6
        row(f"{len(files)} files, all pages of the site", f"{size:.2f} MB")


def measure_pages(folder: Path, baselines: Path) -> None:
    """The size of a site of 60 models on three backends under four schemas."""
    runs = recent_runs(folder, WINDOW).runs
    doubled = [
        replace(
            run,
            cells=(*run.cells, *(msgspec.structs.replace(record, model=twin(record.model)) for record in run.cells)),
        )
        for run in runs
    ]
    compared = {"nightly": newest_comparison(doubled)}
    for model in {record.model for record in runs[-1].cells}:
        known = load_baseline(baseline_path(baselines, "nightly", model))
        save_baseline(baseline_path(baselines, "nightly", twin(model)), replace(known, model=twin(model)))
    memory = read_memory(doubled, baselines, folder / ANNOTATIONS_FILE)
    pages, wall, processor = timed(lambda: html_pages(build_reports(doubled, memory=memory), compared))
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
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nights", type=int, default=730)
    parser.add_argument("--runs", type=int, default=WINDOW)
    parser.add_argument("--keep", metavar="DIR", help="write the history there, or take the one that is there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, baselines = Path(arguments.keep or name) / "history", Path(arguments.keep or name) / "baselines"
        if not folder.is_dir():
            write_baselines(baselines)
            write_history(folder, arguments.nights)
        measure_report(folder, baselines, arguments.runs)
        measure_pages(folder, baselines)


if __name__ == "__main__":
    main()
