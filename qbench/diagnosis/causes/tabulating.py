"""Functions by a table: off by an entry, too coarse, or inexact beyond rounding."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from qbench.diagnosis.causes.explanation import Explanation, heaviest
from qbench.diagnosis.causes.scene import Scene
from qbench.judging import Cause

_FUNCTIONS = frozenset(
    {"Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Erf", "Exp", "Gelu", "Softmax", "Elu", "Log", "Softplus", "Mish"}
    | {"Swish", "Sqrt", "Reciprocal", "Pow", "LogSoftmax", "Celu", "Selu", "LeakyRelu", "Softsign", "Sin", "Cos"}
)
_REST = 0.6


@dataclass(frozen=True, slots=True)
class Tables:
    """A unit that makes each level out of one level in front."""

    name: str = "tables"
    by_element: bool = False

    def explain(self, scene: Scene) -> Explanation | None:
        """What was found as a table over the levels in front, beside the right one."""
        return heaviest(self._tried(scene))

    def _tried(self, scene: Scene) -> Iterator[Explanation | None]:
        operators = set(scene.captured.unit.operators)
        if not operators & _FUNCTIONS:
            return
        feed = next(iter(scene.feeds.values()))
        pointwise = len(scene.feeds) == 1 and feed.shape == scene.found.shape and not operators & {"Softmax"}
        if pointwise and not scene.is_product:
            yield from _entries(scene, feed.astype(np.int64))
        steps = np.abs(scene.found - scene.healthy)[scene.differing]
        if steps.size:
            names = " and ".join(sorted(operators & _FUNCTIONS))
            evidence = f"{names} is off by {steps.mean():.2f} steps on {scene.count} levels, by {steps.max():g} at most"
            yield Explanation(cause=Cause.TABLE, evidence=evidence, weight=_REST)


def _entries(scene: Scene, levels: np.ndarray[Any, Any]) -> Iterator[Explanation | None]:
    right = _table(levels, scene.healthy)
    for by in (1, -1, 2, -2):
        shifted = np.array([right.get(level + by, right[level]) for level in levels.reshape(-1).tolist()])
        words = f"a table read {abs(by)} {'entry' if abs(by) == 1 else 'entries'} {'up' if by > 0 else 'down'}"
        yield scene.weigh_levels(Cause.TABLE, words, shifted.reshape(levels.shape))
    found = _table(levels, scene.found)
    flat, every = scene.found.reshape(-1), levels.reshape(-1)
    if not np.array_equal(np.array([found[level] for level in every.tolist()]), flat):
        return  # no function of the level alone
    off = [level for level in sorted(found) if found[level] != right[level]]
    coarse = _coarseness(found, right)
    words = f"a table with {coarse} neighbouring levels to an entry" if coarse > 1 else "a table"
    evidence = f"{words}, wrong for {len(off)} of {len(found)} levels (the first {off[0]}), explains all"
    yield Explanation(cause=Cause.TABLE, evidence=f"{evidence} {scene.count} levels that differ", weight=0.95)


def _table(levels: np.ndarray[Any, Any], results: np.ndarray[Any, Any]) -> dict[int, float]:
    keys, first = np.unique(levels.reshape(-1), return_index=True)
    return dict(zip(keys.tolist(), results.reshape(-1)[first].tolist(), strict=True))


def _coarseness(found: dict[int, float], right: dict[int, float]) -> int:
    """How many neighbours share an entry, where the right table tells them apart."""
    keys = [key for key in sorted(found) if key + 1 in found and right[key] != right[key + 1]]
    same = sum(found[key] == found[key + 1] for key in keys)
    return round(len(keys) / max(1, len(keys) - same)) if keys else 1
