"""Reals to the levels of one grid, made once: in one compiled pass where it is per tensor and of up to 16 bits.

    q = clamp(round(x / s + before)) + behind           the zero point is ``before`` or ``behind`` what is rounded

The bits are those of ``numerics.quantize``, which does the rest.
"""

from collections.abc import Callable

import numpy as np

from qbench.interpreter.arrays import Array
from qbench.numerics import Arithmetic, NotANumber, QParams, Rounding, ZeroPoint, quantize

Quantize = Callable[[Array], Array]

_ROUNDINGS = tuple(Rounding)
"""Their places are what the loops call them by."""
_WIDEST = 16


def quantizer(grid: QParams, machine: Arithmetic, *, compiled: bool) -> Quantize:
    """What quantizes float32 arrays of any shape, as ``machine`` does; ``compiled`` where it can be."""
    if not compiled or grid.axis is not None or grid.qtype.bits > _WIDEST:
        return lambda x: quantize(x, grid, machine)
    from qbench.interpreter.compiled_levels import quantized_levels

    rule, scale, zero = machine.quantizing, np.float32(grid.scale), int(grid.zero_point)
    before = zero if rule.zero_point is ZeroPoint.BEFORE else 0
    ends = np.array([zero - before, *(end - (zero - before) for end in machine.limits(grid))], np.float32)
    run = quantized_levels(
        _ROUNDINGS.index(rule.rounding),
        inverse=rule.reciprocal,
        fused=rule.reciprocal and rule.zero_point is ZeroPoint.BEFORE,
        highest=rule.nan is NotANumber.HIGHEST,
    )
    with np.errstate(over="ignore"):
        factor = np.divide(np.float32(1), scale) if rule.reciprocal else scale
    dtype = grid.qtype.storage_dtype
    bits = np.dtype(f"u{dtype.itemsize}")

    def levels(x: Array) -> Array:
        flat = x.ravel(order="K")
        if not np.may_share_memory(x, flat):
            x = np.ascontiguousarray(x)
            flat = x.reshape(-1)
        found = np.empty_like(x, dtype)
        run(flat, factor, np.float32(before), ends, found.ravel(order="K").view(bits))
        return found

    return levels
