"""A few cases of benchmarks/onnx_fuzz.py: no traceback, hang, crash, leak or score that ONNX
Runtime does not give.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "benchmarks" / "onnx_fuzz.py"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [101, 102])
def test_mutated_models_end_in_a_sentence_or_the_right_score(tmp_path, seed):
    out = tmp_path / "cases.jsonl"
    command = [sys.executable, str(FUZZ), "--cases", "90", "--seed", str(seed), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert len([json.loads(line) for line in out.read_text().splitlines()]) == 90
