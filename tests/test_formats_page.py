"""What ``benchmarks/formats.py --schemas`` writes into its page: the rows that were measured, and
no others.
"""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PAGE = """# Formats compared

## gloss_decoder

| schema | format | engine |
|---|---|---|
| fp32 | float32 | ort-cpu | old |
| `kv8c` | keys | ort-cpu | old |
| `kv8c` | keys | openvino | old |
| `kv4c` | keys | ort-cpu | old |
"""


@pytest.fixture
def formats(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("formats")
    sys.modules.pop("formats", None)


def test_a_row_stays_where_its_engine_was_not_measured(formats, monkeypatch):
    def row(model, schema, engine, _cache):
        if (model, engine) == ("gloss_decoder", "ort-cpu"):
            return f"| `{schema}` | keys | {engine} | new |"
        return None

    monkeypatch.setattr(formats, "row", row)
    monkeypatch.setattr(formats, "commit_here", lambda: "0123")
    text = formats.page_with(["kv8c"], None, PAGE)
    rows = [line for line in text.splitlines() if line.startswith(("| `", "| fp32"))]
    assert sorted(rows) == [
        "| `kv4c` | keys | ort-cpu | old |",
        "| `kv8c` | keys | openvino | old |",
        "| `kv8c` | keys | ort-cpu | new |",
        "| fp32 | float32 | ort-cpu | old |",
    ]
