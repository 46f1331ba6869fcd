"""``--qbench-select``: which of the collected cells run."""

import pytest

from qbench.errors import InputError
from qbench.judging import Cell
from qbench.plugin.options import OPTIONS
from qbench.suite import Selection


def check_selection(text: str) -> None:
    """Refuse an expression that cannot be read before anything is collected.

    Raises:
        pytest.UsageError: it cannot.
    """
    try:
        Selection.parse(text)
    except InputError as error:
        raise pytest.UsageError(str(error)) from error


def deselect_cells(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the cells that are not selected out of ``items``; tests that measure no cell stay."""
    selection = Selection.parse(config.stash[OPTIONS].select)
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        cell = _cell_of(item)
        (kept if cell is None or selection.covers(cell) else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def _cell_of(item: pytest.Item) -> Cell | None:
    """The cell that ``item``'s marker names; its suite plays no part here."""
    axes = next((mark.kwargs for mark in item.iter_markers("qbench") if "model" in mark.kwargs), None)
    return None if axes is None else Cell("any", **axes)
