"""Adding two quantized arrays, as any machine does it: y ≈ z_y + (s_a (a − z_a) + s_b (b − z_b)) / s_y.

The schemes are named in ``arithmetic.AddScheme``; their formulas stand at the functions below.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics.arithmetic import AddScheme, Arithmetic
from qbench.numerics.multiply_add import fused_multiply_add, separate_multiply_add
from qbench.numerics.named import get_arithmetic
from qbench.numerics.qparams import QParams
from qbench.numerics.requantization import scaler
from qbench.numerics.rounding import Ints, Rounding, round_reals, shift_right

_HEADROOM = 20
_GRID = 2.0**-15


def add_quantized(  # noqa: PLR0917 - the order that users rely on
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    a_qparams: QParams,
    b_qparams: QParams,
    out_qparams: QParams,
    arithmetic: Arithmetic | str,
) -> npt.NDArray[Any]:
    """The sum on the output's grid.

    Args:
        a, b: levels of shapes that broadcast.
        a_qparams, b_qparams, out_qparams: grids per tensor.
        arithmetic: a machine or its name.

    Returns:
        An array of the broadcast shape and the output grid's storage dtype.

    Raises:
        InputError: an unknown machine, or scales that this one cannot bring together.
        ValueError: a grid per channel.
    """
    machine = get_arithmetic(arithmetic) if isinstance(arithmetic, str) else arithmetic
    for qparams in (a_qparams, b_qparams, out_qparams):
        if qparams.axis is not None:
            raise ValueError("a sum has grids per tensor")
    first, second = np.asarray(a).astype(np.int64), np.asarray(b).astype(np.int64)
    levels = _SCHEMES[machine.adding.scheme](first, second, (a_qparams, b_qparams, out_qparams), machine)
    return np.clip(levels, *machine.limits(out_qparams)).astype(out_qparams.qtype.storage_dtype)


_Grids = tuple[QParams, QParams, QParams]


def _exact(a: Ints, b: Ints, grids: _Grids, machine: Arithmetic) -> Ints:  # noqa: ARG001
    """Both as integers on the finest grid that holds both scales, which float32 scales always have."""
    scales = [Fraction(float(grid.scale)) for grid in grids[:2]]
    unit = Fraction(1, max(scale.denominator for scale in scales))
    weights = [int(scale / unit) for scale in scales]
    sums = (a - int(grids[0].zero_point)).astype(object) * weights[0] + (b - int(grids[1].zero_point)) * weights[1]
    factor = unit / Fraction(float(grids[2].scale))
    rounded = [round(value * factor) for value in np.asarray(sums, object).reshape(-1).tolist()]
    limit = 1 << 40
    clipped = [max(-limit, min(limit, value)) for value in rounded]
    return np.array(clipped, np.int64).reshape(sums.shape) + int(grids[2].zero_point)


def _fused(a: Ints, b: Ints, grids: _Grids, machine: Arithmetic) -> Ints:  # noqa: ARG001
    """Fused: y = rne(fma(a, r_a, fma(b, r_b, F))), F = z_y − fma(r_a, z_a, r_b·z_b), r = s / s_y, all in float32."""
    (ratio_a, ratio_b), (za, zb, zy) = _ratios_and_points(grids)
    constant = zy - fused_multiply_add(ratio_a, za, ratio_b * zb)
    real = fused_multiply_add(a, ratio_a, fused_multiply_add(b, ratio_b, constant))
    return np.asarray(round_reals(real, Rounding.HALF_EVEN).astype(np.int64))


def _separate(a: Ints, b: Ints, grids: _Grids, machine: Arithmetic) -> Ints:  # noqa: ARG001
    """Separate: y = rne(b·r_b + (a·r_a + F)), F = z_y − (r_a·z_a + r_b·z_b), every step rounded to float32."""
    (ratio_a, ratio_b), (za, zb, zy) = _ratios_and_points(grids)
    constant = zy - separate_multiply_add(ratio_a, za, ratio_b * zb)
    real = separate_multiply_add(b, ratio_b, separate_multiply_add(a, ratio_a, constant))
    return np.asarray(round_reals(real, Rounding.HALF_EVEN).astype(np.int64))


def _ratios_and_points(grids: _Grids) -> tuple[list[np.float32], list[np.float32]]:
    """s_a / s_y and s_b / s_y; the zero points."""
    ratios = [np.float32(grid.scale / grids[2].scale) for grid in grids[:2]]
    return ratios, [np.float32(grid.zero_point) for grid in grids]


def _real(a: Ints, b: Ints, grids: _Grids, machine: Arithmetic) -> Ints:  # noqa: ARG001
    """Real: y = rne(f32(f_a + f_b) · f32(1 / s_y)) + z_y, f = fma(s, q, −f32(s · z)), float32 throughout."""
    parts = []
    for levels, grid in zip((a, b), grids, strict=False):
        scale = np.float32(grid.scale)
        parts.append(fused_multiply_add(levels, scale, -(scale * np.float32(grid.zero_point))))
    real = np.asarray((parts[0] + parts[1]) * (np.float32(1) / np.float32(grids[2].scale)), np.float32)
    return round_reals(real, Rounding.HALF_EVEN).astype(np.int64) + int(grids[2].zero_point)


def _headroom(a: Ints, b: Ints, grids: _Grids, machine: Arithmetic) -> Ints:
    """Both, 20 bits up, to twice the larger scale; the sum back down: three roundings."""
    scales, upwards = [float(grid.scale) for grid in grids], machine.adding.operands or machine.scaling
    twice = 2 * max(scales[:2])
    parts = [
        scaler((float(grid.scale), 1.0, twice), upwards)((levels - int(grid.zero_point)) << _HEADROOM)
        for levels, grid in zip((a, b), grids, strict=False)
    ]
    out = scaler((twice, 2.0**-_HEADROOM, scales[2]), machine.scaling)(parts[0] + parts[1])
    return out + int(grids[2].zero_point)


def _weighted(a: Ints, b: Ints, grids: _Grids, machine: Arithmetic) -> Ints:
    """(m_a (a − z_a) + m_b (b − z_b)) >> n, m = rne(s / s_y · 2ⁿ), n so that the larger m has ``bits`` bits."""
    ratios = [np.float32(grid.scale / grids[2].scale) for grid in grids[:2]]
    _, exponent = np.frexp(max(ratios))
    shift = machine.adding.bits - int(exponent)
    weights = [int(np.rint(np.ldexp(np.float64(ratio), shift))) for ratio in ratios]
    sums = weights[0] * (a - int(grids[0].zero_point)) + weights[1] * (b - int(grids[1].zero_point))
    return shift_right(sums, shift, machine.adding.rounding) + int(grids[2].zero_point)


def _each(a: Ints, b: Ints, grids: _Grids, machine: Arithmetic) -> Ints:
    """Each operand brought to the output's scale by the machine's own rounding, then an integer sum."""
    parts = [
        scaler((float(grid.scale), 1.0, float(grids[2].scale)), machine.scaling)(levels - int(grid.zero_point))
        for levels, grid in zip((a, b), grids, strict=False)
    ]
    return parts[0] + parts[1] + int(grids[2].zero_point)


def _grid(a: Ints, b: Ints, grids: _Grids, machine: Arithmetic) -> Ints:  # noqa: ARG001
    """L = rha((a − z_a) · s_a / 2⁻¹⁵), R likewise; y = rha((L + R) · 2⁻¹⁵ / s_y + z_y), float32 products."""
    parts = [
        round_reals(
            np.asarray(levels - int(grid.zero_point), np.float32) * np.float32(grid.scale / np.float32(_GRID)),
            Rounding.HALF_AWAY,
        )
        for levels, grid in zip((a, b), grids, strict=False)
    ]
    total = (parts[0].astype(np.int64) + parts[1].astype(np.int64)).astype(np.float32)
    real = total * np.float32(np.float32(_GRID) / grids[2].scale) + np.float32(grids[2].zero_point)
    return np.asarray(round_reals(np.asarray(real, np.float32), Rounding.HALF_AWAY).astype(np.int64))


def _finest(a: Ints, b: Ints, grids: _Grids, machine: Arithmetic) -> Ints:
    """The coarser operand at the finer one's scale, the sum there, then to the output's."""
    scales = [float(grid.scale) for grid in grids]
    fine = min(scales[:2])
    parts = [
        scaler((float(grid.scale), 1.0, fine), machine.scaling)(levels - int(grid.zero_point))
        for levels, grid in zip((a, b), grids, strict=False)
    ]
    return scaler((fine, 1.0, scales[2]), machine.scaling, int(grids[2].zero_point))(parts[0] + parts[1])


_SCHEMES: Mapping[AddScheme, Callable[[Ints, Ints, _Grids, Arithmetic], Ints]] = MappingProxyType(
    {
        AddScheme.EXACT: _exact,
        AddScheme.FUSED: _fused,
        AddScheme.SEPARATE: _separate,
        AddScheme.REAL: _real,
        AddScheme.HEADROOM: _headroom,
        AddScheme.WEIGHTED: _weighted,
        AddScheme.EACH: _each,
        AddScheme.GRID: _grid,
        AddScheme.FINEST: _finest,
    }
)
