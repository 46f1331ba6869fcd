"""What multiplies levels and clamps them, from one grid to another: Relu, Clip, Abs, Neg, LeakyRelu, PRelu.

    y = clamp(round(g(q − z_x) · s_x / s_y) + z_y)        g: max(·, 0), |·|, −·, or two slopes

Machines whose multipliers are integers scale levels (``numerics.rescaling``), each slope by a multiplier of its own, as
TFLite and Glow do; machines of floats, and those of powers of two where a slope is none, tabulate the float operator.
"""

from collections.abc import Callable

import numpy as np

from qbench.graph import float_attribute
from qbench.interpreter.arrays import Array
from qbench.interpreter.integer_kernels.functions import function, unary
from qbench.interpreter.integer_kernels.lookups import all_levels, lookup, lookup_pair
from qbench.interpreter.integer_kernels.operands import given_operands
from qbench.interpreter.kernel import Making, Run
from qbench.numerics import (
    MultiplierForm,
    QParams,
    Scales,
    Scaling,
    centred_rescaler,
    quantize,
    scaler,
    scaling_of_levels,
)

_ENDS_ARE_INPUTS = 2


def relu(making: Making) -> Run:
    """QLinearRelu: x s z s_y z_y."""
    return _one_slope(making, lambda centred: np.maximum(centred, 0))


def absolute(making: Making) -> Run:
    """QLinearAbs."""
    return _one_slope(making, np.abs)


def negative(making: Making) -> Run:
    """QLinearNeg."""
    return _one_slope(making, np.negative)


def clip(making: Making) -> Run:
    """QLinearClip: the operand on the result's grid, between its ends there, by the machine's own quantizing."""
    operands, y = given_operands(making)
    table = _brought(making, making.grid(1, 2), y, lambda centred: centred)
    for place, pick in ((3, np.maximum), (6, np.minimum)):
        end = next((one.real for one in operands if one.place == place), None)
        table = table if end is None else pick(table, quantize(end.reshape(()), y, making.arithmetic))
    for name, pick in (("min", np.maximum), ("max", np.minimum)):
        if name in making.node.attributes:
            end = np.asarray(float_attribute(making.node, name, 0.0))
            table = pick(table, quantize(end, y, making.arithmetic))
    return lookup(table, making.grid(1, 2).qtype.qmin, compiled=making.means.compiled)


def leaky_relu(making: Making) -> Run:
    """QLinearLeakyRelu: x s z s_y z_y, below 0 by ``alpha``."""
    slope = np.float32(float_attribute(making.node, "alpha", 0.01))
    x, y, scaling = making.grid(1, 2), making.grid(3, 4), _of_slopes(making)
    if scaling is None:
        return unary(making, x, y, lambda real: np.where(real >= 0, real, slope * real))
    centred = _centred(x)
    below = _product(centred * (-1 if slope < 0 else 1), (x.scale, abs(float(slope)), y.scale), scaling)
    return _two_slopes(making, (x, y), centred, below)


def prelu(making: Making) -> Run:
    """QLinearPRelu: x s z, slope s z, s_y z_y; the slope on a grid or one real number."""
    operands, y = given_operands(making)
    x, slope = operands
    scaling = _of_slopes(making)
    if scaling is None or slope.grid is None or x.grid is None or not slope.varies:
        return function(making)
    levels, slopes = _centred(x.grid)[:, None], _centred(slope.grid)[None, :]
    below = _product(levels * slopes, (x.grid.scale, slope.grid.scale, y.scale), scaling)
    above = centred_rescaler(x.grid.scale, y, making.arithmetic)(levels)
    table = np.where(levels >= 0, above, _on(y, below, making))
    lows = (x.grid.qtype.qmin, slope.grid.qtype.qmin)
    return lookup_pair(table, lows, compiled=making.means.compiled)


def _one_slope(making: Making, shape: Callable[[Array], Array]) -> Run:
    x, y = making.grid(1, 2), making.grid(3, 4)
    return lookup(_brought(making, x, y, shape), x.qtype.qmin, compiled=making.means.compiled)


def _two_slopes(making: Making, grids: tuple[QParams, QParams], centred: Array, below: Array) -> Run:
    x, y = grids
    above = centred_rescaler(x.scale, y, making.arithmetic)(centred)
    table = np.where(centred >= 0, above, _on(y, below, making))
    return lookup(table, x.qtype.qmin, compiled=making.means.compiled)


def _brought(making: Making, x: QParams, y: QParams, shape: Callable[[Array], Array]) -> Array:
    return np.asarray(centred_rescaler(x.scale, y, making.arithmetic)(shape(_centred(x))))


def _centred(grid: QParams) -> Array:
    return (all_levels(grid) - int(grid.zero_point)).astype(np.int64)


def _of_slopes(making: Making) -> Scaling | None:
    """How the machine multiplies by a slope; None where it would in floats, or cannot."""
    scaling = scaling_of_levels(making.arithmetic)
    return None if scaling is None or scaling.form is MultiplierForm.POWER else scaling


def _product(levels: Array, scales: Scales, scaling: Scaling) -> Array:
    return np.zeros_like(levels) if not np.any(scales[1]) else scaler(scales, scaling)(levels)


def _on(y: QParams, rounded: Array, making: Making) -> Array:
    clamped = np.clip(rounded + int(y.zero_point), *making.arithmetic.limits(y))
    return np.asarray(clamped.astype(y.qtype.storage_dtype))
