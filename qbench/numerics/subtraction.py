"""The difference of two quantized arrays, as any machine does it: y ≈ z_y + (s_a (a − z_a) − s_b (b − z_b)) / s_y.

A machine's scheme for sums is its scheme for differences. Those in whole numbers negate the second operand behind its
rounding (``integer_sums``); Glow's interpreter subtracts products in float32 (``float_sums``); the other engines have
no integer difference: levels are dequantized, subtracted in float32 and quantized.
"""

from typing import Any

import numpy.typing as npt

from qbench.numerics.affine import dequantize, quantize
from qbench.numerics.arithmetic import Arithmetic
from qbench.numerics.float_sums import float_difference, require_float_scales
from qbench.numerics.integer_sums import exact_sum, integer_sum
from qbench.numerics.named import machine_for
from qbench.numerics.operands import centred, clamped, require_per_tensor
from qbench.numerics.qparams import QParams
from qbench.numerics.requests import operands
from qbench.numerics.schemes import AddScheme


def subtract_quantized(  # noqa: PLR0917 - the order of add_quantized
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    a_qparams: QParams,
    b_qparams: QParams,
    out_qparams: QParams,
    arithmetic: Arithmetic | str,
) -> npt.NDArray[Any]:
    """The difference a − b on the output's grid; all as of ``add_quantized``, but that overrides of Sub hold."""
    machine, grids = machine_for(arithmetic, "Sub"), (a_qparams, b_qparams, out_qparams)
    require_per_tensor(grids)
    left, right = operands(a, b, grids)
    match machine.adding.scheme:
        case AddScheme.EXACT:
            levels = exact_sum(centred(left, a_qparams), centred(right, b_qparams), grids, -1)
        case AddScheme.HEADROOM | AddScheme.WEIGHTED | AddScheme.EACH | AddScheme.FINEST:
            levels = integer_sum(centred(left, a_qparams), centred(right, b_qparams), grids, machine, -1)
        case AddScheme.GRID:
            levels = float_difference(left, right, grids)
        case AddScheme.FUSED | AddScheme.SEPARATE | AddScheme.REAL:
            require_float_scales(grids)
            return quantize(dequantize(left, a_qparams) - dequantize(right, b_qparams), out_qparams, machine)
    return clamped(levels, out_qparams, machine)
