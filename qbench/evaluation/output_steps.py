"""The size of an output's steps: the scale of the DequantizeLinear that gives it; 1 where it is integers."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.backends import Array
from qbench.graph import constant_value, int_attribute


@dataclass(frozen=True, slots=True)
class OutputSteps:
    """A graph output and the size of its steps: one, or one a slice of ``axis``; None: it has none."""

    name: str
    scale: Array | None
    axis: int

    def broadcast(self, rank: int) -> Array | None:
        """Sizes that broadcast against an array of ``rank`` axes."""
        if self.scale is None or not self.scale.ndim:
            return self.scale
        return self.scale.reshape([-1 if axis == self.axis % rank else 1 for axis in range(rank)])


def steps_of(value: ir.Value) -> OutputSteps:
    """``value`` with its steps."""
    name, maker = str(value.name), value.producer()
    if value.dtype is not None and value.dtype.is_integer():
        return OutputSteps(name, np.ones(()), 0)
    if maker is None or maker.op_type != "DequantizeLinear" or int_attribute(maker, "block_size", 0):
        return OutputSteps(name, None, 0)
    scale = constant_value(maker.inputs[1])
    if scale is not None and scale.size == 1:
        scale = scale.reshape(())
    return OutputSteps(name, scale, int_attribute(maker, "axis", 1))
