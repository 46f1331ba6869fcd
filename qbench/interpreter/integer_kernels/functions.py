"""Functions of one or two quantized values, by tables or by the rule of the arithmetic."""

import functools
from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import QLINEAR, float_attribute, int_attribute, outside_operator
from qbench.interpreter.arrays import Array, broadcast
from qbench.interpreter.float_kernels.reference import reference
from qbench.interpreter.integer_kernels.operands import Given, given_operands
from qbench.interpreter.kernel import KernelContext, KernelFunction
from qbench.numerics import (
    AddScheme,
    Arithmetic,
    Functions,
    MultiplierForm,
    QParams,
    Scales,
    Scaling,
    add_quantized,
    centred_rescaler,
    dequantize,
    divide_quantized,
    fused_multiply_add,
    hard_swish_in_16_bits,
    quantize,
    rational_sigmoid,
    rational_tanh,
    scaler,
    scaling_of_levels,
    separate_multiply_add,
    softmax_of_levels,
    subtract_quantized,
)

# Tables over levels: what a kernel of 8-bit operands becomes once every value of it is known.
#
# y = table[q − low]            y = table[a − low_a, b − low_b], broadcast


def all_levels(grid: QParams) -> Array:
    """Every level of a grid of up to 16 bits, ascending.

    Raises:
        ValueError: a grid of more bits, or one per channel.
    """
    if grid.qtype.bits > 16 or grid.axis is not None:
        raise ValueError(f"a table of {grid.qtype} operands would be too large, or one a channel")
    return np.arange(grid.qtype.qmin, grid.qtype.qmax + 1)


def lookup(table: Array, low: int, *, compiled: bool, place: int = 0) -> KernelFunction:
    """A table over the operand at input ``place``, whose lowest level is ``low``."""
    if compiled:
        return _compiled_lookup(table, low, place)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[place]
        assert levels is not None
        return (table[levels.astype(np.intp) - low],)

    return run


def lookup_pair(table: Array, lows: tuple[int, int], *, compiled: bool) -> KernelFunction:
    """A table over two operands of 8 bits, those at inputs 0 and 3, with broadcasting."""
    if compiled:
        return _compiled_lookup_pair(table, lows)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        left, right = inputs[0], inputs[3]
        assert left is not None
        assert right is not None
        broadcast(left.shape, right.shape)
        return (table[left.astype(np.intp) - lows[0], right.astype(np.intp) - lows[1]],)

    return run


def _compiled_lookup(table: Array, low: int, place: int) -> KernelFunction:
    from qbench.interpreter.compiled import looked_up

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[place]
        assert levels is not None
        if not _dense(levels):
            levels = np.ascontiguousarray(levels)
        result = np.empty_like(levels, table.dtype)
        looked_up(levels.ravel(order="K"), table, low, result.ravel(order="K"))
        return (result,)

    return run


def _compiled_lookup_pair(table: Array, lows: tuple[int, int]) -> KernelFunction:
    from qbench.interpreter.compiled import looked_up_pair

    flat, plain = np.ascontiguousarray(table).reshape(-1), lookup_pair(table, lows, compiled=False)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        left, right = inputs[0], inputs[3]
        assert left is not None
        assert right is not None
        if left.strides != right.strides or left.shape != right.shape or not _dense(left):
            return (plain(inputs)[0],)
        result = np.empty_like(left, table.dtype)
        looked_up_pair(left.ravel(order="K"), right.ravel(order="K"), flat, lows, result.ravel(order="K"))
        return (result,)

    return run


def _dense(array: Array) -> bool:
    """Whether ``array`` fills a block of memory in some order of its axes, so that raveling it is no copy."""
    return bool(np.shares_memory(array, array.ravel(order="K")))


# Functions of one value, or of two: y = quantize(f(dequantize(q), …)), tabulated over every level.
#
# The float operator itself is evaluated, with its attributes and constants, so that any operator that treats every
# element alike has a table. What is linear by pieces (``linear``) or has a rule of integers (``tables``) is not here.

Function = Callable[[Array], Array]
_BYTE = 8
_STEPS = MappingProxyType({Functions.FUSED: fused_multiply_add, Functions.SEPARATE: separate_multiply_add})


def unary(making: KernelContext, x: QParams, y: QParams, function: Function) -> KernelFunction:
    """The table of ``function`` from grid ``x`` to grid ``y``, built in float32."""
    table = quantize(function(dequantize(all_levels(x), x, making.arithmetic)), y, making.arithmetic)
    return lookup(table, x.qtype.qmin, compiled=making.means.compiled)


