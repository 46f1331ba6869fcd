"""What listing lost and gained samples costs a night: ``python benchmarks/samples_cost.py
suites/smoke.qbench.toml``.

Of the cells of a suite, one after the other in this process: processor time of measuring them, and
of that the part that looks for the samples, that makes their previews (each sample once, as a first
night does) and that writes their line; and bytes.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qbench.errors import QbenchError
from qbench.evaluation import measure
from qbench.host import utc_today
from qbench.storage import MOST_SAMPLES, json_line
from qbench.suite import Bench, Settings, expand, gather, load_suite
from qbench.tracking import samples_line


def main() -> None:
    """Print a table of the suite that is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", type=Path)
    parser.add_argument("--model", help="of this model alone")
    arguments = parser.parse_args()
    spent: Counter[str] = Counter()
    size: Counter[str] = Counter()
    measure.changed_samples = _timed(measure.changed_samples, "looking", spent)
    suite = load_suite(arguments.suite)
    known = gather(suites=arguments.suite.parent)
    settings = Settings(
        baselines=Path("baselines"),
        suite_path=str(arguments.suite),
        today=utc_today(),
        most_samples=MOST_SAMPLES,
    )
    bench = Bench(suite, known, settings)
    seen: set[tuple[str, str]] = set()
    count = 0
    for planned in expand(suite, known):
        if arguments.model not in (None, planned.cell.model):
            continue
        try:
            began = time.process_time()
            measurement = bench.measure(planned)
        except QbenchError:
            continue
        spent["cells"] += time.process_time() - began
        count += 1
        size["cells"] += len(json_line(bench_line(bench, planned, measurement)).encode())
        if not measurement.samples:
            continue
        made = _timed(bench.previews, "previews", spent)(
            planned, measurement.samples, lambda *one, seen=seen: one in seen
        )
        seen |= {(digest, sample) for digest, sample, _ in made.found}
        size["previews"] += sum(len(preview.picture) for _, _, preview in made.found)
        line = _timed(samples_line, "lines", spent)(planned.cell, measurement.samples)
        size["lines"] += len(json_line(line).encode()) if line else 0
    print(f"{count} cells: {spent['cells']:.1f} s of processor time")
    for name in ("looking", "previews", "lines"):
        print(f"  {name}: {spent[name]:.2f} s, {spent[name] / spent['cells']:.2%}")
    print(f"  previews of {len(seen)} samples, {size['previews']:,} bytes")
    print(f"  lines {size['lines']:,} bytes, next to {size['cells']:,} of cells")


def bench_line(bench: Bench, planned: Any, measurement: Any) -> dict[str, Any]:  # noqa: ANN401
    """The line of the cell."""
    from qbench.suite import JudgedCell

    verdict = bench.judge(planned, measurement)
    return JudgedCell(planned=planned, verdict=verdict, measurement=measurement).record.line()


def _timed(function: Callable[..., Any], name: str, spent: Counter[str]) -> Callable[..., Any]:
    """``function``, whose processor time is added to ``spent``."""

    def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - of whatever function
        began = time.process_time()
        try:
            return function(*arguments, **named)
        finally:
            spent[name] += time.process_time() - began

    return timed


if __name__ == "__main__":
    main()
