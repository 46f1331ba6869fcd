"""What an accepting run takes over of what was measured, and the accepted result that it makes of it.

Scopes, for each cell and environment class: ``new`` takes what has nothing accepted; ``improved`` takes a change in
which no metric against labels got worse and one got better; ``changed`` takes any change of what was accepted;
``all`` takes new and changed.
"""

import enum

from qbench.judging import Accepted, Measurement
from qbench.metrics import Against, Direction, kept_digest, unpacked_answers


class Scope(enum.Enum):
    """What an accepting run takes over."""

    NEW = "new"
    IMPROVED = "improved"
    CHANGED = "changed"
    ALL = "all"


def is_in_scope(scope: Scope | None, measurement: Measurement, old: Accepted | None) -> bool:
    """Whether ``scope`` (None: nothing) takes ``measurement`` in the place of ``old`` (None: of nothing)."""
    if scope is None:
        return False
    if old is None:
        return scope in (Scope.NEW, Scope.ALL)
    if not is_change(measurement, old):
        more = any(s.metric not in old.metrics for s in measurement.scores)  # the suite asks for one more metric
        more = more or any(data not in old.kept for data in measurement.kept)  # or for the answers themselves
        return more or _arithmetic(measurement) not in ("", old.arithmetic)  # another one with the same answers
    return scope in (Scope.CHANGED, Scope.ALL) or (scope is Scope.IMPROVED and _improves(measurement, old))


def is_change(measurement: Measurement, old: Accepted | None) -> bool:
    """Whether something that was accepted would be replaced by something else."""
    if old is None:
        return False
    new = accepted_of(measurement, "")
    pairs = ((new.metrics, old.metrics), (new.kept, old.kept))
    changed = any(before.get(name, value) != value for now, before in pairs for name, value in now.items())
    return changed or any(old.predictions.get(data) != digest for data, digest in new.predictions.items())


def accepted_of(measurement: Measurement, reason: str) -> Accepted:
    """``measurement`` as an accepted result."""
    prefix = "predictions:"
    return Accepted(
        metrics={score.metric: score.hits for score in measurement.scores},
        predictions={k.removeprefix(prefix): v for k, v in measurement.digests.items() if k.startswith(prefix)},
        reason=reason,
        arithmetic=_arithmetic(measurement),
        kept={data: kept_digest(unpacked_answers(word)) for data, word in measurement.kept.items()},
    )


def _improves(measurement: Measurement, old: Accepted) -> bool:
    better = []
    for score in measurement.scores:
        if score.against is Against.LABELS and score.metric in old.metrics:
            sign = 1 if score.direction is Direction.HIGHER else -1
            better.append(sign * (score.hits - old.metrics[score.metric]))
    return bool(better) and min(better) >= 0 and max(better) > 0


def _arithmetic(measurement: Measurement) -> str:
    return measurement.digests.get("arithmetic", "")
