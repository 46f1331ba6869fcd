"""What operators of two quantized arrays begin and end with: levels as int64, grids per tensor, levels clamped."""

from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.numerics.arithmetic import Arithmetic
from qbench.numerics.qparams import QParams
from qbench.numerics.rounding import Ints

Grids = tuple[QParams, QParams, QParams]
"""Of both operands and the result; each per tensor."""


def require_per_tensor(grids: Grids) -> None:
    """Refuse a grid per channel.

    Raises:
        ValueError: there is one.
    """
    if any(grid.axis is not None for grid in grids):
        raise ValueError("operators of two quantized operands have grids per tensor")


def centred(levels: npt.ArrayLike, grid: QParams) -> Ints:
    """``levels`` less the zero point of ``grid``, int64."""
    return np.asarray(np.asarray(levels).astype(np.int64) - int(grid.zero_point))


def clamped(levels: Ints, out: QParams, machine: Arithmetic) -> npt.NDArray[Any]:
    """``levels`` as ``machine`` gives them on ``out``, in its storage dtype."""
    return np.clip(levels, *machine.limits(out)).astype(out.qtype.storage_dtype)


def refused(found: str, expected: str) -> InputError:
    """Operands that a machine cannot bring together."""
    remedy = "Choose other grids, or another arithmetic."
    return InputError("Bringing two quantized operands together", found=found, expected=expected, remedy=remedy)
