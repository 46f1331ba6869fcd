"""What a cell is measured by beyond its answers: one file for each kind of evidence that a gate asks for."""

from collections.abc import Callable, Mapping
from typing import Any

from qbench.evaluation.cell_model import CellModel
from qbench.evaluation.cell_run import CellRun
from qbench.evaluation.evidence.no_worse_than import collect_no_worse_than
from qbench.evaluation.evidence.recovery import collect_recovery
from qbench.evaluation.evidence.slices import collect_slices
from qbench.evaluation.request import Request
from qbench.judging import EvidenceKind

Collector = Callable[[Request, CellModel, CellRun, Any], object]
"""Measures one kind of evidence of a cell that was run; the last argument is what it is measured by."""

COLLECT: Mapping[EvidenceKind, Collector] = {
    EvidenceKind.NO_WORSE_THAN: collect_no_worse_than,
    EvidenceKind.RECOVERY: collect_recovery,
    EvidenceKind.SLICES: collect_slices,
}
