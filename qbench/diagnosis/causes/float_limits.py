"""The limits that the quantized graph holds a value to, beside those of the float graph it was written from.

low, high of the Relu or Clip in steps, within the ends of the grid        a step apart they are the same
"""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from qbench.diagnosis.causes.explanation import Explanation, heaviest
from qbench.diagnosis.causes.scene import Scene
from qbench.diagnosis.quantized_units import limits_of
from qbench.graph import producer, values_by_name
from qbench.judging import Cause

_STEP = 1.25
"""A limit may be rounded to a level, and a number half a step beyond it still is."""
_WEIGHT = 0.95


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """A limit that is gone, or another one, where numbers lie between the two."""

    name: str = "limits of the float graph"
    by_element: bool = True

    def explain(self, scene: Scene) -> Explanation | None:
        """Where the value is that of a Relu or Clip with constant ends in the float graph, and on a grid."""
        clip = _clip(scene)
        limits = None if clip is None else limits_of(clip, scene.captured.unit.scale)
        return None if limits is None else heaviest(self._tried(scene, *limits))

    def _tried(self, scene: Scene, low: float, high: float) -> Iterator[Explanation | None]:
        grid = scene.captured.unit.grid
        assert grid is not None
        lowest, highest = (end - int(grid.zero_point) for end in (grid.qmin, grid.qmax))
        for side, here, there in (
            ("lower", scene.low, max(low, lowest - 0.5)),
            ("upper", scene.high, min(high, highest + 0.5)),
        ):
            between = (scene.real > min(here, there)) & (scene.real < max(here, there))
            if abs(here - there) > _STEP and between.any():
                evidence = (
                    f"the {side} limit is {here:.4g} steps in the quantized graph and {there:.4g} in the float graph: "
                    f"{int(between.sum())} of {between.size} numbers lie in between"
                )
                yield Explanation(cause=Cause.ABSORBED_CLIP, evidence=evidence, weight=_WEIGHT)


def _clip(scene: Scene) -> ir.Node | None:
    unit = scene.captured.unit
    if scene.original is None or unit.grid is None:
        return None
    return producer(values_by_name(scene.original).get(unit.stands_for))
