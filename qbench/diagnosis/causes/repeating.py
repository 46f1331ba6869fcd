"""Another answer to the same levels: at random, or in the whole graph only, where a buffer holds something older."""

from dataclasses import dataclass

import numpy as np

from qbench.diagnosis.causes.explanation import Explanation
from qbench.diagnosis.causes.scene import Mask, Scene
from qbench.judging import Cause

_FILLED = 0.8
"""Of a run of neighbours, the share that moves, from which on a block was overwritten and not single elements."""
_LONG = 8


@dataclass(frozen=True, slots=True)
class Repeating:
    """The patient's own run beside the piece alone."""

    name: str = "another answer to the same levels"
    by_element: bool = False

    def explain(self, scene: Scene) -> Explanation | None:
        """Only levels that differ from the healthy ones in one of the two runs count: engines fuse otherwise alone."""
        again = scene.again
        if again is None or again.shape != scene.found.shape:
            return None
        alone_off = np.abs(again - scene.clipped(scene.real)) > 0.5 + scene.slack
        if scene.claimed:
            alone_off = again != scene.healthy
        moved = (scene.found != again) & (scene.differing | alone_off)
        count = int(moved.sum())
        if not count:
            return None
        weight = count / int((scene.differing | alone_off).sum())
        both = f"{count} levels are others in the graph than alone on the same levels in front"
        if (moved & alone_off).any():
            return Explanation(
                cause=Cause.NONDETERMINISM, evidence=f"{both}, and alone not right either", weight=weight
            )
        older = _older(scene, moved)
        if older:
            return Explanation(cause=Cause.NOT_WRITTEN, evidence=f"{both}, {older}; alone all are right", weight=weight)
        return Explanation(
            cause=Cause.NONDETERMINISM, evidence=f"{both}, at scattered places; alone all are right", weight=weight
        )


def _older(scene: Scene, moved: Mask) -> str:
    """Where what moved stands as a block, or is what belongs elsewhere, in words."""
    for sample in range(scene.found.shape[0] if scene.found.ndim > 1 else 0):
        here = moved & (scene.found == scene.healthy[sample])
        here[sample] = False
        if here.sum() > max(_LONG, 0.9 * moved.sum()):
            return f"and hold what belongs to sample {sample}"
    flat = np.flatnonzero(moved)
    length = int(flat[-1] - flat[0]) + 1
    if len(flat) >= _LONG and len(flat) >= _FILLED * length:
        return f"a block of {length} neighbours"
    for axis in range(moved.ndim):
        rest = tuple(one for one in range(moved.ndim) if one != axis)
        share = moved.mean(axis=rest)
        lines = share > _FILLED
        if lines.any() and moved.sum() <= share[lines].sum() * moved.size / moved.shape[axis] * 1.1:
            return f"{int(lines.sum())} whole slices of axis {axis}"
    return ""
