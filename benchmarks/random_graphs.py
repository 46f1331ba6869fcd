"""Random quantized graphs on every engine, compared with the arithmetic that the engine
declares, code by code.

    python benchmarks/random_graphs.py [--engines A,B] [--graphs 1000] [--seed 0] [--out FILE.jsonl]
    [--show ENGINE]

A graph has one to five operators between Q and DQ (``tests/operator_cases/families.py``), of those
that the engine runs; every second one has a free batch. It runs with one thread and with two, in
the process of the engine, so that a crash is a row. An element differs where it is further from the
arithmetic's than 1e-5 of the largest element: codes behind their DequantizeLinear differ by whole
steps, which is more. Refused graphs do not count among ``--graphs``.

Rows are appended to ``--out``; a second run with the same ``--out`` continues. ``--show`` prints
the rows of one engine that differ, by their operators.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbench.backends import EngineCrashError, arithmetic_of, get_backend, isolated
from qbench.errors import InputError, QbenchError, UnavailableError, UnsupportedError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from operator_cases.families import FAMILIES, compared, drawn

TRIES = 5
"""How many graphs are drawn for each that is to run, before an engine that refuses them is left."""


def measured(engine: str, seed: int, threads: int) -> dict[str, Any]:
    """The row of one graph: what it is compared with, or why it did not run."""
    case, backend = drawn(engine, seed), get_backend(engine)
    row: dict[str, Any] = {
        "engine": engine,
        "seed": seed,
        "threads": threads,
        "operators": case.operators,
    }
    arithmetic = arithmetic_of(backend)
    assert arithmetic is not None, engine
    try:
        with isolated(backend).prepare(case.model, threads=threads) as executor:
            theirs = {name: np.array(array) for name, array in executor.run(case.feeds).items()}
    except (UnsupportedError, UnavailableError) as error:
        return row | {"outcome": "refused", "reason": error.found}
    except EngineCrashError as error:
        return row | {"outcome": "crashed", "reason": error.found}
    except QbenchError as error:
        return row | {"outcome": "failed", "reason": error.found}
    try:
        with get_backend(f"integer-{arithmetic.name}").prepare(case.model) as executor:
            found = compared(theirs, executor.run(case.feeds), case.steps)
    except InputError as error:
        return row | {"outcome": "refused", "reason": f"by the interpreter: {error.found}"}
    return row | {"outcome": "differs" if found["differ"] or found["shapes"] else "equal", **found}


def run(engine: str, given: argparse.Namespace, out: Path) -> None:
    """Append the rows of ``engine`` that are missing in ``out``."""
    if arithmetic_of(get_backend(engine)) is None:
        print(f"{engine}: no arithmetic is declared for this processor", file=sys.stderr)
        return
    have = {(row["seed"], row["threads"]): row for row in rows(out) if row["engine"] == engine}
    counted, seed = 0, given.seed
    while counted < given.graphs and seed < given.seed + TRIES * given.graphs:
        ran = False
        for threads in given.threads:
            row = have.get((seed, threads))
            if row is None:
                row = measured(engine, seed, threads)
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            if row["outcome"] == "refused":
                break
            ran = True
        counted, seed = counted + ran, seed + 1


def rows(out: Path) -> list[dict[str, Any]]:
    """The rows of ``out``."""
    return (
        [json.loads(line) for line in out.read_text("utf-8").splitlines()] if out.exists() else []
    )


def table(found: Iterable[Mapping[str, Any]]) -> str:
    """Engine and threads → graphs, elements, those that differ."""
    lines = [
        (
            "| engine | threads | graphs | elements | graphs that differ | elements that do "
            "| crashed | failed | refused |"
        ),
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    groups: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in found:
        groups.setdefault((row["engine"], row["threads"]), []).append(row)
    for (engine, threads), members in sorted(groups.items()):
        count = Counter(row["outcome"] for row in members)
        elements, differ = (
            sum(row.get(key, 0) for row in members) for key in ("elements", "differ")
        )
        ran = len(members) - count["refused"]
        lines.append(
            f"| `{engine}` | {threads} | {ran:,} | {elements:,} | {count['differs']} | {differ:,} "
            f"| {count['crashed']} "
            f"| {count['failed']} | {count['refused']} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(FAMILIES))
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--threads", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2]
    )
    parser.add_argument("--out", type=Path, default=Path("random_graphs.jsonl"))
    parser.add_argument(
        "--show", help="an engine: print its rows that are not equal, and run nothing"
    )
    given = parser.parse_args()
    if given.show:
        for row in rows(given.out):
            if row["engine"] == given.show and row["outcome"] not in ("equal", "refused"):
                print(json.dumps(row))
        return 0
    for engine in given.engines:
        run(engine, given, given.out)
    print(table(rows(given.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
