"""A limit that is gone or another one: found beyond the ends of a Relu or Clip, short of them, or wrapped around."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qbench.diagnosis.causes.explanation import Explanation, heaviest
from qbench.diagnosis.causes.scene import Floats, Scene
from qbench.judging import Cause


@dataclass(frozen=True, slots=True)
class Limits:
    """Every end without its limit, with the one that was found, or modulo the grid."""

    name: str = "limits"
    by_element: bool = True

    def explain(self, scene: Scene) -> Explanation | None:
        """Of a value on a grid."""
        return heaviest(self._tried(scene))

    def _tried(self, scene: Scene) -> Iterator[Explanation | None]:
        grid = scene.captured.unit.grid
        if grid is None:
            return
        zero = int(grid.zero_point)
        low, high = grid.qtype.qmin - zero, grid.qtype.qmax - zero
        free = np.where(np.isfinite(scene.real), np.rint(scene.real), scene.found)
        if scene.lowest > low or scene.highest < high:
            for words, ends in {
                "no limits at all": (low, high),
                f"no upper limit of {scene.highest:g} steps": (scene.lowest, high),
                f"no lower limit of {scene.lowest:g} steps": (low, scene.highest),
                "a limit at 0 and no upper one": (0, high),
            }.items():
                yield _clamped(scene, words, free, *ends)
        yield from self._others(scene, free)
        for bits in dict.fromkeys((8, grid.qtype.bits)):
            size = 1 << bits
            wrapped = (free - low) % size + low
            for beyond, where in ((free != scene.rounded(free), ""), (free > high, " above"), (free < low, " below")):
                words = f"levels that wrap at {bits} bits{where} in place of being clamped"
                yield _levels(scene, words, np.where(beyond, wrapped, scene.healthy), Cause.ACCUMULATOR)

    def _others(self, scene: Scene, free: Floats) -> Iterator[Explanation | None]:
        """A limit where the found levels end; it takes more than one level there to tell it from chance."""
        inside = scene.found[np.isfinite(scene.found)]
        if not inside.size:
            return
        least, most = float(inside.min()), float(inside.max())
        for words, end, ends in (
            ("an upper limit of {:g} steps", most, (scene.lowest, most)),
            ("a lower limit of {:g} steps", least, (least, scene.highest)),
        ):
            if int((scene.found == end).sum()) > 1 and end not in (scene.lowest, scene.highest):
                yield _clamped(scene, words.format(end), free, *ends)


def _clamped(scene: Scene, words: str, free: Floats, low: float, high: float) -> Explanation | None:
    """What lies inside stays what the machine makes of it."""
    within = (free > scene.lowest) & (free < scene.highest)
    return _levels(scene, words, np.clip(np.where(within, scene.healthy, free), low, high))


def _levels(scene: Scene, words: str, levels: Floats, cause: Cause = Cause.ABSORBED_CLIP) -> Explanation | None:
    """By rounded numbers: at ties the machine may have the neighbour."""
    near = np.abs(levels - scene.found) <= 1
    tied = near & (np.abs(scene.real - np.floor(scene.real) - 0.5) <= scene.slack)
    return scene.weigh_levels(cause, words, np.where(tied & ~scene.differing, scene.found, levels))
