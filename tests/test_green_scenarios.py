"""A few rows of ``benchmarks/green_scenarios.py``, which has all of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = (
    *(
        "nothing",
        "loader:skip, other class",
        "loader:skip",
        "backend:not fetched",
        "run:os._exit",
        "task:pytest.exit",
    ),
    *("sample:SkipTest", "output:text", "output:rank", "mark:skip"),
)
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "green_scenarios.py"


@pytest.mark.slow
def test_no_row_is_green_wrongly(tmp_path):
    results = tmp_path / "results.jsonl"
    command = [sys.executable, str(SCRIPT), "--results", str(results), "--rows", *ROWS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    _, *rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert done.returncode == 0, done.stdout
    assert {row["about"] for row in rows} == {*ROWS}
    red = [row["counts"] for row in rows if "should be red" in row["counts"]]
    assert len(red) == 8
    assert all(counts.keys() & {"exit 1", "exit 2", "exit 3"} for counts in red)
