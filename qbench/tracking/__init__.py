"""Verdicts → memory: baselines, what is accepted into them, run files, history, comparison, trends."""

from qbench.tracking.acceptance import (
    Acceptance,
    Accepting,
    Refusal,
    accept_measurements,
    demand_whole,
    is_taken,
)
from qbench.tracking.accepted_row import AcceptedRow
from qbench.tracking.accepted_table import accepted_lines, parts_text
from qbench.tracking.accepted_values import AcceptedLevel, AcceptedLevels, accepted_levels, accepted_value
from qbench.tracking.alerts import Alert, Kind, State, find_alerts
from qbench.tracking.annotations import ANNOTATIONS_FILE, Annotation, Ruling, load_annotations
from qbench.tracking.baseline import AcceptedCell, Baseline, StoredData
from qbench.tracking.baseline_file import (
    BaselineChange,
    baseline_path,
    changing_baseline,
    find_baseline,
    load_baseline,
    save_baseline,
)
from qbench.tracking.change_points import Level, find_change_points, find_levels
from qbench.tracking.comparison import COMPARED_KEYS, CellChange, MetricChange, Relation, compare_runs
from qbench.tracking.findings import finding_line, finding_of_line
from qbench.tracking.frame import MetricRow, cell_frame, metric_rows
from qbench.tracking.garbage import without_collector
from qbench.tracking.history import History, kept_keys, read_run, shown_path
from qbench.tracking.index import HistoryIndex
from qbench.tracking.index_file import INDEX_FILE
from qbench.tracking.leftovers import Leftover, find_leftovers, leftover_notes, orphan_notes, prune_leftovers
from qbench.tracking.merging import Merge, merge_run_files
from qbench.tracking.new_reference import accept_reference
from qbench.tracking.ordering import in_commit_order, main_line, measured_commit
from qbench.tracking.record import CellRecord, GateRecord, MetricRecord, cell_of_line, record_of_line
from qbench.tracking.regressions import Regression, group_alerts
from qbench.tracking.runs import FORMAT, Run
from qbench.tracking.scope import Scope
from qbench.tracking.shards import joined_shards, lacking_shares, shard_groups
from qbench.tracking.trend import TREND_KEYS, Point, Series, cut_levels, ordered_trends, steps_between, trend_series
from qbench.tracking.wanted import Wanted
from qbench.tracking.writing import RunWriter

__all__ = [
    "ANNOTATIONS_FILE",
    "COMPARED_KEYS",
    "FORMAT",
    "INDEX_FILE",
    "TREND_KEYS",
    "Acceptance",
    "AcceptedCell",
    "AcceptedLevel",
    "AcceptedLevels",
    "AcceptedRow",
    "Accepting",
    "Alert",
    "Annotation",
    "Baseline",
    "BaselineChange",
    "CellChange",
    "CellRecord",
    "GateRecord",
    "History",
    "HistoryIndex",
    "Kind",
    "Leftover",
    "Level",
    "Merge",
    "MetricChange",
    "MetricRecord",
    "MetricRow",
    "Point",
    "Refusal",
    "Regression",
    "Relation",
    "Ruling",
    "Run",
    "RunWriter",
    "Scope",
    "Series",
    "State",
    "StoredData",
    "Wanted",
    "accept_measurements",
    "accept_reference",
    "accepted_levels",
    "accepted_lines",
    "accepted_value",
    "baseline_path",
    "cell_frame",
    "cell_of_line",
    "changing_baseline",
    "compare_runs",
    "cut_levels",
    "demand_whole",
    "find_alerts",
    "find_baseline",
    "find_change_points",
    "find_leftovers",
    "find_levels",
    "finding_line",
    "finding_of_line",
    "group_alerts",
    "in_commit_order",
    "is_taken",
    "joined_shards",
    "kept_keys",
    "lacking_shares",
    "leftover_notes",
    "load_annotations",
    "load_baseline",
    "main_line",
    "measured_commit",
    "merge_run_files",
    "metric_rows",
    "ordered_trends",
    "orphan_notes",
    "parts_text",
    "prune_leftovers",
    "read_run",
    "record_of_line",
    "save_baseline",
    "shard_groups",
    "shown_path",
    "steps_between",
    "trend_series",
    "without_collector",
]
