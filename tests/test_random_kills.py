"""A few trials of ``benchmarks/random_kills.py``, at least one of each activity."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "random_kills.py"


@pytest.mark.slow
def test_a_kill_loses_nothing_that_was_finished(tmp_path):
    results = tmp_path / "results.jsonl"
    command = [sys.executable, str(SCRIPT), "--to", "16", "--longest", "600"]
    done = subprocess.run(
        [*command, "--results", str(results)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in results.read_text().splitlines()[1:]]
    assert len(rows) == 16
    assert len({row["group"] for row in rows}) == 8
    assert any("killed" in row["counts"] for row in rows)
