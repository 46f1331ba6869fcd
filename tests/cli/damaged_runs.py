"""Run files of every kind of night, and the same with something wrong."""

import copy
import datetime
import json
from pathlib import Path

from trend_history import CLASS, TrendHistory

CELL = TrendHistory.CELL
CODES = {0, 1, 2, 3, 4}
COMMANDS = (
    ["history", "show", CELL],
    ["history", "check"],
    ["compare", "20260101", "latest"],
    ["report", "--report", "html", "--report", "md"],
    *(
        ["export", "all", "--format", form]
        for form in ("csv", "json", "junit", "github-benchmark", "bencher")
    ),
    ["accept", "latest", "--dry-run"],
)
DEEP: list = []
for _ in range(60):
    DEEP = [DEEP]
ODD = (
    None, True, False, 0, -1, 1, 3.5, 1e308, -1e308, 2**63, -(2**70), 10**400, "", "x", "\ud800",
    "a\nb\x1b[31m::error", "2026-01-01T00:00:00+00:00", "9999-12-31T23:59:59-14:00", [], [1],
    ["x", None], {}, {"a": 1}, {"": {}}, DEEP, "1/0", "1/2", "2/2", "9" * 5000,
)  # fmt: skip
LITERALS = (
    "NaN",
    "Infinity",
    "1e999",
    "-1e400",
    "[" * 20_000,
    '{"a":1,"a":[]}',
    "01",
    '"\\ud83d"',
    "9" * 5000,
)


def gate(metric):
    return {
        "kind": "loss",
        "metric": metric,
        "state": "broken",
        "detail": "d",
        "rule": "r",
        "limit": 0.9,
    }


def lines(number, hits):
    """The records of one whole run file."""
    started = datetime.datetime(2026, 1, 1 + number, 4, tzinfo=datetime.UTC)
    counts = {"n": 360, "hits": hits, "out_of": 360, "reference_hits": 357, "losses": 3, "gains": 1}
    facts = {
        "direction": "higher",
        "against": "labels",
        "unit": "%",
        "proportion": True,
        "least_margin": 0.0,
    }
    cell = {
        "type": "cell", "suite": "smoke", "model": "digits_cnn", "backend": "ort-cpu",
        "schema": "w8a8_asym_pc", "variant": "", "outcome": "failed", "headline": "h", "rule": "r",
        "gates": [gate("top1")], "notices": ["n"], "remedy": "m", "environment_class": CLASS,
        "n": 360, "fp32_correct": 357, "correct": hits, "losses": 3, "gains": 1,
        "metrics": {"top1": {**facts, **counts, "value": hits / 360}},
        "digests": {"model": "aa", "data:digits": "bb", "predictions:digits": f"cc{hits}",
                    "arithmetic": "ort"},
        "changed": {"digits": ["d1"]}, "changed_count": {"digits": 3}, "ties": {"digits": 0},
        "macs": 100, "integer_macs": 0.98, "refusals": ["why"], "refusal_count": 1,
        "seconds": {"prepare": 0.1, "inference": 0.2},
    }  # fmt: skip
    node = {"node": "Conv_0", "op_type": "Conv"}
    finding = {
        "type": "finding",
        **{key: cell[key] for key in ("suite", "model", "backend", "schema", "variant")},
    }
    stamp = started.isoformat(timespec="milliseconds")
    header = {
        "type": "run",
        "format": "qbench-run/1",
        "id": f"2026010{1 + number}T040000000Z-aaaaaaa-t",
        "suite": "smoke",
    }
    header |= {
        "started": stamp,
        "sequence": number + 1,
        "after": f"2026010{number}T040000000Z-aaaaaaa-t",
    }
    commit = {
        "sha": f"{number:040x}",
        "short": f"{number:09x}",
        "committed": stamp,
        "branch": "main",
        "dirty": False,
    }
    header |= {
        "commit": commit,
        "complete_selection": True,
        "planned": 2,
        "selected": 2,
        "limited": None,
        "select": "",
    }
    environment = {
        "type": "environment",
        "processor": "x64-avx2",
        "cores": 2,
        "versions": {"onnxruntime": "1.31"},
    }
    return [
        header, environment, cell, {**cell, "schema": "fp32", "outcome": "passed"},
        {**finding, "finding": {"nodes": [node], "suspects": [], "notes": ["n"]}},
        {"type": "note", "text": "t"}, {"type": "end", "cells": 2, "exit_code": 0},
    ]  # fmt: skip


