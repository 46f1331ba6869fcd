"""How far outputs may be from fp32: a number by metric, in the metric's unit (of shares a fraction).

    limits = { sqnr = 20.0, kl = 0.05 }       # at least 20 dB, at most 0.05 nats: which side is the metric's direction

Layers: suite < model. A distance that nothing limits is shown and does not gate.
"""

import math
from collections.abc import Iterable, Mapping

from qbench.errors import InputError, unknown_name
from qbench.judging import Limit
from qbench.suite.catalogues import Catalogues

Limits = Mapping[str, float]


def refuse_no_numbers(limits: Limits) -> None:
    """Check that ``limits`` can be compared with.

    Raises:
        ValueError: one is NaN or infinite.
    """
    for metric, value in limits.items():
        if not math.isfinite(value):
            raise ValueError(f"limits.{metric} = {value}, which is no number to compare with")


def layered_limits(*layers: tuple[str, Limits]) -> dict[str, Limit]:
    """The limits of ``layers``, (who sets them, what), general first."""
    return {metric: Limit(value, owner) for owner, limits in layers for metric, value in limits.items()}


def check_limits(doing: str, limits: Limits, metrics: Iterable[str], catalogues: Catalogues) -> None:
    """Check that every limit is of one of ``metrics``, as the suite writes them, and that it is a distance.

    Raises:
        InputError: one is not.
    """
    asked = set(metrics)
    for metric in limits:
        if metric not in asked:
            raise unknown_name(f"{doing}, limits", "metric", metric, asked)
        if not catalogues.metrics.get(metric.partition("@")[0]).is_distance:
            raise InputError(
                f"{doing}, limits",
                found=f"'{metric}', which is no distance to fp32",
                expected="limits of distances such as 'sqnr' and 'kl'",
                remedy="Set 'tolerance' for what is counted against labels, 'agreement' for that.",
            )
