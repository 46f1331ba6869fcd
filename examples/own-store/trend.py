"""Prints the values of every metric of every cell over the runs in the database,
the earliest run first.
"""

from pathlib import Path

from table_store import TableStore

from qbench.tracking import History, ordered_trends

history = History(TableStore(Path(__file__).parent / "history.db"))
for series in ordered_trends(history.each(history.nights())):  # runs are read one at a time
    print(series.cell, series.metric, *(f"{point.value:.4f}" for point in series.points))
