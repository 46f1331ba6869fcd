"""``qbench eval --parts``: what the schema costs, and what the backend's way of counting adds."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from qbench.cli.printing import print_columns
from qbench.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.evaluation import KeptAnswers, SharedWork
    from qbench.judging import LossParts, Part


def count_parts(
    shared: "SharedWork", graphs: "Mapping[str, ir.Model]", kept: "KeptAnswers", *, threads: int
) -> "tuple[LossParts, ...]":
    """The two parts of every metric against labels.

    Args:
        shared: of a subject with one data set. graphs: its quantized graphs. kept: holds the backend's answers to it.
        threads: of the engine.

    Raises:
        InputError: no metric is against labels. QbenchError: the graphs do not run on the ideal machine.
    """
    from qbench.backends import get_backend
    from qbench.judging import IDEAL, parts_of_scores
    from qbench.metrics import Against, score

    ((name, data),) = shared.subject.data.items()
    uses = [use for use in shared.subject.metrics if use.metric.against is Against.LABELS]
    if not uses:
        raise InputError(
            f"Splitting the loss of '{shared.subject.model.id}' into parts",
            found="no metric against labels",
            expected="one: agreement with fp32 does not add up",
            remedy="Bring labels, or leave --parts out.",
        )
    measured, reference = kept.last, shared.reference()[name]
    assert measured is not None
    ideal = shared.answer(get_backend(IDEAL), graphs, data, threads=threads)
    return tuple(
        parts_of_scores(
            score(use.metric, ideal, labels=data.labels, reference=reference, name=use.name),
            score(use.metric, measured, labels=data.labels, reference=ideal, name=use.name),
        )
        for use in uses
    )


def print_parts(parts: "Sequence[LossParts]", backend: str) -> None:
    """One line a step of every metric."""
    print()
    rows = [
        row
        for one in parts
        for row in (
            (one.metric, "fp32", _share(one.schema.before, one.schema), "", "", ""),
            ("", "schema: integer-ideal", *_step(one.schema)),
            ("", f"counting: {backend}", *_step(one.counting)),
        )
    ]
    print_columns(rows, ("metric", "part", "value", "change", "losses", "gains"))


def _step(part: "Part") -> tuple[str, str, str, str]:
    change = f"{100 * part.change:+.2f} pp".replace("-0.00", "+0.00")
    return _share(part.after, part), change, str(part.losses), str(part.gains)


def _share(hits: int, part: "Part") -> str:
    return f"{100 * hits / part.out_of:.2f} %  {hits}/{part.out_of}"
