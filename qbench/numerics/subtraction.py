"""The difference of two quantized arrays, as any machine does it: y ≈ z_y + (s_a (a − z_a) − s_b (b − z_b)) / s_y.

A machine's scheme for sums is its scheme for differences, its second operand negated where that operand is rounded:
behind its rounding, so that what rounds half up is not mirrored.

    EXACT, WEIGHTED     one rounding, of the whole: the sum of a and the mirrored 2 z_b − b
    HEADROOM            r(a) − r(b) with 20 bits of headroom at 2 · max(s_a, s_b), then r to the output        (TFLite)
    EACH                r(a) − r(b), each at the output's scale                                                  (Glow)
    FINEST              r(a) − r(b) at the smaller scale, then r to the output
    GRID                rha((s_a / s_y) (a − z_a) − (s_b / s_y) (b − z_b) + z_y) in float32      (Glow's interpreter)
    others              dequantized, subtracted in float32, quantized: these engines have no integer difference
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics.addition import add_quantized
from qbench.numerics.affine import dequantize, quantize
from qbench.numerics.arithmetic import AddScheme, Arithmetic
from qbench.numerics.named import get_arithmetic
from qbench.numerics.qparams import QParams
from qbench.numerics.requantization import scaler
from qbench.numerics.rounding import Ints, Rounding, round_reals

_HEADROOM = 20


def subtract_quantized(  # noqa: PLR0917 - the order of add_quantized
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    a_qparams: QParams,
    b_qparams: QParams,
    out_qparams: QParams,
    arithmetic: Arithmetic | str,
) -> npt.NDArray[Any]:
    """The difference a − b on the output's grid; arguments, result and errors are those of ``add_quantized``."""
    machine = get_arithmetic(arithmetic) if isinstance(arithmetic, str) else arithmetic
    for qparams in (a_qparams, b_qparams, out_qparams):
        if qparams.axis is not None:
            raise ValueError("a difference has grids per tensor")
    first, second = np.asarray(a).astype(np.int64), np.asarray(b).astype(np.int64)
    match machine.adding.scheme:
        case AddScheme.EXACT | AddScheme.WEIGHTED:
            mirrored = 2 * int(b_qparams.zero_point) - second
            return add_quantized(first, mirrored, a_qparams, b_qparams, out_qparams, machine)
        case AddScheme.HEADROOM | AddScheme.EACH | AddScheme.FINEST:
            levels = _part_by_part(first, second, (a_qparams, b_qparams, out_qparams), machine)
        case AddScheme.GRID:
            levels = _at_once(first, second, (a_qparams, b_qparams, out_qparams))
        case _:
            return quantize(dequantize(first, a_qparams) - dequantize(second, b_qparams), out_qparams, machine)
    return np.clip(levels, *machine.limits(out_qparams)).astype(out_qparams.qtype.storage_dtype)


def _part_by_part(a: Ints, b: Ints, grids: tuple[QParams, QParams, QParams], machine: Arithmetic) -> Ints:
    left, right, out = (float(grid.scale) for grid in grids)
    bits = 0
    match machine.adding.scheme:
        case AddScheme.HEADROOM:
            middle, bits = 2 * max(left, right), _HEADROOM
        case AddScheme.FINEST:
            middle = min(left, right)
        case _:
            middle = out
    parts = [
        scaler((float(grid.scale), 1.0, middle), machine.scaling)((levels - int(grid.zero_point)) << bits)
        for levels, grid in zip((a, b), grids, strict=False)
    ]
    difference = parts[0] - parts[1]
    if machine.adding.scheme is not AddScheme.EACH:
        difference = scaler((middle, 2.0**-bits, out), machine.scaling)(difference)
    return difference + int(grids[2].zero_point)


def _at_once(a: Ints, b: Ints, grids: tuple[QParams, QParams, QParams]) -> Ints:
    parts = [
        np.asarray(levels - int(grid.zero_point), np.float32) * np.float32(grid.scale / np.float32(grids[2].scale))
        for levels, grid in zip((a, b), grids, strict=False)
    ]
    real = np.asarray(parts[0] - parts[1] + np.float32(grids[2].zero_point), np.float32)
    return np.asarray(round_reals(real, Rounding.HALF_AWAY).astype(np.int64))
