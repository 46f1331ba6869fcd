"""Answers files, baselines and quarantine files that were damaged at random: an error in four
parts, or the same.
"""

import copy
import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest
from damaged_runs import LITERALS, ODD, places
from test_cli_git_conflict import holding

from qbench.cli.program import main
from qbench.errors import QbenchError
from qbench.metrics import open_answers
from qbench.suite import load_suite
from qbench.tracking import find_baseline, save_baseline

HEAD = {
    "format": "qbench-answers/1", "model": "net", "data": {"id": "d", "digest": "a" * 64},
    "lower": ["em"], "provenance": {"device": "Pixel 8", "firmware": "1", "tool": "qnn"},
}  # fmt: skip
RECORD = {
    "answer": [1, 2, 0],
    "scores": [3.0, 2.0, 1.0],
    "label": 1,
    "metrics": {"em": 0.5},
    "source": "s",
}
RECORDS = [HEAD, *({"id": f"x[{row}]"} | RECORD for row in range(4))]
SUITE = (
    '[suite]\nbackends = ["ort-cpu"]\nschemas = ["w8a8_asym_pt"]\n[[model]]\nid = "net"\n'
    'data = "v"\n'
)
ENTRY = """format = "qbench-quarantine/3"

[[cell]]
cell = "net::ort-cpu+w8a8_asym_pt"
measured = "top1 5 %"
reason = "r"
owner = "o"
expires = "2030-01-01"

[cell.values.x64-avx2]
top1 = 0.5
"""
WORDS = (
    "[[cell]]",
    "[cell]",
    '"',
    "2030-01-01",
    "nan",
    "1e999",
    "[]",
    "{}",
    "true",
    '"\\ud800"',
    "9999-99-99",
    '""',
)


def read_or_refused(read):
    """What ``read`` returns; None where it refuses by an error of four parts on one line."""
    try:
        return read()
    except QbenchError as error:
        refused = error
    assert all((refused.doing, refused.found, refused.expected, refused.remedy))
    assert "\n" not in str(refused)
    return None


def with_other_bytes(noise, data):
    """``data`` cut short, with other bytes, or with a stretch twice."""
    kind, data = noise.randrange(3), bytearray(data)
    first, last = sorted(noise.randrange(len(data)) for _ in "ab")
    if kind == 0:
        return bytes(data[:first])
    if kind == 1:
        for _ in range(noise.randint(1, 12)):
            data[noise.randrange(len(data))] = noise.randrange(256)
        return bytes(data)
    return bytes(data[:last] + data[first:])


def with_other_fields(noise, records):
    """The bytes of ``records``, a line each,
    one of which lacks a field or has another value or name.
    """
    records = copy.deepcopy(records)
    *path, last = noise.choice(list(places(record := noise.choice(records))))
    inside = record
    for key in path:
        inside = inside[key]
    kind = noise.randrange(4)
    if kind == 0:
        del inside[last]
    elif kind == 1 and isinstance(last, str):
        inside[noise.choice(("x", "answer", "scores", "", "format"))] = inside.pop(last)
    else:
        inside[last] = "@" if kind == 2 else copy.deepcopy(noise.choice(ODD))
    text = "\n".join(map(json.dumps, records))
    return text.replace('"@"', noise.choice(LITERALS)).encode("utf-8", "replace")


def damaged(noise, records):
    if noise.random() < 0.5:
        return with_other_fields(noise, records)
    return with_other_bytes(noise, "\n".join(map(json.dumps, records)).encode())


def whole(path):
    """Every record of an answers file, which is read line by line."""
    file = open_answers(path)
    return file.header, list(file.records()), file.named_classes()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_damaged_answers_are_a_traceback(tmp_path, monkeypatch, seed):
    monkeypatch.chdir(tmp_path)
    noise = random.Random(seed)
    Path("good.jsonl").write_text("\n".join(map(json.dumps, RECORDS)))
    np.savez(
        "good.npz",
        id=np.array([f"x[{row}]" for row in range(4)]),
        answer=np.arange(12).reshape(4, 3) % 3,
    )
    archive = Path("good.npz").read_bytes()
    for _ in range(60):
        Path("odd.jsonl").write_bytes(damaged(noise, RECORDS))
        read_or_refused(lambda: whole(Path("odd.jsonl")))
        for words in (("good.jsonl", "odd.jsonl"), ("odd.jsonl", "good.jsonl")):
            assert main(["compare", *words, "--margin", "0.1"]) in {0, 1, 2, 3, 4}
        Path("odd.npz").write_bytes(with_other_bytes(noise, archive))
        read_or_refused(lambda: whole(Path("odd.npz")))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_damaged_baseline_is_a_traceback_and_its_answers_are_as_they_were(tmp_path, seed):
    noise = random.Random(seed)
    path = tmp_path / "baselines" / "s" / "net.json"
    cells = {"a": 5, "z": 2}
    save_baseline(
        path, holding(cells, floors={"agreement": 4}, calibrations={"default": {"x": (0.0, 1.0)}})
    )
    (arrays,) = (one for one in path.parent.iterdir() if one.suffix == ".npz")
    table, packed = json.loads(path.read_text()), arrays.read_bytes()
    for _ in range(150):
        path.write_bytes(damaged(noise, [table]))
        for keeps in (False, True):
            read_or_refused(lambda keeps=keeps: find_baseline(path, keep_whole_parts=keeps))
    path.write_text(json.dumps(table))
    before = find_baseline(path)
    for _ in range(100):
        arrays.write_bytes(with_other_bytes(noise, packed))
        after = read_or_refused(lambda: find_baseline(path))
        if after is not None:
            assert after.stored["points"].digest == before.stored["points"].digest
            assert repr(dataclasses.replace(after, stored={})) == repr(
                dataclasses.replace(before, stored={})
            )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_damaged_quarantine_file_is_a_traceback(tmp_path, seed):
    noise = random.Random(seed)
    suite, listed = tmp_path / "s.qbench.toml", tmp_path / "s.quarantine.toml"
    suite.write_text(SUITE)
    for _ in range(150):
        lines = ENTRY.splitlines()
        place = noise.randrange(len(lines))
        lines[place] = f"{lines[place].partition('=')[0]}= {noise.choice(WORDS)}"
        text = (
            "\n".join(lines).encode()
            if noise.random() < 0.5
            else with_other_bytes(noise, ENTRY.encode())
        )
        listed.write_bytes(text)
        read_or_refused(lambda: load_suite(suite))
