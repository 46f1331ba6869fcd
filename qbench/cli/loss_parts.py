"""``qbench eval --parts``: the loss that comes from the schema, and the loss that the backend's
arithmetic adds.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from qbench.cli.printing import print_columns, put
from qbench.errors import InputError
from qbench.number_text import MINUS

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.evaluation import RecordingTask, SubjectArtifacts
    from qbench.judging import LossParts, Part


def count_parts(
    shared: "SubjectArtifacts",
    graphs: "Mapping[str, ir.Model]",
    kept: "RecordingTask",
    *,
    threads: int,
) -> "tuple[LossParts, ...]":
    """The two parts of every metric against labels.

    Args:
        shared: what the cells of the subject share; the subject has one data set.
        graphs: the quantized graphs of the subject.
        kept: holds the backend's answers to that data set.
        threads: of the engine.

    Raises:
        InputError: no metric is against labels. QbenchError: the ideal arithmetic does not run the
            graphs.
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
            expected="at least one: agreement with fp32 cannot be split into parts",
            remedy="Use labelled data, or leave --parts out.",
        )
    measured = kept.last
    reference = shared.reference()[name]
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
    """Three lines for each metric: fp32, what the schema adds, what the arithmetic of
    ``backend`` adds.
    """
    put()
    rows: list[tuple[str, ...]] = []
    for metric in parts:
        before = _value(metric.schema.before, metric.schema, metric.unit)
        rows.append((metric.metric, "fp32", before, "", "", ""))
        rows.append(("", "schema: integer-ideal", *_step(metric.schema, metric.unit)))
        rows.append(("", f"counting: {backend}", *_step(metric.counting, metric.unit)))
    print_columns(rows, ("metric", "part", "value", "change", "losses", "gains"))


def _step(part: "Part", unit: str) -> tuple[str, str, str, str]:
    scale, word, digits = (100, "pp", ".2f") if unit == "%" else (1, unit, ".4f")
    # what rounds to nothing has no sign of its own
    change = round(scale * part.change, int(digits[1])) + 0.0
    return (
        _value(part.after, part, unit),
        f"{change:+{digits}} {word}".rstrip().replace("-", MINUS),
        str(part.losses),
        str(part.gains),
    )


def _value(hits: int, part: "Part", unit: str) -> str:
    """``97.50 %  351/360``; of another unit than percent the value alone, ``1.8432 nats``."""
    if unit == "%":
        return f"{100 * hits / part.out_of:.2f} %  {hits}/{part.out_of}"
    return f"{hits / part.out_of:.4f} {unit}".rstrip()
