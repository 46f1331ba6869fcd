"""Levels of one grid as levels of another: y = clamp(round((q − z_x) · s_x / s_y) + z_y), as any machine rounds it.

A machine with a scheme of its own (``Arithmetic.rescaling``) multiplies by it. Without one, machines of float
multipliers dequantize and quantize; those of integer multipliers, and the exact one, treat q − z_x as an accumulator.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics.affine import dequantize, quantize
from qbench.numerics.arithmetic import Arithmetic
from qbench.numerics.named import get_arithmetic
from qbench.numerics.qparams import QParams
from qbench.numerics.requantization import scaler
from qbench.numerics.scaling import MultiplierForm, Scaling

Levels = npt.NDArray[Any]
_FLOATS = (MultiplierForm.FLOAT32, MultiplierForm.FLOAT64)


def rescale_quantized(q: npt.ArrayLike, x: QParams, y: QParams, arithmetic: Arithmetic | str) -> Levels:
    """Levels ``q`` of grid ``x`` on grid ``y``.

    Args:
        q: integers of any shape.
        x, y: grids per tensor.
        arithmetic: a machine or its name.

    Returns:
        An array of q's shape and the storage dtype of ``y``.

    Raises:
        InputError: an unknown machine, or a ratio of scales that this one cannot hold.
        ValueError: a grid per channel.
    """
    machine = get_arithmetic(arithmetic) if isinstance(arithmetic, str) else arithmetic
    return rescaler(x, y, machine)(np.asarray(q))


def rescaler(x: QParams, y: QParams, machine: Arithmetic) -> Callable[[Levels], Levels]:
    """What brings levels from ``x`` to ``y``; all that depends on the grids alone is computed here.

    Raises:
        InputError: a ratio of scales that the machine cannot hold.
        ValueError: a grid per channel.
    """
    if x.axis is not None or y.axis is not None:
        raise ValueError("levels are brought from grid to grid per tensor")
    if (x.scale, x.zero_point, x.qtype) == (y.scale, y.zero_point, y.qtype) and not machine.narrow:
        return lambda q: q
    scaling = scaling_of_levels(machine)
    if scaling is None:
        return lambda q: quantize(dequantize(q, x), y, machine)
    scale, zero = scaler((x.scale, 1.0, y.scale), scaling, int(y.zero_point)), int(x.zero_point)
    low, high = machine.limits(y)
    return lambda q: np.clip(scale(q.astype(np.int64) - zero), low, high).astype(y.qtype.storage_dtype)


def scaling_of_levels(machine: Arithmetic) -> Scaling | None:
    """How the machine multiplies levels without their zero point; None: it does so in floats."""
    return machine.rescaling or (None if machine.scaling.form in _FLOATS else machine.scaling)
