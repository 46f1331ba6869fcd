"""Which losses of a run stand out from what chance would show in so many cells: a line of information, never a gate.

One test a quantized cell that labels judge, none of any other: McNemar's one-sided mid-p of its first metric that is a
share of right samples, adjusted over the run by Benjamini and Hochberg. Cells share samples and move together, which
it stands.
"""

from collections.abc import Sequence

from qbench.judging import FP32, benjamini_hochberg, loss_midp
from qbench.reporting.view import ABSENT, CellView, MetricView
from qbench.reporting.words import counted

LEVEL = 0.05
_NAMED = 3


def significant_losses(cells: Sequence[CellView]) -> tuple[tuple[tuple[CellView, float], ...], int]:
    """((cell, adjusted p) of the losses at 5 %, the surest first; how many cells were tested)."""
    tested = [(cell, metric) for cell in cells if (metric := _tested(cell)) is not None]
    adjusted = benjamini_hochberg([loss_midp(metric.losses, metric.gains) for _, metric in tested])
    found = [(cell, p) for (cell, _), p in zip(tested, adjusted, strict=True) if p <= LEVEL]
    return tuple(sorted(found, key=lambda pair: (pair[1], pair[0].key))), len(tested)


def significance_notice(cells: Sequence[CellView]) -> str:
    """The line; empty where fewer than two cells were tested, or none stands out."""
    found, tests = significant_losses(cells)
    if tests < 2 or not found:
        return ""
    named = ", ".join(cell.key.name for cell, _ in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    verb = "loses" if len(found) == 1 else "lose"
    return (
        f"{len(found)} of the {counted(tests, 'cell')} that labels judge {verb} more samples than chance explains "
        f"(Benjamini-Hochberg 5 %, for information): {named}{more}."
    )


def _tested(cell: CellView) -> MetricView | None:
    if cell.key.schema == FP32 or cell.outcome == ABSENT:
        return None
    return next((m for m in cell.metrics if m.proportion and m.against_labels and m.out_of == m.n), None)
