"""Planned and executed shares of multiply-accumulates in integers, of every cell of a suite on
one backend.

No sample is scored: each model is quantized by each schema of the suite and prepared, and the
executor reports how its nodes run. A Markdown table with the products that run in float although
they were planned in integers.

    python benchmarks/executed_shares.py [--backend ort-cpu] suites/smoke.qbench.toml
    suites/nightly.qbench.toml
"""

import argparse
from contextlib import ExitStack
from pathlib import Path

from qbench.backends import get_backend, recording
from qbench.errors import QbenchError
from qbench.evaluation.artifacts import prepare_runners
from qbench.evaluation.executed_share import executed_share
from qbench.host import utc_today
from qbench.suite import Bench, Settings, expand, gather, load_suite

NAMED = 4
"""How many products a row names."""


def main() -> None:
    """Print the table of the suites that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suites", nargs="+", type=Path)
    parser.add_argument("--backend", default="ort-cpu")
    arguments = parser.parse_args()
    backend = get_backend(arguments.backend)
    print("| model | schema | planned | executed | planned in integers, executed in float |")
    print("|---|---|---|---|---|", flush=True)
    seen = set()
    for path in arguments.suites:
        suite = load_suite(path)
        known = gather(suites=path.parent)
        bench = Bench(
            suite,
            known,
            Settings(baselines=Path("baselines"), suite_path=str(path), today=utc_today()),
        )
        for planned in expand(suite, known):
            cell = planned.cell
            key = (cell.model, cell.schema, cell.variant)
            if cell.backend != backend.name or cell.is_fp32 or cell.is_given or key in seen:
                continue
            seen.add(key)
            try:
                schema = known.schemas.get(cell.schema)
                if schema.weights_only:
                    continue
                quantized = bench.shared(planned).quantized(schema, backend.capabilities)
                with ExitStack() as stack:
                    found = executed_share(
                        prepare_runners(recording(backend), quantized.models, stack, threads=1),
                        quantized,
                    )
            except QbenchError as error:
                print(f"| {cell.model} | {cell.schema} | | | {error} |", flush=True)
                continue
            own = [words for words in found.in_float if "as planned" not in words]
            words = ", ".join(own[:NAMED]) + (
                f" and {len(own) - NAMED} more" if len(own) > NAMED else ""
            )
            name = f"{cell.schema} {cell.variant}".strip()
            executed = "not reported" if found.share is None else f"{100 * found.share:.1f} %"
            print(
                f"| {cell.model} | {name} | {100 * quantized.integer_macs:.1f} % | {executed} "
                f"| {words} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
