"""Measure the time and the memory of importing and comparing files of a million answers.

    python benchmarks/answers.py [--records N] [--sources G]

Lines are as long as those of lm-eval's ``--log_samples`` with a short question (about 800 bytes).
Each step is a process of its own; times are of the processor, and the peak of memory is that of the
process.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path


def write_samples(path: Path, count: int, sources: int, seed: int) -> None:
    """``count`` lines as lm-eval writes them, right in four of five; the articles of the
    questions are the sources.
    """
    draw, flips = random.Random(1), random.Random(seed)
    with path.open("w") as file:
        for row in range(count):
            right = (draw.random() < 0.8) != (flips.random() < 0.02)
            question = f"What is {row} + 1, and why is it not {row}? " * 3
            file.write(
                json.dumps(
                    {
                        "doc_id": row,
                        "doc": {
                            "question": question,
                            "answer": str(row + 1),
                            "article": f"a{row % sources}",
                        },
                        "target": str(row + 1),
                        "arguments": {
                            "gen_args_0": {"arg_0": question, "arg_1": {"until": ["\n"]}}
                        },
                        "resps": [[str(row + right)]],
                        "filtered_resps": [str(row + right)],
                        "filter": "none",
                        "metrics": ["exact_match"],
                        "doc_hash": f"{row:064x}",
                        "prompt_hash": f"{row:064x}",
                        "target_hash": f"{row:064x}",
                        "exact_match": float(right),
                    }
                )
                + "\n"
            )


def measured(folder: Path, *words: str) -> tuple[float, float, str]:
    """Processor seconds and MiB of ``qbench`` with these words, and what it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "qbench", *words], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    out = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 2**20, out


def main() -> None:
    """Print one line for each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--sources", type=int, default=10_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed, file in enumerate(("a", "b"), start=2):
            path = folder / f"samples_{file}_x.jsonl"
            write_samples(path, arguments.records, arguments.sources, seed)
            words = ("import", path.name, "--source", "doc.article", "-o", f"{file}.jsonl")
            seconds, memory, out = measured(folder, *words)
            size = path.stat().st_size / 2**20
            print(
                f"import {size:.0f} MiB: {seconds:.1f} s, {memory:.0f} MiB  ({out.strip()})",
                flush=True,
            )
        size = (folder / "a.jsonl").stat().st_size / 2**20
        seconds, memory, out = measured(folder, "compare", "a.jsonl", "b.jsonl")
        print(f"compare 2 × {size:.0f} MiB: {seconds:.1f} s, {memory:.0f} MiB\n{out}")


if __name__ == "__main__":
    main()
