"""A cell counted in each part of its data alone."""

from qbench.errors import InputError
from qbench.evaluation.cell_model import CellModel
from qbench.evaluation.cell_run import CellRun
from qbench.evaluation.request import Request
from qbench.evaluation.scoring import uses_against_labels
from qbench.metrics import Score, slice_scores


def collect(
    request: Request, _: CellModel, run: CellRun, column: str
) -> dict[str, tuple[Score, ...]]:
    """Part of the data → its scores against labels.

    Args:
        column: what tells the parts apart: ``class``, or a column of the data.

    Raises:
        InputError: the data has no such parts, or there is no metric against labels that is a sum
            over samples.
    """
    found: dict[str, list[Score]] = {}
    for use in uses_against_labels(request, "slices"):
        data = request.subject.data[use.data]
        scores = slice_scores(
            use.metric,
            run.answers[use.data],
            labels=data.labels,
            reference=run.today[use.data],
            slices=data.slices(column),
            name=use.name,
            sources=data.drawn_from,
        )
        for name, one in scores.items():
            found.setdefault(name, []).append(one)
    if not found:
        raise InputError(
            f"Measuring '{request.cell}'",
            found=(
                "'slices', and metrics whose value is no sum over samples, which no slice has a "
                "share of"
            ),
            expected="a metric that counts every sample alone",
            remedy="Add a metric such as top1, or leave 'slices' out.",
        )
    return {name: tuple(scores) for name, scores in found.items()}
