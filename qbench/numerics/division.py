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
from qbench.numerics.named import get_arithmetic
from qbench.numerics.qparams import QParams
from qbench.numerics.scaling import MultiplierForm


def divide_quantized(  # noqa: PLR0917 - the order of add_quantized
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    a_qparams: QParams,
    b_qparams: QParams,
    out_qparams: QParams,
    arithmetic: Arithmetic | str,
) -> npt.NDArray[Any]:
    """The quotient a / b on the output's grid; arguments, result and errors are those of ``add_quantized``."""
    machine = get_arithmetic(arithmetic) if isinstance(arithmetic, str) else arithmetic
    for qparams in (a_qparams, b_qparams, out_qparams):
        if qparams.axis is not None:
            raise ValueError("a quotient has grids per tensor")
    with np.errstate(divide="ignore", invalid="ignore"):
        real = np.divide(dequantize(a, a_qparams), dequantize(b, b_qparams), dtype=np.float32)
    levels = quantize(real, out_qparams, machine)
    if machine.scaling.form is not MultiplierForm.EXACT:
        return levels
    exact = _rational(np.asarray(a), np.asarray(b), (a_qparams, b_qparams, out_qparams))
    bounded = np.where(np.isfinite(real), exact, 0).astype(np.int64) + int(out_qparams.zero_point)
    low, high = machine.limits(out_qparams)
    return np.where(np.isfinite(real), np.clip(bounded, low, high), levels).astype(out_qparams.qtype.storage_dtype)


def _rational(a: npt.NDArray[Any], b: npt.NDArray[Any], grids: tuple[QParams, QParams, QParams]) -> npt.NDArray[Any]:
    """Half-even quotients as Python integers, cut to ±2⁴⁰; 0 by zero."""
    left, right, out = (Fraction(float(grid.scale)) for grid in grids)
    ratio = left / (right * out)
    up = (a.astype(np.int64) - int(grids[0].zero_point)).astype(object) * ratio.numerator
    down = (b.astype(np.int64) - int(grids[1].zero_point)).astype(object) * ratio.denominator
    up, down = np.broadcast_arrays(np.where(down < 0, -up, up), np.where(down == 0, 1, abs(down)))
    whole, twice = up // down, 2 * (up % down)
    rounded = whole + ((twice > down) | ((twice == down) & (whole % 2 == 1)))
    limit = 1 << 40
    return np.asarray(np.clip(rounded, -limit, limit), object)
