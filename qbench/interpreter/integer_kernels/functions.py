"""Functions of one value, or of two: y = quantize(f(dequantize(q), …)), tabulated over every level.

The float operator itself is evaluated, with its attributes and constants, so that any operator that treats every
element alike has a table. What is linear by pieces (``linear``) or has a rule of integers (``tables``) is not here.
"""

import functools
from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from qbench.graph import QLINEAR, outside_operator
from qbench.interpreter.arrays import Array
from qbench.interpreter.float_kernels.reference import reference
from qbench.interpreter.integer_kernels.lookups import all_levels, lookup, lookup_pair
from qbench.interpreter.integer_kernels.operands import Given, given_operands
from qbench.interpreter.kernel import Making, Run
from qbench.numerics import (
    Functions,
    QParams,
    dequantize,
    fused_multiply_add,
    hard_swish_in_16_bits,
    quantize,
    rational_sigmoid,
    rational_tanh,
    separate_multiply_add,
)

Function = Callable[[Array], Array]
_BYTE = 8
_STEPS = MappingProxyType({Functions.FUSED: fused_multiply_add, Functions.SEPARATE: separate_multiply_add})


def unary(making: Making, x: QParams, y: QParams, function: Function) -> Run:
    """The table of ``function`` from grid ``x`` to grid ``y``, built in float32."""
    table = quantize(function(dequantize(all_levels(x), x, making.arithmetic)), y, making.arithmetic)
    return lookup(table, x.qtype.qmin, compiled=making.means.compiled)


def sigmoid(making: Making) -> Run:
    """QLinearSigmoid."""
    functions = making.arithmetic.functions
    step = _STEPS.get(functions)
    made = _sigmoid_by_steps if functions is Functions.SHORT else _sigmoid
    chosen = made if step is None else functools.partial(rational_sigmoid, multiply_add=step)
    return unary(making, making.grid(1, 2), making.grid(3, 4), chosen)


def tanh(making: Making) -> Run:
    """QLinearTanh."""
    step = _STEPS.get(making.arithmetic.functions)
    if step is None:
        return function(making)
    return unary(making, making.grid(1, 2), making.grid(3, 4), functools.partial(rational_tanh, multiply_add=step))


def hard_swish(making: Making) -> Run:
    """QLinearHardSwish; in fixed point of levels of one type of 8 bits."""
    x, y, machine = making.grid(1, 2), making.grid(3, 4), making.arithmetic
    if machine.functions is not Functions.SHORT or x.qtype != y.qtype or x.qtype.bits != _BYTE:
        return function(making)
    levels = np.clip(hard_swish_in_16_bits(all_levels(x).astype(np.int64), x, y), *machine.limits(y))
    return lookup(levels.astype(y.qtype.storage_dtype), x.qtype.qmin, compiled=making.means.compiled)


def function(making: Making) -> Run:
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


def _evaluated(making: Making, operands: Sequence[Given]) -> Callable[[dict[int, Array]], Array]:
    """The float operator of a node, the real values of its varying operands given by place."""
    name = making.node.op_type.removeprefix(QLINEAR)
    inputs = [ir.Value(name=f"x{one.place}") for one in operands]
    domain = "" if outside_operator(making.node) is None else making.node.domain
    node = ir.Node(domain, name, inputs, list(making.node.attributes.values()), num_outputs=1)
    node.meta.update(making.node.meta)
    node.outputs[0].name = "y"
    run = reference(Making(node, making.arithmetic, making.means))

    def evaluate(values: dict[int, Array]) -> Array:
        arrays = [values[one.place] if one.place in values else one.real.reshape(()) for one in operands]
        with np.errstate(all="ignore"):  # log of a negative is NaN, which quantizing has a rule for
            return np.asarray(run(arrays)[0], np.float32)

    return evaluate


def shaped(run: Run, place: int, constants: Sequence[Array | None]) -> Run:
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
