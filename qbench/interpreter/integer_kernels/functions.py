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
    scaling_of_codes,
    separate_multiply_add,
    softmax_of_codes,
    subtract_quantized,
)

# Tables over codes: what a kernel of 8-bit operands becomes once every value of it is known.
#
# y = table[q − low]            y = table[a − low_a, b − low_b], broadcast


def all_codes(qparams: QParams) -> Array:
    """Every code of a type of up to 16 bits, ascending.

    Raises:
        ValueError: a type of more bits, or qparams per channel.
    """
    if qparams.qtype.bits > 16 or qparams.axis is not None:
        raise ValueError(
            f"a table of {qparams.qtype} operands would be too large, or one per channel"
        )
    return np.arange(qparams.qtype.qmin, qparams.qtype.qmax + 1)


def lookup(table: Array, low: int, *, compiled: bool, place: int = 0) -> KernelFunction:
    """A table over the operand at input ``place``, whose lowest code is ``low``."""
    if compiled:
        return _compiled_lookup(table, low, place)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        codes = inputs[place]
        assert codes is not None
        return (table[codes.astype(np.intp) - low],)

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
        codes = inputs[place]
        assert codes is not None
        if not _dense(codes):
            codes = np.ascontiguousarray(codes)
        result = np.empty_like(codes, table.dtype)
        looked_up(codes.ravel(order="K"), table, low, result.ravel(order="K"))
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
        looked_up_pair(
            left.ravel(order="K"), right.ravel(order="K"), flat, lows, result.ravel(order="K")
        )
        return (result,)

    return run


def _dense(array: Array) -> bool:
    """Whether ``array`` fills a block of memory in some order of its axes, so that raveling it
    is no copy.
    """
    return bool(np.shares_memory(array, array.ravel(order="K")))


# Functions of one value, or of two: y = quantize(f(dequantize(q), …)), tabulated over every code.
#
# The float operator itself is evaluated, with its attributes and constants, so that any operator
# that treats every element alike has a table. What is linear by pieces (``linear``) or has a rule
# of integers (``tables``) is not here.

Function = Callable[[Array], Array]
_BYTE = 8
_STEPS = MappingProxyType(
    {Functions.FUSED: fused_multiply_add, Functions.SEPARATE: separate_multiply_add}
)


def unary(making: KernelContext, x: QParams, y: QParams, function: Function) -> KernelFunction:
    """The table of ``function`` from qparams ``x`` to qparams ``y``, built in float32."""
    table = quantize(function(dequantize(all_codes(x), x, making.arithmetic)), y, making.arithmetic)
    return lookup(table, x.qtype.qmin, compiled=making.means.compiled)


def sigmoid(making: KernelContext) -> KernelFunction:
    """QLinearSigmoid."""
    functions = making.arithmetic.functions
    step = _STEPS.get(functions)
    made = _sigmoid_by_steps if functions is Functions.SHORT else _sigmoid
    chosen = made if step is None else functools.partial(rational_sigmoid, multiply_add=step)
    return unary(making, making.qparams(1, 2), making.qparams(3, 4), chosen)


def tanh(making: KernelContext) -> KernelFunction:
    """QLinearTanh."""
    step = _STEPS.get(making.arithmetic.functions)
    if step is None:
        return function(making)
    return unary(
        making,
        making.qparams(1, 2),
        making.qparams(3, 4),
        functools.partial(rational_tanh, multiply_add=step),
    )


def hard_swish(making: KernelContext) -> KernelFunction:
    """QLinearHardSwish; in fixed point of codes of one type of 8 bits."""
    x, y, arithmetic = making.qparams(1, 2), making.qparams(3, 4), making.arithmetic
    if arithmetic.functions is not Functions.SHORT or x.qtype != y.qtype or x.qtype.bits != _BYTE:
        return function(making)
    codes = np.clip(
        hard_swish_in_16_bits(all_codes(x).astype(np.int64), x, y), *arithmetic.limits(y)
    )
    return lookup(codes.astype(y.qtype.storage_dtype), x.qtype.qmin, compiled=making.means.compiled)