def sigmoid(making: KernelContext) -> KernelFunction:
    """QLinearSigmoid."""
    functions = making.arithmetic.functions
    step = _STEPS.get(functions)
    made = _sigmoid_by_steps if functions is Functions.SHORT else _sigmoid
    chosen = made if step is None else functools.partial(rational_sigmoid, multiply_add=step)
    return unary(making, making.grid(1, 2), making.grid(3, 4), chosen)


def tanh(making: KernelContext) -> KernelFunction:
    """QLinearTanh."""
    step = _STEPS.get(making.arithmetic.functions)
    if step is None:
        return function(making)
    return unary(making, making.grid(1, 2), making.grid(3, 4), functools.partial(rational_tanh, multiply_add=step))


def hard_swish(making: KernelContext) -> KernelFunction:
    """QLinearHardSwish; in fixed point of levels of one type of 8 bits."""
    x, y, machine = making.grid(1, 2), making.grid(3, 4), making.arithmetic
    if machine.functions is not Functions.SHORT or x.qtype != y.qtype or x.qtype.bits != _BYTE:
        return function(making)
    levels = np.clip(hard_swish_in_16_bits(all_levels(x).astype(np.int64), x, y), *machine.limits(y))
    return lookup(levels.astype(y.qtype.storage_dtype), x.qtype.qmin, compiled=making.means.compiled)


def function(making: KernelContext) -> KernelFunction:
    """QLinear<Op> of one operand of up to 16 bits, or of two of 8, beside constants of one value.

    Raises:
        ValueError: more operands that vary, or wider ones.
    """
    operands, y = given_operands(making)
    varying = [one for one in operands if one.varies]
    grids = [one.grid for one in varying if one.grid is not None]
    if len(grids) != len(varying) or not grids:
        raise ValueError("a real operand of more than one value")
    compiled, evaluate = making.means.compiled, _evaluated(making, operands)
    if len(varying) == 1:
        (one,), (grid,) = varying, grids
        table = quantize(
            evaluate({one.place: dequantize(all_levels(grid), grid, making.arithmetic)}).reshape(-1),
            y,
            making.arithmetic,
        )
        looked_up = lookup(table, grid.qtype.qmin, compiled=compiled, place=one.place)
        return shaped(looked_up, one.place, [other.known for other in operands if other is not one])
    if len(varying) != 2 or any(grid.qtype.bits > _BYTE for grid in grids) or len(operands) > 2:
        raise ValueError("more operands than a table has sides, or wider ones")
    left, right = (dequantize(all_levels(grid), grid, making.arithmetic) for grid in grids)
    places = {varying[0].place: left[:, None], varying[1].place: right[None, :]}
    table = quantize(evaluate(places), y, making.arithmetic)
    return lookup_pair(table, (grids[0].qtype.qmin, grids[1].qtype.qmin), compiled=compiled)


def _evaluated(making: KernelContext, operands: Sequence[Given]) -> Callable[[dict[int, Array]], Array]:
    """The float operator of a node, the real values of its varying operands given by place."""
    name = making.node.op_type.removeprefix(QLINEAR)
    inputs = [ir.Value(name=f"x{one.place}") for one in operands]
    domain = "" if outside_operator(making.node) is None else making.node.domain
    node = ir.Node(domain, name, inputs, list(making.node.attributes.values()), num_outputs=1)
    node.meta.update(making.node.meta)
    node.outputs[0].name = "y"
    run = reference(KernelContext(node, making.arithmetic, making.means))

    def evaluate(values: dict[int, Array]) -> Array:
        arrays = [values[one.place] if one.place in values else one.real.reshape(()) for one in operands]
        with np.errstate(all="ignore"):  # log of a negative is NaN, which quantizing has a rule for
            return np.asarray(run(arrays)[0], np.float32)

    return evaluate


def shaped(run: KernelFunction, place: int, constants: Sequence[Array | None]) -> KernelFunction:
    """``run``, its result broadcast over the axes of size one that constants add."""
    shapes = [known.shape for known in constants if known is not None and known.ndim]
    if not shapes:
        return run

    def run_shaped(inputs: Sequence[Array | None]) -> Sequence[Array]:
        levels = inputs[place]
        assert levels is not None
        whole = np.broadcast_shapes(levels.shape, *shapes)
        (result,) = run(inputs)
        return (result if whole == result.shape else result.reshape(whole),)

    return run_shaped


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x.astype(np.float64))), np.float32)


def _sigmoid_by_steps(x: Array) -> Array:
    """1 / (1 + exp(−x)), rounded to float32 after every step, as a C compiler's expf and operators do."""
    with np.errstate(over="ignore"):  # what is beyond float32 is infinite: its reciprocal is 0
        power = np.exp(-x.astype(np.float64)).astype(np.float32)
    return np.asarray(np.float32(1) / (np.float32(1) + power), np.float32)


