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
from qbench.numerics.named import machine_for
from qbench.numerics.qparams import QParams
from qbench.numerics.requantization import scaler
from qbench.numerics.requests import levels_on
from qbench.numerics.scaling import MultiplierForm, Scaling
from qbench.numerics.schemes import Dequantizing

Levels = npt.NDArray[Any]
_FLOATS = (MultiplierForm.FLOAT32, MultiplierForm.FLOAT64, MultiplierForm.CHAIN)


def rescale_quantized(q: npt.ArrayLike, x: QParams, y: QParams, arithmetic: Arithmetic | str) -> Levels:
    """Levels ``q`` of grid ``x`` on grid ``y``.

    Args:
        q: integers of any shape.
        x, y: grids per tensor.
        arithmetic: a machine or its name.

    Returns:
        An array of q's shape and the storage dtype of ``y``.

    Raises:
        InputError: an unknown machine, a ratio of scales that this one cannot hold, or what is no level of ``x``.
        ValueError: a grid per channel.
    """
    return rescaler(x, y, machine_for(arithmetic, "Requantize"))(levels_on(q, x.qtype, "levels"))


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
    if machine.dequantizing is Dequantizing.FUSED and scaling_of_levels(machine) is None:
        return lambda q: quantize(dequantize(q, x, machine), y, machine)
    bring, zero = centred_rescaler(x.scale, y, machine), int(x.zero_point)
    return lambda q: bring(q.astype(np.int64) - zero)


def centred_rescaler(scale: npt.ArrayLike, y: QParams, machine: Arithmetic) -> Callable[[Levels], Levels]:
    """As ``rescaler``, of levels of a grid with ``scale`` that have lost their zero point (int64, of up to 32 bits).

    Raises:
        InputError: a ratio of scales that the machine cannot hold.
    """
    scaling = scaling_of_levels(machine)
    if scaling is None:
        single = np.asarray(scale, np.float32)
        return lambda centred: quantize(np.asarray(centred.astype(np.float32) * single, np.float32), y, machine)
    rounded, (low, high) = scaler((scale, 1.0, y.scale), scaling, int(y.zero_point)), machine.limits(y)
    return lambda centred: np.clip(rounded(centred), low, high).astype(y.qtype.storage_dtype)


def scaling_of_levels(machine: Arithmetic) -> Scaling | None:
    """How the machine multiplies levels without their zero point; None: it does so in floats."""
    return machine.rescaling or (None if machine.scaling.form in _FLOATS else machine.scaling)
