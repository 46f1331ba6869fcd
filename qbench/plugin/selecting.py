"""``--qbench-select`` and ``--qbench-shard``: which of the collected cells run."""

import pytest

from qbench.errors import InputError
from qbench.judging import Cell
from qbench.plugin.options import OPTIONS, Options
from qbench.suite import Selection, Shard


def check_selection(options: Options) -> None:
    """Refuse an expression or a share that cannot be read before anything is collected.

    Raises:
        pytest.UsageError: it cannot.
    """
    try:
        Selection.parse(options.select)
        Shard.parse(options.shard)
    except InputError as error:
        raise pytest.UsageError(str(error)) from error


def deselect_cells(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the cells that are not selected out of ``items``; tests that measure no cell stay."""
    options = config.stash[OPTIONS]
    selection, shard = Selection.parse(options.select), Shard.parse(options.shard)
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        cell = _cell_of(item)
        runs = cell is None or (selection.covers(cell) and shard.holds(cell.model))
        (kept if runs else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def _cell_of(item: pytest.Item) -> Cell | None:
    """The cell that ``item``'s marker names; its suite plays no part here."""
    axes = next((mark.kwargs for mark in item.iter_markers("qbench") if "model" in mark.kwargs), None)
    return None if axes is None else Cell("any", **axes)