# What multiplies levels and clamps them, from one grid to another: Relu, Clip, Abs, Neg, LeakyRelu, PRelu.
#
#     y = clamp(round(g(q − z_x) · s_x / s_y) + z_y)        g: max(·, 0), |·|, −·, or two slopes
#
# Machines whose multipliers are integers scale levels (``numerics.rescaling``), each slope by a multiplier of its own,
# as TFLite and Glow do; machines of floats, and those of powers of two where a slope is none, tabulate the float
# operator.

_ENDS_ARE_INPUTS = 2


def relu(making: KernelContext) -> KernelFunction:
    """QLinearRelu: x s z s_y z_y."""
    return _one_slope(making, lambda centred: np.maximum(centred, 0))


def absolute(making: KernelContext) -> KernelFunction:
    """QLinearAbs."""
    return _one_slope(making, np.abs)


def negative(making: KernelContext) -> KernelFunction:
    """QLinearNeg."""
    return _one_slope(making, np.negative)


def clip(making: KernelContext) -> KernelFunction:
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


def leaky_relu(making: KernelContext) -> KernelFunction:
    """QLinearLeakyRelu: x s z s_y z_y, below 0 by ``alpha``."""
    slope = np.float32(float_attribute(making.node, "alpha", 0.01))
    x, y, scaling = making.grid(1, 2), making.grid(3, 4), _of_slopes(making)
    if scaling is None:
        return unary(making, x, y, lambda real: np.where(real >= 0, real, slope * real))
    centred = _centred(x)
    below = _product(centred * (-1 if slope < 0 else 1), (x.scale, abs(float(slope)), y.scale), scaling)
    return _two_slopes(making, (x, y), centred, below)


def prelu(making: KernelContext) -> KernelFunction:
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


def _one_slope(making: KernelContext, shape: Callable[[Array], Array]) -> KernelFunction:
    x, y = making.grid(1, 2), making.grid(3, 4)
    return lookup(_brought(making, x, y, shape), x.qtype.qmin, compiled=making.means.compiled)


def _two_slopes(making: KernelContext, grids: tuple[QParams, QParams], centred: Array, below: Array) -> KernelFunction:
    x, y = grids
    above = centred_rescaler(x.scale, y, making.arithmetic)(centred)
    table = np.where(centred >= 0, above, _on(y, below, making))
    return lookup(table, x.qtype.qmin, compiled=making.means.compiled)


def _brought(making: KernelContext, x: QParams, y: QParams, shape: Callable[[Array], Array]) -> Array:
    return np.asarray(centred_rescaler(x.scale, y, making.arithmetic)(shape(_centred(x))))


def _centred(grid: QParams) -> Array:
    return (all_levels(grid) - int(grid.zero_point)).astype(np.int64)


def _of_slopes(making: KernelContext) -> Scaling | None:
    """How the machine multiplies by a slope; None where it would in floats, or cannot."""
    scaling = scaling_of_levels(making.arithmetic)
    return None if scaling is None or scaling.form is MultiplierForm.POWER else scaling


def _product(levels: Array, scales: Scales, scaling: Scaling) -> Array:
    return np.zeros_like(levels) if not np.any(scales[1]) else scaler(scales, scaling)(levels)


def _on(y: QParams, rounded: Array, making: KernelContext) -> Array:
    clamped = np.clip(rounded + int(y.zero_point), *making.arithmetic.limits(y))
    return np.asarray(clamped.astype(y.qtype.storage_dtype))


# Operators of two quantized operands as tables, by the machine's own rule: Add, Sub, Mul, Div.
#
# Two operands that vary have 8 bits each and a table of all 65,536 pairs; next to a constant of one value, an operand
# of up to 16 bits has a table of its own values. A table is exact by construction, whatever rule it was built with.

_OF_INTEGERS = frozenset(
    {AddScheme.EXACT, AddScheme.HEADROOM, AddScheme.WEIGHTED, AddScheme.EACH, AddScheme.GRID, AddScheme.FINEST}
)
"""Schemes that take any two grids; others are of one operator of one engine."""
Rule = Callable[[npt.ArrayLike, npt.ArrayLike, QParams, QParams, QParams, Arithmetic], Array]
"""Levels of both operands, their grids and the result's → levels."""


def add(making: KernelContext) -> KernelFunction:
    """QLinearAdd: a s_a z_a b s_b z_b s_y z_y."""
    return _pairs(making, add_quantized)


def mul(making: KernelContext) -> KernelFunction:
    """QLinearMul: (a − z_a)(b − z_b) at s_a · s_b / s_y."""
    return _pairs(making, _multiplied)


