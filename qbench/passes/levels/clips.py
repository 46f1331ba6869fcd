"""Relu and Clip with constant ends, as the interval of reals that they let through.

A quantizer is monotone, so that quantizing what was clipped is clipping what was quantized:

    Q(min(max(x, a), b)) = min(max(Q(x), Q(a)), Q(b))          for every number x
"""

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, input_at
from qbench.numerics import quantize
from qbench.passes.levels.border import Border

_ENDS_ARE_INPUTS = 11


@dataclass(frozen=True, slots=True, eq=False)
class RealClip:
    """A node that clips float32 reals to [low, high]; infinite where it has no such end."""

    node: ir.Node
    low: float
    high: float

    @property
    def source(self) -> ir.Value:
        """What is clipped."""
        value = self.node.inputs[0]
        assert value is not None
        return value


def real_clip_of(node: ir.Node | None) -> RealClip | None:
    """``node`` as a clip; None of any other node, of ends that are computed or NaN, of other types than float32."""
    if node is None or node.domain or not node.inputs or node.inputs[0] is None:
        return None
    if node.outputs[0].dtype not in (None, ir.DataType.FLOAT):
        return None
    if node.op_type == "Relu":
        return RealClip(node, 0.0, math.inf)
    if node.op_type != "Clip" or "min" in node.attributes or "max" in node.attributes:
        return None
    ends = []
    for index, missing in ((1, -math.inf), (2, math.inf)):
        value = input_at(node, index)
        array = constant_value(value)
        if value is not None and (array is None or array.dtype != np.float32 or array.size != 1):
            return None
        ends.append(missing if array is None else float(array.reshape(())))
    low, high = ends
    return None if math.isnan(low) or math.isnan(high) else RealClip(node, min(low, high), high)


def limits_behind(clip: RealClip, border: Border) -> tuple[int, int]:
    """The limits of ``border`` once it quantizes what ``clip`` read."""
    ends = quantize(np.array([clip.low, clip.high], np.float32), border.grid).astype(np.int64)
    low, high = np.clip(ends, border.low, border.high)
    return int(low), int(high)
