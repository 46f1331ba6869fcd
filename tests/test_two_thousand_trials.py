"""Two thousand trials of the programs that draw them by their numbers, always the same ones.

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
    ("program", "first", "last", "groups", "kind"),
    [
        ("onnx_fuzz", 0, 450, 1, "exit 0"),
        ("onnx_fuzz", 450, 900, 1, "exit 0"),
        ("reader_fuzz", 0, 1100, 11, "read"),
        ("accept_safety", 0, 5, 5, "kills"),
        ("cache_damage", 0, 8, 8, "noticed"),
        ("file_faults", 0, 2, 2, "old"),
    ],
)
def test_no_trial_is_wrong(tmp_path, program, first, last, groups, kind):
    results = tmp_path / "results.jsonl"
    command = [
        *(sys.executable, str(BENCHMARKS / f"{program}.py"), "--results", str(results)),
        *("--from", str(first), "--to", str(last)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    _, *rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert sorted(row["trial"] for row in rows) == [*range(first, last)]
    assert len({row.get("group") for row in rows}) == groups
    assert any(row["counts"].get(kind) for row in rows)  # else nothing was damaged or tried
