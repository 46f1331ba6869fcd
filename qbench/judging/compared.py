"""What a run beside another backend counted, as text and plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstNode:
    """Where two runs of one batch part first.

    Args:
        origin: the fp32 node whose integers differ; empty when no compared value of the batch does.
        elements: how many of its integers differ. steps: the largest difference of two of them.
        note: what a reader should know about the search, such as that watching an engine changed it.
    """

    origin: str
    elements: int = 0
    steps: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a run beside another backend counted, over all graph outputs of all samples.

    Args:
        backend, environment_class: the other one, and the class of its results here.
        elements, differing: of all outputs.
        unbounded: differing elements that no number bounds: one of the two is NaN or infinite.
        steps: largest difference of the others in output steps; None: no output has a grid.
        relative: their largest |a − b| / max|b|.
        graph, sample: of the first difference; empty when there is none.
        first: where it comes from; None: nothing to look for.
    """

    backend: str
    environment_class: str = ""
    elements: int
    differing: int
    unbounded: int = 0
    steps: float | None = None
    relative: float = 0.0
    graph: str = ""
    sample: str = ""
    first: FirstNode | None = None