def function(making: KernelContext) -> KernelFunction:
    """QLinear<Op> of one operand of up to 16 bits, or of two of 8; the others are constants of
    one value.

    Raises:
        ValueError: more operands that vary, or wider ones.
    """
    operands, y = given_operands(making)
    varying = [one for one in operands if one.varies]
    all_qparams = [one.qparams for one in varying if one.qparams is not None]
    if len(all_qparams) != len(varying) or not all_qparams:
        raise ValueError("a real operand of more than one value")
    compiled, evaluate = making.means.compiled, _evaluated(making, operands)
    if len(varying) == 1:
        (one,), (qparams,) = varying, all_qparams
        table = quantize(
            evaluate(
                {one.place: dequantize(all_codes(qparams), qparams, making.arithmetic)}
            ).reshape(-1),
            y,
            making.arithmetic,
        )
        looked_up = lookup(table, qparams.qtype.qmin, compiled=compiled, place=one.place)
        return shaped(looked_up, one.place, [other.known for other in operands if other is not one])
    if (
        len(varying) != 2
        or any(qparams.qtype.bits > _BYTE for qparams in all_qparams)
        or len(operands) > 2
    ):
        raise ValueError("more operands than a table has sides, or wider ones")
    left, right = (
        dequantize(all_codes(qparams), qparams, making.arithmetic) for qparams in all_qparams
    )
    places = {varying[0].place: left[:, None], varying[1].place: right[None, :]}
    table = quantize(evaluate(places), y, making.arithmetic)
    return lookup_pair(
        table, (all_qparams[0].qtype.qmin, all_qparams[1].qtype.qmin), compiled=compiled
    )


def _evaluated(
    making: KernelContext, operands: Sequence[Given]
) -> Callable[[dict[int, Array]], Array]:
    """The float operator of a node, the real values of its varying operands given by place."""
    name = making.node.op_type.removeprefix(QLINEAR)
    inputs = [ir.Value(name=f"x{one.place}") for one in operands]
    domain = "" if outside_operator(making.node) is None else making.node.domain
    node = ir.Node(domain, name, inputs, list(making.node.attributes.values()), num_outputs=1)
    node.meta.update(making.node.meta)
    node.outputs[0].name = "y"
    run = reference(KernelContext(node, making.arithmetic, making.means))

    def evaluate(values: dict[int, Array]) -> Array:
        arrays = [
            values[one.place] if one.place in values else one.real.reshape(()) for one in operands
        ]
        with np.errstate(all="ignore"):  # log of a negative is NaN, which quantizing has a rule for
            return np.asarray(run(arrays)[0], np.float32)

    return evaluate


def shaped(run: KernelFunction, place: int, constants: Sequence[Array | None]) -> KernelFunction:
    """``run``, its result broadcast over the axes of size one that constants add."""
    shapes = [known.shape for known in constants if known is not None and known.ndim]
    if not shapes:
        return run

    def run_shaped(inputs: Sequence[Array | None]) -> Sequence[Array]:
        codes = inputs[place]
        assert codes is not None
        whole = np.broadcast_shapes(codes.shape, *shapes)
        (result,) = run(inputs)
        return (result if whole == result.shape else result.reshape(whole),)

    return run_shaped


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x.astype(np.float64))), np.float32)


def _sigmoid_by_steps(x: Array) -> Array:
    """1 / (1 + exp(−x)), rounded to float32 after every step, as a C compiler's expf and
    operators do.
    """
    with np.errstate(over="ignore"):  # what is beyond float32 is infinite: its reciprocal is 0
        power = np.exp(-x.astype(np.float64)).astype(np.float32)
    return np.asarray(np.float32(1) / (np.float32(1) + power), np.float32)


# What multiplies codes and clamps them, from one set of qparams to another: Relu, Clip, Abs, Neg,
# LeakyRelu, PRelu.
#
#     y = clamp(round(g(q − z_x) · s_x / s_y) + z_y)        g: max(·, 0), |·|, −·, or two slopes
#
# Arithmetics whose multipliers are integers scale codes (``numerics.requantization``), each slope
# by a multiplier of its own, as TFLite and Glow do; arithmetics of floats, and those of powers of
# two where a slope is none, tabulate the float operator.

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
    """QLinearClip: the operand requantized and clamped to its ends as codes, by the
    arithmetic's own quantizing.
    """
    operands, y = given_operands(making)
    table = _brought(making, making.qparams(1, 2), y, lambda centred: centred)
    for place, pick in ((3, np.maximum), (6, np.minimum)):
        end = next((one.real for one in operands if one.place == place), None)
        table = (
            table if end is None else pick(table, quantize(end.reshape(()), y, making.arithmetic))
        )
    for name, pick in (("min", np.maximum), ("max", np.minimum)):
        if name in making.node.attributes:
            end = np.asarray(float_attribute(making.node, name, 0.0))
            table = pick(table, quantize(end, y, making.arithmetic))
    return lookup(table, making.qparams(1, 2).qtype.qmin, compiled=making.means.compiled)


