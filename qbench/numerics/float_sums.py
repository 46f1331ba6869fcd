"""Sums of levels of two grids in float32, by an engine's own order of steps; r = s / s_y, c = q − z.

    FUSED       rne(fma(a, r_a, fma(b, r_b, F))), F = z_y − fma(r_a, z_a, r_b · z_b)
    SEPARATE    rne(b · r_b + (a · r_a + F)), F = z_y − (r_a · z_a + r_b · z_b), every step rounded
    REAL        rne(f32(f_a + f_b) · f32(1 / s_y)) + z_y, f = fma(s, q, −f32(s · z))
    GRID        rha((rha(c_a · s_a / 2⁻¹⁵) + rha(c_b · s_b / 2⁻¹⁵)) · 2⁻¹⁵ / s_y + z_y); a difference has no such grid:
                rha(r_a · c_a − r_b · c_b + z_y)

Sources: ONNX Runtime's MLAS qladd, PyTorch's vectorized add, Glow's interpreter.
"""

import numpy as np
import numpy.typing as npt

from qbench.numerics.arithmetic import Arithmetic
from qbench.numerics.multiply_add import Single, fused_multiply_add, separate_multiply_add
from qbench.numerics.operands import Grids, centred, refused
from qbench.numerics.rounding import Ints, Rounding, round_reals, whole_levels
from qbench.numerics.schemes import AddScheme

_GRID = 2.0**-15
_LARGEST = 2.0**100
"""Of scales and their ratios: products with levels of 16 bits stay numbers that can be subtracted."""


def float_sum(a: Ints, b: Ints, grids: Grids, machine: Arithmetic) -> Ints:
    """``a`` + ``b``, levels, by the machine's FUSED, SEPARATE, REAL or GRID; not yet clamped.

    Raises:
        InputError: scales whose sums leave float32.
    """
    require_float_scales(grids)
    match machine.adding.scheme:
        case AddScheme.FUSED:
            real = _fused(a, b, grids)
        case AddScheme.SEPARATE:
            real = _separate(a, b, grids)
        case AddScheme.REAL:
            return whole_levels(_real(a, b, grids), Rounding.HALF_EVEN) + int(grids[2].zero_point)
        case _:
            return whole_levels(_on_grid(a, b, grids), Rounding.HALF_AWAY)
    return whole_levels(real, Rounding.HALF_EVEN)


def float_difference(a: Ints, b: Ints, grids: Grids) -> Ints:
    """``a`` − ``b``, levels, as GRID has it; not yet clamped.

    Raises:
        InputError: scales whose sums leave float32.
    """
    require_float_scales(grids)
    left, right = (
        centred(levels, grid).astype(np.float32) * ratio
        for levels, grid, ratio in zip((a, b), grids, _ratios(grids), strict=False)
    )
    return whole_levels(_single(left - right + _zero_points(grids)[2]), Rounding.HALF_AWAY)


def require_float_scales(grids: Grids) -> None:
    """Refuse scales whose sums leave float32.

    Raises:
        InputError: these do.
    """
    left, right, out = (float(grid.scale) for grid in grids)
    largest, highest = max(left, right), float(np.finfo(np.float32).max)
    if largest >= _LARGEST or largest / out >= _LARGEST or 1 / out > highest:
        raise refused(
            f"scales {left:g}, {right:g} and {out:g}",
            "scales whose sums float32 holds: below 2^100, and so their ratios to the result's",
        )


def _fused(a: Ints, b: Ints, grids: Grids) -> Single:
    (ratio_a, ratio_b), (za, zb, zy) = _ratios(grids), _zero_points(grids)
    constant = zy - fused_multiply_add(ratio_a, za, ratio_b * zb)
    return fused_multiply_add(a, ratio_a, fused_multiply_add(b, ratio_b, constant))


def _separate(a: Ints, b: Ints, grids: Grids) -> Single:
    (ratio_a, ratio_b), (za, zb, zy) = _ratios(grids), _zero_points(grids)
    constant = zy - separate_multiply_add(ratio_a, za, ratio_b * zb)
    return separate_multiply_add(b, ratio_b, separate_multiply_add(a, ratio_a, constant))


def _real(a: Ints, b: Ints, grids: Grids) -> Single:
    parts = []
    for levels, grid in zip((a, b), grids, strict=False):
        scale = np.float32(grid.scale)
        parts.append(fused_multiply_add(levels, scale, -(scale * np.float32(grid.zero_point))))
    with np.errstate(over="ignore"):  # what leaves a float is clamped like all that leaves the grid
        return _single((parts[0] + parts[1]) * (np.float32(1) / np.float32(grids[2].scale)))


def _on_grid(a: Ints, b: Ints, grids: Grids) -> Single:
    # Whole numbers in float64: exact as an int64 is, up to 2⁵³, and no end of the range beyond.
    left, right = (
        round_reals(
            _single(centred(levels, grid).astype(np.float32) * np.float32(grid.scale / np.float32(_GRID))),
            Rounding.HALF_AWAY,
        ).astype(np.float64)
        for levels, grid in zip((a, b), grids, strict=False)
    )
    total = _single(left + right)
    return _single(total * np.float32(np.float32(_GRID) / grids[2].scale) + np.float32(grids[2].zero_point))


def _ratios(grids: Grids) -> tuple[np.float32, np.float32]:
    left, right = (np.float32(grid.scale / grids[2].scale) for grid in grids[:2])
    return left, right


def _zero_points(grids: Grids) -> list[np.float32]:
    return [np.float32(grid.zero_point) for grid in grids]


def _single(values: npt.ArrayLike) -> Single:
    return np.asarray(values, np.float32)
