"""What a cell is measured by beyond its answers: one file for each kind of gate that asks for
evidence.
"""

from importlib import import_module
from typing import Any

from qbench.evaluation.cell_model import CellModel
from qbench.evaluation.cell_run import CellRun
from qbench.evaluation.request import Request
from qbench.judging import GateKind


def collect_evidence(request: Request, model: CellModel, run: CellRun) -> dict[GateKind, Any]:
    """Kind of gate → its evidence, of all that the gates of a cell ask for.

    The gate ``GateKind.NAME`` has its evidence from ``collect`` of the file ``name.py`` here.

    Raises:
        QbenchError: what a collector raises.
    """
    found = {}
    for kind, by in request.asked.items():
        collector = import_module(f"{__name__}.{kind.name.lower()}")
        found[kind] = collector.collect(request, model, run, by)
    return found
