"""The sources of qbench that count for a key, and the draw of cells that are measured anyway."""

import ast
import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbench
from qbench.suite.carrying import is_in_share
from qbench.suite.cell_parts import NOT_MEASURING, sources_part

PACKAGE = Path(qbench.__file__).parent
DAY = datetime.date(2026, 11, 24)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("errors.py", True),
        ("numerics/presets/ort.toml", True),
        ("evaluation/measure.py", True),
        ("reporting/html.py", False),
        ("plugin/items.py", False),
        ("evaluation/notes.md", False),
    ],
)
def test_a_change_of_a_source_that_measures_changes_the_part(tmp_path, name, counts):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a = 1\n")
    before = sources_part(tmp_path)
    path.write_text("a = 2\n")
    assert (sources_part(tmp_path) != before) == counts


def test_nothing_that_measures_imports_what_is_left_out():
    """But ``suite``, which starts searches for repairs: no number of a cell is theirs."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        package = path.relative_to(PACKAGE).parts[0]
        if package in (*NOT_MEASURING, "suite", "__init__.py", "__main__.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("qbench."):
                found.add((package, node.module.split(".")[1]))
    assert not {(one, other) for one, other in found if other in NOT_MEASURING}


@given(st.text(max_size=20), st.dates(), st.floats(0, 1), st.floats(0, 1))
def test_the_draw_is_the_same_everywhere_and_grows_with_the_share(cell, day, one, other):
    low, high = sorted((one, other))
    assert is_in_share(low, day, cell) == is_in_share(low, day, cell)
    assert not is_in_share(low, day, cell) or is_in_share(high, day, cell)
    assert not is_in_share(0, day, cell)
    assert is_in_share(1, day, cell)


def test_the_draw_is_a_share_of_all_cells_and_another_one_each_day():
    cells = [f"s::m{number}::b+s" for number in range(20_000)]
    days = [
        {one for one in cells if is_in_share(0.05, day, one)} for day in (DAY, DAY.replace(day=25))
    ]
    assert all(900 < len(day) < 1100 for day in days)
    assert 10 < len(days[0] & days[1]) < 100  # a twentieth of a twentieth
