"""The history that the repository ships: runs on the data of today's baselines, and of no other."""

from pathlib import Path

import pytest

from qbench.tracking import baseline_path, find_baseline, read_run

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "reports/history/shipped").glob("*.jsonl"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_shipped_runs_are_whole_and_of_the_data_of_today(file):
    run = read_run(file)
    assert run.complete
    for record in run.cells:
        known = find_baseline(baseline_path(ROOT / "baselines", run.suite, record.model))
        assert known is not None, record.model
        data = {name: stored.digest for name, stored in known.data.items()}
        measured = record.digests_of("data")
        assert measured == {name: data.get(name) for name in measured}, str(record.cell)


def test_there_is_a_history_to_begin_with():
    assert FILES