def own_add(making: KernelContext) -> KernelFunction:
    """An Add that ONNX Runtime has no operator for, of two types or with a number: it adds in floats."""
    of_integers = making.arithmetic.adding.scheme in _OF_INTEGERS
    return add(making) if of_integers and _both_on_grids(making) else function(making)


def own_mul(making: KernelContext) -> KernelFunction:
    """A Mul of such operands, likewise."""
    in_floats = scaling_of_levels(making.arithmetic) is None
    return function(making) if in_floats or not _both_on_grids(making) else mul(making)


def sub(making: KernelContext) -> KernelFunction:
    """QLinearSub: as QLinearAdd; with a real number in floats."""
    return _pairs(making, subtract_quantized) if _both_on_grids(making) else function(making)


def div(making: KernelContext) -> KernelFunction:
    """QLinearDiv: as QLinearAdd; quotients by zero are counted where loops are not compiled."""
    if not _both_on_grids(making):
        return function(making)
    divided, zero, counters = _pairs(making, divide_quantized), int(making.grid(4, 5).zero_point), making.counters
    if making.means.compiled:
        return divided

    def run(inputs: Sequence[Array | None]) -> Sequence[Array]:
        (result,) = divided(inputs)
        assert inputs[3] is not None
        counters.overflowed += int(np.count_nonzero(np.broadcast_to(inputs[3] == zero, result.shape)))
        return (result,)

    return run


def _pairs(making: KernelContext, rule: Rule) -> KernelFunction:
    a, b, y = making.grid(1, 2), making.grid(4, 5), making.grid(6, 7)
    compiled = making.means.compiled
    left, right = (_one_value(making, place) for place in (0, 3))
    if right is not None:
        table = rule(all_levels(a), right.reshape(-1), a, b, y, making.arithmetic)
        return shaped(lookup(table, a.qtype.qmin, compiled=compiled, place=0), 0, [right])
    if left is not None:
        table = rule(left.reshape(-1), all_levels(b), a, b, y, making.arithmetic)
        return shaped(lookup(table, b.qtype.qmin, compiled=compiled, place=3), 3, [left])
    if max(a.qtype.bits, b.qtype.bits) > _BYTE:
        raise ValueError(f"a table of {a.qtype} and {b.qtype} operands would be too large")
    table = rule(all_levels(a)[:, None], all_levels(b)[None, :], a, b, y, making.arithmetic)
    return lookup_pair(table, (a.qtype.qmin, b.qtype.qmin), compiled=compiled)


def _one_value(making: KernelContext, place: int) -> Array | None:
    """The constant at input ``place`` where it has one value, int64 as ``all_levels`` is; None otherwise."""
    known = making.constant(place)
    return known.astype(np.int64) if known is not None and known.size == 1 else None


def _multiplied(  # noqa: PLR0917 - the order of add_quantized
    left: npt.ArrayLike, right: npt.ArrayLike, a: QParams, b: QParams, y: QParams, machine: Arithmetic
) -> Array:
    products = (np.asarray(left) - int(a.zero_point)) * (np.asarray(right) - int(b.zero_point))
    scaling = machine.multiplying or machine.scaling
    levels = scaler((a.scale, b.scale, y.scale), scaling, int(y.zero_point))(products.astype(np.int64))
    return np.clip(levels, *machine.limits(y)).astype(y.qtype.storage_dtype)


def _both_on_grids(making: KernelContext) -> bool:
    operands, _ = given_operands(making)
    return len(operands) == 2 and all(one.grid is not None for one in operands)


# Softmax of levels along any axis, by the machine's scheme (``numerics.softmax``): x s z s_y z_y.
#
# Before opset 13 (an attribute, as ONNX Runtime's QLinearSoftmax has it) everything from the axis on is one row.

_ONE_AXIS = 13
"""The opset since which a softmax is along one axis."""


def softmax(making: KernelContext) -> KernelFunction:
    """QLinearSoftmax."""
    x, y, machine, counters = making.grid(1, 2), making.grid(3, 4), making.arithmetic, making.counters
    along_one = int_attribute(making.node, "opset", _ONE_AXIS) >= _ONE_AXIS
    axis = int_attribute(making.node, "axis", -1)

    @functools.cache
    def of_length(length: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return softmax_of_levels(x, y, length, machine)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        if not levels.size:
            return (np.empty(levels.shape, y.qtype.storage_dtype),)
        place = axis % levels.ndim
        rows = np.moveaxis(levels, place, -1) if along_one else levels.reshape(*levels.shape[:place], -1)
        result, overflowed = of_length(rows.shape[-1])(rows)
        counters.overflowed += overflowed
        return (np.moveaxis(result, -1, place) if along_one else result.reshape(levels.shape),)

    return run