def leaky_relu(making: KernelContext) -> KernelFunction:
    """QLinearLeakyRelu: x s z s_y z_y, below 0 by ``alpha``."""
    slope = np.float32(float_attribute(making.node, "alpha", 0.01))
    x, y, scaling = making.qparams(1, 2), making.qparams(3, 4), _of_slopes(making)
    if scaling is None:
        return unary(making, x, y, lambda real: np.where(real >= 0, real, slope * real))
    centred = _centred(x)
    below = _product(
        centred * (-1 if slope < 0 else 1), (x.scale, abs(float(slope)), y.scale), scaling
    )
    return _two_slopes(making, (x, y), centred, below)


def prelu(making: KernelContext) -> KernelFunction:
    """QLinearPRelu: x s z, slope s z, s_y z_y; the slope quantized or one real number."""
    operands, y = given_operands(making)
    x, slope = operands
    scaling = _of_slopes(making)
    if scaling is None or slope.qparams is None or x.qparams is None or not slope.varies:
        return function(making)
    codes, slopes = _centred(x.qparams)[:, None], _centred(slope.qparams)[None, :]
    below = _product(codes * slopes, (x.qparams.scale, slope.qparams.scale, y.scale), scaling)
    above = centred_rescaler(x.qparams.scale, y, making.arithmetic)(codes)
    table = np.where(codes >= 0, above, _on(y, below, making))
    lows = (x.qparams.qtype.qmin, slope.qparams.qtype.qmin)
    return lookup_pair(table, lows, compiled=making.means.compiled)


def _one_slope(making: KernelContext, shape: Callable[[Array], Array]) -> KernelFunction:
    x, y = making.qparams(1, 2), making.qparams(3, 4)
    return lookup(_brought(making, x, y, shape), x.qtype.qmin, compiled=making.means.compiled)


def _two_slopes(
    making: KernelContext, all_qparams: tuple[QParams, QParams], centred: Array, below: Array
) -> KernelFunction:
    x, y = all_qparams
    above = centred_rescaler(x.scale, y, making.arithmetic)(centred)
    table = np.where(centred >= 0, above, _on(y, below, making))
    return lookup(table, x.qtype.qmin, compiled=making.means.compiled)


def _brought(
    making: KernelContext, x: QParams, y: QParams, shape: Callable[[Array], Array]
) -> Array:
    return np.asarray(centred_rescaler(x.scale, y, making.arithmetic)(shape(_centred(x))))


def _centred(qparams: QParams) -> Array:
    return (all_codes(qparams) - int(qparams.zero_point)).astype(np.int64)


def _of_slopes(making: KernelContext) -> Scaling | None:
    """How the arithmetic multiplies by a slope; None where it would in floats, or cannot."""
    scaling = scaling_of_codes(making.arithmetic)
    return None if scaling is None or scaling.form is MultiplierForm.POWER else scaling


def _product(codes: Array, scales: Scales, scaling: Scaling) -> Array:
    return np.zeros_like(codes) if not np.any(scales[1]) else scaler(scales, scaling)(codes)


def _on(y: QParams, rounded: Array, making: KernelContext) -> Array:
    clamped = np.clip(rounded + int(y.zero_point), *making.arithmetic.limits(y))
    return np.asarray(clamped.astype(y.qtype.storage_dtype))


# Operators of two quantized operands as tables, by the arithmetic's own rule: Add, Sub, Mul, Div.
#
# Two operands that vary have 8 bits each and a table of all 65,536 pairs; next to a constant of one
# value, an operand of up to 16 bits has a table of its own values. A table is exact by
# construction, whatever rule it was built with.

_OF_INTEGERS = frozenset(
    {
        AddScheme.EXACT,
        AddScheme.HEADROOM,
        AddScheme.WEIGHTED,
        AddScheme.EACH,
        AddScheme.STEPS,
        AddScheme.FINEST,
    }
)
"""Schemes that take operands of different qparams; others are of one operator of one engine."""
Rule = Callable[[npt.ArrayLike, npt.ArrayLike, QParams, QParams, QParams, Arithmetic], Array]
"""Codes of both operands, their qparams and the result's → codes."""


def add(making: KernelContext) -> KernelFunction:
    """QLinearAdd: a s_a z_a b s_b z_b s_y z_y."""
    return _pairs(making, add_quantized)


def mul(making: KernelContext) -> KernelFunction:
    """QLinearMul: (a − z_a)(b − z_b) at s_a · s_b / s_y."""
    return _pairs(making, _multiplied)


def own_add(making: KernelContext) -> KernelFunction:
    """An Add that ONNX Runtime has no operator for, of two types or with a number: it adds in
    floats.
    """
    of_integers = making.arithmetic.adding.scheme in _OF_INTEGERS
    return add(making) if of_integers and _both_quantized(making) else function(making)


