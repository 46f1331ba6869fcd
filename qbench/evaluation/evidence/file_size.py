"""The bytes of the graphs of a cell as files, and of the float model."""

from collections.abc import Mapping

import onnx_ir as ir

from qbench.errors import UnsupportedError
from qbench.evaluation.cell_model import CellModel
from qbench.evaluation.cell_run import CellRun
from qbench.evaluation.request import Request
from qbench.graph import model_bytes


def collect(request: Request, model: CellModel, _: CellRun, __: object) -> dict[str, int | None]:
    """``cell`` and ``fp32``: bytes of all graphs, each as one ONNX file with its constants.

    None where a graph does not fit into one file, and for ``fp32`` of a model that came quantized
    without a float one.
    """
    is_alone = request.subject.given is request.subject.model
    return {
        "cell": graph_bytes(model.graphs),
        "fp32": None if is_alone else graph_bytes(request.shared.graphs),
    }


def graph_bytes(graphs: Mapping[str, ir.Model]) -> int | None:
    """The bytes of ``graphs``, each as one ONNX file with its constants; None: one does not fit."""
    try:
        return sum(len(model_bytes(graph)) for graph in graphs.values())
    except UnsupportedError:
        return None
