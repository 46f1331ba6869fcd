"""Verdicts → memory: baselines, what is accepted into them, run files, history, comparison, trends."""

from qbench.tracking.acceptance import (
    Acceptance,
    AcceptedRow,
    Accepting,
    Refusal,
    Scope,
    accept_measurements,
    accept_reference,
    demand_whole,
)
from qbench.tracking.baseline import AcceptedCell, Baseline, StoredData
from qbench.tracking.baseline_file import baseline_path, load_baseline, save_baseline
from qbench.tracking.change_points import Level, find_change_points, find_levels
from qbench.tracking.comparison import CellChange, MetricChange, Relation, compare_runs
from qbench.tracking.frame import cell_frame
from qbench.tracking.history import History, read_run
from qbench.tracking.runs import FORMAT, Run, cell_line, cell_of_line, measurement_of_line
from qbench.tracking.trend import Point, Series, cut_levels, trend_series
from qbench.tracking.writing import RunWriter

__all__ = [
    "FORMAT",
    "Acceptance",
    "AcceptedCell",
    "AcceptedRow",
    "Accepting",
    "Baseline",
    "CellChange",
    "History",
    "Level",
    "MetricChange",
    "Point",
    "Refusal",
    "Relation",
    "Run",
    "RunWriter",
    "Scope",
    "Series",
    "StoredData",
    "accept_measurements",
    "accept_reference",
    "baseline_path",
    "cell_frame",
    "cell_line",
    "cell_of_line",
    "compare_runs",
    "cut_levels",
    "demand_whole",
    "find_change_points",
    "find_levels",
    "load_baseline",
    "measurement_of_line",
    "read_run",
    "save_baseline",
    "trend_series",
]
