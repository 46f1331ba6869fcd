"""Cells by axis: blanks are "and", commas are "or", patterns match whole names."""

import pytest

from qbench.errors import InputError
from qbench.judging import Cell
from qbench.suite import Selection

CELLS = [
    Cell("s", model, backend, schema, variant)
    for model in ("net_a", "net_b")
    for backend in ("ort-cpu", "ort-cpu-noopt")
    for schema, variant in (("fp32", ""), ("w8a8_sym_pc", ""), ("w8a8_sym_pc", "calib32"))
]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 12),
        ("model=net_a", 6),
        ("model=net_*", 12),
        ("model=net", 0),
        ("backend=ort-cpu", 6),
        ("backend=ort-cpu,ort-cpu-noopt", 12),
        ("model=net_a backend=ort-cpu schema=fp32", 1),
        ("schema=w8a8_*  variant=calib*", 4),
        ("schema=fp32 schema=w8a8_sym_pc", 12),
        ("model=NET_A", 0),
    ],
)
def test_what_is_selected(text, count):
    selection = Selection.parse(text)
    assert sum(selection.covers(cell) for cell in CELLS) == count


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("modell=a", "Did you mean 'model'"),
        ("model", "axis=pattern"),
        ("model=", "axis=pattern"),
        ("=x", "axis=pattern"),
    ],
)
def test_what_is_none(text, says):
    with pytest.raises(InputError, match=says):
        Selection.parse(text)
