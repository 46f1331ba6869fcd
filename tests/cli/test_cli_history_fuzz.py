"""Run files that were damaged at random, read by every command that reads a history:
never a traceback.
"""

import random
from pathlib import Path

import pytest
from damaged_runs import CODES, COMMANDS, fuzzed_lines, mutated, night_of_jobs, plain_history

from qbench.cli.program import main


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_no_damaged_run_file_is_a_traceback(tmp_path, monkeypatch, capsys, seed):
    monkeypatch.chdir(tmp_path)
    noise = random.Random(seed)
    plain_history(Path("reports/history"))
    night_of_jobs(Path("reports/history"))
    for trial in range(25):
        Path("reports/history/odd.jsonl").write_bytes(mutated(noise, fuzzed_lines(noise)))
        for command in COMMANDS:
            assert main(command) in CODES, (seed, trial, command)
        capsys.readouterr().out.encode("utf-8")
