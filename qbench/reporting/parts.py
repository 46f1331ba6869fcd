"""Which cells of a run have a loss in two parts: those beside which ``integer-ideal`` ran the very same graph."""

from collections.abc import Iterable
from dataclasses import replace

from qbench.judging import IDEAL, LossParts, parts_of_counts
from qbench.reporting.view import CellView


def with_parts(cells: Iterable[CellView]) -> tuple[CellView, ...]:
    """``cells``, each with the parts of its lead metric's change where they can be told."""
    found = tuple(cells)
    ideals = {(c.key.model, c.key.column): c for c in found if c.key.backend == IDEAL}
    return tuple(replace(cell, parts=_parts(cell, ideals.get((cell.key.model, cell.key.column)))) for cell in found)


def _parts(cell: CellView, ideal: CellView | None) -> LossParts | None:
    """None unless both scored the same samples with the same quantized graph, beside the same fp32 answers."""
    if ideal is None or cell.key.backend == IDEAL or cell.lead is None or not cell.lead.against_labels:
        return None
    same = cell.data == ideal.data and "quantized" in cell.digests
    middle = next((metric for metric in ideal.metrics if metric.name == cell.lead.name), None)
    if not same or middle is None or cell.digests["quantized"] != ideal.digests.get("quantized"):
        return None
    if (middle.reference_hits, middle.out_of) != (cell.lead.reference_hits, cell.lead.out_of):
        return None
    return parts_of_counts(
        cell.lead.name,
        reference=cell.lead.reference_hits,
        ideal=middle.hits,
        hits=cell.lead.hits,
        out_of=cell.lead.out_of,
        unit=cell.lead.unit,
    )
