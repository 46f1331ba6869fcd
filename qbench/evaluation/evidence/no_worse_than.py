"""The same quantized graphs and samples on another backend, which a cell must not be worse than."""

from contextlib import ExitStack

from qbench.backends import Backend
from qbench.errors import InputError
from qbench.evaluation.artifacts import answered, prepare_runners
from qbench.evaluation.cell_model import CellModel
from qbench.evaluation.cell_run import CellRun
from qbench.evaluation.request import Request
from qbench.evaluation.scoring import score_of
from qbench.metrics import Against, Score


def collect(request: Request, model: CellModel, run: CellRun, other: Backend) -> tuple[Score, ...]:
    """The scores against labels, counted against the answers of ``other``: its hits are
    ``reference_hits``.

    Raises:
        InputError: no metric counts against labels, so that there is no loss to compare.
    """
    uses = [use for use in request.subject.metrics if use.metric.against is Against.LABELS]
    if not uses:
        raise InputError(
            f"Comparing '{request.cell}' with '{other.name}'",
            found="no metric that counts against labels",
            expected="one, for 'no_worse_than' compares losses",
            remedy="Add a metric such as top1, or use 'close_to'.",
        )
    task = request.subject.model.task
    with ExitStack() as stack:
        runners = prepare_runners(other, model.graphs, stack, threads=request.threads)
        theirs = {name: answered(task, runners, data) for name, data in run.samples.items()}
    single = [use for use in uses if not use.metric.of_run]
    return tuple(score_of(request, use, run.answers[use.data], theirs[use.data]) for use in single)
