"""The bytes of the graphs of a cell as files, and of the float model."""

from collections.abc import Mapping

import onnx_ir as ir

from qbench.evaluation.cell_model import CellModel
from qbench.evaluation.cell_run import CellRun
from qbench.evaluation.request import Request
from qbench.graph import model_bytes


def collect(request: Request, model: CellModel, _: CellRun, __: object) -> dict[str, int]:
    """``cell`` and ``fp32``: bytes of all graphs, each as one ONNX file with its constants.

    A model that came quantized without a float model has an ``fp32`` of 0.

    Raises:
        UnsupportedError: a graph does not fit into one file.
    """
    has_float = request.subject.given is None or request.subject.given is not request.subject.model
    return {"cell": _bytes(model.graphs), "fp32": _bytes(request.shared.graphs) if has_float else 0}


def _bytes(graphs: Mapping[str, ir.Model]) -> int:
    return sum(len(model_bytes(graph)) for graph in graphs.values())