def places(value, path=()):
    """The path of every value inside ``value``."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, one in inner:
        yield (*path, key)
        yield from places(one, (*path, key))


def mutated(noise, records):
    """The bytes of a run file of ``records`` with something wrong."""
    kind = noise.randrange(8)
    if kind < 4:  # one value is another, missing, doubled, or no JSON
        records = copy.deepcopy(records)
        record = noise.choice(records[:5])
        every = list(places(record))
        *path, last = noise.choice([path for path in every if len(path) <= noise.randint(1, 4)])
        inside = record
        for key in path:
            inside = inside[key]
        if kind == 0:
            del inside[last]
        else:
            inside[last] = "@" if kind == 1 else copy.deepcopy(noise.choice(ODD))
        text = "\n".join(map(json.dumps, records)) + "\n"
        return text.replace('"@"', noise.choice(LITERALS)).encode("utf-8", "replace")
    data = bytearray("".join(json.dumps(one) + "\n" for one in records).encode())
    if kind == 4:
        return bytes(data[: noise.randrange(len(data))])
    if kind == 5:
        for _ in range(noise.randint(1, 20)):
            data[noise.randrange(len(data))] = noise.randrange(256)
        return bytes(data)
    rows = bytes(data).split(b"\n")
    if kind == 6:
        noise.shuffle(rows)
    else:
        rows.insert(noise.randrange(len(rows)), noise.choice(rows))
    return b"\n".join(rows)


def plain_history(folder: Path, count: int = 3) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        text = "".join(json.dumps(one) + "\n" for one in lines(number, 356 - number))
        (folder / f"night{number}.jsonl").write_text(text)


def job_lines(index, attempt, hits, of=2):
    """The records of an attempt of a job."""
    records = lines(0, hits)
    plan = "a" * 16
    job = {"plan": plan, "index": index, "of": of, "attempt": attempt}
    records[0] |= {"id": f"{plan}-j{index:04}-a{attempt:02}-smoke", "job": job}
    records[0]["complete_selection"] = False
    for cell in records[2:4]:
        cell["backend"] = f"ort-cpu{index}"
    return records


def resumed_lines(hits):
    """The records of a run that goes on with the first of ``plain_history``."""
    records = lines(3, hits)
    records[0]["resumes"] = "20260101T040000000Z-aaaaaaa-t"
    return records


def carried_lines(hits):
    """The records of a run with a carried cell, and one that was taken over by resuming."""
    header, environment, carried, taken, *others = lines(3, hits)
    source = {"run": "20260101T040000000Z-aaaaaaa-t", "measured": "2026-01-01T04:00:00+00:00"}
    key = {"version": 1, "parts": {"model": "#" + "a" * 16, "package onnxruntime": "1.31"}}
    carried |= {"carried": {**source, "commit": "c"}, "key": key}
    taken |= {"resumed_from": source["run"], "key": key}
    started = {
        "type": "started",
        **{name: taken[name] for name in ("suite", "model", "backend", "schema", "variant")},
    }
    return [header, environment, carried, started, taken, *others]


def fuzzed_lines(noise):
    """The records of a run, of a job, of a run that resumes another one, or with carried cells."""
    hits = noise.choice((350, 356))
    kinds = (
        lambda: lines(noise.choice((1, 3)), hits),
        lambda: job_lines(noise.choice((1, 2)), noise.choice((1, 2)), hits),
        lambda: resumed_lines(hits),
        lambda: carried_lines(hits),
    )
    return noise.choice(kinds)()


def night_of_jobs(folder: Path) -> None:
    """Both jobs of a plan, the first of them tried twice."""
    for index, attempt in ((1, 1), (1, 2), (2, 1)):
        records = job_lines(index, attempt, 356 - attempt)
        path = folder / f"{records[0]['id']}.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in records))
