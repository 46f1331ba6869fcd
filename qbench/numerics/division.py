"""The quotient of two quantized arrays: y = clamp(round(s_a (a − z_a) / (s_b (b − z_b) s_y)) + z_y).

No engine of the presets but Glow divides integers, so a machine dequantizes, divides in float32 and quantizes by its
own rule; the exact one divides rationals. A quotient by zero saturates: it is the infinity of its dividend's sign, and
0 / 0 the level that the machine makes of NaN (``Quantizing.nan``).
"""

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics.affine import dequantize, quantize
from qbench.numerics.arithmetic import Arithmetic
from qbench.numerics.named import machine_for
from qbench.numerics.operands import Grids, centred, clamped, require_per_tensor
from qbench.numerics.qparams import QParams
from qbench.numerics.requests import operands
from qbench.numerics.rounding import WIDEST, half_even_quotients
from qbench.numerics.scaling import MultiplierForm


def divide_quantized(  # noqa: PLR0917 - the order of add_quantized
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    a_qparams: QParams,
    b_qparams: QParams,
    out_qparams: QParams,
    arithmetic: Arithmetic | str,
) -> npt.NDArray[Any]:
    """The quotient a / b on the output's grid; all as of ``add_quantized``, but that overrides of Div hold."""
    machine, grids = machine_for(arithmetic, "Div"), (a_qparams, b_qparams, out_qparams)
    require_per_tensor(grids)
    left, right = operands(a, b, grids)
    with np.errstate(divide="ignore", invalid="ignore"):
        real = np.divide(dequantize(left, a_qparams), dequantize(right, b_qparams), dtype=np.float32)
    levels = quantize(real, out_qparams, machine)
    if machine.scaling.form is not MultiplierForm.EXACT:
        return levels
    exact = _rational(left, right, grids)
    bounded = np.where(np.isfinite(real), exact, 0).astype(np.int64) + int(out_qparams.zero_point)
    return np.where(np.isfinite(real), clamped(bounded, out_qparams, machine), levels)


def _rational(a: npt.NDArray[Any], b: npt.NDArray[Any], grids: Grids) -> npt.NDArray[Any]:
    """Half-even quotients as Python integers, cut to ±2⁴⁰; 0 by zero."""
    left, right, out = (Fraction(float(grid.scale)) for grid in grids)
    ratio = left / (right * out)
    up = centred(a, grids[0]).astype(object) * ratio.numerator
    down = centred(b, grids[1]).astype(object) * ratio.denominator
    up, down = np.broadcast_arrays(np.where(down < 0, -up, up), np.where(down == 0, 1, abs(down)))
    limit = int(WIDEST)
    return np.asarray(np.clip(half_even_quotients(up, down), -limit, limit), object)
