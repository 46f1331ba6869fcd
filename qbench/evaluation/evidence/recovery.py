"""A cell counted against what the float model scores today."""

from qbench.evaluation.cell_model import CellModel
from qbench.evaluation.cell_run import CellRun
from qbench.evaluation.request import Request
from qbench.evaluation.scoring import score_of, uses_against_labels
from qbench.metrics import Score


def collect(request: Request, _: CellModel, run: CellRun, __: float) -> tuple[Score, ...]:
    """The scores against labels, counted against the fp32 run of today; empty where there is no
    float model.

    Raises:
        InputError: there is no metric against labels.
    """
    uses = uses_against_labels(request, "recovery")
    if request.subject.given is request.subject.model:
        return ()
    today = request.shared.reference()
    return tuple(score_of(request, use, run.answers[use.data], today[use.data]) for use in uses)
