"""Two thousand inputs of the programs that draw them by their numbers, always the same ones.

``benchmarks/`` has the programs; a night runs parts of a million.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "first", "last", "least_groups"),
    [
        ("onnx_fuzz", 0, 450, 1),
        ("onnx_fuzz", 450, 900, 1),
        ("reader_fuzz", 0, 1100, 10),
    ],
)
def test_inputs_end_in_a_sentence_or_the_right_result(tmp_path, program, first, last, least_groups):
    results = tmp_path / "results.jsonl"
    command = [
        *(sys.executable, str(BENCHMARKS / f"{program}.py"), "--results", str(results)),
        *("--from", str(first), "--to", str(last)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    _, *rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert sorted(row["trial"] for row in rows) == [*range(first, last)]
    assert len({row.get("group") for row in rows}) >= least_groups
    kinds = {kind for row in rows for kind in row["counts"]}
    assert kinds & {"exit 0", "read"}  # else all would be refused for what was not damaged