def own_mul(making: KernelContext) -> KernelFunction:
    """A Mul of such operands, likewise."""
    in_floats = scaling_of_codes(making.arithmetic) is None
    return function(making) if in_floats or not _both_quantized(making) else mul(making)


def sub(making: KernelContext) -> KernelFunction:
    """QLinearSub: as QLinearAdd; with a real number in floats."""
    return _pairs(making, subtract_quantized) if _both_quantized(making) else function(making)


def div(making: KernelContext) -> KernelFunction:
    """QLinearDiv: as QLinearAdd; quotients by zero are counted where loops are not compiled."""
    if not _both_quantized(making):
        return function(making)
    divided = _pairs(making, divide_quantized)
    zero = int(making.qparams(4, 5).zero_point)
    counters = making.counters
    if making.means.compiled:
        return divided

    def run(inputs: Sequence[Array | None]) -> Sequence[Array]:
        (result,) = divided(inputs)
        assert inputs[3] is not None
        counters.overflowed += int(
            np.count_nonzero(np.broadcast_to(inputs[3] == zero, result.shape))
        )
        return (result,)

    return run


def _pairs(making: KernelContext, rule: Rule) -> KernelFunction:
    a, b, y = making.qparams(1, 2), making.qparams(4, 5), making.qparams(6, 7)
    compiled = making.means.compiled
    left, right = (_one_value(making, place) for place in (0, 3))
    if right is not None:
        table = rule(all_codes(a), right.reshape(-1), a, b, y, making.arithmetic)
        return shaped(lookup(table, a.qtype.qmin, compiled=compiled, place=0), 0, [right])
    if left is not None:
        table = rule(left.reshape(-1), all_codes(b), a, b, y, making.arithmetic)
        return shaped(lookup(table, b.qtype.qmin, compiled=compiled, place=3), 3, [left])
    if max(a.qtype.bits, b.qtype.bits) > _BYTE:
        raise ValueError(f"a table of {a.qtype} and {b.qtype} operands would be too large")
    table = rule(all_codes(a)[:, None], all_codes(b)[None, :], a, b, y, making.arithmetic)
    return lookup_pair(table, (a.qtype.qmin, b.qtype.qmin), compiled=compiled)


def _one_value(making: KernelContext, place: int) -> Array | None:
    """The constant at input ``place`` where it has one value, int64 as ``all_codes`` is; None
    otherwise.
    """
    known = making.constant(place)
    return known.astype(np.int64) if known is not None and known.size == 1 else None


def _multiplied(  # noqa: PLR0917 - the order of add_quantized
    left: npt.ArrayLike,
    right: npt.ArrayLike,
    a: QParams,
    b: QParams,
    y: QParams,
    arithmetic: Arithmetic,
) -> Array:
    products = (np.asarray(left) - int(a.zero_point)) * (np.asarray(right) - int(b.zero_point))
    scaling = arithmetic.multiplying or arithmetic.scaling
    codes = scaler((a.scale, b.scale, y.scale), scaling, int(y.zero_point))(
        products.astype(np.int64)
    )
    return np.clip(codes, *arithmetic.limits(y)).astype(y.qtype.storage_dtype)


def _both_quantized(making: KernelContext) -> bool:
    operands, _ = given_operands(making)
    return len(operands) == 2 and all(one.qparams is not None for one in operands)


# Softmax of codes along any axis, by the arithmetic's scheme (``numerics.functions``): x s z s_y
# z_y.
#
# Before opset 13 (an attribute, as ONNX Runtime's QLinearSoftmax has it) everything from the axis
# on is one row.

_ONE_AXIS = 13
"""The opset since which a softmax is along one axis."""


def softmax(making: KernelContext) -> KernelFunction:
    """QLinearSoftmax."""
    x = making.qparams(1, 2)
    y = making.qparams(3, 4)
    arithmetic = making.arithmetic
    counters = making.counters
    along_one = int_attribute(making.node, "opset", _ONE_AXIS) >= _ONE_AXIS
    axis = int_attribute(making.node, "axis", -1)

    @functools.cache
    def of_length(length: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return softmax_of_codes(x, y, length, arithmetic)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        codes = inputs[0]
        assert codes is not None
        if not codes.size:
            return (np.empty(codes.shape, y.qtype.storage_dtype),)
        place = axis % codes.ndim
        rows = (
            np.moveaxis(codes, place, -1) if along_one else codes.reshape(*codes.shape[:place], -1)
        )
        result, overflowed = of_length(rows.shape[-1])(rows)
        counters.overflowed += overflowed
        return (np.moveaxis(result, -1, place) if along_one else result.reshape(codes.shape),)

    return run
