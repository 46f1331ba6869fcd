"""Where integers begin and end: QuantizeLinear, DequantizeLinear, and a Clip of levels."""

from collections.abc import Sequence

import numpy as np

from qbench.graph import int_attribute
from qbench.interpreter.arrays import Array
from qbench.interpreter.float_kernels.reference import reference
from qbench.interpreter.kernel import Making, Run
from qbench.numerics import dequantize, quantize

_ENDS_ARE_INPUTS = 11
"""The opset since which a Clip has its ends as inputs."""


def quantize_linear(making: Making) -> Run:
    """Reals to levels by the machine's own rule."""
    grid = making.grid(1, 2, axis=int_attribute(making.node, "axis", 1))
    machine = making.arithmetic

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (quantize(inputs[0], grid, machine),)

    return run


def dequantize_linear(making: Making) -> Run:
    """Levels to reals, which is exact but for one float32 product."""
    grid = making.grid(1, 2, axis=int_attribute(making.node, "axis", 1))

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (dequantize(inputs[0], grid),)

    return run


def clip(making: Making) -> Run:
    """Clip with constant ends, of levels or of reals; with computed ends, or ends in attributes, ONNX's own."""
    ends = [making.constant(index) for index in (1, 2)]
    if making.opset < _ENDS_ARE_INPUTS or any(
        end is None and not making.absent(index) for index, end in zip((1, 2), ends, strict=True)
    ):
        return reference(making)
    low, high = ends

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (np.clip(inputs[0], low, high),)

    return run
