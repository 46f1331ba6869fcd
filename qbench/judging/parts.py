"""A loss in two parts: what the schema costs whoever counts, and what this backend's way of counting adds.

    fp32  ──schema──→  the quantized graph in exact arithmetic  ──counting──→  the same graph on the backend
    value − reference = (ideal − reference) + (value − ideal)

The middle is the same graph on ``integer-ideal``: rational multipliers, one rounding, nothing overflows.
"""

from dataclasses import dataclass

from qbench.metrics import Against, Score

IDEAL = "integer-ideal"
"""The backend that counts exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One step: hits ``before`` and ``after`` it of ``out_of``; samples that it made worse and better, where known."""

    before: int
    after: int
    out_of: int
    losses: int | None = None
    gains: int | None = None

    @property
    def change(self) -> float:
        """The share after less the share before, a fraction in the metric's own sense."""
        return (self.after - self.before) / self.out_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LossParts:
    """One metric's change against fp32 as two steps, one behind the other; ``unit`` is the metric's: ``%`` is a share.

    Raises:
        ValueError: the second does not begin where the first ends.
    """

    metric: str
    schema: Part
    counting: Part
    unit: str = "%"

    def __post_init__(self) -> None:
        if (self.schema.after, self.schema.out_of) != (self.counting.before, self.counting.out_of):
            raise ValueError(
                f"{self.metric}: the schema ends at {self.schema.after} of {self.schema.out_of}, counting begins at "
                f"{self.counting.before} of {self.counting.out_of}"
            )

    @property
    def change(self) -> float:
        """Both together, a fraction."""
        return (self.counting.after - self.schema.before) / self.schema.out_of


def parts_of_counts(metric: str, *, reference: int, ideal: int, hits: int, out_of: int, unit: str = "%") -> LossParts:
    """The parts of counts alone, which do not tell single samples."""
    return LossParts(
        metric=metric,
        schema=Part(before=reference, after=ideal, out_of=out_of),
        counting=Part(before=ideal, after=hits, out_of=out_of),
        unit=unit,
    )


def parts_of_scores(schema: Score, counting: Score) -> LossParts:
    """The parts of two scores of one metric against labels, sample by sample.

    Args:
        schema: of the ideal answers beside the fp32 ones. counting: of the backend's beside the ideal ones.

    Raises:
        ValueError: they are of two metrics, of one against the reference (whose parts do not add up), or the second is
            not counted beside what the first counts.
    """
    if schema.metric != counting.metric or schema.against is not Against.LABELS:
        raise ValueError(f"'{schema.metric}' and '{counting.metric}' are not one metric against labels")
    return LossParts(metric=schema.metric, schema=_part(schema), counting=_part(counting), unit=schema.unit)


def _part(score: Score) -> Part:
    return Part(
        before=score.reference_hits, after=score.hits, out_of=score.out_of, losses=score.losses, gains=score.gains
    )
