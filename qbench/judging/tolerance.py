"""How much loss a cell may show: one relative number, layered default < suite < model < cell.

margin = tolerance × stored fp32 score, one-sided; for an error rate at least the metric's ``least_margin``. The
rule that won is carried along, so that every verdict can name where its number was set.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_TOLERANCE = 0.005


@dataclass(frozen=True, slots=True)
class Tolerance:
    """``value`` is relative to the stored fp32 score; ``rule`` says who set it, e.g. ``suite smoke``.

    ``by_metric``: what metrics, as the suite writes them, have in its place: 35 % more errors are not 35 % fewer hits.
    """

    value: float = DEFAULT_TOLERANCE
    rule: str = "default"
    by_metric: Mapping[str, "Tolerance"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.value < 1:
            raise ValueError(f"a tolerance of {self.value} is impossible: it is a fraction in [0, 1)")

    def of(self, metric: str) -> "Tolerance":
        """The tolerance of ``metric``."""
        return self.by_metric.get(metric, self)


def resolve_tolerance(*layers: "Tolerance | None") -> Tolerance:
    """The last layer that is set, from general to particular; the default when none is."""
    return next((layer for layer in reversed(layers) if layer is not None), Tolerance())
