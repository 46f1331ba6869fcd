"""Adding two quantized arrays, as any machine does it: y ≈ z_y + (s_a (a − z_a) + s_b (b − z_b)) / s_y.

The schemes are named in ``schemes.AddScheme``; formulas of those in whole numbers stand in ``integer_sums``, of those
in float32 in ``float_sums``.
"""

from typing import Any

import numpy.typing as npt

from qbench.numerics.arithmetic import Arithmetic
from qbench.numerics.float_sums import float_sum
from qbench.numerics.integer_sums import exact_sum, integer_sum
from qbench.numerics.named import machine_for
from qbench.numerics.operands import centred, clamped, require_per_tensor
from qbench.numerics.qparams import QParams
from qbench.numerics.requests import operands
from qbench.numerics.schemes import AddScheme


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
        arithmetic: a machine or its name; of its overrides, those of Add hold.

    Returns:
        An array of the broadcast shape and the output grid's storage dtype.

    Raises:
        InputError: an unknown machine, grids that this one cannot bring together, or levels that are none of their grid
            or do not broadcast.
        ValueError: a grid per channel.
    """
    machine, grids = machine_for(arithmetic, "Add"), (a_qparams, b_qparams, out_qparams)
    require_per_tensor(grids)
    left, right = operands(a, b, grids)
    match machine.adding.scheme:
        case AddScheme.EXACT:
            levels = exact_sum(centred(left, a_qparams), centred(right, b_qparams), grids, 1)
        case AddScheme.HEADROOM | AddScheme.WEIGHTED | AddScheme.EACH | AddScheme.FINEST:
            levels = integer_sum(centred(left, a_qparams), centred(right, b_qparams), grids, machine, 1)
        case AddScheme.FUSED | AddScheme.SEPARATE | AddScheme.REAL | AddScheme.GRID:
            levels = float_sum(left, right, grids, machine)
    return clamped(levels, out_qparams, machine)
