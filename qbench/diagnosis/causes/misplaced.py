"""What a quantized graph does to a value as a whole, beside fp32: limits that are gone, channels exchanged, a line.

Used where the engine counts as it should, so that what is wrong was written into the graph.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qbench.diagnosis.causes.explanation import Explanation, heaviest
from qbench.diagnosis.causes.grid_costs import Cost
from qbench.diagnosis.causes.scene import Floats, Scene
from qbench.judging import Cause

_ALIKE, _UNLIKE = 0.95, 0.7
_BETTER = 0.1
"""Of the error, what is left of it when a straight line explains it."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """The result on rounded fp32 inputs beside the fp32 result."""

    name: str = "the result beside fp32"
    by_element: bool = False

    def explain(self, scene: Scene) -> Explanation | None:
        """Only where the cost is high."""
        cost = Cost.of(scene)
        return None if cost is None or not cost.is_high else heaviest(self._tried(cost))

    def _tried(self, cost: Cost) -> Iterator[Explanation | None]:
        yield _limit(cost)
        if cost.x.ndim > 1:
            yield from self._channels(cost)
            for axis in range(1, cost.x.ndim):
                reversed_error = float(((cost.y - np.flip(cost.x, axis)) ** 2).sum()) / cost.error
                if reversed_error < _BETTER:
                    evidence = (
                        f"the result is reversed along axis {axis}: that leaves {reversed_error:.1%} of the error"
                    )
                    yield Explanation(cause=Cause.LAYOUT, evidence=evidence, weight=1 - reversed_error)
        opposite = float(((cost.y + cost.x) ** 2).sum()) / cost.error
        if opposite < _BETTER:
            evidence = f"the result has the other sign: that leaves {opposite:.1%} of the error"
            yield Explanation(cause=Cause.LAYOUT, evidence=f"{evidence}, as where operands are exchanged", weight=0.95)

    def _channels(self, cost: Cost) -> Iterator[Explanation | None]:
        x, y = (np.moveaxis(a, cost.axis, 0).reshape(a.shape[cost.axis], -1) for a in (cost.x, cost.y))
        if x.shape[1] >= 8:
            like = _correlations(y, x)
            best = like.argmax(axis=1)
            own = like[np.arange(len(like)), np.arange(len(like))]
            gone = np.flatnonzero((own < _UNLIKE) & (like.max(axis=1) > _ALIKE))
            if gone.size:
                shown = ", ".join(f"{index} ← {best[index]}" for index in gone[:3])
                error = float(((y - x[np.where(np.isin(np.arange(len(x)), gone), best, np.arange(len(x)))]) ** 2).sum())
                evidence = f"{gone.size} channels hold what belongs to others ({shown})"
                yield Explanation(cause=Cause.LAYOUT, evidence=evidence, weight=max(0.0, 1 - error / cost.error))
        inside = (y > cost.low) & (y < cost.high)
        offset = np.array([np.median((b - a)[m]) if m.any() else 0.0 for a, b, m in zip(x, y, inside, strict=True)])
        left = float(((y - np.clip(x + offset[:, None], cost.low, cost.high)) ** 2).sum()) / cost.error
        if x.shape[1] >= 8 and left < _BETTER:
            evidence = f"offsets of up to {np.abs(offset).max():.3g} steps a channel leave {left:.1%} of the error"
            yield Explanation(cause=Cause.WRONG_BIAS, evidence=evidence, weight=0.9 * (1 - left))
        slope = np.array([_slope(a, b, m) for a, b, m in zip(x, y, inside, strict=True)])
        left = float(((y - np.clip(x * slope[:, None], cost.low, cost.high)) ** 2).sum()) / cost.error
        if x.shape[1] >= 8 and left < _BETTER:
            evidence = f"factors of {slope.min():.4g} … {slope.max():.4g} a channel leave {left:.1%} of the error"
            yield Explanation(cause=Cause.WRONG_SCALE, evidence=evidence, weight=0.9 * (1 - left))


def _limit(cost: Cost) -> Explanation | None:
    """Much of what fp32 has at one value of its own end, found beyond it."""
    for end, words, beyond in (
        (float(cost.x.min()), "below", cost.y < cost.x.min() - 2),
        (float(cost.x.max()), "above", cost.y > cost.x.max() + 2),
    ):
        at_end = np.abs(cost.x - end) < 1e-3
        share = float((cost.y - cost.x)[beyond & at_end].__pow__(2).sum()) / cost.error
        if at_end.mean() > 0.01 and share > 0.5:
            evidence = (
                f"{int((beyond & at_end).sum())} levels lie {words} {end:.3g} steps, where fp32 is limited: "
                f"{share:.0%} of the error"
            )
            return Explanation(cause=Cause.ABSORBED_CLIP, evidence=evidence, weight=share)
    return None


def _correlations(y: Floats, x: Floats) -> Floats:
    y, x = (a - a.mean(axis=1, keepdims=True) for a in (y, x))
    norms = np.linalg.norm(y, axis=1)[:, None] * np.linalg.norm(x, axis=1)[None, :]
    return np.asarray(y @ x.T / np.maximum(norms, 1e-12))


def _slope(x: Floats, y: Floats, inside: Floats) -> float:
    """Of the bulk: a few large numbers say nothing of all."""
    inside = inside & (np.abs(x) <= np.quantile(np.abs(x), 0.99))
    energy = float((x[inside] ** 2).sum())
    return float((x * y)[inside].sum()) / energy if energy else 1.0
