"""Logs of other tools from Python: what ``qbench import`` reads is a value of `qbench.metrics`."""

import json

import pytest

from qbench.errors import InputError
from qbench.metrics import (
    LogChoices,
    answer_lines,
    join_foreign_logs,
    open_answers,
    open_foreign_log,
)


def write_log(path, answers, *, name="strict"):
    lines = [
        {
            "doc_id": number,
            "filtered_resps": [answer],
            "filter": name,
            "metrics": ["exact_match"],
            "exact_match": 1.0,
        }
        for number, answer in enumerate(answers)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_a_log_becomes_a_file_of_answers(tmp_path):
    log = open_foreign_log(
        write_log(tmp_path / "samples_sums_2026.jsonl", ["7", "8"]), LogChoices(filter="strict")
    )
    assert (log.header.data.id, log.header.provenance.tool, log.notes) == ("sums", "lm-eval", [])
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b"".join(answer_lines(log.header, log.records)))
    found = [(record.id, record.answer, record.metrics) for record in open_answers(path).records()]
    assert found == [("0", "7", {"exact_match": 1.0}), ("1", "8", {"exact_match": 1.0})]


def test_several_logs_become_one_with_ids_of_their_tasks(tmp_path):
    paths = [
        write_log(tmp_path / f"samples_{task}_2026.jsonl", ["7"]) for task in ("sums", "signs")
    ]
    log = join_foreign_logs([(path.name, open_foreign_log(path)) for path in paths])
    assert log.header.data.id == "sums+signs"
    assert [record.id for record in log.records] == ["sums/0", "signs/0"]


def test_a_file_of_no_known_tool_is_refused(words, tmp_path):
    path = tmp_path / "log.parquet"
    path.touch()
    with pytest.raises(InputError) as refused:
        open_foreign_log(path)
    words(refused.value.found)
